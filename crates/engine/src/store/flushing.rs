//! Flushes: immutable memtables to L0, in any number of threads, installed in their order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::inner::{FlushState, Inner, PendingFlush};
use super::retries::{RETRY_AFTER, Task};
use super::stats::add;
use super::tree::table_meta;
use crate::compaction::job::{self, Job};
use crate::compaction::output::{OutputOptions, OutputTable};
use crate::error::{Error, Result};
use crate::journal::JournalPosition;
use crate::memtable::Memtable;
use crate::resources::Work;
use crate::stages::{Stage, Trace};
use crate::version::{Added, VersionEdit};
use crate::vfs::cycles;
use crate::waits;

/// Where tables can't be opened so often, their memtable is written anew: it may be these alone.
const OPENS_REFUSED_MAX: u32 = 5;

impl Inner {
    /// Writes one waiting memtable to tables and installs what is ready; whether there may be more.
    pub(super) fn flush_one(&self) -> bool {
        let Some((memtable, end)) = self.pick_flush() else { return false };
        let started_ns = self.resources.clock.steady_ns();
        let mut trace = self.recorder.begin_rare();
        let result = self.write_memtable(&memtable, end, &mut trace);
        let result = self.note_written(&memtable, result).and_then(|()| self.install_flushes());
        trace.lap(Stage::FlushInstall);
        trace.total(Stage::FlushTotal);
        let elapsed_ns = self.resources.clock.steady_ns() - started_ns;
        self.throttle.note_drain(memtable.bytes() as u64, Duration::from_nanos(elapsed_ns));
        match &result {
            Ok(()) => self.retries.note_success(Task::Flush),
            Err(error) => self.note_background_error(Task::Flush, error),
        }
        let is_ok = result.is_ok();
        let mut flushes = self.flushes.lock();
        flushes.failure = result.err();
        flushes.running -= 1;
        drop(flushes);
        self.flush_ended.notify_all();
        self.request(Work::Compaction);
        is_ok
    }

    /// Takes the oldest waiting memtable.
    fn pick_flush(&self) -> Option<(Arc<Memtable>, JournalPosition)> {
        let mut flushes = self.flushes.lock();
        if flushes.is_closed {
            return None;
        }
        let is_waiting = |pending: &PendingFlush| matches!(pending.state, FlushState::Waiting);
        // One that is written waits for an older one, or for another try at installing it.
        let is_blocked = |pending: &PendingFlush| matches!(pending.state, FlushState::Written(_));
        let at = flushes.pending.iter().position(is_waiting);
        let at = at.or_else(|| {
            let front = flushes.pending.front()?;
            (is_blocked(front) && flushes.running == 0).then_some(0)
        })?;
        let picked = &mut flushes.pending[at];
        let (memtable, end) = (picked.memtable.clone(), picked.end);
        if is_waiting(picked) {
            picked.state = FlushState::Running;
            self.recorder.note(Stage::FlushWait, picked.since);
        }
        let has_more = flushes.pending.iter().any(is_waiting);
        flushes.running += 1;
        drop(flushes);
        if has_more {
            // Another thread may take the next one meanwhile.
            self.request(Work::Flush);
        }
        Some((memtable, end))
    }

