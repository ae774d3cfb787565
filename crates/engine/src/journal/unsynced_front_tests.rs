//! Replay from where the tables end, if no sync is known of up to there.

use super::testing::{Bench, Groups, TestJournal};
use super::*;
use crate::error::Error;
use crate::file_name;
use crate::vfs::FileSystem;

/// A journal of small values of which nothing is synced, the place where its tables end, and the groups
/// behind that place.
struct Unsynced {
    bench: Bench,
    journal: TestJournal,
    tables_end: JournalPosition,
    groups: Groups,
}

impl Unsynced {
    fn new(bench: Bench) -> Unsynced {
        let mut journal = bench.journal();
        put(&mut journal, 10);
        let tables_end = journal.writer.position();
        let groups = put(&mut journal, 10);
        Unsynced { bench, journal, tables_end, groups }
    }

    fn break_front(&self) {
        self.bench.fs.flip(&self.bench.path(1), self.tables_end.offset / 2);
    }
}

fn unsynced() -> [Unsynced; 2] {
    [Unsynced::new(Bench::pread()), Unsynced::new(Bench::mapped())]
}

fn put(journal: &mut TestJournal, count: u64) -> Groups {
    let mut groups = Vec::new();
    for n in 0..count {
        let first = journal.next_seqno;
        groups.push((first, journal.put(b"key", &n.to_le_bytes()).changes.collect()));
    }
    groups
}

#[test]
fn a_whole_front_gives_all_that_is_behind_it() {
    for Unsynced { bench, tables_end, groups, .. } in unsynced() {
        let (found, recovered) = bench.recover_from(tables_end).unwrap();
        assert!(found == groups);
        assert_eq!((recovered.start, recovered.torn_records), (tables_end, 0));
    }
}

#[test]
fn a_broken_front_has_the_journal_begin_anew() {
    for unsynced in unsynced() {
        unsynced.break_front();
        let Unsynced { bench, journal, tables_end, groups } = unsynced;
        let (found, recovered) = bench.recover_from(tables_end).unwrap();
        assert!(found.is_empty());
        let begin = JournalPosition { segment: 0, offset: 0, lsn: tables_end.lsn };
        assert_eq!((recovered.start, recovered.end), (begin, begin));
        assert_eq!(recovered.torn_records, groups.len() as u64, "what is in tables isn't lost");
        assert_eq!(bench.fs.bytes(&bench.path(1)).len() as u64, SEGMENT_HEADER_BYTES);
        assert!(bench.fs.names().contains(&"000001.torn".to_owned()));

        // A crash before the manifest is replaced changes nothing.
        for from in [tables_end, begin] {
            let (found, again) = bench.restart().recover_from(from).unwrap();
            assert!(found.is_empty());
            assert_eq!((again.end, again.torn_records), (begin, 0), "from {from:?}");
        }

        let mut after = bench.journal_from(begin, journal.next_seqno);
        let written = put(&mut after, 3);
        let (found, recovered) = bench.restart().recover_from(begin).unwrap();
        assert!(found == written);
        assert_eq!(recovered.end, after.writer.position());
    }
}

#[test]
fn a_front_that_is_cut_off_has_the_journal_begin_anew() {
    for Unsynced { bench, tables_end, .. } in unsynced() {
        for len in SEGMENT_HEADER_BYTES..tables_end.offset {
            let bench = bench.restart();
            bench.fs.truncate(&bench.path(1), len);
            let (found, recovered) = bench.recover_from(tables_end).unwrap();
            assert!(found.is_empty());
            assert_eq!(recovered.start.segment, 0, "cut to {len}");
        }
    }
}

#[test]
fn a_later_sync_proves_that_the_front_was_there() {
    for mut unsynced in unsynced() {
        unsynced.journal.sync_and_mark();
        unsynced.break_front();
        let path = unsynced.bench.path(1);
        let before = unsynced.bench.fs.bytes(&path);
        match unsynced.bench.recover_from(unsynced.tables_end) {
            Err(Error::Corruption { file, .. }) => assert_eq!(file, path),
            other => panic!("{other:?}"),
        }
        assert_eq!(unsynced.bench.fs.bytes(&path), before);
        let torn = file_name::torn(&unsynced.bench.files.dir, 1);
        assert!(!unsynced.bench.fs.exists(&torn).unwrap());
    }
}

#[test]
fn segments_behind_a_broken_front_are_given_up_with_it() {
    for mut unsynced in unsynced() {
        put(&mut unsynced.journal, 500);
        let count = unsynced.bench.numbers().len();
        assert!(count > 2);
        unsynced.break_front();
        let bench = &unsynced.bench;
        let (found, recovered) = bench.recover_from(unsynced.tables_end).unwrap();
        assert!(found.is_empty());
        assert_eq!(recovered.torn_records as usize, 510 + count - 1, "and their starts");
        let lengths =
            bench.numbers().into_iter().map(|number| bench.fs.bytes(&bench.path(number)).len());
        assert_eq!(lengths.collect::<Vec<_>>(), vec![SEGMENT_HEADER_BYTES as usize; count]);
    }
}
