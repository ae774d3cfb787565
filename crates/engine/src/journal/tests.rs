//! The journal as a whole: what is written comes back, and nothing else ever does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use proptest::prelude::*;

use super::testing::{Bench, Groups, OwnedChange, SEGMENT_BYTES, TestJournal};
use super::*;
use crate::batch::WriteBatch;
use crate::error::Error;
use crate::head::Body;
use crate::vfs::FileSystem;

fn benches() -> [Bench; 2] {
    [Bench::pread(), Bench::mapped()]
}

/// Writes batches of all kinds of entries, of a few hundred bytes each.
fn fill(journal: &mut TestJournal, count: u64) -> Groups {
    let mut groups = Vec::new();
    for n in 0..count {
        let mut batch = WriteBatch::new();
        batch.put(format!("inline {n}"), vec![n as u8; 10]).unwrap();
        batch.put_entry(format!("large {n}"), vec![n as u8; 300], 9, "at".into()).unwrap();
        if n % 3 == 0 {
            batch.delete(format!("inline {n}")).unwrap();
            batch.delete_range("a", "b").unwrap();
        }
        let first = journal.next_seqno;
        groups.push((first, journal.try_write(&batch).unwrap().changes.collect()));
    }
    groups
}

/// A small journal with marks in the middle and unsynced groups at the end.
fn small(bench: &Bench) -> (TestJournal, Groups) {
    let mut journal = bench.journal();
    let mut groups = fill(&mut journal, 3);
    journal.sync_and_mark();
    groups.extend(fill(&mut journal, 3));
    (journal, groups)
}

fn assert_prefix(found: &Groups, written: &Groups, context: &str) {
    assert!(found.len() <= written.len(), "{context}: too many groups");
    assert!(found[..] == written[..found.len()], "{context}: other groups than were written");
}

#[test]
fn everything_written_is_replayed_over_many_segments() {
    for bench in benches() {
        let mut journal = bench.journal();
        let groups = fill(&mut journal, 200);
        assert!(bench.numbers().len() > 4);
        let again = bench.restart();
        let (found, recovered) = again.recover().unwrap();
        assert!(found == groups);
        assert_eq!(recovered.last_seqno, journal.next_seqno - 1);
        assert_eq!(recovered.end, journal.writer.position());
        assert_eq!((recovered.torn_bytes, recovered.torn_records), (0, 0));
        assert_eq!(recovered.segments.len(), again.numbers().len());
        for change in found.iter().flat_map(|(_, changes)| changes) {
            let OwnedChange::Entry { entry, .. } = change else {
                continue;
            };
            let Body::Ref(at) = entry.body else { continue };
            let segment =
                recovered.segments.iter().find(|segment| segment.number() == at.segment).unwrap();
            let value = segment.read_value(at.offset, at.length, at.checksum, true).unwrap();
            assert_eq!(value.len(), 300);
        }
    }
}

#[test]
fn values_are_read_while_their_segment_is_written_and_after() {
    for bench in benches() {
        let mut journal = bench.journal();
        let appended = journal.put(b"key", &[9; 500]);
        let mut changes = appended.changes;
        let Some(OwnedChange::Entry { entry, .. }) = changes.next() else { panic!("no entry") };
        let Body::Ref(at) = entry.body else { panic!("no pointer") };
        let read = |segment: &Segment| segment.read_value(at.offset, 500, at.checksum, true);
        assert_eq!(read(&appended.segment).unwrap(), vec![9; 500]);
        fill(&mut journal, 100);
        assert!(appended.segment.is_sealed());
        assert_eq!(read(&appended.segment).unwrap(), vec![9; 500]);
        let (number, end) = (appended.segment.number(), appended.segment.end());
        let reopened = Segment::open(bench.files.clone(), number, end).unwrap();
        assert_eq!(read(&reopened).unwrap(), vec![9; 500]);
        assert!(matches!(
            reopened.read_value(at.offset, 500, at.checksum ^ 1, true),
            Err(Error::Corruption { offset, .. }) if offset == at.offset
        ));
        for (offset, len) in [(at.offset, u32::MAX), (u64::MAX, 2), (0, 4), (end, 1)] {
            let read = reopened.read_value(offset, len, 0, true);
            assert!(matches!(read, Err(Error::Corruption { .. })), "{offset} {len}");
        }
    }
}

