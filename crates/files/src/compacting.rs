//! Gives back the space of what was freed: buckets in which that is much are compacted. Their trees are small, and
//! their journals are collected.
//!
//! How much was freed is in the catalogue until that is done, whoever closes the store. A compaction may take
//! minutes, and has a thread of its own: nobody who needs room waits for it, since the counters tell what is free
//! before it is: but for who finds a disk full that has something to be given back.

use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::error::Result;

/// How often the thread looks for buckets that are to be compacted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The longest that a writer waits for a compaction that another began, as for the engine where that makes no progress.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);

/// Writers that wait for room at a time. With more of them a server had no threads left for who reads.
const ROOM_WAITERS_MAX: usize = 4;

/// Compacts the buckets that are to be, until the store is closed. What is damaged is told of by verifications.
pub(crate) fn run(core: &Core) {
    while core.check_open().is_ok() {
        core.wait_for_close(LOOK_EVERY);
        while compact_next(core).is_some() {}
    }
}

/// Compacts the buckets in which much was freed since they were; answers what the first said that failed.
pub(crate) fn compact_due(core: &Core) -> Result<()> {
    let mut outcome = Ok(());
    while let Some(compacted) = compact_next(core) {
        outcome = outcome.and(compacted);
    }
    outcome
}

/// Compacts one of the buckets that are to be, if there is any. Until that is done, the catalogue says that it is
/// to be.
pub(crate) fn compact_next(core: &Core) -> Option<Result<()>> {
    let mut turn = core.compacting.lock();
    // Whoever closes the store waits for one at most.
    core.check_open().ok()?;
    let bucket = core.figures.lock().compaction_due(*turn, core.now_ns())?;
    // One that fails, or in which much is freed all the time, keeps none of the others waiting.
    *turn = bucket.wrapping_add(1);
    Some(compact_and_note(core, bucket))
}

/// Compacts a bucket whose disk is full, if that may give something back, after what is compacted now. Whatever comes
/// of it, there may be room: a compaction gives back as it goes, also one that fails or meets damage, or another's.
pub(crate) fn compact_for_room(core: &Core, bucket: u8) {
    let may_help = || core.figures.lock().buckets[usize::from(bucket)].may_make_room(core.now_ns());
    if !may_help() {
        return;
    }
    let waiting = core.waiting_for_room.clone();
    if Arc::strong_count(&waiting) > ROOM_WAITERS_MAX + 1 {
        return;
    }
    let compacting = core.compacting.try_lock_for(ROOM_WAIT_MAX);
    // Others who found it full may have had it compacted meanwhile.
    if compacting.is_some() && may_help() {
        let _ = compact_and_note(core, bucket);
        let mut figures = core.figures.lock();
        figures.buckets[usize::from(bucket)].tried_for_room_ns = Some(core.now_ns());
    }
}

