//! `tallybook_fuzz::store_damage` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tallybook_fuzz::store_damage(data);
});