#[test]
fn a_read_that_may_not_wait_says_so() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    let appended = journal.put(b"key", &[9; 500]);
    let offset = appended.end.offset - 504;
    let read = appended.segment.read_value(offset, 500, 0, false);
    assert!(matches!(read, Err(Error::WouldWait)));
}

#[test]
fn a_value_stays_readable_when_its_segment_is_removed() {
    for bench in benches() {
        let mut journal = bench.journal();
        let mut appended = journal.put(b"key", &[9; 500]);
        let Some(OwnedChange::Entry { entry, .. }) = appended.changes.next() else { panic!() };
        let Body::Ref(at) = entry.body else { panic!() };
        fill(&mut journal, 100);
        journal.sync_and_mark();
        journal.pool.give_back(appended.segment.clone()).unwrap();
        assert!(!bench.numbers().contains(&at.segment));
        let value = appended.segment.read_value(at.offset, 500, at.checksum, true).unwrap();
        assert_eq!(value, vec![9; 500]);
    }
}

#[test]
fn recovery_twice_gives_the_same_and_writing_goes_on() {
    for bench in benches() {
        let (journal, groups) = small(&bench);
        let end = journal.writer.position();
        bench.fs.flip(&bench.path(end.segment), end.offset - 16);
        let (first, recovered) = bench.recover().unwrap();
        assert_eq!(first.len(), groups.len() - 1);
        let (second, again) = bench.recover().unwrap();
        assert!(first == second);
        assert_eq!((recovered.end, recovered.last_seqno), (again.end, again.last_seqno));
        assert_eq!((again.torn_bytes, again.torn_records), (0, 0));

        let mut journal = bench.journal_from(again.end, again.last_seqno + 1);
        let mut all = first.clone();
        all.extend(fill(&mut journal, 2));
        let (third, recovered) = bench.restart().recover().unwrap();
        assert!(third == all);
        assert_eq!(recovered.segments.len(), 2);
        // Replay may start where the tables end: at the end of the older segment.
        let (tail, _) = bench.restart().recover_from(again.end).unwrap();
        assert!(tail[..] == all[first.len()..]);
    }
}

#[test]
fn a_torn_tail_is_cut_saved_and_counted() {
    let bench = Bench::pread();
    let (journal, groups) = small(&bench);
    let end = journal.writer.position();
    let path = bench.path(end.segment);
    let whole = bench.fs.bytes(&path);
    bench.fs.flip(&path, end.offset - 16);
    let (found, recovered) = bench.recover().unwrap();
    assert!(found[..] == groups[..5]);
    assert_eq!(recovered.torn_records, 1);
    assert_eq!(bench.fs.bytes(&path).len() as u64, recovered.end.offset);
    let torn = bench.fs.bytes(&crate::file_name::torn(&bench.files.dir, end.segment));
    assert_eq!(torn.len() as u64, recovered.torn_bytes);
    let mut expected = whole[recovered.end.offset as usize..].to_vec();
    expected[(end.offset - 16 - recovered.end.offset) as usize] ^= 0x40;
    expected.truncate(torn.len());
    assert_eq!(torn, expected);
}

#[test]
fn damage_before_a_mark_refuses_to_open_and_changes_nothing() {
    for bench in benches() {
        let (journal, _) = small(&bench);
        let path = bench.path(journal.writer.position().segment);
        bench.fs.flip(&path, 136 + 50);
        let before = bench.fs.bytes(&path);
        match bench.recover() {
            Err(Error::Corruption { file, offset, .. }) => assert_eq!((file, offset), (path, 136)),
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.fs.names().len(), 1);
        assert_eq!(bench.fs.bytes(&bench.path(1)), before);
    }
}

#[test]
fn damage_in_an_older_segment_is_proven_by_a_later_one() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    fill(&mut journal, 50);
    journal.sync.sync_upto(u64::MAX).unwrap();
    fill(&mut journal, 50);
    bench.fs.flip(&bench.path(1), 200);
    assert!(matches!(
        bench.recover(),
        Err(Error::Corruption { file, offset: 136, .. }) if file == bench.path(1)
    ));
}

