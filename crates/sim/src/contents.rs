//! Everything a store holds, read by every way there is; the ways must agree.

use std::collections::BTreeMap;

use bytes::Bytes;
use tallybook::head::Head;
use tallybook::store::{KeyHead, KeyValue, ScanOptions, Store};

use crate::record::{State, live};
use crate::violation::{At, Outcome, Violation, show};

/// Every live key with its head and value.
pub type Contents = BTreeMap<Bytes, (Head, Bytes)>;

/// Reads the whole store by scans in both directions, scans of heads, and look-ups of each key found
/// and each of `probes`. A disagreement is a violation, and so is any error.
pub fn read_all(store: &Store, probes: &[Bytes]) -> Outcome<Contents> {
    let forward = scan(store, false)?;
    let mut backward = scan(store, true)?;
    backward.reverse();
    if forward != backward {
        return Err(Violation::new("a scan and a reverse scan of everything differ"));
    }
    let heads = store
        .range_heads(ScanOptions::default())
        .and_then(Iterator::collect::<tallybook::error::Result<Vec<KeyHead>>>)
        .at(|| "scan of all heads".into())?;
    let same = |(a, b): (&KeyValue, &KeyHead)| -> bool { a.key == b.key && a.head == b.head };
    if heads.len() != forward.len() || !forward.iter().zip(&heads).all(same) {
        return Err(Violation::new("a scan of everything and a scan of all heads differ"));
    }
    let contents: Contents =
        forward.into_iter().map(|entry| (entry.key, (entry.head, entry.value))).collect();
    for key in contents.keys().chain(probes) {
        let found = store.get_entry(key).at(|| format!("get of {}", show(key)))?;
        if found.as_ref() != contents.get(key) {
            return Err(Violation::new(format!(
                "a look-up and a scan differ for key {}: the look-up {} it",
                show(key),
                if found.is_some() { "finds" } else { "misses" }
            )));
        }
        let head = store.head(key).at(|| format!("head of {}", show(key)))?;
        if head.as_ref() != contents.get(key).map(|(head, _)| head) {
            return Err(Violation::new(format!("head and get differ for key {}", show(key))));
        }
    }
    Ok(contents)
}

fn scan(store: &Store, reverse: bool) -> Outcome<Vec<KeyValue>> {
    store
        .range(ScanOptions { reverse, ..ScanOptions::default() })
        .and_then(Iterator::collect::<tallybook::error::Result<Vec<KeyValue>>>)
        .at(|| format!("scan of everything, reverse: {reverse}"))
}

/// Says how contents differ from a state, if they do.
pub fn check(contents: &Contents, state: &State, now_ms: u64) -> Result<(), String> {
    let mut found = contents.iter();
    for (key, record) in live(state, now_ms) {
        match found.next() {
            Some((at, (head, value))) if at == key => {
                record.check_value(key, value)?;
                record.check_head(key, head)?;
            }
            Some((at, _)) if at < key => {
                return Err(format!("key {} should be absent", show(at)));
            }
            _ => return Err(format!("key {} is missing", show(key))),
        }
    }
    match found.next() {
        Some((key, _)) => Err(format!("key {} should be absent", show(key))),
        None => Ok(()),
    }
}
