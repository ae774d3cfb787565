//! `tallybook_fuzz::files_kfs` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::files_kfs(data);
});
