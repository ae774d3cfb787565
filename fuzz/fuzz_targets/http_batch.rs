//! `tallybook_fuzz::http_batch` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::http_batch(data);
});
