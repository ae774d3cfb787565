//! `tallybook_fuzz::manifest_current` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::manifest_current(data);
});
