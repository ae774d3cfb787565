//! `tallybook_fuzz::journal_recovery` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::journal_recovery(data);
});
