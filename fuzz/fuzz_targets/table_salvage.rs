//! `tallybook_fuzz::table_salvage` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::table_salvage(data);
});
