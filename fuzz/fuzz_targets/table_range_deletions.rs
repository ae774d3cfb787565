//! `tallybook_fuzz::table_range_deletions` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::table_range_deletions(data);
});
