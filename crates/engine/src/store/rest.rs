//! Rest: what a store that nobody writes to gives back.
//!
//! A busy store holds journal segments ready, and goes on in one of which much is dead or not yet
//! written. After a while without writes, where that is worth it (`is_rest_worthwhile`),
//!
//! 1. the spares go, but for one of the smallest size;
//! 2. if everything is flushed, the journal goes on in that one, so that the segment before it goes,
//!    or, if it holds values, is cut behind the last of them.
//!
//! Then a store takes what its tables and values take, and 4 MiB. Where it isn't worth it, a thirty-second more.
//! What fails on the way is made up for by the next rest.

use std::time::Duration;

use super::inner::Inner;
use crate::error::Result;
use crate::journal::JournalPosition;
use crate::version::VersionEdit;

/// Without a write for this long a store is at rest. More than the second after which it is idle: to
/// rest and to wake costs a few syncs.
pub(super) const REST_AFTER: Duration = Duration::from_secs(3);

/// A store rests for this share of what it holds, as a divisor.
const REST_SHARE: u64 = 32;

impl Inner {
    /// Gives back what only a busy store needs, if it is worth it. Requires: nothing waits for a flush.
    pub(super) fn rest(&self) -> Result<()> {
        let _preparing = self.preparing.lock();
        self.pool.look_for_room();
        if self.pool.is_disk_full() {
            return Ok(());
        }
        if let Some(position) = self.left_at() {
            self.let_segments_go(position)?;
        }
        if !self.is_rest_worthwhile() {
            return Ok(());
        }
        self.pool.rest()?;
        self.leave_segment()?.map_or(Ok(()), |position| self.let_segments_go(position))
    }

    /// Where the journal goes on behind segments that an earlier rest has left and could not let go.
    fn left_at(&self) -> Option<JournalPosition> {
        let commit = self.commit.lock();
        let (position, state) = (commit.memtable_start, self.state.load());
        let is_flushed = state.active.is_empty() && state.immutables.is_empty();
        (is_flushed && state.version.replay_from.lsn < position.lsn).then_some(position)
    }

    fn is_rest_worthwhile(&self) -> bool {
        let (_, spare_bytes) = self.pool.spares();
        let active = self.log.lock().last().map_or(0, |log| log.segment.capacity());
        let held = self.state.load().version.bytes();
        spare_bytes + active > self.options.segment_bytes_min + held / REST_SHARE
    }

    /// Has the journal go on in a new segment if everything before is flushed; answers where it goes on.
    fn leave_segment(&self) -> Result<Option<JournalPosition>> {
        let mut commit = self.commit.lock();
        self.check_writable()?;
        let state = self.state.load_full();
        if !state.active.is_empty() || !state.immutables.is_empty() {
            return Ok(None);
        }
        if commit.writer.active().is_none() {
            return Ok(None);
        }
        let (next_seqno, now_ms) = (commit.last_seqno + 1, self.resources.clock.now_ms());
        commit.writer.start_segment(0, false, next_seqno, now_ms)?;
        self.note_rotation(&mut commit);
        let position = commit.writer.position();
        commit.memtable_start = position;
        Ok(Some(position))
    }

