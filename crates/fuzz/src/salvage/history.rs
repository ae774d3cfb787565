//! A store with a past: all that a store's files can hold, and everything that was ever written to it.
//!
//! Its life: overwrites that are merged and collected; a crash, and with it a jump of the SeqNos; overwrites,
//! deletions and a batch, of which one merge has taken the front when it crashes again; a log over several
//! segments, with another crash in its middle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bytes::Bytes;
use tallybook::store::ScanOptions;
use tallybook::version::Version;
use tallybook::vfs::{CrashMode, MemoryFileSystem, MemoryImage};
use tallybook::{Head, Options, SeqNo, Store, WriteBatch, WriteOptions, manifest};

use crate::disk;
use crate::store;

/// When the store is looked at, long after the last write.
pub(super) const LOOK_MS: u64 = 2_000_000;

/// Between the writes and that.
const EXPIRED_MS: u64 = 1_500_000;

const KEYS: u8 = 24;

/// Keys with what is known of them.
pub(super) type Pairs = BTreeMap<Bytes, (Head, Bytes)>;

/// What became of a key; nothing if it was deleted, or has expired when the store is looked at.
pub(super) type Change = (Bytes, Option<(Head, Bytes)>);

/// The files of a store, and so many of the writes that its manifest says were synced.
pub(super) struct Left {
    pub(super) image: MemoryImage,
    pub(super) proven: usize,
    /// The newest write that is in tables.
    pub(super) seqno_in_tables: SeqNo,
}

/// All of it.
pub(super) struct History {
    /// What was written, each at once.
    pub(super) writes: Vec<Vec<Change>>,
    /// The store as it was when its process was killed, and when it was closed instead.
    pub(super) killed: Left,
    pub(super) closed: Left,
}

pub(super) static HISTORY: LazyLock<History> = LazyLock::new(History::make);

/// Nothing is flushed or merged unless it is asked for.
pub(super) fn options() -> Options {
    Options {
        memtable_bytes: 64 << 10,
        compaction_job_bytes_max: 4 << 10,
        background: false,
        ..store::options()
    }
}

impl History {
    fn make() -> History {
        let mut life = Life::begin();
        for round in 0..3 {
            (round..KEYS).for_each(|number| life.put(number, round, 0));
            life.flush();
        }
        life.store.compact(None, None, &mut |_, _| {}).expect("a compaction succeeds");
        life.crash_as(life.fs.image());
        for round in 3..6 {
            (0..KEYS).filter(|number| number % 3 != round % 3).for_each(|number| {
                life.put(number, round, 0);
            });
            life.delete(round);
            life.delete_range(9 + round, 11 + round);
            life.batch(round);
            life.put(18 + round, round, EXPIRED_MS);
            life.flush();
        }
        let clipped = life.clipped();
        life.crash_as(clipped);
        for round in 6..8 {
            (0..KEYS).filter(|number| number % 4 != round % 4).for_each(|number| {
                life.put(number, round, if number % 8 == 5 { EXPIRED_MS } else { 0 });
            });
            life.delete(round);
            life.delete_range(8 + round, 10 + round);
            life.batch(round);
            life.store.sync().expect("a sync succeeds");
            if round == 6 {
                life.crash_as(life.fs.image());
            }
        }
        life.put(1, 8, 0);
        life.end()
    }

    /// All keys that were ever written.
    pub(super) fn keys(&self) -> BTreeSet<&Bytes> {
        self.writes.iter().flatten().map(|(key, _)| key).collect()
    }

    /// Everything in the store after so many writes.
    pub(super) fn after(&self, writes: usize) -> Pairs {
        let changes: BTreeMap<_, _> = self.writes[..writes].iter().flatten().cloned().collect();
        changes.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// Whether a key ever was this.
    pub(super) fn knows(&self, key: &Bytes, found: &(Head, Bytes)) -> bool {
        let mut changes = self.writes.iter().flatten();
        changes.any(|(at, value)| at == key && value.as_ref() == Some(found))
    }

    /// Whether there was a moment at which all of these keys were so, whatever others were.
    pub(super) fn was_once(&self, found: &Pairs) -> bool {
        let mut right = BTreeSet::new();
        found.is_empty()
            || self.writes.iter().any(|write| {
                for (key, value) in write {
                    match value.is_some() && found.get(key) == value.as_ref() {
                        true => right.insert(key),
                        false => right.remove(key),
                    };
                }
                right.len() == found.len()
            })
    }
}

/// A store that is written to.
struct Life {
    fs: MemoryFileSystem,
    store: Store,
    writes: Vec<Vec<Change>>,
    proven: usize,
}

impl Life {
    fn begin() -> Life {
        let fs = disk::empty();
        let store = open(&fs);
        Life { fs, store, writes: Vec::new(), proven: 0 }
    }

    /// Goes on with what a killed process left.
    fn crash_as(&mut self, image: MemoryImage) {
        self.fs = image.crash(CrashMode::KeepAll, 0);
        self.store = open(&self.fs);
        self.proven = self.writes.len();
    }

