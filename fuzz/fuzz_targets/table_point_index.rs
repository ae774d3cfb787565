//! `tallybook_fuzz::table_point_index` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::table_point_index(data);
});