#[test]
fn unproven_damage_discards_the_later_segments_too() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    let groups = fill(&mut journal, 100);
    let segments = bench.numbers().len();
    assert!(segments > 2);
    bench.fs.flip(&bench.path(1), journal.writer.position().offset);
    let (found, recovered) = bench.recover().unwrap();
    assert_prefix(&found, &groups, "flip");
    assert!(found.len() < 40);
    let lengths =
        bench.numbers().into_iter().map(|number| bench.fs.bytes(&bench.path(number)).len());
    let expected = [vec![recovered.end.offset as usize], vec![64; segments - 1]].concat();
    assert_eq!(lengths.collect::<Vec<_>>(), expected, "of what is lost the headers stay");
    let torn = bench.fs.names().iter().filter(|name| name.ends_with(".torn")).count();
    assert_eq!(torn, segments);
    assert!(recovered.torn_records > 60);
    assert!(bench.recover().unwrap().0 == found);
}

#[test]
fn every_flipped_byte_gives_a_prefix_or_corruption() {
    for bench in benches() {
        let (journal, groups) = small(&bench);
        let end = journal.writer.position();
        let proven = 3;
        for offset in 0..end.offset + 64 {
            let bench = bench.restart();
            bench.fs.flip(&bench.path(1), offset);
            match bench.recover() {
                Ok((found, recovered)) => {
                    assert_prefix(&found, &groups, &format!("flip at {offset}"));
                    assert!(found.len() >= proven, "flip at {offset} lost what was synced");
                    let is_whole = found.len() == groups.len();
                    assert_eq!(is_whole, offset >= end.offset, "flip at {offset}");
                    assert!(recovered.torn_records >= 1, "flip at {offset}");
                }
                Err(Error::Corruption { .. }) => {}
                Err(other) => panic!("flip at {offset}: {other}"),
            }
        }
    }
}

#[test]
fn every_truncation_gives_a_prefix_or_corruption() {
    for bench in benches() {
        let (journal, groups) = small(&bench);
        let end = journal.writer.position().offset;
        let mut lengths = Vec::new();
        for len in 0..end + 8 {
            let bench = bench.restart();
            bench.fs.truncate(&bench.path(1), len);
            match bench.recover() {
                Ok((found, _)) => {
                    assert_prefix(&found, &groups, &format!("cut to {len}"));
                    assert!(len >= SEGMENT_HEADER_BYTES);
                    lengths.push(found.len());
                }
                Err(Error::Corruption { .. }) => assert!(len < SEGMENT_HEADER_BYTES, "{len}"),
                Err(other) => panic!("cut to {len}: {other}"),
            }
        }
        assert!(lengths.is_sorted());
        assert_eq!(lengths.last(), Some(&groups.len()));
    }
}

#[test]
fn every_zeroed_sector_gives_a_prefix_or_corruption() {
    let bench = Bench::mapped();
    let mut journal = bench.journal();
    let mut groups = fill(&mut journal, 20);
    journal.sync_and_mark();
    groups.extend(fill(&mut journal, 40));
    for number in bench.numbers() {
        for sector in 0..SEGMENT_BYTES / 512 {
            let bench = bench.restart();
            let path = bench.path(number);
            let mut bytes = bench.fs.bytes(&path);
            bytes[sector as usize * 512..][..512].fill(0);
            bench.fs.put(&path, bytes);
            match bench.recover() {
                Ok((found, _)) => {
                    assert_prefix(&found, &groups, &format!("segment {number} sector {sector}"));
                    assert!(found.len() >= 20, "segment {number} sector {sector}");
                }
                Err(Error::Corruption { .. }) => {}
                Err(other) => panic!("segment {number} sector {sector}: {other}"),
            }
        }
    }
}

