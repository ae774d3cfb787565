//! Takes over the files of a KFS table, `NAME.kfs`, without writing to it.
//!
//! 1. For each bucket, every block is read and checked (`leveldb`), and chunks are put together by key.
//! 2. A file whose chunks are all there is written under its key's 40 hex digits, or under its name
//!    where one that was given hashes to the key: by RIPEMD-160, or by SHA-1 as before KFS 3.1.5.
//! 3. Where both keys of a name have a file, or may have, the one by SHA-1 is the older, and doesn't get the
//!    name. So it waits until the other key's bucket was read; its own is read once more then.
//! 4. What is damaged or incomplete is reported. A file that is in the store already is left alone, so
//!    that an interrupted import goes on when it is run again.

mod leveldb;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;

use bytes::{Buf, Bytes};
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

/// Buckets of a table.
const BUCKETS: u64 = 256;

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

/// Where the files of a table go.
pub trait Destination {
    /// How it fails. That there is no table is an error of its kind too.
    type Error: From<Error>;

    /// Whether there is a file of this name.
    fn has(&self, name: &str) -> Result<bool, Self::Error>;

    /// Writes a file, whole or not at all, unless there is one of this name; whether it did. What goes
    /// wrong with reading the file is the importer's to report.
    fn write(&self, name: &str, file: &mut TableFile<'_>) -> Result<bool, Self::Error>;
}

/// A file of a table: `std::io::Read`, or an iterator of its chunks, each checked.
#[derive(Debug)]
pub struct TableFile<'a> {
    name: &'a str,
    chunks: std::vec::IntoIter<&'a Place>,
    size: u64,
    /// Offset of the next chunk.
    position: u64,
    /// What was fetched and not answered by `read`.
    rest: Bytes,
    /// What is wrong with a chunk, after which there are no more.
    damage: Option<String>,
}

impl TableFile<'_> {
    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Iterator for TableFile<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        if self.damage.is_some() {
            return None;
        }
        Some(match self.chunks.next()?.read() {
            Ok(bytes) => {
                self.position += bytes.len() as u64;
                Ok(bytes.into())
            }
            Err(what) => {
                self.damage = Some(what.clone());
                let (name, offset) = (self.name.to_owned(), self.position);
                Err(Error::Damaged { name, offset, what })
            }
        })
    }
}

impl std::io::Read for TableFile<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.is_empty() {
            match self.next().transpose().map_err(std::io::Error::other)? {
                Some(bytes) => self.rest = bytes,
                None => return Ok(0),
            }
        }
        let len = buf.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buf[..len]);
        Ok(len)
    }
}

impl Destination for FileStore {
    type Error = Error;

    fn has(&self, name: &str) -> Result<bool> {
        Ok(self.stat(name)?.is_some())
    }

    fn write(&self, name: &str, file: &mut TableFile<'_>) -> Result<bool> {
        let (condition, size) = (Some(Condition::Absent), Some(file.size));
        let options = WriteOptions { condition, size, ..WriteOptions::default() };
        let written = self.writer(name, options).and_then(|mut writer| {
            file.try_for_each(|chunk| writer.write(&chunk?))?;
            writer.commit()
        });
        match written {
            Err(Error::Conflict { .. }) => Ok(false),
            written => written.map(|_| true),
        }
    }
}

