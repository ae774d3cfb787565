//! Opening a store.
//!
//! 1. Lock the directory.
//! 2. Recover the manifest: which tables and closed segments there are, and where replay starts.
//! 3. Open the tables and segments; any that is missing or damaged refuses the store.
//! 4. Replay the journal into memtables.
//! 5. Write a new manifest, and remove the files that nothing names.

use std::collections::HashSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::current_state::CurrentState;
use super::durability::NEVER_NS;
use super::inner::{Commit, FlushQueue, Inner, OpeningFigures, PendingFlush, Tree};
use super::snapshot::SnapshotList;
use super::state::{ReadState, SegmentEntry, Segments};
use super::tree::{open_table, seqno_reserve, tell_pool};
use super::write::insert;
use crate::error::{Error, Result};
use crate::fault_points::{self, Bug};
use crate::file_name::{self, FileKind};
use crate::journal::{
    CollectedIndex, JournalFiles, JournalPosition, JournalWriter, LogSegment, Recovered,
    SEGMENT_HEADER_BYTES, Segment, SegmentOptions, SegmentPool, SyncState, recover,
};
use crate::key::{SEQNO_USED_MAX, SeqNo};
use crate::lock;
use crate::manifest::{self, Manifest};
use crate::memtable::MemtableWriter;
use crate::obsolete::ObsoleteQueue;
use crate::options::{Durability, JournalWriting, Options};
use crate::resources::{Participant, Resources, Work};
use crate::salt::Salts;
use crate::stages::{Recorder, Stage};
use crate::version::Version;

/// Of a journal that nothing is pointed at in, memtables that are being filled or flushed hold so many at a
/// time, about.
const LOG_MEMTABLES: u64 = 2;

impl Inner {
    /// Opens the store in `dir`.
    pub(super) fn open(
        dir: &Path,
        options: Options,
        resources: Arc<Resources>,
    ) -> Result<Arc<Inner>> {
        options.check()?;
        let started_ns = resources.clock.steady_ns();
        let recorder = Arc::new(Recorder::new(options.sample_every));
        let lock = lock_directory(dir, &options, &resources)?;
        // Another store may have been here: its files have the names that this one's will have.
        resources.file_cache.forget_directory(dir);
        let opening =
            Opening { dir, options: &options, resources: &resources, recorder: &recorder };
        let found = opening.recover()?;
        let Found { version, segments, replayed, manifest, last_seqno, pool, .. } = found;
        let end = replayed.recovered.end;
        let sync = Arc::new(SyncState::new(end.lsn, &recorder));
        let immutable_bytes: usize = replayed.pending.iter().map(|p| p.memtable.bytes()).sum();
        resources.memtable_bytes.fetch_add(immutable_bytes, Ordering::Relaxed);
        let state = ReadState {
            active: replayed.active.memtable().clone(),
            immutables: replayed.pending.iter().rev().map(|p| p.memtable.clone()).collect(),
            version: Arc::new(version),
            segments: Arc::new(segments),
        };
        let flushes = FlushQueue { pending: replayed.pending, ..FlushQueue::default() };
        let inner = Arc::new_cyclic(|this: &Weak<Inner>| Inner {
            this: this.clone(),
            dir: dir.to_owned(),
            lock: Mutex::new(Some(lock)),
            state: CurrentState::new(state),
            install: lock::Mutex::new(Stage::LockInstall, &recorder, ()),
            visible_seqno: AtomicU64::new(last_seqno),
            snapshots: SnapshotList::default(),
            commit: lock::Mutex::new(
                Stage::LockCommit,
                &recorder,
                Commit {
                    writer: JournalWriter::new(pool.clone(), sync.clone(), end),
                    last_seqno,
                    active: replayed.active,
                    memtable_start: replayed.active_start,
                    noted_ms: 0,
                },
            ),
            sync,
            pool,
            log: lock::Mutex::new(Stage::LockLog, &recorder, log_of(&replayed.recovered)),
            retired: Mutex::default(),
            tree: lock::Mutex::new(Stage::LockTree, &recorder, Tree { manifest }),
            next_file_number: found.next_file_number,
            salts: found.salts,
            obsolete: found.obsolete,
            flushes: lock::Mutex::new(Stage::LockFlushes, &recorder, flushes),
            flush_ended: Condvar::new(),
            immutable_bytes: AtomicUsize::new(immutable_bytes),
            preparing: Mutex::new(()),
            removing: Mutex::new(()),
            naming: Mutex::new(()),
            compacting: Mutex::new(()),
            collected_values: Mutex::default(),
            segments_avoided: Default::default(),
            merges_avoided: Default::default(),
            throttle: Default::default(),
            lag_in_space_bits: AtomicU64::new(0),
            short_since_ns: AtomicU64::new(0),
            pressure_bits: AtomicU64::new(0),
            poison: OnceLock::new(),
            closed: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
            counters: Default::default(),
            sync_due_ns: AtomicU64::new(NEVER_NS),
            progress_ns: AtomicU64::new(resources.clock.steady_ns()),
            read_credit_spent: AtomicU64::new(0),
            read_credit_asked: AtomicU64::new(0),
            hidden_of: Mutex::new(None),
            settled: AtomicBool::new(false),
            settled_at_ms: AtomicU64::new(0),
            last_write_ns: AtomicU64::new(resources.clock.steady_ns()),
            idle_look_ns: AtomicU64::new(0),
            room_look_ns: AtomicU64::new(0),
            retries: Default::default(),
            opening: OpeningFigures {
                elapsed: Duration::from_nanos(resources.clock.steady_ns() - started_ns),
                replayed_bytes: replayed.recovered.replayed_bytes,
                torn_bytes: replayed.recovered.torn_bytes,
                torn_records: replayed.recovered.torn_records,
            },
            options: options.clone(),
            resources: resources.clone(),
            recorder,
        });
        inner.start(&replayed.recovered)?;
        Ok(inner)
    }

