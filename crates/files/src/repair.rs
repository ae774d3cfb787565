//! Saves what is whole of a store that lost something.
//!
//! 1. If the catalogue doesn't open or read, make another from the entries in the buckets: of each name
//!    the newest counts. The directory of the old one stays as it is. A bucket that isn't found may have been
//!    made all the same: its number is raised, so that one that comes back, whose files the catalogue doesn't
//!    know, isn't taken for it.
//! 2. Make lost buckets anew, empty; their old directories stay too. Not where their disk isn't mounted, nor where
//!    one is there that step 1 could not read through, nor, unless that is asked for, where an earlier repair could
//!    not: what only it knows would be given up.
//! 3. Have the store's description name the new ones. Until then a crash leaves everything as it was.
//! 4. Open the store. Of buckets that could not be read through when an earlier repair made the catalogue, take
//!    over what can be read now.
//! 5. Verify everything, and unlink damaged files if asked to.
//!
//! A repair that fails before the first copy of the description is replaced leaves nothing of what it made; one that
//! fails after tells of it all the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tallybook::vfs::FileSystem;
use tallybook::{Resources, ScanOptions, Store};

use crate::buckets::Buckets;
use crate::change::decode_place;
use crate::core::{
    decode_content, decode_known_shares, decode_name, decode_record, unknown_buckets,
};
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::key_layout;
use crate::options::{OpenOptions, UnlinkOptions, VerifyOptions};
use crate::rebuild::{open_twice, rebuild};
use crate::store::{FileStore, lock_directory, open_catalogue, own_resources};
use crate::superblock::Superblock;
use crate::takeover::{forget_unknown, take_over};
use crate::verify::VerifyReport;

/// How a store is repaired.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    /// Unlink files that are damaged. Else they stay, and reading them is refused. What an earlier repair could
    /// not read, making the catalogue anew, is given up too where it still can't be.
    pub unlink_damaged: bool,
}

/// What was repaired.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// The catalogue was made anew; this is what is left of the old one.
    pub old_catalogue: Option<PathBuf>,
    /// Buckets that were made anew, and what is left of the old ones.
    pub old_buckets: Vec<(u8, PathBuf)>,
    /// Where the catalogue was made anew: buckets that were not found, or never made. What was in one is in
    /// the store no longer, and where it comes back its directory stays as it is.
    pub absent_buckets: Vec<u8>,
    /// Where the catalogue was made anew: buckets of which not all entries could be read. Names of theirs may be
    /// missing. They, and all chunks, are left as they are until a repair can read them, which takes them over,
    /// or gives them up.
    pub unread_buckets: Vec<u8>,
    /// What the verification afterwards found: files that are damaged or, if asked for, were unlinked.
    pub verified: VerifyReport,
    /// What kept it from coming to its end, as a disk that fails: another repair is needed.
    pub unfinished: Option<Error>,
}

impl FileStore {
    /// Saves what is whole of the store in `dir`, which nobody has open: makes the catalogue anew from
    /// the buckets if it is lost, and lost buckets anew and empty. One that made something anew, or verified
    /// everything, and then failed is no error: the report says what it did, and that it is `unfinished`.
    pub fn repair(dir: impl AsRef<Path>, options: RepairOptions) -> Result<RepairReport> {
        let resources = own_resources(dir.as_ref())?;
        Self::repair_with(dir, options, resources)
    }

    /// As `repair`, on shared resources.
    pub fn repair_with(
        dir: impl AsRef<Path>,
        options: RepairOptions,
        resources: Arc<Resources>,
    ) -> Result<RepairReport> {
        let lock = lock_directory(dir.as_ref(), &resources)?;
        let report = repair(dir.as_ref(), &options, &resources);
        drop(lock);
        report
    }
}

fn repair(dir: &Path, options: &RepairOptions, resources: &Arc<Resources>) -> Result<RepairReport> {
    let open_options = OpenOptions { background: false, ..OpenOptions::default() };
    let fs = &*resources.fs;
    let mut made = Vec::new();
    let anew = make_anew(dir, options, &open_options, resources, &mut made);
    // Also where nothing was lost: one of the two copies may be.
    let anew = anew.and_then(|(report, repaired)| match repaired.write(fs, dir) {
        Err(error) if repaired.is_nowhere(fs, dir) => Err(error),
        written => Ok((report, repaired, written)),
    });
    let (mut report, repaired, written) = anew.inspect_err(|_| {
        // Nothing names it, and each try would leave others. What can't be removed is in nobody's way.
        made.iter().for_each(|path| clear(fs, path));
    })?;
    let finished =
        written.and_then(|()| finish(dir, repaired, options, open_options, resources, &mut report));
    match finished {
        // The next repair would find nothing of it to tell.
        Err(error) if !made.is_empty() || report.verified.is_complete => {
            report.unfinished = Some(error);
        }
        finished => finished?,
    }
    Ok(report)
}