impl FileStore {
    /// Takes over the files of the KFS table in `path`: see `import_kfs`.
    pub fn import_kfs(
        &self,
        path: &Path,
        options: &ImportOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ImportReport> {
        import_kfs(path, options, self, progress)
    }
}

/// Takes over the files of the KFS table in `path`. `progress` is called with the buckets done and the
/// buckets in all, which grow by those that are read once more.
///
/// `NotAStore`: there is no table. An error of the destination ends the import; run again, it goes on.
pub fn import_kfs<D: Destination>(
    path: &Path,
    options: &ImportOptions,
    destination: &D,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ImportReport, D::Error> {
    let not_a_table = |what: String| Error::NotAStore { path: path.to_owned(), what };
    let id = std::fs::read(path.join("r.id"))
        .map_err(|error| not_a_table(format!("r.id cannot be read: {error}")))?;
    let id: [u8; KEY_BYTES] = id
        .try_into()
        .map_err(|id: Vec<u8>| not_a_table(format!("r.id has {} bytes, not 20", id.len())))?;
    let mut import = Import {
        destination,
        reference_id: ReferenceId(id),
        names: names_by_key(&options.names),
        current: HashSet::new(),
        waiting: BTreeMap::new(),
        report: ImportReport::default(),
    };
    for bucket in 0..=u8::MAX {
        progress(u64::from(bucket), BUCKETS);
        let dir = path.join(format!("{bucket:03}.s"));
        // Anything else that is there, or can't be looked at, is a bucket that can't be read.
        if dir.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            continue;
        }
        match leveldb::read(&dir) {
            Ok(contents) => import.bucket(bucket, &contents)?,
            Err(what) => import.unread(bucket, &what),
        }
    }
    let waiting = std::mem::take(&mut import.waiting);
    let buckets = BUCKETS + waiting.len() as u64;
    for (done, (bucket, files)) in (BUCKETS..).zip(waiting) {
        progress(done, buckets);
        match leveldb::read(&path.join(format!("{bucket:03}.s"))) {
            Ok(contents) => import.waited(bucket, &files, &contents)?,
            Err(what) => import.unread(bucket, &what),
        }
    }
    progress(buckets, buckets);
    Ok(import.report)
}

/// A name that was given, by one of its keys.
struct Named {
    name: String,
    /// Where the key is the SHA-1 of the name: the other one.
    current_key: Option<String>,
}

fn names_by_key(names: &[String]) -> HashMap<String, Named> {
    let mut by_key = HashMap::new();
    for name in names {
        let current_key = hex(&Ripemd160::digest(name.as_bytes()));
        let current = Named { name: name.clone(), current_key: None };
        by_key.insert(current_key.clone(), current);
        let older = Named { name: name.clone(), current_key: Some(current_key) };
        by_key.insert(hex(&Sha1::digest(name.as_bytes())), older);
    }
    by_key
}

/// A bucket's files by key, each with its chunks by number.
type Files<'a> = BTreeMap<&'a str, BTreeMap<u32, &'a Place>>;

struct Import<'a, D> {
    destination: &'a D,
    reference_id: ReferenceId,
    names: HashMap<String, Named>,
    /// Keys of names, by RIPEMD-160, that have a file, or may have: a file by SHA-1 doesn't get such a name.
    current: HashSet<String>,
    /// Files by SHA-1 of which that isn't known yet, by bucket.
    waiting: BTreeMap<u8, Vec<String>>,
    report: ImportReport,
}

