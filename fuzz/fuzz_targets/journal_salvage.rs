//! `tallybook_fuzz::journal_salvage` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::journal_salvage(data);
});
