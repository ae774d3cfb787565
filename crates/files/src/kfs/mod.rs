//! Takes over the files of a KFS table, `NAME.kfs`, without writing to it.
//!
//! 1. For each bucket, every block is read and checked (`leveldb`), and chunks are put together by key.
//! 2. A file whose chunks are all there is written under its key's 40 hex digits, or under its name
//!    where one that was given hashes to the key: by RIPEMD-160, or by SHA-1 as before KFS 3.1.5.
//! 3. What is damaged or incomplete is reported. A file that is in the store already is left alone, so
//!    that an interrupted import goes on when it is run again.

mod leveldb;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ripemd::{Digest, Ripemd160};
use sha1::Sha1;
use tallybook::Condition;

use crate::error::{Error, Result};
use crate::options::WriteOptions;
use crate::placement::{KEY_BYTES, ReferenceId, hex};
use crate::store::FileStore;
use leveldb::{Contents, Place};

/// Bytes of a chunk of KFS.
const CHUNK_BYTES: usize = 128 << 10;

/// Digits of a chunk's number.
const NUMBER_DIGITS: usize = 6;

/// How a table is imported.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Names that files may have: a key that is the hash of one gets it.
    pub names: Vec<String>,
}

/// What was imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Files that were written.
    pub imported: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were in the store already.
    pub present: u64,
    /// What is not as it should be.
    pub problems: Vec<ImportProblem>,
}

/// Something in a table that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// The bucket.
    pub bucket: u8,
    /// The file, as its name or 40 hex digits; `None` where the whole bucket is meant.
    pub name: Option<String>,
    /// What was found.
    pub what: String,
    /// The file was written all the same.
    pub is_imported: bool,
}

impl FileStore {
    /// Takes over the files of the KFS table in `path`. `progress` is called with the buckets done and
    /// the buckets in all.
    ///
    /// `NotAStore`: there is no table. `BucketFull` and errors of the engine end the import; run again,
    /// it goes on.
    pub fn import_kfs(
        &self,
        path: &Path,
        options: &ImportOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ImportReport> {
        let not_a_table = |what: String| Error::NotAStore { path: path.to_owned(), what };
        let id = std::fs::read(path.join("r.id"))
            .map_err(|error| not_a_table(format!("r.id cannot be read: {error}")))?;
        let id: [u8; KEY_BYTES] = id
            .try_into()
            .map_err(|id: Vec<u8>| not_a_table(format!("r.id has {} bytes, not 20", id.len())))?;
        let mut import = Import {
            store: self,
            reference_id: ReferenceId(id),
            names: names_by_key(&options.names),
            report: ImportReport::default(),
        };
        for bucket in 0..=u8::MAX {
            progress(u64::from(bucket), 256);
            let dir = path.join(format!("{bucket:03}.s"));
            if !dir.is_dir() {
                continue;
            }
            match leveldb::read(&dir) {
                Ok(contents) => import.bucket(bucket, &contents)?,
                Err(what) => import.report.problems.push(ImportProblem {
                    bucket,
                    name: None,
                    what: format!("the bucket cannot be read: {what}"),
                    is_imported: false,
                }),
            }
        }
        progress(256, 256);
        Ok(import.report)
    }
}

fn names_by_key(names: &[String]) -> HashMap<String, String> {
    let mut by_key = HashMap::new();
    for name in names {
        by_key.insert(hex(&Sha1::digest(name.as_bytes())), name.clone());
        by_key.insert(hex(&Ripemd160::digest(name.as_bytes())), name.clone());
    }
    by_key
}

struct Import<'a> {
    store: &'a FileStore,
    reference_id: ReferenceId,
    names: HashMap<String, String>,
    report: ImportReport,
}

impl Import<'_> {
    fn bucket(&mut self, bucket: u8, contents: &Contents) -> Result<()> {
        let mut files: BTreeMap<&str, BTreeMap<u32, &Place>> = BTreeMap::new();
        for (key, place) in &contents.values {
            match parse_key(key) {
                Some((file, number)) => drop(files.entry(file).or_default().insert(number, place)),
                None => self.report.problems.push(ImportProblem {
                    bucket,
                    name: None,
                    what: format!("{:?} is no chunk's key", String::from_utf8_lossy(key)),
                    is_imported: false,
                }),
            }
        }
        let whole_bucket = contents.damage.iter().map(|damage| &damage.what).chain(&contents.torn);
        for what in whole_bucket.cloned() {
            let problem = ImportProblem { bucket, name: None, what, is_imported: false };
            self.report.problems.push(problem);
        }
        for (file, chunks) in files {
            let name = self.names.get(file).cloned().unwrap_or_else(|| file.to_owned());
            if self.store.stat(&name)?.is_some() {
                self.report.present += 1;
                continue;
            }
            let problem = self.file(bucket, file, &name, &chunks, contents)?;
            if let Some((what, is_imported)) = problem {
                let name = Some(name);
                self.report.problems.push(ImportProblem { bucket, name, what, is_imported });
            }
        }
        Ok(())
    }

    /// Writes a file; answers what is wrong with it, and whether it was written all the same.
    fn file(
        &mut self,
        bucket: u8,
        file: &str,
        name: &str,
        chunks: &BTreeMap<u32, &Place>,
        contents: &Contents,
    ) -> Result<Option<(String, bool)>> {
        let refused = |what: String| Ok(Some((what, false)));
        let home = self.reference_id.bucket_of(file, 256);
        if home != bucket {
            return refused(format!("it belongs into bucket {home}"));
        }
        let (first, last) = (format!("{file} "), format!("{file} ~"));
        let touches = |damage: &&leveldb::DamagedRange| {
            damage.after[..] < *last.as_bytes()
                && damage.upto.as_ref().is_none_or(|upto| upto[..] >= *first.as_bytes())
        };
        if let Some(damage) = contents.damage.iter().find(touches) {
            return refused(format!("it may have had bytes in what is damaged: {}", damage.what));
        }
        if let Some(gap) = (0..).zip(chunks.keys()).find(|(expected, number)| expected != *number) {
            return refused(format!("it is partial: chunk {} is missing", gap.0));
        }
        // Only a last chunk that is short tells where a file ends.
        if let Some(torn) = &contents.torn
            && chunks.values().all(|place| place.length() == CHUNK_BYTES)
        {
            return refused(format!("its end may be missing: {torn}"));
        }
        // An overwriting by a shorter file leaves the older one's chunks behind its last, short one.
        let is_short = |place: &&Place| place.length() < CHUNK_BYTES;
        let length = chunks.values().position(is_short).map_or(chunks.len(), |short| short + 1);
        let options =
            WriteOptions { condition: Some(Condition::Absent), ..WriteOptions::default() };
        let mut writer = self.store.writer(name, options)?;
        for place in chunks.values().take(length) {
            match place.read() {
                Ok(bytes) => writer.write(&bytes)?,
                Err(what) => return refused(what),
            }
        }
        let stat = writer.commit()?;
        self.report.imported += 1;
        self.report.bytes += stat.size;
        let left = chunks.len() - length;
        let what = || format!("{left} chunks of an older file behind its end were left out");
        Ok((left > 0).then(|| (what(), true)))
    }
}

/// File key and chunk number of a key of KFS.
fn parse_key(key: &[u8]) -> Option<(&str, u32)> {
    let (file, number) = std::str::from_utf8(key).ok()?.split_once(' ')?;
    let is_key = file.len() == 2 * KEY_BYTES && file.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number =
        number.len() == NUMBER_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_key && is_number).then(|| Some((file, number.parse().ok()?)))?
}
