//! Installing version edits: the one way in which tables and closed segments come and go.
//!
//! 1. Open the tables that the edit adds (the new version is made of open tables).
//! 2. Say in the edit which closed segments are kept, and which nothing needs any more.
//! 3. Append the edit to the manifest, synced.
//! 4. Replace the read state.
//! 5. Let go of what the edit replaced: files go when their last reader does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::inner::{Inner, Tree};
use super::state::{ReadState, SegmentEntry};
use crate::compaction::output::OutputTable;
use crate::error::{Error, Result};
use crate::fault_points::{self, Bug};
use crate::file_name;
use crate::journal::{LogSegment, Segment, SegmentPool};
use crate::key::SeqNo;
use crate::obsolete::{FileGuard, ObsoleteQueue};
use crate::options::Reading;
use crate::resources::Resources;
use crate::sstable::Table;
use crate::stages::Stage;
use crate::version::{LiveTable, SegmentKind, SegmentMeta, TableMeta, Version, VersionEdit};
use crate::vfs::cycles;

impl Inner {
    /// Makes `edit` durable and visible; `change` does what else the read state needs at that moment.
    /// After an error nothing has changed, though the store may have become read-only.
    pub(super) fn install(
        &self,
        tree: &mut Tree,
        mut edit: VersionEdit,
        change: impl FnOnce(&mut ReadState),
    ) -> Result<()> {
        let before = self.state.load_full();
        let last_seqno = self.visible_seqno.load(Ordering::Acquire);
        edit.last_seqno = Some(last_seqno);
        edit.seqno_next = Some(seqno_reserve(last_seqno));
        let mut version = Version::clone(&before.version);
        version.fold(&edit, &mut |meta| {
            open_table(&self.dir, self.options.reading, &self.resources, &self.obsolete, meta)
        })?;
        version.count_references();
        let (settling, gone) = self.settle_segments(&before, &version, &edit);
        version.fold(&settling, &mut |meta| Ok(LiveTable::unopened(meta)))?;
        let version = version.finish()?;
        let in_tables_lsn = version.replay_from.lsn;
        edit.settle(settling);
        if fault_points::is_planted(Bug::DeleteInputsBeforeManifestSync) {
            for removed in &edit.removed {
                let _ = self.resources.fs.remove(&file_name::table(&self.dir, removed.number));
            }
        }
        let from = cycles::now();
        let appended = tree.manifest.append(&edit);
        self.recorder.note_wait(Stage::SyncManifest, from);
        if let Err(error) = appended {
            self.poison_if_sync_failed(&error);
            return Err(error);
        }
        before.version.mark_obsolete(&edit);
        tell_pool(&self.pool, &version);
        self.change_state(|state| {
            state.version = Arc::new(version);
            let segments = Arc::make_mut(&mut state.segments);
            for segment in &gone {
                segments.by_number.remove(&segment.number());
            }
            for old in &edit.forwards_dropped {
                segments.by_number.remove(old);
            }
            change(state);
        });
        self.log.lock().retain(|log| {
            let number = log.segment.number();
            let is_kept = edit.segments_kept.iter().any(|kept| kept.number == number);
            !is_kept && !gone.iter().any(|segment| segment.number() == number)
        });
        self.sync.note_in_tables(in_tables_lsn, &gone);
        self.retired.lock().extend(gone);
        if tree.manifest.should_roll() {
            self.roll_manifest(tree);
        }
        Ok(())
    }