#[test]
fn a_missing_middle_segment_refuses_to_open() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    fill(&mut journal, 100);
    let numbers = bench.numbers();
    for &number in &numbers[..numbers.len() - 1] {
        let bench = bench.restart();
        bench.fs.remove(&bench.path(number)).unwrap();
        assert!(matches!(
            bench.recover(),
            Err(Error::Corruption { file, .. }) if file == bench.path(number)
        ));
    }
}

#[test]
fn an_oversized_record_gets_a_segment_of_its_own_size() {
    for bench in benches() {
        let mut journal = bench.journal();
        let mut groups = fill(&mut journal, 2);
        // Spares of the standard size are ready, and have lower numbers than the large one gets.
        while journal.pool.prepare().unwrap() {}
        let large = journal.put(b"large", &vec![5; 3 * SEGMENT_BYTES as usize]);
        assert!(large.has_rotated);
        assert_eq!(large.segment.capacity(), large.end.offset);
        groups.push((journal.next_seqno - 1, large.changes.collect()));
        groups.extend(fill(&mut journal, 60));
        let (found, recovered) = bench.restart().recover().unwrap();
        assert!(found == groups);
        let numbers: Vec<u64> = recovered.segments.iter().map(|s| s.number()).collect();
        assert!(!numbers.is_sorted(), "{numbers:?}");
    }
}

#[test]
fn records_of_a_recycled_segment_are_never_replayed() {
    for bench in benches() {
        let mut journal = bench.journal();
        drop(fill(&mut journal, 100));
        journal.sync_and_mark();
        // All but the active segment are dead.
        let from = journal.writer.position();
        let (_, recovered) = bench.restart().recover_from(from).unwrap();
        assert_eq!(recovered.others.len(), bench.numbers().len() - 1);
        let mut journal = bench.journal_from(from, journal.next_seqno);
        let dead: Vec<u64> = bench.numbers().into_iter().filter(|&n| n != from.segment).collect();
        for number in dead {
            let segment = Segment::open(bench.files.clone(), number, 136).unwrap();
            segment.has_one_name();
            journal.pool.give_back(Arc::new(segment)).unwrap();
        }
        while journal.pool.prepare().unwrap() {}
        let (found, recovered) = bench.restart().recover_from(from).unwrap();
        assert!(found.is_empty());
        assert_eq!((recovered.torn_records, recovered.spares.len()), (0, 2));

        let mut groups = fill(&mut journal, 1);
        assert!(journal.writer.active().unwrap().header().is_recycled);
        for _ in 0..40 {
            let (found, recovered) = bench.restart().recover_from(from).unwrap();
            assert!(found == groups);
            assert_eq!((recovered.torn_records, recovered.torn_bytes), (0, 0));
            groups.extend(fill(&mut journal, 1));
        }
    }
}

#[test]
fn a_segment_with_a_living_slice_is_not_recycled() {
    let bench = Bench::mapped();
    let mut journal = bench.journal();
    let mut kept = None;
    let mut sealed = None;
    for n in 0..200u8 {
        let mut appended = journal.put(&[n], &[n; 200]);
        let Some(OwnedChange::Entry { entry, .. }) = appended.changes.next() else { panic!() };
        let Body::Ref(at) = entry.body else { panic!("no pointer") };
        let segment = appended.segment;
        kept.get_or_insert_with(|| {
            segment.read_value(at.offset, at.length, at.checksum, true).unwrap()
        });
        sealed.get_or_insert(segment);
    }
    journal.sync_and_mark();
    let sealed = sealed.unwrap();
    let number = sealed.number();
    journal.pool.give_back(sealed).unwrap();
    assert_eq!(journal.pool.spares(), (0, 0));
    assert!(!bench.numbers().contains(&number));
    assert_eq!(kept, Some(Bytes::from(vec![0; 200])));
}

#[test]
fn a_dead_segment_becomes_a_spare_and_a_fourth_is_removed() {
    for bench in benches() {
        let mut journal = bench.journal();
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        for n in 0..250u8 {
            let segment = journal.put(&[n], &[n; 300]).segment;
            if segments.last().is_none_or(|last| last.number() != segment.number()) {
                segments.push(segment);
            }
        }
        journal.sync_and_mark();
        segments.pop();
        let given = segments.len();
        assert!(given > 4);
        let before = bench.numbers().len();
        for segment in segments {
            journal.pool.give_back(segment).unwrap();
        }
        let kept = spares::SPARES_MIN + 1;
        assert_eq!(bench.numbers().len(), before - given + kept);
        while journal.pool.prepare().unwrap() {}
        assert_eq!(journal.pool.spares(), (2, kept as u64 * SEGMENT_BYTES));
        assert_eq!(bench.numbers().len(), before - given + kept);
    }
}