    /// Proves to the next recovery what this one made durable, and has the background work begin.
    fn start(self: &Arc<Self>, recovered: &Recovered) -> Result<()> {
        if recovered.proven_lsn < recovered.end.lsn {
            self.append_mark(&mut self.commit.lock());
        }
        if let Err(error) = self.pool.prepare_first() {
            // The writer tries again, and tells its caller.
            self.poison_if_sync_failed(&error);
        }
        self.refresh_pressure();
        let participant: Arc<dyn Participant> = self.clone();
        self.resources.register(Arc::downgrade(&participant));
        self.request(Work::Flush);
        self.request(Work::Compaction);
        self.run_inline();
        Ok(())
    }
}

/// What replay left: memtables.
struct ReplayedMemtables {
    recovered: Recovered,
    pending: std::collections::VecDeque<PendingFlush>,
    active: MemtableWriter,
    active_start: JournalPosition,
}

/// What the directory holds, with the manifest that says so.
struct Found {
    version: Version,
    segments: Segments,
    replayed: ReplayedMemtables,
    manifest: Manifest,
    last_seqno: SeqNo,
    pool: Arc<SegmentPool>,
    next_file_number: Arc<AtomicU64>,
    salts: Arc<Salts>,
    obsolete: Arc<ObsoleteQueue>,
}

struct Opening<'a> {
    dir: &'a Path,
    options: &'a Options,
    resources: &'a Arc<Resources>,
    recorder: &'a Arc<Recorder>,
}

