//! `tallybook_fuzz::http_target` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::http_target(data);
});