impl<D: Destination> Import<'_, D> {
    fn bucket(&mut self, bucket: u8, contents: &Contents) -> Result<(), D::Error> {
        let whole_bucket = contents.damage.iter().map(|damage| &damage.what).chain(&contents.torn);
        let not_keys = contents.values.keys().filter(|key| parse_key(key).is_none());
        let not_keys =
            not_keys.map(|key| format!("{:?} is no chunk's key", String::from_utf8_lossy(key)));
        for what in not_keys.chain(whole_bucket.cloned()) {
            let problem = ImportProblem { bucket, name: None, what, is_imported: false };
            self.report.problems.push(problem);
        }
        let files = files(contents);
        let is_current =
            |key: &&&str| self.names.get(**key).is_some_and(|named| named.current_key.is_none());
        self.current.extend(files.keys().filter(is_current).map(|key| (*key).to_owned()));
        if !contents.damage.is_empty() {
            self.note_lost(bucket, |key| damage_of(contents, key).is_some());
        }
        for (file, chunks) in files {
            let current_key = self.names.get(file).and_then(|named| named.current_key.as_ref());
            if current_key.is_some_and(|key| self.reference_id.bucket_of(key, 256) > bucket) {
                self.waiting.entry(bucket).or_default().push(file.to_owned());
                continue;
            }
            self.file_of_key(bucket, file, &chunks, contents)?;
        }
        Ok(())
    }

    /// Files that waited for the other buckets.
    fn waited(
        &mut self,
        bucket: u8,
        waiting: &[String],
        contents: &Contents,
    ) -> Result<(), D::Error> {
        let files = files(contents);
        for file in waiting {
            match files.get(&file[..]) {
                Some(chunks) => self.file_of_key(bucket, file, chunks, contents)?,
                None => self.report.problems.push(ImportProblem {
                    bucket,
                    name: Some(file.clone()),
                    what: "it was there, and was not when its bucket was read again".to_owned(),
                    is_imported: false,
                }),
            }
        }
        Ok(())
    }

    fn unread(&mut self, bucket: u8, what: &str) {
        self.note_lost(bucket, |_| true);
        self.report.problems.push(ImportProblem {
            bucket,
            name: None,
            what: format!("the bucket cannot be read: {what}"),
            is_imported: false,
        });
    }

    /// Notes the keys by RIPEMD-160 that may have had a file in what a bucket lost.
    fn note_lost(&mut self, bucket: u8, is_lost: impl Fn(&str) -> bool) {
        let keys = self.names.iter().filter(|(key, named)| {
            named.current_key.is_none()
                && self.reference_id.bucket_of(key, 256) == bucket
                && is_lost(key)
        });
        self.current.extend(keys.map(|(key, _)| key.clone()));
    }

    /// Writes a file under the name that it gets, unless there is one.
    fn file_of_key(
        &mut self,
        bucket: u8,
        file: &str,
        chunks: &BTreeMap<u32, &Place>,
        contents: &Contents,
    ) -> Result<(), D::Error> {
        let named = self.names.get(file);
        let is_older = named
            .and_then(|named| named.current_key.as_ref())
            .is_some_and(|key| self.current.contains(key));
        let older = named.filter(|_| is_older).map(|named| {
            format!("the name {:?} has another file, or may have; this one is older", named.name)
        });
        let name = named.filter(|_| !is_older).map_or_else(|| file.to_owned(), |n| n.name.clone());
        if self.destination.has(&name)? {
            self.report.present += 1;
            return Ok(());
        }
        let imported = self.report.imported;
        let mut problem = self.file(bucket, file, &name, chunks, contents)?;
        if let Some(older) = older.filter(|_| self.report.imported > imported) {
            let what =
                problem.map_or_else(|| older.clone(), |(what, _)| format!("{older}; {what}"));
            problem = Some((what, true));
        }
        if let Some((what, is_imported)) = problem {
            let name = Some(name);
            self.report.problems.push(ImportProblem { bucket, name, what, is_imported });
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
    ) -> Result<Option<(String, bool)>, D::Error> {
        let refused = |what: String| Ok(Some((what, false)));
        let home = self.reference_id.bucket_of(file, 256);
        if home != bucket {
            return refused(format!("it belongs into bucket {home}"));
        }
        if let Some(damage) = damage_of(contents, file) {
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
        let places: Vec<&Place> = chunks.values().copied().take(length).collect();
        let size = places.iter().map(|place| place.length() as u64).sum();
        let mut whole = TableFile {
            name,
            chunks: places.into_iter(),
            size,
            position: 0,
            rest: Bytes::new(),
            damage: None,
        };
        let written = self.destination.write(name, &mut whole);
        if let Some(what) = whole.damage {
            return refused(what);
        }
        if !written? {
            // It came from elsewhere meanwhile.
            self.report.present += 1;
            return Ok(None);
        }
        self.report.imported += 1;
        self.report.bytes += size;
        let left = chunks.len() - length;
        let what = || format!("{left} chunks of an older file behind its end were left out");
        Ok((left > 0).then(|| (what(), true)))
    }
}

/// The files of a bucket.
fn files(contents: &Contents) -> Files<'_> {
    let mut files = Files::new();
    for (key, place) in &contents.values {
        if let Some((file, number)) = parse_key(key) {
            files.entry(file).or_default().insert(number, place);
        }
    }
    files
}

/// Damage that chunks of a file may have been in.
fn damage_of<'a>(contents: &'a Contents, file: &str) -> Option<&'a leveldb::DamagedRange> {
    let (first, last) = (format!("{file} "), format!("{file} ~"));
    contents.damage.iter().find(|damage| {
        damage.after[..] < *last.as_bytes()
            && damage.upto.as_ref().is_none_or(|upto| upto[..] >= *first.as_bytes())
    })
}

/// File key and chunk number of a key of KFS.
fn parse_key(key: &[u8]) -> Option<(&str, u32)> {
    let (file, number) = std::str::from_utf8(key).ok()?.split_once(' ')?;
    let is_key = file.len() == 2 * KEY_BYTES && file.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number =
        number.len() == NUMBER_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_key && is_number).then(|| Some((file, number.parse().ok()?)))?
}