/// Compacts a bucket, and notes how that went. Requires: the caller holds `compacting`.
fn compact_and_note(core: &Core, bucket: u8) -> Result<()> {
    let freed = core.figures.lock().buckets[usize::from(bucket)].freed;
    let compacted = compact(core, bucket);
    let mut figures = core.figures.lock();
    match compacted {
        // All the rest is done, and what is damaged stays so: another time would give back no more.
        Ok(None | Some(tallybook::Error::Corruption { .. })) => {
            figures.compacted(bucket, freed);
            core.write_figures(&mut figures);
        }
        // What the disk didn't read may be read another time.
        _ => figures.compacted_in_vain(bucket, freed, core.now_ns()),
    }
    match compacted {
        Ok(damage) => damage.map_or(Ok(()), |error| Err(error.into())),
        Err(error) if error.is_put_off() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Compacts a bucket; answers what it went past because it can't be read, if there is any.
fn compact(core: &Core, bucket: u8) -> Result<Option<tallybook::Error>> {
    let store = core.buckets.get(bucket)?;
    // Whoever closes the store says so, then has the compactions of open buckets end.
    core.check_open()?;
    Ok(store.compact_past_damage(None, None, &mut |_, _| {})?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use tallybook::vfs::faulty::{Fault, OperationClass};
    use tallybook::vfs::{
        FaultyFileSystem, FileSystem, ManualClock, MemoryFileSystem, SystemClock,
    };
    use tallybook::{Durability, Resources};

    use super::{ROOM_WAITERS_MAX, compact_due, compact_for_room, compact_next};
    use crate::error::Error;
    use crate::key_layout;
    use crate::options::{CreateOptions, OpenOptions, UnlinkOptions, WriteOptions};
    use crate::reaper::reap;
    use crate::record::decode_numbers;
    use crate::store::{FileStore, resource_options};

    const CHUNK: usize = 64 << 10;

    const BUCKET: &str = "/files/buckets/000-000001";

    fn is_table(path: &Path) -> bool {
        path.starts_with(BUCKET) && path.extension().is_some_and(|extension| extension == "sst")
    }

    thread_local! {
        /// Is called before this thread makes the next table of a bucket.
        static BEFORE_TABLE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    fn call_before_table(operation: &str, path: &Path) -> bool {
        if operation == "create" && is_table(path) {
            let before = BEFORE_TABLE.take();
            before.into_iter().for_each(|before| before());
        }
        false
    }

    /// Where a store of one bucket is, in which every segment is two thirds dead once two of three files are
    /// unlinked.
    struct Place {
        memory: MemoryFileSystem,
        fs: FaultyFileSystem,
        clock: Arc<ManualClock>,
        resources: Arc<Resources>,
    }

    impl Place {
        fn new() -> (Place, FileStore) {
            let memory = MemoryFileSystem::new();
            let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
            let clock = Arc::new(ManualClock::at_ms(1_000_000));
            let resources =
                Resources::inline(resource_options(), Arc::new(fs.clone()), clock.clone());
            let create = CreateOptions {
                bucket_count: 1,
                chunk_bytes: CHUNK as u32,
                ..CreateOptions::default()
            };
            let store =
                FileStore::create_with("/files", create, options(), resources.clone()).unwrap();
            for number in 0..300 {
                write(&store, number);
            }
            fs.fail_at(0, Fault::errno(5).class(OperationClass::Writes).only(call_before_table));
            (Place { memory, fs, clock, resources }, store)
        }

        fn open(&self) -> FileStore {
            FileStore::open_with("/files", options(), self.resources.clone()).unwrap()
        }

        fn files(&self) -> Vec<PathBuf> {
            let names = self.fs.list(Path::new(BUCKET)).unwrap();
            names.iter().map(|name| Path::new(BUCKET).join(name)).collect()
        }

        fn bytes(&self) -> u64 {
            self.files().iter().map(|path| self.fs.open_read(path).unwrap().len().unwrap()).sum()
        }

        /// Has the disk have so much left.
        fn leave(&self, bytes: u64) {
            const LARGE: u64 = 1 << 40;
            self.memory.set_capacity(Some(LARGE));
            let left = self.memory.available_bytes(Path::new(BUCKET)).unwrap();
            self.memory.set_capacity(Some(LARGE - left + bytes));
        }

        /// Damages the chunk of a file.
        fn damage(&self, number: u8) {
            for path in self.files() {
                let file = self.fs.open(&path).unwrap();
                let mut contents = vec![0; file.len().unwrap() as usize];
                file.read_exact_at(&mut contents, 0).unwrap();
                let mut windows = contents.windows(CHUNK / 2);
                if let Some(at) = windows.position(|bytes| bytes.iter().all(|&of| of == number)) {
                    file.write_all_at(&[!number], at as u64).unwrap();
                    return;
                }
            }
            panic!("the chunk is in no file");
        }
    }

    fn options() -> OpenOptions {
        OpenOptions { durability: Durability::Os, ..OpenOptions::default() }
    }

    fn write(store: &FileStore, number: u32) {
        let (name, bytes) = (format!("{number}"), [number as u8; CHUNK]);
        store.write(&name, &bytes, WriteOptions::default()).unwrap();
    }

    fn unlink(store: &FileStore, number: u32) {
        assert!(store.unlink(&format!("{number}"), UnlinkOptions::default()).unwrap());
    }

    fn unlink_two_thirds(store: &FileStore) {
        (0..300).filter(|number| number % 3 != 1).for_each(|number| unlink(store, number));
    }

    /// What the catalogue says was freed since the bucket was compacted.
    fn noted(store: &FileStore) -> Option<u64> {
        let garbage = key_layout::key(key_layout::GARBAGE, &[0]);
        let value = store.core().catalogue.get(&garbage).unwrap()?;
        decode_numbers(&value).map(|[freed]| freed)
    }

    /// Closing waited until all of a bucket was compacted, minutes for a large one; nothing asked for it again, and
    /// the space did not come back. Then the next opening's first pass did all that before it freed anything, while
    /// writers waited for room.
    #[test]
    fn closing_ends_a_compaction_which_the_next_opening_does_after_all_that_is_due() {
        let (place, store) = Place::new();
        unlink_two_thirds(&store);
        let (compacts, is_compacting) = mpsc::channel();
        let core = store.core().clone();
        let wait_for_close = move || {
            let mut closing = core.closing.lock();
            compacts.send(()).unwrap();
            core.close_signal.wait(&mut closing);
        };
        let reaped = thread::scope(|scope| {
            let pass = scope.spawn(|| {
                BEFORE_TABLE.set(Some(Box::new(wait_for_close)));
                store.reap()
            });
            is_compacting.recv_timeout(Duration::from_secs(60)).unwrap();
            store.close().unwrap();
            pass.join().unwrap()
        });
        assert!(matches!(reaped, Err(Error::Engine(tallybook::Error::Busy))), "{reaped:?}");
        drop(store);

        let store = place.open();
        let before = place.bytes();
        assert!(noted(&store).is_some());
        write(&store, 1000);
        unlink(&store, 4);
        let (core, (looks, found)) = (store.core().clone(), mpsc::channel());
        BEFORE_TABLE.set(Some(Box::new(move || {
            // Who needs room waits for the second.
            let is_free = core.reaping.try_lock().is_some();
            let _ = looks.send((core.figures.lock().buckets[0].dead, is_free));
        })));
        store.reap().unwrap();
        assert_eq!(found.try_recv(), Ok((0, true)));
        assert!(place.bytes() < before / 4 * 3, "{} of {before} are left", place.bytes());
        assert_eq!(noted(&store), None);
        assert_eq!(store.read("1").unwrap().unwrap(), [1; CHUNK]);
    }

    /// It counted as nothing: every byte that was freed later, and every opening, had all of the bucket compacted.
    #[test]
    fn a_compaction_that_meets_damage_is_done_once() {
        let (place, store) = Place::new();
        store.close().unwrap();
        drop(store);
        place.damage(100);
        let store = place.open();
        let before = place.bytes();
        unlink_two_thirds(&store);
        let reaped = store.reap();
        assert!(
            matches!(&reaped, Err(Error::Engine(error)) if error.is_damage()),
            "the damage is told of: {reaped:?}"
        );
        assert!(place.bytes() < before / 4 * 3, "{} of {before} are left", place.bytes());
        assert_eq!(noted(&store), None);
        unlink(&store, 4);
        BEFORE_TABLE.set(Some(Box::new(|| {})));
        store.reap().unwrap();
        assert!(BEFORE_TABLE.take().is_some(), "it is compacted again");
        assert_eq!(noted(&store), Some(CHUNK as u64));
        assert!(matches!(store.read("100"), Err(Error::Damaged { .. })));
    }

    /// A table that could not be read once counted as damage that had been gone past: the bucket was not compacted, and
    /// nothing asked for that again.
    #[test]
    fn a_compaction_that_ends_early_is_done_again() {
        let is_read = |_: &str, path: &Path| is_table(path);
        let (mut skipped, mut ended_early) = (0, 0);
        loop {
            let (place, store) = Place::new();
            // With a table that a merge has to read.
            store.close().unwrap();
            drop(store);
            let store = place.open();
            let before = place.bytes();
            let is_compacted = || place.bytes() < before / 4 * 3;
            unlink_two_thirds(&store);
            let from = place.fs.operation_count() + skipped;
            place.fs.fail_at(from, Fault::errno(5).class(OperationClass::Reads).only(is_read));
            let reaped = store.reap();
            let Some(fired) = place.fs.last_fired() else { break };
            skipped += fired.ordinal + 1 - from;
            // A pass that could not read the bucket has freed nothing yet.
            let is_due = noted(&store).is_some() || store.totals().dead_bytes > 0;
            assert!(is_due || is_compacted(), "{fired:?}: {reaped:?}");
            ended_early += u32::from(!is_compacted());
            place.clock.advance(Duration::from_secs(300));
            store.reap().unwrap();
            assert!(is_compacted(), "{fired:?}: {} of {before} are left", place.bytes());
            assert_eq!(noted(&store), None);
        }
        assert!(ended_early > 1, "{ended_early}");
    }

    /// Each further byte had it tried again, and where none was freed nothing did.
    #[test]
    fn a_compaction_that_fails_is_tried_again_in_time() {
        let (place, store) = Place::new();
        let before = place.bytes();
        unlink_two_thirds(&store);
        let makes_table = |operation: &str, path: &Path| operation == "create" && is_table(path);
        let full = Fault::errno(28).class(OperationClass::Writes).only(makes_table);
        place.fs.fail_at(0, full.sticky());
        assert!(store.reap().is_err());
        let fired = place.fs.fired();
        unlink(&store, 4);
        store.reap().unwrap();
        assert_eq!(place.fs.fired(), fired, "it is tried again at once");
        assert!(noted(&store).is_some());
        place.fs.clear();
        assert!(compact_next(store.core()).is_none());
        place.clock.advance(Duration::from_secs(300));
        assert!(matches!(compact_next(store.core()), Some(Ok(()))));
        assert!(place.bytes() < before / 4 * 3, "{} of {before} are left", place.bytes());
        assert_eq!(noted(&store), None);
    }

    /// One thread did both: while it compacted a large bucket, minutes, what was unlinked in any took up its room.
    #[test]
    fn what_is_unlinked_is_freed_while_a_bucket_is_compacted() {
        let (fs, clock) = (Arc::new(MemoryFileSystem::new()), Arc::new(SystemClock::default()));
        let resources = Resources::with(resource_options(), fs, clock).unwrap();
        let create = CreateOptions { bucket_count: 2, ..CreateOptions::default() };
        let store = FileStore::create_with("/files", create, options(), resources).unwrap();
        // As with a bucket in hand. The threads look once a second.
        let compacting = store.core().compacting.lock();
        thread::sleep(Duration::from_millis(1500));
        write(&store, 1);
        unlink(&store, 1);
        let is_freed = (0..2000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            store.totals().dead_bytes == 0
        });
        drop(compacting);
        assert!(is_freed);
    }

    /// What was freed counts against no cap, and was still on the disk: who wrote faster than buckets are compacted was
    /// refused, though there was room.
    #[test]
    fn who_finds_the_disk_full_has_what_was_freed_given_back() {
        let (place, store) = Place::new();
        unlink_two_thirds(&store);
        reap(store.core()).unwrap();
        assert!(noted(&store).is_some());
        place.leave(3 << 20);
        let file = vec![7; 10 << 20];
        store.write("large", &file, WriteOptions::default()).unwrap();
        assert_eq!(noted(&store), None);
        assert!(store.read("large").unwrap().unwrap() == file);
        // For what little was freed since it isn't compacted again so soon.
        unlink(&store, 4);
        reap(store.core()).unwrap();
        assert!(noted(&store).is_some());
        BEFORE_TABLE.set(Some(Box::new(|| {})));
        let refused = store.write("larger", &vec![7; 32 << 20], WriteOptions::default());
        assert!(matches!(refused, Err(Error::Engine(tallybook::Error::NoSpace { .. }))));
        assert!(BEFORE_TABLE.take().is_some(), "it is compacted again");
        place.clock.advance(Duration::from_secs(10));
        compact_for_room(store.core(), 0);
        assert_eq!(noted(&store), None);
    }

    /// Less than a mebibyte that was freed counted as no room for a segment, though the disk lacked less than that:
    /// each try was refused, until more was unlinked in the bucket.
    #[test]
    fn who_finds_a_disk_a_little_too_full_has_the_little_that_was_freed_given_back() {
        let (place, store) = Place::new();
        let write_on = || {
            let write = |name: &str| store.write(name, &[7; CHUNK], WriteOptions::default());
            (1000..1400).try_for_each(|number| write(&number.to_string()).map(drop))
        };
        // A segment and the reserve, but for a little.
        let almost = (9 << 20) - (300 << 10);
        place.leave(almost);
        assert!(matches!(write_on(), Err(Error::Engine(tallybook::Error::NoSpace { .. }))));
        (0..14).for_each(|number| unlink(&store, number));
        reap(store.core()).unwrap();
        place.leave(almost);
        write(&store, 2000);
        assert_eq!(noted(&store), None);
    }

    /// The compaction had made the room, and met one damaged chunk: the writer, who had waited for it, was refused.
    #[test]
    fn who_finds_the_disk_full_gets_the_room_that_is_made_beside_damage() {
        let (place, store) = Place::new();
        store.close().unwrap();
        drop(store);
        place.damage(100);
        let store = place.open();
        unlink_two_thirds(&store);
        reap(store.core()).unwrap();
        place.leave(3 << 20);
        let mut numbers = 1000..;
        while noted(&store).is_some() {
            numbers.by_ref().take(10).for_each(|number| write(&store, number));
        }
        assert!(matches!(store.read("100"), Err(Error::Damaged { .. })));
    }

    /// One read that failed, or a full disk, had every writer refused for five minutes.
    #[test]
    fn who_finds_the_disk_full_tries_a_compaction_again_that_failed_a_while_ago() {
        let (place, store) = Place::new();
        unlink_two_thirds(&store);
        let core = store.core();
        reap(core).unwrap();
        let makes_table = |operation: &str, path: &Path| operation == "create" && is_table(path);
        place.fs.fail_at(0, Fault::errno(5).class(OperationClass::Writes).only(makes_table));
        for _ in 0..2 {
            compact_for_room(core, 0);
            assert_eq!(place.fs.fired(), 1);
            assert!(noted(&store).is_some());
        }
        place.clock.advance(Duration::from_secs(10));
        assert!(compact_next(core).is_none());
        compact_for_room(core, 0);
        assert_eq!(noted(&store), None);
    }

    /// Each took a thread of a server for as long as it waited, until there were none for who reads.
    #[test]
    fn a_few_wait_for_room_and_the_others_are_refused_at_once() {
        let (place, store) = Place::new();
        unlink_two_thirds(&store);
        let core = store.core();
        reap(core).unwrap();
        place.leave(3 << 20);
        let file = vec![7; 64 << 20];
        let (ends, ended) = mpsc::channel();
        thread::scope(|scope| {
            let compacting = core.compacting.lock();
            for number in 0..ROOM_WAITERS_MAX {
                let (store, file, ends) = (&store, &file, ends.clone());
                scope.spawn(move || {
                    let _ = store.write(&format!("waits {number}"), file, WriteOptions::default());
                    ends.send(()).unwrap();
                });
            }
            while Arc::strong_count(&core.waiting_for_room) < ROOM_WAITERS_MAX + 1 {
                assert!(ended.try_recv().is_err(), "one doesn't wait");
                thread::sleep(Duration::from_millis(1));
            }
            let refused = store.write("refused", &file, WriteOptions::default());
            assert!(matches!(refused, Err(Error::Engine(tallybook::Error::NoSpace { .. }))));
            assert!(ended.try_recv().is_err(), "it waited as long as the others");
            drop(compacting);
        });
        assert_eq!(noted(&store), None);
    }

    /// The bucket with the lowest number was always the first: where something was freed in it all the time, and its
    /// disk had no room for a table, the others were never compacted.
    #[test]
    fn a_bucket_that_can_not_be_compacted_holds_up_no_other() {
        let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let resources = Resources::inline(resource_options(), Arc::new(fs.clone()), clock);
        let create = CreateOptions { bucket_count: 2, ..CreateOptions::default() };
        let store = FileStore::create_with("/files", create, options(), resources).unwrap();
        (0..20).for_each(|number| write(&store, number));
        let core = store.core();
        let free = |bucket, bytes| core.figures.lock().count_freed(bucket, bytes);
        let due = |from: u8| core.figures.lock().compaction_due(from, core.now_ns());
        let is_due = |bucket: u8| due(bucket) == Some(bucket);
        free(0, 1 << 30);
        free(1, 1 << 30);
        let fails = |operation: &str, path: &Path| operation == "create" && is_table(path);
        fs.fail_at(0, Fault::errno(28).class(OperationClass::Writes).only(fails).sticky());
        for _ in 0..4 {
            free(0, 8 << 20);
            assert!(is_due(0));
            let _ = compact_next(core);
        }
        assert!(fs.fired() >= 2, "it is tried in its turn");
        assert!(!is_due(1));
        fs.clear();
        free(0, 8 << 20);
        compact_due(core).unwrap();
        assert_eq!(due(0), None);
    }
}
