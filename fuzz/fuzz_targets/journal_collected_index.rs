//! `tallybook_fuzz::journal_collected_index` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::journal_collected_index(data);
});
