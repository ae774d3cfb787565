//! What is whole of a damaged store, in a new one.
//!
//! 1. The manifest tells which tables and segments count, and where the log begins. Where it can't be read, all do.
//! 2. Each block of each table is read. What can't be is a range of keys of which writes are lost.
//! 3. The journal is read from where the tables end: up to the first place that can't be, or, if everything is
//!    wanted, all of it, and the older segments too for writes that the tables have lost.
//! 4. Of each key the newest write that was found goes into the new store, with its value.
//!
//! Invariant: each pair in the new store is one that the old one had. Unless everything is wanted it is the one that
//! it had last, or when the first missing write of the log was made: a key of which a later write may be lost is left
//! out. A value that can't be read never gives way to an older one. The old store is only read.

mod copy;
mod errors;
mod found;
mod sources;
mod values;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::file_name;
use crate::head::{Body, Entry};
use crate::journal::{JournalFiles, JournalPosition, KnownLog, SalvagedJournal, Told};
use crate::key::{SEQNO_MAX, SEQNO_USED_MAX, SeqNo};
use crate::options::{Options, Reading};
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::resources::{ResourceOptions, Resources};
use crate::sstable::SalvagedTable;
use crate::stages::Recorder;
use crate::store::Damage;
use crate::version::{TableMeta, Version};
use crate::vfs::{DiskFileSystem, SystemClock};

use copy::Copy;
use errors::Errors;
use found::{Found, is_store, no_store};
use sources::{JournalWrites, Lost, Newest, Source};
use values::Values;

/// So many keys that are left out, or are in doubt, are told by name, and about so many places that can't be read.
pub const NAMED_MAX: usize = 1000;

/// Without a manifest nothing tells which numbers were given out and are lost.
const SEQNOS_LOST_MAX: u64 = 1 << 28;

/// What is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Keys with the value that they had last, or when the first missing write of the log was made.
    Certain,
    /// All that can be read: also what may be an older value than the last, or have been deleted since.
    Everything,
}

/// Why a key is named in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// A later write to it may be lost. It is left out, or is in the new store if everything is wanted.
    MayBeOlder,
    /// Its value can't be read, for this reason. It is left out.
    Unreadable(String),
}

/// What was saved, and what wasn't.
#[derive(Debug, Clone, Default)]
pub struct SalvageReport {
    /// Keys in the new store.
    pub keys: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Keys of which a later write may be lost by what of the tables can't be read. Writes that the log has lost
    /// may be to any key: behind its first hole no key is sure, and none is counted here.
    pub doubtful: u64,
    /// Keys whose value can't be read.
    pub unreadable: u64,
    /// Writes in the log behind the first that is missing: left out, or looked at too if everything is wanted.
    pub behind_hole: u64,
    /// Whether a manifest told what counts. Without one, what was deleted may be back.
    pub has_manifest: bool,
    /// The first of the keys that are in doubt or can't be read, ascending.
    pub named: Vec<(Bytes, Doubt)>,
    /// The first of the places that could not be read, and what that leads to.
    pub damage: Vec<Damage>,
    /// How many more there were.
    pub more_damage: u64,
}

impl SalvageReport {
    /// Whether nothing is missing in the new store, and nothing in doubt.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.doubtful == 0 && self.unreadable == 0
    }

    fn name(&mut self, key: &Bytes, doubt: Doubt) {
        match doubt {
            Doubt::MayBeOlder => self.doubtful += 1,
            Doubt::Unreadable(_) => self.unreadable += 1,
        }
        if self.named.len() < NAMED_MAX {
            self.named.push((key.clone(), doubt));
        }
    }
}