#[test]
fn a_large_journal_keeps_more_of_its_dead_segments_until_it_rests_or_the_disk_is_full() {
    for bench in benches() {
        let mut journal = bench.journal();
        let mut give_back_twelve = |key: u8| {
            let mut segments: Vec<Arc<Segment>> = Vec::new();
            while segments.len() < 13 {
                let segment = journal.put(&[key], &[key; 300]).segment;
                if segments.last().is_none_or(|last| last.number() != segment.number()) {
                    segments.push(segment);
                }
            }
            journal.sync_and_mark();
            segments.pop();
            journal.pool.set_scale(32 * SEGMENT_BYTES);
            for segment in segments {
                journal.pool.give_back(segment).unwrap();
            }
            journal.pool.clone()
        };
        let pool = give_back_twelve(1);
        assert_eq!(pool.spares(), (0, 8 * SEGMENT_BYTES));
        let files = bench.numbers().len();
        assert!(pool.release_spare());
        assert_eq!((pool.spares(), bench.numbers().len()), ((0, 0), files - 8));
        assert!(!pool.release_spare());
        give_back_twelve(2);
        assert_eq!(pool.spares(), (0, 8 * SEGMENT_BYTES));
        pool.rest().unwrap();
        assert_eq!(pool.spares(), (1, SEGMENT_BYTES));
    }
}

#[test]
fn a_full_disk_still_lets_a_dead_segment_become_a_spare() {
    for bench in benches() {
        let mut journal = bench.journal();
        let first = journal.put(b"key", &[1; 300]).segment;
        while journal.put(b"key", &[1; 300]).segment.number() == first.number() {}
        journal.sync_and_mark();
        journal.pool.give_back(first).unwrap();
        bench.fs.faults.no_space.store(true, Ordering::SeqCst);
        assert!(journal.pool.prepare().unwrap());
        assert_eq!(journal.pool.spares(), (1, SEGMENT_BYTES));
        assert!(matches!(journal.pool.prepare(), Err(Error::NoSpace { .. })));
        assert_eq!(journal.pool.spares(), (1, SEGMENT_BYTES));
    }
}

/// The spare that a rest leaves was removed by the next opening of a large store, whose segments are larger; on a
/// full disk a deletion then had none.
#[test]
fn a_small_spare_of_a_large_journal_is_left_to_deletions_on_a_full_disk() {
    for bench in benches() {
        let options = SegmentOptions { segment_bytes_max: 4 * SEGMENT_BYTES, ..bench.options() };
        let pool = bench.pool(options, 1);
        pool.rest().unwrap();
        assert_eq!(bench.numbers(), [1]);
        let pool = bench.pool(options, 2);
        pool.set_scale(u64::MAX);
        assert_eq!(pool.target_bytes(), 4 * SEGMENT_BYTES);
        pool.adopt(1, SEGMENT_BYTES);
        bench.fs.faults.no_space.store(true, Ordering::SeqCst);
        let too_large = pool.take(SEGMENT_BYTES + 1, true);
        assert!(matches!(too_large, Err(Error::NoSpace { .. })));
        assert!(matches!(pool.take(100, false), Err(Error::NoSpace { .. })));
        assert_eq!(pool.take(100, true).unwrap().capacity, SEGMENT_BYTES);
        assert!(pool.is_disk_full());
        assert!(matches!(pool.take(100, true), Err(Error::NoSpace { .. })));
        bench.fs.faults.no_space.store(false, Ordering::SeqCst);
        assert_eq!(pool.take(100, true).unwrap().capacity, 4 * SEGMENT_BYTES);
    }
}

