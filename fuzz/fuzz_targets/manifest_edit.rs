//! `tallybook_fuzz::manifest_edit` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::manifest_edit(data);
});
