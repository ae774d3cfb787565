//! `tallybook_fuzz::table_fences` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::table_fences(data);
});
