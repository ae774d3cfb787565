//! `tallybook_fuzz::files_superblock` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::files_superblock(data);
});
