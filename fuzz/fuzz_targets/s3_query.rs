//! `tallybook_fuzz::s3_query` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::s3_query(data);
});