    /// Small values for even keys, others stay in the journal. Some have attributes.
    fn put(&mut self, number: u8, round: u8, expires_at_ms: u64) {
        let bytes = if number.is_multiple_of(2) { 50 } else { 70 + usize::from(number) * 8 };
        let value = format!("<{number}.{round}>").repeat(bytes / 5);
        let with = WriteOptions {
            expires_at_ms,
            attributes: Bytes::copy_from_slice(&[number; 60][..usize::from(number % 4) * 20]),
            ..WriteOptions::default()
        };
        self.store.put_with(&key(number), value.as_bytes(), &with).expect("a write is taken");
        self.note([key(number)]);
    }

    fn delete(&mut self, number: u8) {
        self.store.delete(&key(number)).expect("a deletion is taken");
        self.note([key(number)]);
    }

    fn delete_range(&mut self, from: u8, to: u8) {
        self.store.delete_range(&key(from), &key(to)).expect("a deletion is taken");
        self.note((from..to).map(key));
    }

    fn batch(&mut self, round: u8) {
        let mut batch = WriteBatch::new();
        let value = format!("<{round}>").repeat(30);
        batch.put("batch", value).expect("the batch is small");
        batch.put(key(round), "with others").expect("the batch is small");
        batch.delete(key(17)).expect("the batch is small");
        self.store.write(batch, None).expect("a batch is taken");
        self.note(["batch".into(), key(round), key(17)]);
    }

    fn flush(&self) {
        self.store.flush().expect("a flush succeeds");
    }

    /// Notes what a write has made of these keys.
    fn note(&mut self, keys: impl IntoIterator<Item = Bytes>) {
        let is_live = |(head, _): &(Head, Bytes)| head.expires_at_ms.is_none_or(|at| at > LOOK_MS);
        let change = |key: Bytes| {
            let found = self.store.get_entry(&key).expect("a sound store answers");
            (key, found.filter(is_live))
        };
        self.writes.push(keys.into_iter().map(change).collect());
    }

    /// The files at a moment in the middle of a compaction when it has taken the front of a table.
    fn clipped(&self) -> MemoryImage {
        let mut found = None;
        let mut look = |_, _| {
            let is_clipped =
                |version: &Version| version.tables().any(|(_, table)| table.is_clipped());
            if found.is_none() && is_clipped(&version(&self.fs)) {
                found = Some(self.fs.image());
            }
        };
        self.store.compact(None, None, &mut look).expect("a compaction succeeds");
        found.expect("a compaction clips a table")
    }

    fn end(self) -> History {
        let killed = Left::of(&self.fs, self.proven);
        let last = self.writes.len();
        self.store.close().expect("a store is closed");
        let closed = Left::of(&self.fs, last);
        History { writes: self.writes, killed, closed }
    }
}

impl Left {
    fn of(fs: &MemoryFileSystem, proven: usize) -> Left {
        let version = version(fs);
        let in_tables = version.tables().map(|(_, table)| table.properties.seqno_max);
        Left { image: fs.image(), proven, seqno_in_tables: in_tables.max().unwrap_or(0) }
    }
}

fn key(number: u8) -> Bytes {
    Bytes::from(format!("key-{number:03}"))
}

fn open(fs: &MemoryFileSystem) -> Store {
    Store::open_with(disk::dir(), options(), disk::inline(fs)).expect("a store opens")
}

/// What the manifest says.
fn version(fs: &MemoryFileSystem) -> Version {
    let recovered = manifest::recover(fs, disk::dir()).expect("the manifest is sound");
    recovered.expect("there is a manifest").version
}

/// All that a store holds. Requires: it can be read.
pub(super) fn pairs(store: &Store) -> Pairs {
    let range = store.range(ScanOptions::default()).expect("a sound store is scanned");
    let entries = range.map(|entry| entry.expect("a sound store is scanned"));
    entries.map(|entry| (entry.key, (entry.head, entry.value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallybook::file_name::{self, FileKind};
    use tallybook::version::SegmentKind;

    #[test]
    fn the_store_has_all_that_a_store_can_have() {
        let fs = HISTORY.killed.image.crash(CrashMode::KeepAll, 0);
        let version = version(&fs);
        assert!(version.tables().any(|(_, table)| table.is_clipped()));
        assert!(version.tables().any(|(_, table)| table.properties.range_tombstones > 0));
        let kept = |wanted| version.segments.kept().filter(move |kept| kept.kind == wanted).count();
        assert!(kept(SegmentKind::Log) > 1 && kept(SegmentKind::Collected) > 0);
        assert!(version.segments.forwards().count() > 0);
        let names = disk::files(&fs).into_iter();
        let segments = names.filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(file_name::parse);
            matches!(name, Some(FileKind::Segment(_)))
        });
        let log = segments.count() - version.segments.kept().count();
        assert!(log > 2, "{log} segments of the log");
        let store =
            Store::open_with(disk::dir(), options(), disk::inline_at(&fs, LOOK_MS)).unwrap();
        assert!(pairs(&store) == HISTORY.after(HISTORY.writes.len()));
        let in_log = pairs(&store).into_values();
        let in_log = in_log.filter(|(head, _)| head.version > HISTORY.killed.seqno_in_tables);
        assert!(in_log.count() > usize::from(KEYS) / 2);
        assert!(HISTORY.was_once(&HISTORY.after(HISTORY.killed.proven)));
        let mut mixed = HISTORY.after(usize::from(KEYS));
        mixed.extend(HISTORY.after(HISTORY.writes.len()).into_iter().take(1));
        assert!(!HISTORY.was_once(&mixed));
    }
}
