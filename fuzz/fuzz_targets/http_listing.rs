//! `tallybook_fuzz::http_listing` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::http_listing(data);
});