#[test]
fn spares_left_on_disk_are_recognised_and_used_again() {
    for bench in benches() {
        let mut journal = bench.journal();
        while journal.pool.prepare().unwrap() {}
        let groups = fill(&mut journal, 1);
        while journal.pool.prepare().unwrap() {}
        let bench = bench.restart();
        let (found, recovered) = bench.recover().unwrap();
        assert!(found == groups);
        assert_eq!(recovered.spares, [(2, SEGMENT_BYTES), (3, SEGMENT_BYTES)]);
        let journal = bench.journal_from(recovered.end, 99);
        for &(number, bytes) in &recovered.spares {
            journal.pool.adopt(number, bytes);
        }
        while journal.pool.prepare().unwrap() {}
        assert_eq!(bench.numbers(), [1, 4, 5]);
    }
}

#[test]
fn a_failed_write_leaves_no_hole() {
    for fail_cuts in [false, true] {
        for writes in 0..4 {
            let bench = Bench::pread();
            let mut journal = bench.journal();
            let mut groups = fill(&mut journal, 3);
            let large = vec![8; 70 << 10];
            bench.fs.faults.fail_cuts.store(fail_cuts, Ordering::SeqCst);
            bench.fs.faults.writes_left.store(writes, Ordering::SeqCst);
            for value in [&[1; 400][..], &large] {
                let before = journal.writer.position();
                match journal.try_put(b"failing", value) {
                    Ok(appended) => {
                        groups.push((journal.next_seqno - 1, appended.changes.collect()));
                    }
                    Err(Error::NoSpace { .. }) => {
                        // At most the start of a new segment was added.
                        let added = journal.writer.position().lsn - before.lsn;
                        assert!(added == 0 || added == record::START_RECORD_BYTES);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            bench.fs.faults.writes_left.store(-1, Ordering::SeqCst);
            bench.fs.faults.fail_cuts.store(false, Ordering::SeqCst);
            groups.extend(fill(&mut journal, 3));
            journal.sync_and_mark();
            let (found, recovered) = bench.restart().recover().unwrap();
            assert!(found == groups, "{writes} writes, cuts fail: {fail_cuts}");
            assert_eq!(recovered.end, journal.writer.position());
        }
    }
}

#[test]
fn a_crash_right_after_a_failed_write_replays_what_was_acknowledged() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    let groups = fill(&mut journal, 3);
    bench.fs.faults.writes_left.store(0, Ordering::SeqCst);
    assert!(journal.try_put(b"failing", &[1; 400]).is_err());
    assert!(bench.restart().recover().unwrap().0 == groups);
}

#[test]
fn writers_that_wait_share_one_sync() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    let first = journal.put(b"first", b"value").end.lsn;
    let faults = bench.fs.faults.clone();
    let sync = journal.sync.clone();
    faults.hold_syncs(true);
    let leader = std::thread::spawn({
        let sync = sync.clone();
        move || sync.sync_upto(first).unwrap()
    });
    faults.wait_for_held_sync();
    let ends: Vec<u64> = (0..7u8).map(|n| journal.put(&[n], b"value").end.lsn).collect();
    let followers: Vec<_> = ends
        .into_iter()
        .map(|end| {
            let sync = sync.clone();
            std::thread::spawn(move || {
                let led = sync.sync_upto(end).unwrap();
                assert!(sync.synced_lsn() >= end);
                led
            })
        })
        .collect();
    assert!(sync.synced_lsn() < first);
    faults.hold_syncs(false);
    assert!(leader.join().unwrap());
    let led = followers.into_iter().filter(|_| true).map(|thread| thread.join().unwrap());
    assert_eq!(led.filter(|&led| led).count(), 1);
    assert_eq!(sync.syncs(), 2);
    assert_eq!(sync.synced_lsn(), journal.writer.position().lsn);
}

#[test]
fn a_failed_sync_is_final() {
    for bench in benches() {
        let mut journal = bench.journal();
        journal.put(b"key", b"value");
        bench.fs.faults.fail_syncs.store(true, Ordering::SeqCst);
        let lsn = journal.sync.appended_lsn();
        assert!(matches!(journal.sync.sync_upto(lsn), Err(Error::ReadOnly { .. })));
        bench.fs.faults.fail_syncs.store(false, Ordering::SeqCst);
        let syncs = bench.fs.faults.syncs.load(Ordering::SeqCst);
        assert!(matches!(journal.sync.sync_upto(lsn), Err(Error::ReadOnly { .. })));
        assert!(matches!(journal.try_put(b"key", b"value"), Err(Error::ReadOnly { .. })));
        assert_eq!(bench.fs.faults.syncs.load(Ordering::SeqCst), syncs);
        assert_eq!(journal.sync.synced_lsn(), 0);
        assert!(journal.sync.poison_cause().unwrap().contains("injected"));
    }
}

#[test]
fn unsynced_time_starts_with_the_first_group_and_ends_with_the_sync() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    assert_eq!(journal.sync.unsynced_since(), None);
    journal.put(b"a", b"value");
    journal.put(b"b", b"value");
    assert_eq!(journal.sync.unsynced_since(), Some(501));
    journal.sync_and_mark();
    assert_eq!(journal.sync.unsynced_since(), None, "a mark is nothing to sync");
    journal.put(b"c", b"value");
    assert_eq!(journal.sync.unsynced_since(), Some(503));
}