/// Makes anew what is lost, in directories that it tells of in `made`; answers what that is, and the description
/// that names them.
///
/// The stores are let go as they are: what was written to them is in their journals, and their disks may have no
/// room for tables.
fn make_anew(
    dir: &Path,
    options: &RepairOptions,
    open_options: &OpenOptions,
    resources: &Arc<Resources>,
    made: &mut Vec<PathBuf>,
) -> Result<(RepairReport, Superblock)> {
    let superblock = Superblock::read(&*resources.fs, dir)?;
    let mut report = RepairReport::default();
    let mut repaired = superblock.clone();
    repaired.changes = repaired.changes.saturating_add(1);
    let buckets =
        Buckets::new(dir.to_owned(), superblock.clone(), open_options.clone(), resources.clone());
    let catalogue = match check_catalogue(dir, &superblock, open_options, resources) {
        Ok(catalogue) => catalogue,
        Err(Error::CatalogueLost { .. }) => {
            report.old_catalogue = Some(superblock.catalogue_dir(dir));
            let path = loop {
                repaired.catalogue_generation = repaired.catalogue_generation.wrapping_add(1);
                let path = repaired.catalogue_dir(dir);
                if is_free(&*resources.fs, &path)? {
                    break path;
                }
            };
            made.push(path.clone());
            let rebuilt = rebuild(&path, &buckets, &superblock, open_options, resources)?;
            (report.absent_buckets, report.unread_buckets) = (rebuilt.absent, rebuilt.unread);
            rebuilt.catalogue
        }
        Err(other) => return Err(other),
    };
    let existing = existing_buckets(&catalogue)?;
    let unknown = unknown_buckets(&catalogue, &superblock)?;
    // One that a file has chunks in was made, and is lost.
    report.absent_buckets.retain(|bucket| !existing.contains(bucket));
    for bucket in existing {
        // One that the disk can't read is not lost.
        match open_twice(&buckets, bucket) {
            Ok(_) => {}
            // A further repair may be able to take over what it knows, or is asked to give that up.
            Err(Error::BucketLost { .. }) if report.unread_buckets.contains(&bucket) => {}
            Err(Error::BucketLost { path, what, .. }) => {
                buckets.check_root(bucket)?;
                if unknown.contains_key(&bucket) && !options.unlink_damaged {
                    let what = format!("{what}; files that only it knows of would be given up");
                    return Err(Error::BucketLost { bucket, path, what });
                }
                report.old_buckets.push((bucket, path));
            }
            Err(other) => return Err(other),
        }
    }
    let lost = report.old_buckets.iter().map(|(bucket, _)| bucket);
    for &bucket in lost.chain(&report.absent_buckets) {
        raise_generation(&*resources.fs, dir, &mut repaired, bucket)?;
    }
    let anew =
        Buckets::new(dir.to_owned(), repaired.clone(), open_options.clone(), resources.clone());
    for (bucket, _) in &report.old_buckets {
        made.push(anew.path(*bucket));
        anew.make(*bucket)?;
    }
    Ok((report, repaired))
}

/// Takes over what an earlier repair could not read, and verifies everything.
fn finish(
    dir: &Path,
    repaired: Superblock,
    options: &RepairOptions,
    open_options: OpenOptions,
    resources: &Arc<Resources>,
    report: &mut RepairReport,
) -> Result<()> {
    let store = FileStore::open_unlocked(dir, repaired, open_options, resources.clone())?;
    if report.old_catalogue.is_none() {
        take_over_unknown(&store, options)?;
    }
    report.verified = store.verify(VerifyOptions::default(), &mut |_, _| {})?;
    if options.unlink_damaged {
        for damage in report.verified.damage.iter().filter(|damage| !damage.is_unread) {
            store.unlink(&damage.name, UnlinkOptions::default())?;
        }
    }
    // What can't be freed now is freed later.
    let _ = store.reap();
    // What can't be read can't be synced.
    let synced = store.sync_except(&report.verified.unread_buckets);
    synced.and(store.close())
}

