//! Long work on request: compaction, checkpoints, verification, closing.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::compacting::Compacted;
use super::inner::Inner;
use super::retries::Task;
use super::state::{ReadState, SegmentEntry};
use super::table_search::find_in_tables;
use crate::compaction::pick::Slice;
use crate::error::{Error, Result};
use crate::file_name;
use crate::head::{BodyRef, ValuePointer};
use crate::iter::InternalIterator;
use crate::journal::{LogSegment, copy_segment, verify_segment};
use crate::key::{self, SEQNO_MAX, SeqNo};
use crate::manifest::Manifest;
use crate::version::{LiveTable, VersionEdit};

/// One damaged place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Offset of the damaged unit in it.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

impl Damage {
    /// What an error of reading tells; of `path`, where it names no file.
    pub(crate) fn of(error: Error, path: &Path) -> Damage {
        match error {
            Error::Corruption { file, offset, what } => Damage { file, offset, what },
            Error::Io { path: ref file, .. } | Error::NewerFormat { ref file, .. } => {
                Damage { file: file.clone(), offset: 0, what: error.to_string() }
            }
            other => Damage { file: path.to_owned(), offset: 0, what: other.to_string() },
        }
    }
}

/// What a verification found.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Journal segments read.
    pub segments: u64,
    /// Entries in the tables.
    pub entries: u64,
    /// Values in the journal.
    pub values: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Every damaged place.
    pub damage: Vec<Damage>,
}

impl Inner {
    /// Merges everything in the range to the bottom, then collects what is mostly dead. What can't be read is left
    /// out, and answered once all the rest is done; after an error it is not.
    pub(super) fn compact(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<Error>> {
        self.flush_all()?;
        let _compacting = self.compacting.lock();
        // That something could not be read may have been by chance: who asks has it tried again.
        if self.merges_avoided.end_waits() | self.segments_avoided.end_waits() {
            // What lies outside the range is tried by a store that rests, too.
            self.settled.store(false, Ordering::SeqCst);
        }
        let total = self.state.load().version.table_bytes();
        let before = self.counters.compaction_bytes_read.load(Ordering::Relaxed);
        progress(0, total);
        let mut slice = Slice {
            start: start.map(Bytes::copy_from_slice),
            end: end.map(Bytes::copy_from_slice),
        };
        let (mut unmerged, mut uncollected) = (Vec::new(), Vec::new());
        loop {
            self.check_writable()?;
            let compacted = self.making_room(|| self.compact_one(true, Some(slice.clone())));
            self.merges_avoided.gather(&mut unmerged);
            match compacted {
                Ok(Compacted::Nothing) => break,
                Ok(Compacted::Job(start)) => slice.start = start,
                // Collections may make the room. It is tried again for as long as they give something back.
                Err(error @ Error::NoSpace { .. }) => {
                    let before = self.counters.collections.load(Ordering::Relaxed);
                    let collected = self.collect_all(&mut uncollected);
                    if self.counters.collections.load(Ordering::Relaxed) == before {
                        return collected.and(Err(error));
                    }
                }
                Err(error) => return Err(error),
            }
            self.remove_obsolete();
            let done = self.counters.compaction_bytes_read.load(Ordering::Relaxed) - before;
            progress(done.min(total), total);
        }
        self.collect_all(&mut uncollected)?;
        for number in self.segments_avoided.due() {
            // What it met before may be over.
            uncollected.retain(|(other, _)| *other != number);
            uncollected.extend(self.read_left_out(number)?.map(|error| (number, error)));
        }
        self.remove_obsolete();
        self.retries.note_success(Task::Collect);
        if start.is_none() && end.is_none() {
            self.retries.note_success(Task::Merge);
        }
        progress(total, total);
        // What could be merged or collected when it was tried again is gone by now.
        let version = self.state.load().version.clone();
        unmerged.retain(|(unreadable, _)| unreadable.is_in(&version));
        uncollected.retain(|(number, _)| version.segments.get(*number).is_some());
        let merges = unmerged.into_iter().map(|(_, error)| error);
        let unread = merges.chain(uncollected.into_iter().map(|(_, error)| error));
        // First what may be read another time: by what is damaged, which stays so, nobody would ask again.
        Ok(unread.min_by_key(|error| matches!(error, Error::Corruption { .. })))
    }

    /// Collects what is worth it, and adds what could not be read to `uncollected`.
    fn collect_all(&self, uncollected: &mut Vec<(u64, Error)>) -> Result<()> {
        while self.making_room(|| self.collect_one(true))? {
            self.segments_avoided.gather(uncollected);
            self.check_writable()?;
            self.remove_obsolete();
        }
        Ok(())
    }

    /// Does a step of what frees space: before it fails for want of room, what is kept ready for writers goes, and
    /// isn't made again until the step has been tried once more.
    pub(super) fn making_room<T>(&self, step: impl Fn() -> Result<T>) -> Result<T> {
        let mut done = step();
        if matches!(done, Err(Error::NoSpace { .. })) {
            let _preparing = self.preparing.lock();
            if self.pool.release_spare() {
                while self.pool.release_spare() {}
                done = step();
            }
        }
        done.inspect_err(|error| self.poison_if_sync_failed(error))
    }

    /// Makes a consistent copy of the store in a new directory by hard links.
    ///
    /// Everything is flushed first, so that the copy needs no journal but for values that stay there.
    /// A file that is linked is never written again: the segment that takes the writes is closed
    /// first, and a linked segment is never reused.
    pub(super) fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.check_writable()?;
        let fs = &self.resources.fs;
        self.resources.check_empty(dir)?;
        fs.create_dir_all(dir).map_err(Inner::io("create", dir))?;
        self.flush_all()?;
        self.sync_all()?;
        let mut made = Vec::new();
        self.link_into(dir, &mut made).inspect_err(|_| {
            // Links keep what they link to on the disk. What can't be removed the next try tells of: the
            // directory isn't empty.
            made.iter().for_each(|path| drop(self.resources.fs.remove(path)));
        })
    }