#[test]
fn a_mark_is_written_only_when_it_proves_more() {
    let bench = Bench::pread();
    let mut journal = bench.journal();
    journal.put(b"a", b"value");
    assert!(!journal.writer.append_mark(2, 1).unwrap());
    journal.sync.sync_upto(u64::MAX).unwrap();
    assert!(journal.writer.append_mark(2, 1).unwrap());
    assert!(!journal.writer.append_mark(2, 1).unwrap());
    let (_, recovered) = bench.restart().recover().unwrap();
    assert_eq!(recovered.proven_lsn, journal.sync.synced_lsn());
}

#[test]
fn what_was_replayed_beyond_the_last_proof_is_synced_again() {
    let bench = Bench::pread();
    let (_, _) = small(&bench);
    let bench = bench.restart();
    bench.fs.faults.fail_syncs.store(true, Ordering::SeqCst);
    assert!(bench.recover().is_err());
    bench.fs.faults.fail_syncs.store(false, Ordering::SeqCst);
    bench.fs.faults.writes_left.store(0, Ordering::SeqCst);
    assert!(bench.recover().is_err());
}

#[test]
fn an_empty_directory_is_an_empty_journal() {
    let bench = Bench::pread();
    let (found, recovered) = bench.recover().unwrap();
    assert!(found.is_empty());
    assert_eq!(recovered.end, JournalPosition::default());
    let named = JournalPosition { segment: 3, offset: 200, lsn: 136 };
    assert!(matches!(bench.recover_from(named), Err(Error::Corruption { .. })));
}

#[test]
fn a_segment_of_a_newer_version_or_of_another_number_is_refused() {
    let bench = Bench::pread();
    small(&bench);
    let bytes = bench.fs.bytes(&bench.path(1));
    bench.fs.put(&bench.path(7), bytes.clone());
    assert!(matches!(bench.recover(), Err(Error::Corruption { offset: 0, .. })));
    assert!(Segment::open(bench.files.clone(), 7, 136).is_err());
    assert!(Segment::open(bench.files.clone(), 1, bytes.len() as u64 + 1).is_err());
    assert!(Segment::open(bench.files.clone(), 1, bytes.len() as u64).is_ok());
}

#[test]
fn spares_that_are_written_all_over_wait_until_half_of_a_segment_is_used() {
    for (bench, waits) in [(Bench::pread(), true), (Bench::mapped(), false)] {
        let mut journal = bench.journal_zeroed_ahead();
        let (mut segments, mut asked) = (0, 0);
        while segments < 2 {
            let put = journal.put(b"key", &[7; 300]);
            segments += usize::from(put.has_rotated);
            let is_half = put.segment.end() >= SEGMENT_BYTES / 2;
            let is_time = !waits || is_half || segments == 2;
            assert_eq!(journal.pool.wants_spare(&put.segment), is_time);
            asked += usize::from(put.segment.asks_for_successor());
            assert!(!waits || asked == usize::from(is_time), "the thread is asked once, at half");
        }
        journal.pool.rest().unwrap();
        let segment = journal.put(b"key", b"value").segment;
        assert_eq!(journal.pool.wants_spare(&segment), !waits, "a store at rest has its one spare");
    }
}