    /// Records how writing a memtable went.
    fn note_written(
        &self,
        memtable: &Arc<Memtable>,
        written: Result<Option<Vec<OutputTable>>>,
    ) -> Result<()> {
        let mut flushes = self.flushes.lock();
        let mut pending = flushes.pending.iter_mut();
        let Some(pending) = pending.find(|pending| Arc::ptr_eq(&pending.memtable, memtable)) else {
            // Another thread has installed it, with the one that it wrote itself.
            return Ok(());
        };
        match written {
            Ok(Some(tables)) => pending.state = FlushState::Written(tables),
            Ok(None) => {}
            Err(error) => {
                pending.state = FlushState::Waiting;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes a memtable to tables; `None` when that was done before, by another thread maybe.
    fn write_memtable(
        &self,
        memtable: &Arc<Memtable>,
        end: JournalPosition,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Vec<OutputTable>>> {
        let is_to_be_written = self.flushes.lock().pending.iter().any(|pending| {
            Arc::ptr_eq(&pending.memtable, memtable)
                && !matches!(pending.state, FlushState::Written(_))
        });
        if !is_to_be_written {
            return Ok(None);
        }
        if self.sync.has_unsynced_values() {
            // The journal is on its way to the disk while the table is made.
            self.sync.start_writeback();
        }
        let job = Job {
            sources: memtable.sources().collect(),
            range_tombstones: memtable
                .range_tombstones()
                .iter()
                .flat_map(|set| set.iter().cloned())
                .collect(),
            start: None,
            end: None,
            bottom: false,
            snapshots: self.snapshots.list(),
            now_ms: self.resources.clock.now_ms(),
            direct: &|pointer| *pointer,
            cancel: &std::sync::atomic::AtomicBool::new(false),
        };
        let result = job::run(job, &self.resources.fs, &self.next_file_number, self.output(0))?;
        trace.lap(Stage::FlushWrite);
        // What a table points at must be on disk before the manifest names the table.
        self.sync_values(end.lsn)?;
        trace.lap(Stage::FlushSync);
        let bytes = result.tables.iter().map(|table| table.built.file_bytes).sum();
        add(&self.counters.flush_bytes_written, bytes);
        Ok(Some(result.tables))
    }

    /// Installs the written memtables at the front of the queue, oldest first.
    fn install_flushes(&self) -> Result<()> {
        let mut tree = self.tree.lock();
        loop {
            let (memtable, end, tables) = {
                let mut flushes = self.flushes.lock();
                let Some(front) = flushes.pending.front_mut() else { return Ok(()) };
                let FlushState::Written(tables) = &mut front.state else { return Ok(()) };
                (front.memtable.clone(), front.end, std::mem::take(tables))
            };
            let run_id = self.take_number();
            let added =
                tables.iter().map(|table| Added { level: 0, run_id, meta: table_meta(table) });
            let mut edit = VersionEdit {
                added: added.collect(),
                replay_from: Some(end),
                ..VersionEdit::default()
            };
            self.name_position(&mut edit, end);
            if let Err(error) = self.install(&mut tree, edit, |state| {
                state.immutables.retain(|other| !Arc::ptr_eq(other, &memtable));
            }) {
                // What was written is kept for the next try, unless it is lost: the memtable is not. A file that can't
                // be opened isn't lost by that, and another one could not be opened either, mostly.
                let mut is_lost = error.is_damage();
                let mut flushes = self.flushes.lock();
                let front = flushes.pending.front_mut().expect("the front is pending");
                if is_lost && matches!(error, Error::Io { op: "open", .. }) {
                    front.opens_refused += 1;
                    is_lost = front.opens_refused.is_multiple_of(OPENS_REFUSED_MAX);
                }
                if is_lost {
                    front.state = FlushState::Waiting;
                    drop(flushes);
                    self.discard(&tables);
                } else {
                    front.state = FlushState::Written(tables);
                }
                return Err(error);
            }
            {
                let mut flushes = self.flushes.lock();
                flushes.pending.pop_front();
                flushes.installed += 1;
            }
            self.immutable_bytes.fetch_sub(memtable.bytes(), Ordering::Relaxed);
            self.resources.memtable_bytes.fetch_sub(memtable.bytes(), Ordering::Relaxed);
            self.progress_ns.store(self.resources.clock.steady_ns(), Ordering::Relaxed);
            self.refresh_pressure();
            add(&self.counters.flushes, 1);
            // A store that comes to rest looks at this first.
            self.settled.store(false, Ordering::SeqCst);
        }
    }

    /// Makes the active memtable immutable, if it holds anything, and waits until it and those before it
    /// are flushed; what is written meanwhile is not waited for.
    pub(super) fn flush_all(&self) -> Result<()> {
        self.check_writable()?;
        {
            let mut commit = self.commit.lock();
            // Asked again: once the store is closed, nobody takes what waits to be flushed.
            self.check_writable()?;
            if !commit.active.memtable().is_empty() {
                self.change_memtable(&mut commit, 0);
            }
        }
        self.wait_for_flushes()
    }

    /// Waits until the memtables are flushed that wait for it now.
    fn wait_for_flushes(&self) -> Result<()> {
        let mut flushes = self.flushes.lock();
        let wanted = flushes.installed + flushes.pending.len() as u64;
        flushes.failure = None;
        self.retries.end_wait(Task::Flush);
        if self.resources.is_inline() {
            drop(flushes);
            while self.flush_one() {}
            flushes = self.flushes.lock();
        }
        if flushes.installed >= wanted {
            return Ok(());
        }
        let from = cycles::now();
        while flushes.installed < wanted {
            if let Some(failure) = &flushes.failure {
                return Err(failure.clone());
            }
            self.check_writable()?;
            if self.resources.is_inline() {
                return Err(Error::Busy);
            }
            self.request(Work::Flush);
            self.flush_ended.wait_for(&mut flushes, RETRY_AFTER);
        }
        drop(flushes);
        let waited = Duration::from_nanos(cycles::to_ns(cycles::now() - from));
        waits::note(Stage::FlushWait.name(), waited);
        Ok(())
    }

    /// How tables of a level are written.
    pub(super) fn output(&self, level: usize) -> OutputOptions {
        OutputOptions {
            dir: self.dir.clone(),
            // L0 files are smaller, so that a compaction's slice of several runs can end between them.
            table_bytes: match level {
                0 => self
                    .options
                    .table_bytes
                    .min(self.options.memtable_bytes as u64 / 4)
                    .max(4 << 10),
                _ => self.options.table_bytes,
            },
            block_bytes: self.options.block_bytes,
            compression: self.options.compression[level],
            salts: self.salts.clone(),
        }
    }

    /// Keeps a failure of background work for the figures, and delays the next try.
    pub(super) fn note_background_error(&self, task: Task, error: &Error) {
        self.poison_if_sync_failed(error);
        if matches!(error, Error::NoSpace { .. }) {
            // What could not be done may well be what frees space.
            self.pool.release_spare();
        }
        self.retries.note_failure(task, error, self.resources.clock.steady_ns());
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use super::*;
    use crate::resources::{ResourceOptions, Resources};
    use crate::vfs::faulty::{Fault, FaultyFileSystem};
    use crate::vfs::{FileSystem, ManualClock, MemoryFileSystem};
    use crate::{Options, Store};

    const NOT_PERMITTED: i32 = 13;
    const NO_SPACE: i32 = 28;

    /// What one thread took up to install again, another installs behind what it wrote itself.
    #[test]
    fn a_memtable_that_another_thread_has_installed_is_done() {
        let faulty = Arc::new(FaultyFileSystem::new(Arc::new(MemoryFileSystem::new())));
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), faulty.clone(), clock);
        let store = Store::open_with("/s", Options::default(), resources).unwrap();
        let inner = &store.inner;
        let change = |key: &[u8]| {
            store.put(key, b"value").unwrap();
            inner.change_memtable(&mut inner.commit.lock(), 0);
        };
        change(b"first");
        let is_manifest = |_: &str, path: &Path| path.to_string_lossy().contains("MANIFEST");
        let fault = Fault { only: Some(is_manifest), ..Fault::errno(NO_SPACE) };
        faulty.fail_at(faulty.operation_count(), fault);
        assert!(!inner.flush_one());
        faulty.clear();

        let (first, end) = inner.pick_flush().expect("it waits to be installed");
        change(b"second");
        assert!(inner.flush_one());
        assert!(inner.flushes.lock().pending.is_empty());
        let mut trace = inner.recorder.begin_rare();
        let written = inner.write_memtable(&first, end, &mut trace).unwrap();
        assert!(written.is_none(), "it is in tables already");
        inner.note_written(&first, Ok(written)).unwrap();
        inner.install_flushes().unwrap();
        inner.flushes.lock().running -= 1;
        store.close().unwrap();
    }

    /// Every try to install it opened the same file, for as long as the store was open.
    #[test]
    fn a_table_that_is_lost_before_it_is_installed_is_written_again() {
        for is_removed in [false, true] {
            let memory = MemoryFileSystem::new();
            let faulty = Arc::new(FaultyFileSystem::new(Arc::new(memory.clone())));
            let clock = Arc::new(ManualClock::at_ms(1));
            let resources = Resources::inline(ResourceOptions::default(), faulty.clone(), clock);
            let options = Options { background: false, ..Options::default() };
            let store = Store::open_with("/s", options, resources).unwrap();
            store.put(b"key", b"value").unwrap();
            let is_manifest = |operation: &str, path: &Path| {
                operation == "write_all_at" && path.to_string_lossy().contains("MANIFEST")
            };
            faulty.fail_at(0, Fault::errno(NO_SPACE).only(is_manifest));
            assert!(matches!(store.flush(), Err(Error::NoSpace { .. })));
            let tables = || {
                let names = memory.list(Path::new("/s")).unwrap().into_iter();
                names.filter(|name| name.ends_with(".sst")).collect::<Vec<_>>()
            };
            let written = tables();
            let path = Path::new("/s").join(&written[0]);
            if is_removed {
                memory.remove(&path).unwrap();
            } else {
                let file = memory.open(&path).unwrap();
                file.write_all_at(b"other", file.len().unwrap() - 5).unwrap();
            }
            assert!(store.flush().unwrap_err().is_damage());
            store.flush().unwrap();
            assert!(tables().len() == 1 && tables() != written);
            assert_eq!(store.get(b"key").unwrap().unwrap(), "value");
        }
    }

    /// Every try wrote the memtable anew, for as long as the system refused to open tables.
    #[test]
    fn a_table_that_can_not_be_opened_now_is_not_written_again() {
        let faulty = Arc::new(FaultyFileSystem::new(Arc::new(MemoryFileSystem::new())));
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), faulty.clone(), clock);
        let options = Options { background: false, ..Options::default() };
        let store = Store::open_with("/s", options, resources).unwrap();
        store.put(b"key", b"value").unwrap();
        let is_table = |operation: &str, path: &Path| {
            operation == "open_read" && path.extension().is_some_and(|end| end == "sst")
        };
        faulty.fail_at(0, Fault::errno(NOT_PERMITTED).only(is_table).sticky());
        assert!(matches!(store.flush(), Err(Error::Io { op: "open", .. })));
        let written = store.stats().flush_bytes_written;
        assert!(written > 0);
        for _ in 0..3 {
            assert!(store.flush().is_err());
            assert_eq!(store.stats().flush_bytes_written, written);
        }
        faulty.clear();
        store.flush().unwrap();
        assert_eq!(store.stats().flush_bytes_written, written);
        assert_eq!(store.get(b"key").unwrap().unwrap(), "value");
    }

    /// A full disk counted as well.
    #[test]
    fn a_table_that_could_not_be_named_before_is_not_written_again_for_one_refusal() {
        let faulty = Arc::new(FaultyFileSystem::new(Arc::new(MemoryFileSystem::new())));
        let clock = Arc::new(ManualClock::at_ms(1));
        let few_handles = ResourceOptions { file_handles_max: 0, ..ResourceOptions::default() };
        let resources = Resources::inline(few_handles, faulty.clone(), clock);
        let options = Options { background: false, ..Options::default() };
        let store = Store::open_with("/s", options, resources).unwrap();
        store.put(b"key", b"value").unwrap();
        let is_manifest = |operation: &str, path: &Path| {
            operation == "write_all_at" && path.to_string_lossy().contains("MANIFEST")
        };
        let is_table = |operation: &str, path: &Path| {
            operation == "open_read" && path.extension().is_some_and(|end| end == "sst")
        };
        for _ in 1..OPENS_REFUSED_MAX {
            faulty.fail_at(0, Fault::errno(NO_SPACE).only(is_manifest));
            assert!(matches!(store.flush(), Err(Error::NoSpace { .. })));
        }
        let written = store.stats().flush_bytes_written;
        faulty.fail_at(0, Fault::errno(NOT_PERMITTED).only(is_table));
        assert!(matches!(store.flush(), Err(Error::Io { op: "open", .. })));
        store.flush().unwrap();
        assert_eq!(store.stats().flush_bytes_written, written);
        assert_eq!(store.get(b"key").unwrap().unwrap(), "value");
    }

    /// Each try opened the same file, for as long as the store was open.
    #[test]
    fn a_table_that_can_never_be_opened_is_written_again_in_the_end() {
        static LOST: OnceLock<PathBuf> = OnceLock::new();
        let memory = MemoryFileSystem::new();
        let faulty = Arc::new(FaultyFileSystem::new(Arc::new(memory.clone())));
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), faulty.clone(), clock);
        let options = Options { background: false, ..Options::default() };
        let store = Store::open_with("/s", options, resources).unwrap();
        let is_lost = |operation: &str, path: &Path| {
            let is_table = path.extension().is_some_and(|end| end == "sst");
            operation == "open_read" && is_table && LOST.get_or_init(|| path.to_owned()) == path
        };
        faulty.fail_at(0, Fault::errno(NOT_PERMITTED).only(is_lost).sticky());
        store.put(b"key", b"value").unwrap();
        let refused = (0..2 * OPENS_REFUSED_MAX).take_while(|_| store.flush().is_err()).count();
        assert_eq!(refused, OPENS_REFUSED_MAX as usize);
        assert!(!memory.exists(LOST.get().unwrap()).unwrap());
        assert_eq!(store.get(b"key").unwrap().unwrap(), "value");
    }
}
