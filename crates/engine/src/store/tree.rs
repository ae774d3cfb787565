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
use crate::manifest::Manifest;
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
            self.roll_manifest(tree)?;
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

    /// Starts a new manifest with the tree as it stands, and lets the old one go.
    pub(super) fn roll_manifest(&self, tree: &mut Tree) -> Result<()> {
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let mut edit = self.state.load().version.to_edit();
        edit.next_file_number = Some(self.next_file_number.load(Ordering::Relaxed));
        edit.last_seqno = Some(self.visible_seqno.load(Ordering::Acquire));
        let manifest = match Manifest::create(&*self.resources.fs, &self.dir, number, &edit) {
            Ok(manifest) => manifest,
            // The old one is still live.
            Err(Error::NoSpace { .. }) => return Ok(()),
            Err(error) => {
                // Whatever is under way and ends later must not go on in the old one either.
                tree.manifest.forbid(&error.to_string());
                let _ = self.poison.set(error.to_string());
                return Err(error);
            }
        };
        let old = std::mem::replace(&mut tree.manifest, manifest);
        self.obsolete.push(file_name::manifest(&self.dir, old.number()));
        Ok(())
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