#[test]
fn the_first_segment_is_ready_where_it_is_written_all_over() {
    for (bench, is_ready) in [(Bench::pread(), true), (Bench::mapped(), false)] {
        let mut journal = bench.journal_zeroed_ahead();
        for _ in 0..2 {
            journal.pool.prepare_first().unwrap();
            assert_eq!(journal.pool.spares().0, usize::from(is_ready), "one, and not one more");
        }
        let files = bench.numbers().len();
        journal.put(b"key", b"value");
        assert_eq!(bench.numbers().len() - files, usize::from(!is_ready), "made by the writer");
        assert_eq!(journal.pool.spares().0, 0);
    }
}

#[test]
fn segments_grow_with_the_journal() {
    let bench = Bench::pread();
    let options = SegmentOptions {
        zero_ahead: true,
        segment_bytes_min: 4 << 20,
        segment_bytes_max: 64 << 20,
        ..bench.options()
    };
    let pool = bench.pool(options, 1);
    let sizes: Vec<u64> = [0, 15 << 20, 16 << 20, 100 << 20, 128 << 20, u64::MAX]
        .into_iter()
        .map(|scale| {
            pool.set_scale(scale);
            pool.target_bytes() >> 20
        })
        .collect();
    assert_eq!(sizes, [4, 4, 8, 32, 64, 64]);
    pool.set_scale(0);
    assert!(pool.prepare().unwrap());
    assert_eq!(pool.spares(), (2, 8 << 20));
}

#[test]
fn segments_grow_with_values_and_not_with_a_log_of_what_is_in_tables() {
    let bench = Bench::pread();
    let options = SegmentOptions {
        segment_bytes_min: 4 << 20,
        segment_bytes_max: 64 << 20,
        log_bytes: 16 << 20,
        ..bench.options()
    };
    let pool = bench.pool(options, 1);
    let target_mb = |scale, values, holds_values| {
        pool.set_scale(scale);
        pool.set_dead(0, values);
        pool.set_holds_values(holds_values);
        pool.target_bytes() >> 20
    };
    assert_eq!(target_mb(15 << 20, 0, false), 4);
    for scale in [16 << 20, 100 << 20, u64::MAX] {
        assert_eq!(target_mb(scale, 0, false), 8);
    }
    assert_eq!(target_mb(1 << 30, 112 << 20, false), 64, "values were written before");
    assert_eq!(target_mb(1 << 30, 0, true), 64, "values are written now");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_overwritten_stretch_gives_a_prefix_or_corruption(
        is_mapped in any::<bool>(),
        synced in 0u64..80,
        segment in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        garbage in prop::collection::vec(any::<u8>(), 1..700),
        copied_from in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let bench = if is_mapped { Bench::mapped() } else { Bench::pread() };
        let mut journal = bench.journal();
        let mut groups = fill(&mut journal, synced);
        journal.sync_and_mark();
        groups.extend(fill(&mut journal, 20));
        let path = bench.path(*segment.get(&bench.numbers()));
        let mut bytes = bench.fs.bytes(&path);
        let len = garbage.len();
        let at = place.index(bytes.len() - len);
        match copied_from {
            // Records of the same segment in another place.
            Some(from) => {
                let from = from.index((bytes.len() - len) / 8) * 8;
                bytes.copy_within(from..from + len, at / 8 * 8);
            }
            None => bytes[at..at + len].copy_from_slice(&garbage),
        }
        bench.fs.put(&path, bytes);
        let bench = bench.restart();
        match bench.recover() {
            Ok((found, _)) => {
                prop_assert!(found[..] == groups[..found.len()]);
                prop_assert!(found.len() as u64 >= synced);
                let (again, recovered) = bench.recover().unwrap();
                prop_assert!(again == found);
                prop_assert_eq!(recovered.torn_records, 0);
            }
            Err(Error::Corruption { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