    /// Links or copies into an empty directory what the tree names, and writes its manifest; tells of each file
    /// that it made.
    fn link_into(&self, dir: &Path, made: &mut Vec<PathBuf>) -> Result<()> {
        let fs = &self.resources.fs;
        let tree = self.tree.lock();
        // Another checkpoint into it may have been faster.
        self.resources.check_empty(dir)?;
        let state = self.state.load_full();
        for (_, table) in state.version.tables() {
            let (from, to) =
                (file_name::table(&self.dir, table.number), file_name::table(dir, table.number));
            fs.hard_link(&from, &to).map_err(Inner::io("link", &to))?;
            made.push(to);
        }
        let mut edit = state.version.to_edit();
        for kept in state.version.segments.kept() {
            let (from, to) =
                (file_name::segment(&self.dir, kept.number), file_name::segment(dir, kept.number));
            fs.hard_link(&from, &to).map_err(Inner::io("link", &to))?;
            made.push(to);
            if let Some(SegmentEntry::Direct(segment)) = state.segments.by_number.get(&kept.number)
            {
                segment.forbid_recycling();
            }
        }
        // Of the log, the copy needs where replay starts: tables point before that place.
        let replay_from = state.version.replay_from;
        // Copied without the lock: a writer takes it to go on in another segment, and so do the figures.
        let is_first = |log: &&LogSegment| log.segment.number() == replay_from.segment;
        let first = self.log.lock().iter().find(is_first).map(|log| log.segment.clone());
        if let Some(segment) = first {
            let to = file_name::segment(dir, replay_from.segment);
            copy_segment(self.pool.files(), &segment, replay_from.offset, &to)?;
            made.push(to);
        }
        edit.journal_synced = Some(replay_from);
        edit.journal_newest = None;
        let number = self.take_number();
        edit.next_file_number = Some(number + 1);
        made.push(file_name::manifest(dir, number));
        made.push(file_name::temporary(dir, "CURRENT"));
        made.push(file_name::current(dir));
        Manifest::create(&**fs, dir, number, &edit)?;
        drop(tree);
        Ok(())
    }