    /// Has replay start behind the segments that were left, which then go, or are cut if they hold values.
    fn let_segments_go(&self, position: JournalPosition) -> Result<()> {
        self.sync_values(position.lsn)?;
        let mut tree = self.tree.lock();
        let version = self.state.load().version.clone();
        // Whoever wrote meanwhile may have filled a memtable already.
        if version.replay_from.lsn >= position.lsn {
            return Ok(());
        }
        let log: Vec<_> = self.log.lock().iter().map(|log| log.segment.clone()).collect();
        let left = log.iter().take_while(|segment| segment.number() != position.segment);
        for segment in left.filter(|segment| version.segments.live(segment.number()).count > 0) {
            segment.cut_to_end()?;
        }
        let mut edit = VersionEdit { replay_from: Some(position), ..VersionEdit::default() };
        self.name_position(&mut edit, position);
        self.install(&mut tree, edit, |_| {})?;
        drop((tree, log));
        self.remove_obsolete();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::store::retries::Task;
    use crate::vfs::faulty::{Fault, FaultyFileSystem};
    use crate::vfs::{CrashMode, FileSystem, ManualClock, MemoryFileSystem};
    use crate::{Error, Options, Store};

    const SEGMENT_BYTES_MIN: u64 = 16 << 10;

    fn open(fs: &MemoryFileSystem, clock: &Arc<ManualClock>) -> Store {
        open_on(Arc::new(fs.clone()), clock)
    }

    fn open_on(fs: Arc<dyn FileSystem>, clock: &Arc<ManualClock>) -> Store {
        let options = Options {
            memtable_bytes: 64 << 10,
            segment_bytes_min: SEGMENT_BYTES_MIN,
            segment_bytes_max: 1 << 20,
            write_buffer_bytes: 256 << 10,
            ..Options::default()
        };
        let resources = Resources::inline(ResourceOptions::default(), fs, clock.clone());
        Store::open_with("/s", options, resources).unwrap()
    }

    fn value(at: u32, bytes: usize) -> Vec<u8> {
        at.to_le_bytes().repeat(bytes / 4)
    }

    fn journal_bytes(fs: &MemoryFileSystem) -> u64 {
        let names = fs.list(Path::new("/s")).unwrap();
        let journals = names.iter().filter(|name| name.ends_with(".journal"));
        journals.map(|name| fs.open_read(&Path::new("/s").join(name)).unwrap().len().unwrap()).sum()
    }

    /// Lets time pass, and whatever is to be done then happen.
    fn wait(store: &Store, clock: &ManualClock) {
        wait_for(store, clock, REST_AFTER);
    }

    fn wait_for(store: &Store, clock: &ManualClock, time: Duration) {
        clock.advance(time);
        store.inner.tick();
        while store.inner.prepare_step()
            || store.inner.flush_step()
            || store.inner.compaction_step()
        {}
    }

    fn check(store: &Store, count: u32, bytes: usize) {
        for at in 0..count {
            assert!(store.get(&at.to_be_bytes()).unwrap().unwrap() == value(at, bytes), "{at}");
        }
    }

    #[test]
    fn a_store_at_rest_holds_its_data_and_a_small_segment() {
        for bytes in [100, 4000] {
            let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
            let store = open(&fs, &clock);
            let count = 1_000_000 / bytes as u32;
            for at in 0..count {
                store.put(&at.to_be_bytes(), &value(at, bytes)).unwrap();
            }
            let busy = journal_bytes(&fs);
            store.flush().unwrap();
            wait(&store, &clock);
            let at_rest = journal_bytes(&fs);
            let stats = store.stats();
            // A full segment ends with room for less than a record.
            let values = stats.segment_bytes + stats.segments * (bytes as u64 + 100);
            assert!(busy > values + 3 * SEGMENT_BYTES_MIN, "{busy} bytes when busy");
            assert!(at_rest <= values + SEGMENT_BYTES_MIN, "{at_rest} of {values} bytes of values");
            wait(&store, &clock);
            assert_eq!(journal_bytes(&fs), at_rest, "rest makes no work");
            // It wakes, and what it wrote before and after outlives a crash.
            for at in count..count + 200 {
                store.put(&at.to_be_bytes(), &value(at, bytes)).unwrap();
            }
            check(&store, count + 200, bytes);
            store.sync().unwrap();
            let crashed = fs.image().crash(CrashMode::LoseUnsynced, 1);
            drop(store);
            check(&open(&crashed, &clock), count + 200, bytes);
        }
    }

    #[test]
    fn a_disk_that_was_full_and_is_not_keeps_no_store_from_its_rest() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock);
        for at in 0..10_000 {
            store.put(&u32::to_be_bytes(at), &value(at, 100)).unwrap();
        }
        let fill = |from: u32| {
            fs.set_capacity(Some(0));
            let full = (from..from + 10_000).find(|&at| {
                store.put(&at.to_be_bytes(), &value(at, 100)).is_err()
                    || store.inner.prepare_step()
                    || store.inner.pool.is_disk_full()
            });
            full.expect("another segment is needed");
            assert!(store.inner.pool.is_disk_full());
            fs.set_capacity(None);
        };
        fill(10_000);
        let flushes = store.stats().flushes;
        for at in 0..20u32 {
            clock.advance(Duration::from_secs(1));
            store.put(&at.to_be_bytes(), &value(at, 100)).unwrap();
            clock.advance(Duration::from_millis(200));
            store.inner.tick();
            while store.inner.flush_step() || store.inner.compaction_step() {}
        }
        let more = store.stats().flushes - flushes;
        assert!(more <= 3, "{more} flushes, about one for each put");
        fill(20_000);
        store.flush().unwrap();
        wait(&store, &clock);
        let bytes = journal_bytes(&fs);
        assert!(bytes <= SEGMENT_BYTES_MIN, "{bytes} bytes of the journal at rest");
    }

    /// A store that came to rest while its disk was full never rested: it was not looked at again.
    #[test]
    fn a_store_that_found_no_room_to_rest_rests_once_there_is() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock);
        for at in 0..10_000 {
            store.put(&u32::to_be_bytes(at), &value(at, 100)).unwrap();
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        fs.set_capacity(Some(1));
        let pool = &store.inner.pool;
        while pool.release_spare() {}
        pool.prepare().unwrap_err();
        let before = journal_bytes(&fs);
        wait(&store, &clock);
        assert!(store.inner.settled.load(std::sync::atomic::Ordering::Relaxed));
        assert!(pool.is_disk_full() && journal_bytes(&fs) == before && before > SEGMENT_BYTES_MIN);
        fs.set_capacity(None);
        wait_for(&store, &clock, Duration::from_secs(1));
        let bytes = journal_bytes(&fs);
        assert!(bytes <= SEGMENT_BYTES_MIN, "{bytes} bytes of the journal at rest");
    }

    /// The journal had gone on in a small segment, and the large one before it stayed.
    #[test]
    fn a_rest_that_fails_half_way_is_made_up_for() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let faulty = Arc::new(FaultyFileSystem::new(Arc::new(fs.clone())));
        let store = open_on(faulty.clone(), &clock);
        for at in 0..10_000 {
            store.put(&u32::to_be_bytes(at), &value(at, 100)).unwrap();
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        wait_for(&store, &clock, REST_AFTER / 2);
        let is_manifest = |operation: &str, path: &Path| {
            operation == "write_all_at" && path.to_string_lossy().contains("MANIFEST")
        };
        faulty.fail_at(0, Fault::errno(libc::ENOSPC).only(is_manifest));
        wait_for(&store, &clock, REST_AFTER / 2);
        assert!(store.inner.retries.lacks_space() && journal_bytes(&fs) > SEGMENT_BYTES_MIN);
        wait_for(&store, &clock, Duration::from_secs(1));
        assert_eq!((faulty.fired(), store.stats().background_error), (1, None));
        let bytes = journal_bytes(&fs);
        assert!(bytes <= SEGMENT_BYTES_MIN, "{bytes} bytes of the journal at rest");
    }

    /// No spare was made for as long as the store was busy, as what frees space was to come first.
    #[test]
    fn a_rest_that_failed_is_forgotten_once_the_store_is_written() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock);
        for at in 0..1000 {
            store.put(&u32::to_be_bytes(at), &value(at, 100)).unwrap();
        }
        while store.inner.prepare_step() {}
        clock.advance(REST_AFTER);
        let no_space = Error::NoSpace { path: "segment".into() };
        store.inner.note_background_error(Task::Rest, &no_space);
        while store.inner.pool.release_spare() {}
        store.inner.tick();
        assert!(store.inner.retries.lacks_space() && !store.inner.prepare_step());
        store.put(b"key", b"value").unwrap();
        store.inner.tick();
        store.inner.prepare_step();
        assert!(store.inner.pool.spares().0 > 0);
        assert_eq!(store.stats().background_error, None);
    }

    #[test]
    fn a_store_with_something_unflushed_keeps_its_segment() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock);
        for at in 0..1000 {
            store.put(&u32::to_be_bytes(at), &value(at, 100)).unwrap();
        }
        store.flush().unwrap();
        store.put(b"last", b"value").unwrap();
        wait(&store, &clock);
        assert_eq!(store.stats().spare_segments, 1);
        let crashed = fs.image().crash(CrashMode::KeepAll, 1);
        drop(store);
        let store = open(&crashed, &clock);
        check(&store, 1000, 100);
        assert_eq!(store.get(b"last").unwrap().unwrap(), "value");
    }

    /// A large store's segments are of 64 MiB, and a deletion wanted room for a whole one: on a disk with less left
    /// nothing was deleted once the store had rested and been opened again, and so nothing came back.
    #[test]
    fn deletions_after_a_rest_need_no_room_for_a_large_segment() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock);
        let count = 2000;
        for at in 0..count {
            store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
        }
        store.flush().unwrap();
        wait(&store, &clock);
        store.close().unwrap();
        drop(store);
        let left = || fs.available_bytes(Path::new("/s")).unwrap();
        fs.set_capacity(Some(1 << 40));
        let used = (1 << 40) - left();
        fs.set_capacity(Some(used + (256 << 10)));
        let store = open(&fs, &clock);
        assert_eq!(store.inner.pool.target_bytes(), 1 << 20);
        let refused = store.put(b"key", &value(0, 4000));
        assert!(matches!(refused, Err(crate::Error::NoSpace { .. })), "{refused:?}");
        store.delete(b"nothing").unwrap();
        let log = store.inner.log.lock().last().unwrap().segment.capacity();
        assert_eq!(log, SEGMENT_BYTES_MIN);
        for at in 0..count {
            store.delete(&u32::to_be_bytes(at)).unwrap();
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        assert!(left() > used / 2, "{} KiB of {} left", left() >> 10, used >> 10);
        store.put(b"key", &value(0, 4000)).unwrap();
        store.close().unwrap();
        drop(store);
        let store = open(&fs, &clock);
        assert!(store.get(b"key").unwrap().unwrap() == value(0, 4000));
        assert!((0..count).all(|at| store.head(&u32::to_be_bytes(at)).unwrap().is_none()));
    }
}