/// Saves what is whole of the store in `from`, which nobody may have open, in a new one in `to`, which must not exist
/// or be empty; written as `options` say. `progress` is called with the bytes done and the bytes in all.
///
/// `InvalidArgument`: there is no store, or without a manifest something certain is wanted. `NewerFormat`: the manifest
/// is of one; a table or segment that is counts as one that can't be read. Any error leaves no store in `to`.
pub fn salvage(
    from: &Path,
    to: &Path,
    wanted: Wanted,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SalvageReport> {
    let clock = Arc::new(SystemClock::default());
    let resources = Resources::inline(ResourceOptions::default(), Arc::new(DiskFileSystem), clock);
    salvage_with(from, to, wanted, options, &resources, progress)
}

/// As [`salvage`], with the files and the clock of `resources`.
pub fn salvage_with(
    from: &Path,
    to: &Path,
    wanted: Wanted,
    options: &Options,
    resources: &Resources,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SalvageReport> {
    options.check()?;
    let fs = &resources.fs;
    let list = || fs.list(from).map_err(|error| Error::io("list", from, error));
    // Before anything is locked, which makes a file.
    if !is_store(&list()?) {
        return Err(no_store(from));
    }
    resources.check_empty(to)?;
    let _from_lock = lock(from, resources)?;
    // Another store may have been in either.
    [from, to].into_iter().for_each(|dir| resources.file_cache.forget_directory(dir));
    // Until it was locked, somebody may have changed it.
    let found = Found::new(resources, from, &list()?)?;
    match &found.manifest {
        // It may be readable another time.
        Err(error @ Error::Io { .. }) if wanted == Wanted::Certain => return Err(error.clone()),
        Err(error) if wanted == Wanted::Certain => {
            let what = "without a manifest nothing is certain: ask for everything";
            return Err(Error::InvalidArgument(format!("{what} ({error})")));
        }
        _ => {}
    }
    fs.create_dir_all(to).map_err(|error| Error::io("create", to, error))?;
    let _to_lock = resources.lock_directory(to)?;
    // Until it was locked, somebody may have put a store there, which is not to be cleared away.
    resources.check_empty_but_for_lock(to)?;
    let work = Salvage { found, wanted, options, resources, from, to };
    work.run(progress).inspect_err(|_| copy::clear(&**fs, to))
}

/// Keeps everybody else out of the old store, where anybody can be in it.
fn lock(from: &Path, resources: &Resources) -> Result<Option<Box<dyn Send + Sync>>> {
    let error = match resources.lock_directory(from) {
        Ok(lock) => return Ok(Some(lock)),
        Err(error) => error,
    };
    let Error::Io { source, .. } = &error else { return Err(error) };
    if !matches!(source.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) {
        return Err(error);
    }
    // Who has it open may have come by another way, on which it may be written.
    match resources.lock_read_only_directory(from) {
        Err(Error::Io { .. }) => Err(error),
        answer => answer,
    }
}

struct Salvage<'a> {
    found: Found,
    wanted: Wanted,
    options: &'a Options,
    resources: &'a Resources,
    from: &'a Path,
    to: &'a Path,
}

/// What the journal told.
#[derive(Default)]
struct Journaled {
    writes: JournalWrites,
    deleted: Vec<RangeTombstone>,
    holes: Errors,
    torn: Errors,
    behind_hole: u64,
    seqno_max: SeqNo,
}

impl Journaled {
    fn take(&mut self, told: Told) {
        match told {
            Told::Hole(error) => self.holes.add(error),
            Told::Torn(error) => self.torn.add(error),
            Told::DeleteRange(tombstone) => {
                self.seqno_max = self.seqno_max.max(tombstone.seqno);
                self.deleted.push(tombstone);
            }
            Told::Entry(key, entry) => {
                self.seqno_max = self.seqno_max.max(entry.seqno);
                self.writes.insert((key, Reverse(entry.seqno)), entry);
            }
        }
    }
}

/// What there is of a store, before any of it is taken.
struct Seen {
    sources: Vec<Source>,
    lost: Lost,
    lost_ranges: RangeTombstones,
    journaled: Journaled,
    deleted: RangeTombstones,
    values: Values,
}

impl Salvage<'_> {
    fn run(&self, tell: &mut dyn FnMut(u64, u64)) -> Result<SalvageReport> {
        let version = self.found.manifest.as_ref().ok();
        let table_bytes = self.found.tables.iter().map(|number| self.table_bytes(*number));
        let value_bytes = version.map_or(0, Version::value_bytes);
        // Tables are read twice: to find what can't be, and for what is in them.
        let twice = table_bytes.map(|bytes| bytes.saturating_mul(2));
        let total = twice.fold(value_bytes, u64::saturating_add);
        let mut progress = Progress { done: 0, total, tell };
        let mut seen = self.look(&mut progress);
        let last_seqno = self.last_seqno(&seen)?;
        let mut report = SalvageReport {
            behind_hole: seen.journaled.behind_hole,
            has_manifest: version.is_some(),
            ..SalvageReport::default()
        };
        let (files, next_file_number) = (self.files(self.to), AtomicU64::new(1));
        let mut copy = Copy::new(
            &files,
            &next_file_number,
            self.options,
            Arc::new(self.resources.salts(self.to, 0)),
        );
        self.copy(&mut seen, &mut copy, &mut report, &mut progress)?;
        copy.finish(last_seqno)?;
        let Found { manifest, current, .. } = &self.found;
        // First, for there may be more of the others than there is room for.
        let mut errors = Errors::default();
        if let Some(error) = manifest.as_ref().err().or(current.as_ref()) {
            errors.add(error.clone());
        }
        errors.append(seen.lost.errors);
        (report.damage, report.more_damage) = errors.into_damage(self.from);
        progress.finish();
        Ok(report)
    }

    /// Reads all but values.
    fn look(&self, progress: &mut Progress<'_>) -> Seen {
        let (mut lost, mut deleted) = (Lost::default(), Vec::new());
        let mut sources = self.sources(&mut lost);
        for source in &mut sources {
            source.survey(&mut lost, &mut deleted, &mut |bytes| progress.add(bytes));
        }
        let lost_ranges = lost.ranges();
        let files = self.files(self.from);
        let journal = SalvagedJournal::survey(&files, &self.found.segments);
        let mut journaled = self.journaled(&journal, &lost_ranges, &sources);
        journal.damage().iter().cloned().for_each(|error| lost.errors.add(error));
        lost.errors.append(std::mem::take(&mut journaled.holes));
        lost.errors.append(std::mem::take(&mut journaled.torn));
        let values = Values::new(&files, &journal, &|number| self.end_of(number), &mut lost.errors);
        deleted.append(&mut journaled.deleted);
        let deleted = RangeTombstones::new(deleted);
        Seen { sources, lost, lost_ranges, journaled, deleted, values }
    }

    /// No write had a larger number, as far as anything tells.
    fn last_seqno(&self, seen: &Seen) -> Result<SeqNo> {
        let in_tables = seen.sources.iter().map(Source::seqno_max);
        let found = in_tables.fold(seen.journaled.seqno_max, SeqNo::max);
        let last = match &self.found.manifest {
            Ok(version) => found.max(version.last_seqno).max(version.seqno_next.saturating_sub(1)),
            Err(_) => found + SEQNOS_LOST_MAX,
        };
        if last > SEQNO_USED_MAX {
            return Err(Error::corruption(self.from, 0, "its writes have impossible SeqNos"));
        }
        Ok(last)
    }

    /// Copies what is wanted.
    fn copy(
        &self,
        seen: &mut Seen,
        copy: &mut Copy<'_>,
        report: &mut SalvageReport,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let now_ms = self.resources.clock.now_ms();
        let mut newest = Newest::new(&seen.sources, std::mem::take(&mut seen.journaled.writes));
        while let Some((key, entry)) = newest.next() {
            progress.add(newest.take_bytes_read());
            let is_deleted = seen.deleted.cover(&key, SEQNO_MAX) > entry.seqno;
            if is_deleted || !entry.is_live(now_ms) {
                continue;
            }
            let lost = seen.lost_ranges.cover(&key, SEQNO_MAX).max(newest.lost.newest_lost(&key));
            let is_doubtful = lost > entry.seqno;
            if is_doubtful && self.wanted == Wanted::Certain {
                report.name(&key, Doubt::MayBeOlder);
                continue;
            }
            let (value, journal_bytes) = match &entry.body {
                Body::Inline(value) => (Ok(value.clone()), 0),
                Body::Ref(pointer) => {
                    (seen.values.read(pointer, entry.seqno).map(Bytes::from), pointer.length)
                }
                Body::Delete => continue,
            };
            progress.add(u64::from(journal_bytes));
            match value {
                Err(error) => report.name(&key, Doubt::Unreadable(error.to_string())),
                Ok(value) => {
                    copy.add(&key, &entry, &value)?;
                    if is_doubtful {
                        report.name(&key, Doubt::MayBeOlder);
                    }
                    report.keys += 1;
                    report.value_bytes += value.len() as u64;
                }
            }
        }
        seen.lost.errors.append(newest.lost.errors);
        Ok(())
    }

    /// The tables that count, as far as they can be read.
    fn sources(&self, lost: &mut Lost) -> Vec<Source> {
        let named: BTreeMap<u64, Option<TableMeta>> = match &self.found.manifest {
            Ok(version) => {
                version.tables().map(|(_, live)| (live.number, Some(live.meta.clone()))).collect()
            }
            Err(_) => self.found.tables.iter().map(|&number| (number, None)).collect(),
        };
        let mut sources = Vec::with_capacity(named.len());
        for (number, meta) in &named {
            let path = file_name::table(self.from, *number);
            let bytes = meta.as_ref().map_or_else(|| self.table_bytes(*number), TableMeta::bytes);
            let table = SalvagedTable::open(&self.resources.file_cache, path, *number, bytes);
            match table.and_then(|table| Source::new(*number, table, meta.as_ref())) {
                Ok(source) => sources.push(source),
                Err(error) => lost.note_table(&error, meta.as_ref()),
            }
        }
        sources
    }

    /// What counts of the journal.
    fn journaled(
        &self,
        journal: &SalvagedJournal<'_>,
        lost: &RangeTombstones,
        sources: &[Source],
    ) -> Journaled {
        let mut journaled = Journaled::default();
        if let Ok(version) = &self.found.manifest {
            self.take_log(version, journal, &mut journaled);
        }
        // What the tables have not lost, they know more of: also what was deleted since.
        let is_in_table = |key: &[u8], seqno| {
            let is_sure = self.found.manifest.is_ok();
            let would_have = || sources.iter().any(|source| source.would_have(key, seqno));
            lost.cover(key, SEQNO_MAX) < seqno && (is_sure || would_have())
        };
        for (number, end) in self.older_segments(journal, lost) {
            let seqno_max = journal.segment(number, end, &mut |told| match &told {
                Told::Entry(key, entry) if is_in_table(key, entry.seqno) => {}
                _ => journaled.take(told),
            });
            // Also those of writes that can't be read: a segment's first record tells what was given out before.
            journaled.seqno_max = journaled.seqno_max.max(seqno_max);
        }
        journaled
    }

    /// Segments that may have what the tables have lost, with where they end, if that is known.
    fn older_segments(
        &self,
        journal: &SalvagedJournal<'_>,
        lost: &RangeTombstones,
    ) -> Vec<(u64, Option<u64>)> {
        let Ok(version) = &self.found.manifest else {
            return self.found.segments.iter().map(|&number| (number, None)).collect();
        };
        if self.wanted == Wanted::Certain || lost.is_empty() {
            return Vec::new();
        }
        let kept = version.segments.kept().map(|kept| (kept.number, Some(kept.end_offset)));
        // Of the segment in which the log begins, what stands before that place.
        let from @ JournalPosition { segment, offset, .. } = version.replay_from;
        kept.chain(journal.has(from).then_some((segment, Some(offset)))).collect()
    }

    /// What the log says, up to its first hole or, if everything is wanted, as far as it can be read.
    fn take_log(
        &self,
        version: &Version,
        journal: &SalvagedJournal<'_>,
        journaled: &mut Journaled,
    ) {
        let (from, newest) = (version.replay_from, version.journal_newest);
        let is_needed =
            newest.segment != 0 && (newest.lsn >= from.lsn || newest.segment == from.segment);
        let in_tables = version.tables().map(|(_, table)| table.meta.properties.seqno_max);
        let known = KnownLog {
            from,
            seqno_in_tables: in_tables.max().unwrap_or(0),
            synced_lsn: version.journal_synced.lsn,
            newest: is_needed.then_some(newest.segment),
            kept: version.segments.kept().map(|kept| kept.number).collect(),
        };
        journal.log(&known, &mut |told| {
            let is_write = !matches!(told, Told::Hole(_) | Told::Torn(_));
            let is_behind = is_write && !journaled.holes.is_empty();
            journaled.behind_hole += u64::from(is_behind);
            if !is_behind || self.wanted == Wanted::Everything {
                journaled.take(told);
            } else if let Told::Entry(_, Entry { seqno, .. })
            | Told::DeleteRange(RangeTombstone { seqno, .. }) = told
            {
                // Its number was given out.
                journaled.seqno_max = journaled.seqno_max.max(seqno);
            }
        });
    }

    fn end_of(&self, segment: u64) -> Option<u64> {
        let version = self.found.manifest.as_ref().ok()?;
        version.segments.get(segment).map(|kept| kept.end_offset)
    }

    fn table_bytes(&self, number: u64) -> u64 {
        let path = file_name::table(self.from, number);
        let file = self.resources.fs.open_read(&path);
        file.and_then(|file| file.len()).unwrap_or(0)
    }

    fn files(&self, dir: &Path) -> Arc<JournalFiles> {
        Arc::new(JournalFiles {
            fs: self.resources.fs.clone(),
            dir: dir.to_owned(),
            file_cache: self.resources.file_cache.clone(),
            // What the disk can't read must be an error.
            reading: Reading::Pread,
            recorder: Arc::new(Recorder::new(0)),
        })
    }
}

/// How far it is.
struct Progress<'a> {
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

impl Progress<'_> {
    fn add(&mut self, bytes: u64) {
        if bytes > 0 {
            self.done = self.done.saturating_add(bytes).min(self.total);
            (self.tell)(self.done, self.total);
        }
    }

    fn finish(&mut self) {
        (self.tell)(self.total, self.total);
    }
}