    /// The first keys of the tables' blocks, of those that begin with `prefix`, ascending.
    pub(super) fn block_keys(&self, prefix: &[u8]) -> Vec<Bytes> {
        let state = self.state.load_full();
        let keys = state.version.tables().flat_map(|(_, live)| live.table().boundary_keys());
        let keys = keys.filter(|key| key.starts_with(prefix)).map(Bytes::copy_from_slice);
        let mut keys: Vec<Bytes> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Reads every table and every segment that is kept and checks them. What can't be read is listed, too.
    pub(super) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.check_open()?;
        let state = self.state.load_full();
        let segments: Vec<_> = state.segments.segments().cloned().collect();
        let total =
            state.version.table_bytes() + segments.iter().map(|segment| segment.end()).sum::<u64>();
        let mut report = VerifyReport::default();
        let mut met = Vec::new();
        for (_, live) in state.version.tables() {
            let table = live.table();
            let begun = report.bytes;
            let found = table.verify(&mut |bytes| progress(begun + bytes, total));
            report.tables += 1;
            report.bytes += live.bytes();
            report.entries = report.entries.saturating_add(live.properties.entries);
            let is_sound = found.is_empty();
            report.damage.extend(found.into_iter().map(|damage| Damage {
                file: table.path().to_owned(),
                offset: damage.offset,
                what: damage.what,
            }));
            if is_sound
                && let Err(error) = self.verify_pointers(live, &state, &mut report, &mut met)
            {
                met.push(Damage::of(error, table.path()));
            }
            progress(report.bytes, total);
        }
        for segment in segments {
            let found = verify_segment(&segment, 0);
            report.segments += 1;
            report.values += found.values;
            report.bytes += segment.end();
            report.damage.extend(found.damage.into_iter().map(|damage| Damage {
                file: damage.file,
                offset: damage.offset,
                what: damage.what,
            }));
            progress(report.bytes, total);
        }
        for damage in met {
            // Mostly of a table that has told of it itself.
            if report.damage.iter().all(|known| known.file != damage.file) {
                report.damage.push(damage);
            }
        }
        Ok(report)
    }

    /// Checks that every pointer of a table leads into a known segment. What is met in other tables, which
    /// keeps it from being known of some, goes to `met`.
    fn verify_pointers(
        &self,
        live: &LiveTable,
        state: &ReadState,
        report: &mut VerifyReport,
        met: &mut Vec<Damage>,
    ) -> Result<()> {
        if live.properties.segment_refs.is_empty() {
            return Ok(());
        }
        let mut iter = live.table().iter(false);
        iter.seek_to_first()?;
        while iter.valid() {
            let entry = iter.entry()?;
            if let BodyRef::Ref(pointer) = entry.body {
                let path = live.table().path();
                match self.is_answered(state, iter.user_key(), entry.seqno, &pointer) {
                    Ok(true) => {}
                    Ok(false) => {
                        let ValuePointer { segment, offset, .. } = pointer;
                        report.damage.push(Damage {
                            file: path.to_owned(),
                            offset: 0,
                            what: format!(
                                "an entry points at byte {offset} of segment {segment}, which is not there"
                            ),
                        });
                    }
                    Err(error) => {
                        let damage = Damage::of(error, path);
                        if !met.contains(&damage) {
                            met.push(damage);
                        }
                    }
                }
            }
            iter.next()?;
        }
        Ok(())
    }