/// Takes over what an earlier repair, making the catalogue anew, could not read. What still can't be read stays
/// for another, or is given up: each bucket for itself.
fn take_over_unknown(store: &FileStore, options: &RepairOptions) -> Result<()> {
    let core = store.core();
    let unknown: Vec<u8> = core.unknown.lock().keys().copied().collect();
    for bucket in unknown {
        if take_over(core, bucket)? || options.unlink_damaged {
            forget_unknown(core, bucket)?;
        }
    }
    Ok(())
}

/// Whether a directory isn't there, or empty, as a repair that was refused leaves it.
fn is_free(fs: &dyn FileSystem, path: &Path) -> Result<bool> {
    let is_there = fs.exists(path).map_err(|source| Error::io("look up", path, source))?;
    Ok(!is_there || fs.is_dir_empty(path).is_ok_and(|is_empty| is_empty))
}

/// Removes what was made in a directory that was free.
fn clear(fs: &dyn FileSystem, path: &Path) {
    let names = fs.list(path).unwrap_or_default();
    names.iter().for_each(|name| drop(fs.remove(&path.join(name))));
}

/// Has a bucket's next directory be one that is free.
fn raise_generation(
    fs: &dyn FileSystem,
    dir: &Path,
    superblock: &mut Superblock,
    bucket: u8,
) -> Result<()> {
    loop {
        let generation = &mut superblock.bucket_generations[usize::from(bucket)];
        *generation = generation.wrapping_add(1);
        if is_free(fs, &superblock.bucket_dir(dir, bucket))? {
            return Ok(());
        }
    }
}

/// Opens the catalogue and reads all of it: twice, where the disk could not at first.
fn check_catalogue(
    dir: &Path,
    superblock: &Superblock,
    options: &OpenOptions,
    resources: &Arc<Resources>,
) -> Result<Store> {
    match read_catalogue(dir, superblock, options, resources) {
        Err(Error::Engine(tallybook::Error::Io { op: "read", .. })) => {}
        read => return read,
    }
    read_catalogue(dir, superblock, options, resources).map_err(|error| match error {
        // It doesn't come back by being left there; and its directory stays as it is.
        Error::Engine(unread @ tallybook::Error::Io { op: "read", .. }) => {
            Error::CatalogueLost { path: superblock.catalogue_dir(dir), what: unread.to_string() }
        }
        other => other,
    })
}

fn read_catalogue(
    dir: &Path,
    superblock: &Superblock,
    options: &OpenOptions,
    resources: &Arc<Resources>,
) -> Result<Store> {
    let path = superblock.catalogue_dir(dir);
    let catalogue = open_catalogue(&path, superblock, options, resources)?;
    let lost = |what: String| Error::CatalogueLost { path: path.clone(), what };
    for entry in catalogue.range(ScanOptions::default())? {
        match entry {
            Ok(entry) if !decodes(superblock, &entry.key, &entry.value) => {
                return Err(lost("a value of it doesn't decode".to_owned()));
            }
            Ok(_) => {}
            Err(error) => return Err(Error::of_store(error, lost)),
        }
    }
    Ok(catalogue)
}

/// Whether key and value are what a writer makes of them.
fn decodes(superblock: &Superblock, key: &[u8], value: &[u8]) -> bool {
    match *key {
        [key_layout::NAME, ref name @ ..] => {
            decode_name(name).is_some() && decode_record(superblock, value).is_some()
        }
        [key_layout::CONTENT, ..] => {
            key_layout::parse_content(key).is_some() && decode_content(superblock, value).is_some()
        }
        [key_layout::UPLOAD | key_layout::FREED, ..] => {
            key_layout::parse_content(key).is_some()
                && decode_known_shares(superblock, value).is_some()
        }
        [key_layout::BUCKET, ref bucket @ ..] => {
            matches!(*bucket, [bucket] if superblock.has_bucket(bucket))
                && Figures::decode_bucket(value).is_some()
        }
        [key_layout::TOTALS] => Figures::decode_totals(value).is_some(),
        [key_layout::ENTRY_DUE | key_layout::ENTRY_DEAD, ..] => {
            key.len() == 9
                && decode_place(value).is_some_and(|(bucket, _)| superblock.has_bucket(bucket))
        }
        _ => true,
    }
}

fn existing_buckets(catalogue: &Store) -> Result<Vec<u8>> {
    let prefix = Some(Bytes::from_static(&[key_layout::BUCKET]));
    let heads = catalogue.range_heads(ScanOptions { prefix, ..ScanOptions::default() })?;
    let mut existing = Vec::new();
    for head in heads {
        existing.extend(head?.key.get(1));
    }
    Ok(existing)
}