    /// What `edit`, which made `version`, leads to: of the closed segments those are kept that tables point
    /// at, and the others are answered as gone.
    fn settle_segments(
        &self,
        before: &ReadState,
        version: &Version,
        edit: &VersionEdit,
    ) -> (VersionEdit, Vec<Arc<Segment>>) {
        let (mut kept, mut dropped, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for meta in before.version.segments.kept() {
            let is_gone = version.segments.live(meta.number).count == 0
                || version.segments.get(meta.number).is_none();
            if is_gone
                && let Some(SegmentEntry::Direct(segment)) =
                    before.segments.by_number.get(&meta.number)
            {
                gone.push(segment.clone());
                if !edit.segments_dropped.contains(&meta.number) {
                    dropped.push(meta.number);
                }
            }
        }
        // Of the log, those segments are closed for replay whose successor replay may start in.
        let log = self.log.lock();
        for pair in log.windows(2) {
            if pair[1].base_lsn > version.replay_from.lsn {
                break;
            }
            let closed = &pair[0];
            if closed.segment.number() == version.replay_from.segment {
                break;
            }
            match version.segments.live(closed.segment.number()).count {
                0 => gone.push(closed.segment.clone()),
                _ => kept.push(segment_meta(closed)),
            }
        }
        let settling = VersionEdit {
            segments_kept: kept,
            segments_dropped: dropped,
            forwards_dropped: version.segments.unneeded_forwards(),
            next_file_number: Some(self.next_file_number.load(Ordering::Relaxed)),
            ..VersionEdit::default()
        };
        (settling, gone)
    }

    /// Starts a new manifest with the tree as it stands, and lets the old one go. That it fails is none of
    /// the edit's that called for it, which is durable by now, whichever is live.
    fn roll_manifest(&self, tree: &mut Tree) {
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let mut edit = self.state.load().version.to_edit();
        edit.next_file_number = Some(self.next_file_number.load(Ordering::Relaxed));
        edit.last_seqno = Some(self.visible_seqno.load(Ordering::Acquire));
        match tree.manifest.roll(&*self.resources.fs, &self.dir, number, &edit) {
            Ok(Some(old)) => self.obsolete.push(old),
            // The next edit tries again.
            Ok(None) => {}
            Err(error) => self.poison_if_sync_failed(&error),
        }
    }

    /// Gives segments that nothing refers to, and that nobody reads any more, back to the pool, and
    /// removes the files whose last reader has let go.
    pub(super) fn remove_obsolete(&self) {
        let _removing = self.removing.lock();
        // Once the store is closed, the directory is another's.
        if !self.closed.load(Ordering::Acquire) {
            self.remove_unneeded();
        }
    }

    /// Gives segments that nothing refers to, and that nobody reads any more, back to the pool, if nobody
    /// else does so now. A merge that is under way doesn't hold up their next use.
    pub(super) fn give_back_segments(&self) {
        if let Some(_removing) = self.removing.try_lock()
            && !self.closed.load(Ordering::Acquire)
        {
            self.give_back_unread();
        }
    }

    /// As `remove_obsolete`. Requires: `removing` is held.
    pub(super) fn remove_unneeded(&self) {
        self.give_back_unread();
        if !self.obsolete.is_empty() {
            let file_cache = &self.resources.file_cache;
            self.obsolete.drain(&*self.resources.fs, &|path| file_cache.forget(path));
        }
    }

    /// As `give_back_segments`. Requires: `removing` is held.
    fn give_back_unread(&self) {
        let unread: Vec<_> = {
            let mut retired = self.retired.lock();
            let (unread, read) =
                retired.drain(..).partition(|segment| Arc::strong_count(segment) == 1);
            *retired = read;
            unread
        };
        self.pool.shrink();
        for segment in unread {
            // A file that can't be given back is found and removed by the next open.
            let _ = self.pool.give_back(segment);
        }
    }
}

/// The SeqNo that an opening after a crash counts from: beyond any that may have been given out since.
/// What is not flushed is in memory, at 200 bytes a write or more, so this is enough for 50 GB of it.
pub(super) fn seqno_reserve(last_seqno: SeqNo) -> SeqNo {
    last_seqno + (1 << 28)
}

/// Tells the pool how much of the journal's length is dead (what lies before replay, but for as many bytes
/// as the store holds in tables and values), and how much of it is values.
pub(super) fn tell_pool(pool: &SegmentPool, version: &Version) {
    let value_bytes = version.value_bytes();
    let live_bytes = version.live_bytes();
    pool.set_dead(version.replay_from.lsn.saturating_sub(live_bytes), value_bytes);
}

/// Opens a table of the store in `dir`; its file goes, once it is obsolete, by way of `obsolete`.
pub(super) fn open_table(
    dir: &Path,
    reading: Reading,
    resources: &Resources,
    obsolete: &Arc<ObsoleteQueue>,
    meta: TableMeta,
) -> Result<LiveTable> {
    let path = file_name::table(dir, meta.number);
    let table = Table::open(
        &resources.file_cache,
        path.clone(),
        meta.number,
        meta.properties.file_bytes,
        reading,
        resources.block_cache.clone(),
    )?;
    if *table.properties() != *meta.properties {
        return Err(Error::corruption(&path, 0, "another table than the manifest names"));
    }
    let guard = FileGuard::new(path, obsolete.clone());
    Ok(LiveTable { meta, table: Some(Arc::new(table)), guard: Some(guard) })
}

/// What the manifest says of a closed segment of the log.
fn segment_meta(closed: &LogSegment) -> SegmentMeta {
    SegmentMeta {
        number: closed.segment.number(),
        end_offset: closed.segment.end(),
        base_lsn: closed.base_lsn,
        kind: SegmentKind::Log,
        capacity: closed.segment.capacity(),
    }
}

/// What a version says of a table that was just written.
pub(super) fn table_meta(table: &OutputTable) -> TableMeta {
    TableMeta::new(table.number, Arc::new(table.built.properties.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::ResourceOptions;
    use crate::vfs::faulty::{Fault, FaultyFileSystem};
    use crate::vfs::{CrashMode, ManualClock, MemoryFileSystem};
    use crate::{Options, Store};

    fn open(fs: Arc<dyn crate::vfs::FileSystem>) -> Store {
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), fs, clock);
        let options = Options { background: false, ..Options::default() };
        Store::open_with("/s", options, resources).unwrap()
    }

    /// Too many open files, for a moment, when the manifest was to be made anew: the store was read-only
    /// from then on, and the flush that had called for it, though installed, was told as failed.
    #[test]
    fn a_manifest_that_can_not_be_made_anew_is_none_of_the_edits() {
        let is_new = |operation: &str, path: &Path| {
            operation == "create" && path.to_string_lossy().contains("MANIFEST")
        };
        let is_named =
            |operation: &str, path: &Path| operation == "rename" && path.ends_with("CURRENT");
        let new = Fault::errno(libc::EMFILE).only(is_new);
        let named = Fault::errno(libc::EIO).only(is_named);
        for (fault, ends) in [(new, false), (named, true)] {
            let memory = MemoryFileSystem::new();
            let faulty = FaultyFileSystem::new(Arc::new(memory.clone()));
            let store = open(Arc::new(faulty.clone()));
            store.inner.tree.lock().manifest.roll_from(0);
            faulty.fail_at(0, fault);
            let number = || store.inner.tree.lock().manifest.number();
            let (first, mut flushes) = (number(), 0u32);
            let flush = |at: u32| {
                store.put(&at.to_be_bytes(), b"value").unwrap();
                store.flush().unwrap();
            };
            while faulty.fired() == 0 {
                flush(flushes);
                flushes += 1;
            }
            assert_eq!(number(), first);
            assert_eq!(store.read_only_cause().is_some(), ends);
            if ends {
                assert!(matches!(store.put(b"key", b""), Err(Error::ReadOnly { .. })));
            } else {
                flush(flushes);
                flushes += 1;
                assert!(number() > first, "the next edit tried again");
            }
            let copy = open(Arc::new(memory.image().crash(CrashMode::LoseUnsynced, 0)));
            for at in 0..flushes {
                assert_eq!(copy.get(&at.to_be_bytes()).unwrap().as_deref(), Some(&b"value"[..]));
            }
        }
    }
}
