//! `tallybook_fuzz::http_headers` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::http_headers(data);
});