impl Opening<'_> {
    /// All that is on the disk, from the manifest to the spare segments.
    fn recover(&self) -> Result<Found> {
        let names = self.list()?;
        let obsolete = ObsoleteQueue::new();
        let (mut version, old_manifest) = self.recover_manifest(&names, &obsolete)?;
        let beyond = names.iter().filter_map(|(_, kind)| number_of(*kind)).max().unwrap_or(0) + 1;
        let next_file_number = version.next_file_number.max(beyond);
        if next_file_number > file_name::NUMBER_MAX {
            return Err(Error::corruption(self.dir, 0, "its files have impossible numbers"));
        }
        let next_file_number = Arc::new(AtomicU64::new(next_file_number));
        let files = Arc::new(JournalFiles {
            fs: self.resources.fs.clone(),
            dir: self.dir.to_owned(),
            file_cache: self.resources.file_cache.clone(),
            reading: self.options.reading,
            recorder: self.recorder.clone(),
        });
        let mut segments = self.open_segments(&files, &version)?;
        let replayed = self.replay(&files, &names, &version)?;
        let recovered = &replayed.recovered;
        for segment in &recovered.segments {
            segments.insert(segment.clone());
        }
        let last_seqno = match fault_points::is_planted(Bug::ReuseSeqNoAfterCrash) {
            true => version.last_seqno,
            false => (version.last_seqno.max(recovered.last_seqno))
                .max(version.seqno_next.saturating_sub(1)),
        };
        if last_seqno > SEQNO_USED_MAX {
            return Err(Error::corruption(self.dir, 0, "its writes have impossible SeqNos"));
        }
        version.replay_from = recovered.start;
        // All of the journal is on disk: that it is synced up to its end says more.
        version.journal_newest = JournalPosition::default();
        let manifest = self.new_manifest(&version, recovered, &next_file_number, last_seqno)?;
        self.remove_unnamed(&names, &version, recovered, old_manifest);
        // As the new manifest says.
        version.journal_synced = recovered.end;
        let number = next_file_number.load(Ordering::Relaxed);
        let salts = Arc::new(self.resources.salts(self.dir, number));
        let pool = Arc::new(self.segment_pool(&files, &next_file_number, &salts));
        // Before the spares come back: those of another size would be removed.
        pool.set_scale(recovered.end.lsn);
        tell_pool(&pool, &version);
        for &(number, bytes) in &recovered.spares {
            pool.adopt(number, bytes);
        }
        Ok(Found {
            version,
            segments,
            replayed,
            manifest,
            last_seqno,
            pool,
            next_file_number,
            salts,
            obsolete,
        })
    }

    /// The files that are a store's.
    fn list(&self) -> Result<Vec<(PathBuf, FileKind)>> {
        let names =
            self.resources.fs.list(self.dir).map_err(|error| Error::io("list", self.dir, error))?;
        let known =
            names.iter().filter_map(|name| Some((self.dir.join(name), file_name::parse(name)?)));
        Ok(known.collect())
    }

    /// The tree as the manifest says, its tables open, and the manifest's number; an empty tree for a
    /// new store.
    fn recover_manifest(
        &self,
        names: &[(PathBuf, FileKind)],
        obsolete: &Arc<ObsoleteQueue>,
    ) -> Result<(Version, Option<u64>)> {
        let holds_data = names.iter().any(|(_, kind)| {
            matches!(kind, FileKind::Current | FileKind::Table(_) | FileKind::Segment(_))
                || matches!(kind, FileKind::Manifest(_))
        });
        let Some(recovered) = manifest::recover(&*self.resources.fs, self.dir)? else {
            if !self.options.create_if_missing {
                let what = format!("{} holds no store", self.dir.display());
                return Err(Error::InvalidArgument(what));
            }
            return Ok((Version::default(), None));
        };
        if self.options.error_if_exists && holds_data {
            let what = format!("{} holds a store already", self.dir.display());
            return Err(Error::InvalidArgument(what));
        }
        let version = recovered.version.open_tables(&mut |meta| {
            open_table(self.dir, self.options.reading, self.resources, obsolete, meta)
        })?;
        Ok((version, Some(recovered.number)))
    }

    /// The closed segments that the manifest keeps, and the forwards into collected ones.
    fn open_segments(&self, files: &Arc<JournalFiles>, version: &Version) -> Result<Segments> {
        let mut segments = Segments::new(self.dir);
        for meta in version.segments.kept() {
            let segment = Segment::open(files.clone(), meta.number, meta.end_offset)?;
            segments.insert(Arc::new(segment));
        }
        let mut indexes = BTreeMap::new();
        for (old, _) in version.segments.forwards() {
            let answering = version.segments.answering(old);
            let Some(SegmentEntry::Direct(to)) = segments.by_number.get(&answering).cloned() else {
                let path = file_name::segment(self.dir, answering);
                return Err(Error::corruption(
                    &path,
                    0,
                    "a segment that values were moved to is gone",
                ));
            };
            let index = match indexes.entry(answering) {
                Entry::Occupied(index) => index.into_mut(),
                Entry::Vacant(place) => place.insert(CollectedIndex::read(&to)?),
            };
            segments.forward(old, index, &to);
        }
        Ok(segments)
    }

    /// Replays the journal into memtables, starting another whenever one is full.
    fn replay(
        &self,
        files: &Arc<JournalFiles>,
        names: &[(PathBuf, FileKind)],
        version: &Version,
    ) -> Result<ReplayedMemtables> {
        let numbers: Vec<u64> = names
            .iter()
            .filter_map(|(_, kind)| match kind {
                FileKind::Segment(number) => Some(*number),
                _ => None,
            })
            .collect();
        self.check_newest(version, &numbers)?;
        let mut pending = std::collections::VecDeque::new();
        let mut active = MemtableWriter::new(self.recorder, &self.resources.spare_chunks, 0);
        let mut active_start = version.replay_from;
        let synced_lsn = version.journal_synced.lsn;
        let kept: HashSet<u64> = version.segments.kept().map(|kept| kept.number).collect();
        let from = version.replay_from;
        let recovered = recover(files, from, synced_lsn, &numbers, &kept, &mut |group| {
            for change in group.changes {
                insert(&mut active, change);
            }
            if active.memtable().bytes() >= self.options.memtable_bytes {
                active_start = group.end;
                let keys = active.memtable().keys_expected(self.options.memtable_bytes);
                pending.push_back(PendingFlush::new(active.change(self.recorder, keys), group.end));
            }
            Ok(())
        })?;
        if recovered.start != version.replay_from {
            // Nothing was replayed.
            active_start = recovered.start;
        }
        Ok(ReplayedMemtables { recovered, pending, active, active_start })
    }

    /// `Corruption` if the journal's newest segment is gone, of which nothing else may tell.
    fn check_newest(&self, version: &Version, numbers: &[u64]) -> Result<()> {
        let (newest, from) = (version.journal_newest, version.replay_from);
        let is_needed = newest.lsn >= from.lsn || newest.segment == from.segment;
        if newest.segment == 0 || !is_needed || numbers.contains(&newest.segment) {
            return Ok(());
        }
        let path = file_name::segment(self.dir, newest.segment);
        Err(Error::corruption(&path, 0, "missing, though the manifest names it"))
    }

    fn new_manifest(
        &self,
        version: &Version,
        recovered: &Recovered,
        next_file_number: &AtomicU64,
        last_seqno: SeqNo,
    ) -> Result<Manifest> {
        let number = next_file_number.fetch_add(1, Ordering::Relaxed);
        let mut edit = version.to_edit();
        edit.next_file_number = Some(next_file_number.load(Ordering::Relaxed));
        edit.journal_synced = Some(recovered.end);
        edit.seqno_next = Some(seqno_reserve(last_seqno));
        Manifest::create(&*self.resources.fs, self.dir, number, &edit)
    }

    /// Removes files that nothing names: what a crash left half done. A failure is no harm.
    fn remove_unnamed(
        &self,
        names: &[(PathBuf, FileKind)],
        version: &Version,
        recovered: &Recovered,
        old_manifest: Option<u64>,
    ) {
        let tables: HashSet<u64> = version.tables().map(|(_, table)| table.number).collect();
        let mut segments: HashSet<u64> = version.segments.kept().map(|kept| kept.number).collect();
        segments.extend(recovered.segments.iter().map(|segment| segment.number()));
        segments.extend(recovered.spares.iter().map(|&(number, _)| number));
        for (path, kind) in names {
            let is_unnamed = match kind {
                FileKind::Table(number) => !tables.contains(number),
                FileKind::Segment(number) => !segments.contains(number),
                FileKind::Manifest(_) => old_manifest.is_some(),
                FileKind::Temporary => true,
                FileKind::Lock | FileKind::Current | FileKind::Torn(_) => false,
            };
            if is_unnamed {
                self.resources.file_cache.forget(path);
                let _ = self.resources.fs.remove(path);
            }
        }
    }

    fn segment_pool(
        &self,
        files: &Arc<JournalFiles>,
        next_file_number: &Arc<AtomicU64>,
        salts: &Arc<Salts>,
    ) -> SegmentPool {
        let is_sync = self.options.durability == Durability::Sync;
        let is_mapped = match self.options.journal_writing {
            JournalWriting::Auto => !is_sync && self.resources.fs.overwrites_in_place(self.dir),
            JournalWriting::Mapped => true,
            JournalWriting::Written => false,
        };
        // Room for a memtable's tables, on a small disk less. A disk that doesn't tell has none to keep.
        let available = self.resources.fs.available_bytes(self.dir).unwrap_or(0);
        let reserve_bytes = (self.options.memtable_bytes as u64).min(available / 16);
        let options = SegmentOptions {
            is_mapped,
            // A sync would write the whole piece of a map that a record is in.
            zero_ahead: is_sync != is_mapped,
            segment_bytes_min: self.options.segment_bytes_min,
            segment_bytes_max: self.options.segment_bytes_max,
            log_bytes: LOG_MEMTABLES * self.options.memtable_bytes as u64,
            reserve_bytes,
        };
        SegmentPool::new(files.clone(), options, next_file_number.clone(), salts.clone())
    }
}

