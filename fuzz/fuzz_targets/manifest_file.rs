//! `tallybook_fuzz::manifest_file` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::manifest_file(data);
});
