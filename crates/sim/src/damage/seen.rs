//! Everything that reads of a damaged store showed, right or failed.

use bytes::Bytes;
use tallybook::error::{Error, Result};
use tallybook::head::Head;
use tallybook::store::{KeyValue, ScanOptions, Store};

use crate::record::{Record, State, live, live_record};
use crate::violation::show;

/// What a look-up answered.
type Answer<T> = Result<Option<T>>;

/// Everything that reads of a store showed.
pub(super) struct Seen {
    entries: Vec<(Bytes, Answer<(Head, Bytes)>)>,
    heads: Vec<(Bytes, Answer<Head>)>,
    forward: Scanned,
    backward: Scanned,
}

/// A scan, up to its end or its error.
struct Scanned {
    entries: Vec<KeyValue>,
    error: Option<Error>,
}

impl Scanned {
    fn read(store: &Store, reverse: bool) -> Self {
        let mut scanned = Scanned { entries: Vec::new(), error: None };
        match store.range(ScanOptions { reverse, ..ScanOptions::default() }) {
            Ok(range) => {
                for entry in range {
                    match entry {
                        Ok(entry) => scanned.entries.push(entry),
                        Err(error) => {
                            scanned.error = Some(error);
                            break;
                        }
                    }
                }
            }
            Err(error) => scanned.error = Some(error),
        }
        scanned
    }

    fn check(&self, expected: &[(&Bytes, &Record)]) -> Result<(), String> {
        for (at, got) in self.entries.iter().enumerate() {
            let Some((key, record)) = expected.get(at) else {
                return Err(format!("a scan shows key {} beyond the last", show(&got.key)));
            };
            if got.key != **key {
                return Err(format!("a scan shows key {} for {}", show(&got.key), show(key)));
            }
            record.check_value(key, &got.value)?;
            record.check_head(key, &got.head)?;
        }
        match expected.get(self.entries.len()) {
            Some((key, _)) if self.error.is_none() => {
                Err(format!("a scan ends before key {}, without an error", show(key)))
            }
            _ => Ok(()),
        }
    }
}

impl Seen {
    pub(super) fn read(store: &Store, keys: &[Bytes]) -> Self {
        Seen {
            entries: keys.iter().map(|key| (key.clone(), store.get_entry(key))).collect(),
            heads: keys.iter().map(|key| (key.clone(), store.head(key))).collect(),
            forward: Scanned::read(store, false),
            backward: Scanned::read(store, true),
        }
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = &Error> {
        let entries = self.entries.iter().filter_map(|(_, entry)| entry.as_ref().err());
        let heads = self.heads.iter().filter_map(|(_, head)| head.as_ref().err());
        entries.chain(heads).chain(&self.forward.error).chain(&self.backward.error)
    }

    pub(super) fn check(&self, state: &State, now_ms: u64) -> Result<(), String> {
        let absent = |key: &Bytes, what: &str| {
            Err(format!("{what} says without an error that key {} is absent", show(key)))
        };
        let present = |key: &Bytes, what: &str| {
            Err(format!("{what} finds key {}, which is absent", show(key)))
        };
        for (key, entry) in &self.entries {
            match (entry, live_record(state, key, now_ms)) {
                (Ok(Some((head, value))), Some(record)) => {
                    record.check_value(key, value)?;
                    record.check_head(key, head)?;
                }
                (Ok(None), Some(_)) => return absent(key, "get"),
                (Ok(Some(_)), None) => return present(key, "get"),
                (Ok(None), None) | (Err(_), _) => {}
            }
        }
        for (key, head) in &self.heads {
            match (head, live_record(state, key, now_ms)) {
                (Ok(Some(head)), Some(record)) => record.check_head(key, head)?,
                (Ok(None), Some(_)) => return absent(key, "head"),
                (Ok(Some(_)), None) => return present(key, "head"),
                (Ok(None), None) | (Err(_), _) => {}
            }
        }
        let mut expected: Vec<_> =
            live(state, now_ms).map(|(key, record)| (key, record.as_ref())).collect();
        self.forward.check(&expected)?;
        expected.reverse();
        self.backward.check(&expected)
    }
}