    /// Whether a pointer leads to a value, or nobody will ask: the value of an entry that no reader
    /// sees is not kept by collection, though the entry itself stays until a compaction meets it.
    fn is_answered(
        &self,
        state: &ReadState,
        user_key: &[u8],
        seqno: SeqNo,
        pointer: &ValuePointer,
    ) -> Result<bool> {
        if let Some((segment, offset)) = state.segments.locate(pointer) {
            return Ok(offset.saturating_add(u64::from(pointer.length)) <= segment.end());
        }
        let mut trace = self.recorder.begin_unrecorded();
        let hash = key::hash(user_key);
        for reader in self.snapshots.list().into_iter().chain([SEQNO_MAX]) {
            let seen =
                find_in_tables(&state.version, user_key, hash, reader, true, &mut trace)?.entry;
            if seen.is_some_and(|entry| entry.seqno == seqno) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Flushes, syncs, marks the journal's end and lets the directory go.
    pub(super) fn close(&self) -> Result<()> {
        self.check_open()?;
        let flushed = match self.check_writable() {
            Ok(()) => self.flush_all().and_then(|()| self.sync_all()),
            Err(error) => Err(error),
        };
        self.let_go();
        flushed
    }

    /// Ends background work and lets the directory go. What was written is synced; what is in
    /// memtables is found in the journal by the next open.
    pub(super) fn let_go(&self) {
        self.cancel.store(true, Ordering::Release);
        let running = (self.compacting.lock(), self.preparing.lock(), self.naming.lock());
        let mut flushes = self.flushes.lock();
        flushes.is_closed = true;
        while flushes.running > 0 {
            self.flush_ended.wait(&mut flushes);
        }
        drop(flushes);
        // From here on nobody else writes to the journal: whoever takes the lock looks at `closed`.
        let mut commit = self.commit.lock();
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let pending = std::mem::take(&mut self.flushes.lock().pending);
        let bytes: usize = pending.iter().map(|pending| pending.memtable.bytes()).sum();
        self.resources.memtable_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Whatever else has ended writing, what was acknowledged is synced, unless a sync of it has failed.
        let is_synced = self.sync.sync_upto(self.sync.appended_lsn()).is_ok();
        if is_synced && self.poison.get().is_none() {
            // What fails here costs the proof of a clean end, not data: whoever asked for a sync had it.
            if commit.writer.active().is_some() {
                self.append_mark(&mut commit);
            }
            let synced = self.sync.sync_journal_upto(u64::MAX);
            if synced.is_ok()
                && let Some(active) = commit.writer.active()
            {
                let _ = active.cut_to_end();
            }
            // The next opening then has nothing to prove, and writes nothing to the journal.
            let journal_synced = synced.is_ok().then(|| commit.writer.position());
            let seqno_next = Some(commit.last_seqno + 1);
            let edit = VersionEdit { seqno_next, journal_synced, ..VersionEdit::default() };
            let _ = self.tree.lock().manifest.append(&edit);
        }
        {
            let _removing = self.removing.lock();
            self.remove_unneeded();
        }
        // Other stores that share it get it anew.
        self.resources.spare_chunks.clear();
        self.resources.file_cache.forget_directory(&self.dir);
        drop(running);
        *self.lock.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::options::Reading;
    use crate::vfs::{FileSystem, ManualClock, MemoryFileSystem};
    use crate::{Options, ResourceOptions, Resources, Store};

    /// Whether anybody asks for a value that collection left out is looked up in all tables: damage in one of
    /// them ended the verification, and what it had found was told to nobody.
    #[test]
    fn damage_met_for_a_pointer_of_another_table_is_listed_and_the_rest_checked() {
        let fs = MemoryFileSystem::new();
        let open = || {
            let clock = Arc::new(ManualClock::at_ms(1));
            let shared = ResourceOptions::default();
            let resources = Resources::inline(shared, Arc::new(fs.clone()), clock);
            let options = Options {
                background: false,
                reading: Reading::Pread,
                segment_bytes_min: 64 << 10,
                segment_bytes_max: 64 << 10,
                ..Options::default()
            };
            Store::open_with("/s", options, resources).unwrap()
        };
        let store = open();
        let put = |keys: std::ops::Range<u8>, bytes: usize| {
            for key in keys {
                store.put(&[key], &vec![key; bytes]).unwrap();
            }
            store.flush().unwrap();
        };
        // Of the first segment two thirds die by a merge, and of the rest the tables don't know it.
        put(0..10, 4000);
        put(10..15, 4000);
        put(0..10, 10);
        put(10..14, 10);
        put(20..50, 4000);
        store.compact(Some(&[0]), Some(&[10]), &mut |_, _| {}).unwrap();
        assert!(store.stats().collections > 0);
        let version = store.inner.state.load().version.clone();
        let overwriting = version.tables().filter(|(_, table)| table.smallest == [10][..]);
        let (_, newest) = overwriting.max_by_key(|(_, table)| table.number).unwrap();
        let newest = newest.table().path().to_owned();
        drop(version);
        let sound = store.verify(&mut |_, _| {}).unwrap();
        assert_eq!(sound.damage, []);
        store.close().unwrap();
        drop(store);

        let file = fs.open(&newest).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 30).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 30).unwrap();
        let store = open();
        let report = store.verify(&mut |_, _| {}).unwrap();
        assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
        assert_eq!(report.damage[0].file, newest);
        assert_eq!((report.tables, report.values), (sound.tables, sound.values));
    }
}