fn lock_directory(
    dir: &Path,
    options: &Options,
    resources: &Resources,
) -> Result<Box<dyn Send + Sync>> {
    let fs = &resources.fs;
    if options.create_if_missing {
        fs.create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
    } else if !fs.exists(dir).map_err(|error| Error::io("look up", dir, error))? {
        return Err(Error::InvalidArgument(format!("{} does not exist", dir.display())));
    }
    resources.lock_directory(dir)
}

fn number_of(kind: FileKind) -> Option<u64> {
    match kind {
        FileKind::Manifest(number)
        | FileKind::Segment(number)
        | FileKind::Table(number)
        | FileKind::Torn(number) => Some(number),
        FileKind::Lock | FileKind::Current | FileKind::Temporary => None,
    }
}

/// The replayed segments with the LSN of each one's first record, counted back from the end.
fn log_of(recovered: &Recovered) -> Vec<LogSegment> {
    let mut lsn = recovered.end.lsn;
    let mut log: Vec<LogSegment> = recovered
        .segments
        .iter()
        .rev()
        .map(|segment| {
            lsn -= segment.end() - SEGMENT_HEADER_BYTES;
            LogSegment { segment: segment.clone(), base_lsn: lsn }
        })
        .collect();
    log.reverse();
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::ResourceOptions;
    use crate::store::Store;
    use crate::version::VersionEdit;
    use crate::vfs::{FileSystem, ManualClock, MemoryFileSystem};

    fn open(fs: &MemoryFileSystem, now_ms: u64) -> Result<Store> {
        let clock = Arc::new(ManualClock::at_ms(now_ms));
        let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock);
        Store::open_with("/store", Options::default(), resources)
    }

    /// Counted on from them, SeqNos and files' numbers would begin anew.
    #[test]
    fn numbers_near_their_end_are_refused() {
        let changes: [fn(&mut VersionEdit); 3] = [
            |edit| edit.last_seqno = Some(SEQNO_USED_MAX + 1),
            |edit| edit.seqno_next = Some(SEQNO_USED_MAX + 2),
            |edit| edit.next_file_number = Some(u64::MAX),
        ];
        for change in changes {
            let fs = MemoryFileSystem::new();
            let dir = Path::new("/store");
            let store = open(&fs, 1).unwrap();
            store.put(b"key", b"value").unwrap();
            store.close().unwrap();
            let recovered = manifest::recover(&fs, dir).unwrap().unwrap();
            let mut edit = recovered.version.to_edit();
            change(&mut edit);
            Manifest::create(&fs, dir, recovered.number + 1, &edit).unwrap();
            let opened = open(&fs, 2);
            assert!(matches!(opened, Err(Error::Corruption { .. })), "{opened:?}");
        }
    }

    #[test]
    fn a_missing_table_or_segment_is_damage_and_named() {
        let (fs, dir) = (MemoryFileSystem::new(), Path::new("/store"));
        let store = open(&fs, 1).unwrap();
        for key in 0..10u8 {
            store.put(&[key], &vec![key; 1 << 20]).unwrap();
        }
        store.flush().unwrap();
        store.close().unwrap();
        let version = manifest::recover(&fs, dir).unwrap().unwrap().version;
        let tables = version.tables().map(|(_, table)| file_name::table(dir, table.number));
        let kept = version.segments.kept().map(|kept| file_name::segment(dir, kept.number));
        let named: Vec<PathBuf> = tables.chain(kept).collect();
        assert!(named.len() > 1, "{named:?}");
        for path in named {
            fs.rename(&path, Path::new("/away")).unwrap();
            let opened = open(&fs, 2);
            assert!(
                matches!(&opened, Err(Error::Corruption { file, .. }) if *file == path),
                "{opened:?}"
            );
            fs.rename(Path::new("/away"), &path).unwrap();
        }
        assert!(open(&fs, 3).is_ok());
    }

    /// All stores number their tables from the same on.
    #[test]
    fn a_table_of_another_store_is_not_taken_for_its_own() {
        let store_of = |value: &[u8], now_ms| {
            let fs = MemoryFileSystem::new();
            let store = open(&fs, now_ms).unwrap();
            store.put(b"key", value).unwrap();
            store.flush().unwrap();
            store.close().unwrap();
            fs
        };
        let tables = |fs: &MemoryFileSystem| {
            let dir = Path::new("/store");
            let mut names = fs.list(dir).unwrap();
            names.retain(|name| matches!(file_name::parse(name), Some(FileKind::Table(_))));
            let path = dir.join(&names[0]);
            let table = fs.open(&path).unwrap();
            let mut bytes = vec![0; table.len().unwrap() as usize];
            table.read_exact_at(&mut bytes, 0).unwrap();
            (path, table, bytes)
        };
        let (ours, other) = (store_of(b"ours", 1_000), store_of(b"them", 1_001));
        let ((path, table, _), (their_path, _, their_bytes)) = (tables(&ours), tables(&other));
        assert_eq!((&path, table.len().unwrap()), (&their_path, their_bytes.len() as u64));
        assert_eq!(open(&ours, 2_000).unwrap().get(b"key").unwrap().unwrap(), b"ours"[..]);
        table.write_all_at(&their_bytes, 0).unwrap();
        let opened = open(&ours, 3_000);
        let refused = |file: &Path| file == path;
        assert!(
            matches!(&opened, Err(Error::Corruption { file, .. }) if refused(file)),
            "{opened:?}"
        );
    }
}
