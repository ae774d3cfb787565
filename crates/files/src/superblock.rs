//! What a store is: the files `STORE` and `STORE.copy` in its directory.
//!
//! Steps of a change: write the copy anew, then the other, each as a temporary file that is renamed.
//! Of the two, the sound one with the higher number of changes counts, so that either may be lost. One of a newer
//! format is a newer release's, and not written over: the store is refused.
//!
//! Invariant: while a store is open no copy says anything else than the one that it was opened by. Else that one
//! might count later, and what was written meanwhile be nobody's.

use std::path::{Path, PathBuf};

use tallybook::checksum;
use tallybook::coding::{Decoder, put_bytes};
use tallybook::vfs::FileSystem;

use crate::error::{Error, Result};
use crate::placement::{BUCKETS_MAX, ReferenceId};
use crate::record::CatalogueIdentity;

const MAGIC: &[u8; 8] = b"TALLYFS\n";

/// Version of the store's format. On disk: never renumber.
pub const FORMAT_VERSION: u32 = 1;

/// The two files, in the order they are written.
const NAMES: [&str; 2] = ["STORE.copy", "STORE"];

/// What a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Counts the changes of this record.
    pub changes: u64,
    /// A random number that every bucket repeats.
    pub store: [u8; 16],
    /// Decides where names fall.
    pub reference_id: ReferenceId,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Most bytes of content in one bucket.
    pub bucket_cap_bytes: u64,
    /// How often the catalogue was made anew; part of its directory's name.
    pub catalogue_generation: u32,
    /// How often each bucket was made anew; part of its directory's name.
    pub bucket_generations: Vec<u16>,
    /// Directories that buckets are placed in, in turn.
    pub bucket_dirs: Vec<PathBuf>,
}

impl Superblock {
    /// Number of buckets.
    pub fn bucket_count(&self) -> usize {
        self.bucket_generations.len()
    }

    /// Whether there is a bucket of this number.
    pub(crate) fn has_bucket(&self, bucket: u8) -> bool {
        usize::from(bucket) < self.bucket_count()
    }

    /// What the catalogue says of itself.
    pub(crate) fn catalogue_identity(&self) -> CatalogueIdentity {
        CatalogueIdentity { store: self.store, generation: self.catalogue_generation }
    }

    /// Where the catalogue is.
    pub fn catalogue_dir(&self, dir: &Path) -> PathBuf {
        dir.join(format!("catalogue-{:06}", self.catalogue_generation))
    }

    /// Where a bucket is.
    pub fn bucket_dir(&self, dir: &Path, bucket: u8) -> PathBuf {
        let at = usize::from(bucket);
        let root = self.bucket_root(at).unwrap_or_else(|| dir.join(self.given_dir(at)));
        root.join(format!("{bucket:03}-{:06}", self.bucket_generations[at]))
    }

    /// The store's own part of the directory, elsewhere, that a bucket is placed in, if it is.
    pub(crate) fn bucket_root(&self, at: usize) -> Option<PathBuf> {
        let given = Some(self.given_dir(at)).filter(|given| given.is_absolute())?;
        // With stores that share a disk's directory, the number of the store tells them apart.
        Some(given.join(format!("{:08x}", u32::from_be_bytes(self.store_prefix()))))
    }

    fn given_dir(&self, at: usize) -> &Path {
        &self.bucket_dirs[at % self.bucket_dirs.len()]
    }

    fn store_prefix(&self) -> [u8; 4] {
        *self.store.first_chunk().expect("a store's number has 16 bytes")
    }

    /// Whether a directory holds a store, or what is left of one. An I/O error is answered only where it
    /// decides.
    pub fn exists(fs: &dyn FileSystem, dir: &Path) -> Result<bool> {
        let mut outcome = Ok(false);
        for name in NAMES {
            let path = dir.join(name);
            match fs.exists(&path).map_err(|source| Error::io("look up", &path, source)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Reads the record of the store in `dir`. An I/O error is answered only where neither copy is sound, a newer
    /// format always.
    pub fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Superblock> {
        let mut found: Option<Superblock> = None;
        let what = format!("there is no {}", NAMES[1]);
        let mut problem = Error::NotAStore { path: dir.to_owned(), what };
        for name in NAMES {
            match find_copy(fs, dir, name) {
                Found::Sound(superblock)
                    if found.as_ref().is_none_or(|f| f.changes <= superblock.changes) =>
                {
                    found = Some(superblock);
                }
                Found::Sound(_) | Found::Absent => {}
                Found::Newer(version) => return Err(newer(dir, name, version)),
                Found::Unread(error) => problem = error,
                // What could not be read may be sound.
                Found::Damaged if matches!(problem, Error::Engine(_)) => {}
                Found::Damaged => {
                    let what = format!("{name}: it is damaged");
                    problem = Error::NotAStore { path: dir.to_owned(), what };
                }
            }
        }
        found.ok_or(problem)
    }

    /// Writes the record, durably.
    pub fn write(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        NAMES.iter().try_for_each(|name| self.write_copy(fs, dir, name))
    }

    /// Whether no copy says this, where `write` failed. The first is replaced before the other is begun, and by one
    /// that is whole: damage there is of before. What can't be read may be this.
    pub(crate) fn is_nowhere(&self, fs: &dyn FileSystem, dir: &Path) -> bool {
        match find_copy(fs, dir, NAMES[0]) {
            Found::Sound(there) => there.changes < self.changes,
            Found::Absent | Found::Damaged => true,
            Found::Unread(_) | Found::Newer(_) => false,
        }
    }

    fn write_copy(&self, fs: &dyn FileSystem, dir: &Path, name: &str) -> Result<()> {
        let (path, temporary) = (dir.join(name), dir.join(format!("{name}.tmp")));
        if fs.exists(&temporary).map_err(|source| Error::io("look up", &temporary, source))? {
            let removed = fs.remove(&temporary);
            removed.map_err(|source| Error::io("remove", &temporary, source))?;
        }
        let file = fs.create(&temporary);
        let file = file.map_err(|source| Error::io("create", &temporary, source))?;
        let written = file.write_all_at(&self.encode(), 0);
        written.map_err(|source| Error::io("write", &temporary, source))?;
        file.sync_data().map_err(|source| Error::io("sync", &temporary, source))?;
        let renamed = fs.rename(&temporary, &path);
        renamed.map_err(|source| Error::io("rename", &temporary, source))?;
        fs.sync_dir(dir).map_err(|source| Error::io("sync", dir, source))
    }

    /// Writes a copy anew that is missing, damaged, older or can't be read; tells of each what was found, and what
    /// became of it. Requires: the catalogue bears this record out, and the caller holds the directory's lock.
    ///
    /// One that might count later and can't be written anew, as on a full disk, is removed. Where that can't be
    /// done, it is an error.
    pub(crate) fn put_in_step(&self, fs: &dyn FileSystem, dir: &Path) -> Result<Vec<String>> {
        let copies = NAMES.map(|name| (name, find_copy(fs, dir, name)));
        let says_this = |copy: &Found| matches!(copy, Found::Sound(copy) if copy == self);
        let is_one_left = copies.iter().any(|(_, copy)| says_this(copy));
        let mut told = Vec::new();
        for (name, copy) in copies.into_iter().filter(|(_, copy)| !says_this(copy)) {
            let (found, may_count) = match copy {
                Found::Sound(copy) if copy.changes > self.changes => {
                    let what = format!("{name} is newer and could not be read at first; try again");
                    return Err(Error::NotAStore { path: dir.to_owned(), what });
                }
                Found::Newer(version) => return Err(newer(dir, name, version)),
                Found::Sound(_) => ("it is older".to_owned(), true),
                Found::Damaged => ("it is damaged".to_owned(), false),
                Found::Absent => ("it is missing".to_owned(), false),
                Found::Unread(error) => (error.to_string(), true),
            };
            let became = match self.write_copy(fs, dir, name) {
                Ok(()) => "it was written anew".to_owned(),
                Err(error) if !may_count => format!("it can't be written anew: {error}"),
                Err(error) if is_one_left && remove_copy(fs, dir, name).is_ok() => {
                    format!("it can't be written anew, so it was removed: {error}")
                }
                Err(error) => return Err(error),
            };
            told.push(format!("{name}: {found}; {became}"));
        }
        Ok(told)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.changes.to_le_bytes());
        out.extend_from_slice(&self.store);
        out.extend_from_slice(&self.reference_id.0);
        out.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        out.extend_from_slice(&self.bucket_cap_bytes.to_le_bytes());
        out.extend_from_slice(&self.catalogue_generation.to_le_bytes());
        out.extend_from_slice(&(self.bucket_generations.len() as u16).to_le_bytes());
        for generation in &self.bucket_generations {
            out.extend_from_slice(&generation.to_le_bytes());
        }
        out.extend_from_slice(&(self.bucket_dirs.len() as u16).to_le_bytes());
        for dir in &self.bucket_dirs {
            put_bytes(&mut out, dir.to_str().unwrap_or_default().as_bytes());
        }
        let checksum = checksum::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }
}

/// What was found of a copy.
enum Found {
    Sound(Superblock),
    Absent,
    Damaged,
    /// It has this format version.
    Newer(u32),
    Unread(Error),
}

fn find_copy(fs: &dyn FileSystem, dir: &Path, name: &str) -> Found {
    match read_copy(fs, &dir.join(name)) {
        Ok(Some(bytes)) => decode(&bytes),
        Ok(None) => Found::Absent,
        Err(error) => Found::Unread(error),
    }
}

/// Refuses a copy of a newer format.
fn newer(dir: &Path, name: &str, version: u32) -> Error {
    Error::Engine(tallybook::Error::NewerFormat { file: dir.join(name), version })
}

fn remove_copy(fs: &dyn FileSystem, dir: &Path, name: &str) -> std::io::Result<()> {
    fs.remove(&dir.join(name))?;
    fs.sync_dir(dir)
}

/// The bytes of a copy, if there is one.
fn read_copy(fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>> {
    if !fs.exists(path).map_err(|source| Error::io("look up", path, source))? {
        return Ok(None);
    }
    let file = fs.open_read(path).map_err(|source| Error::io("open", path, source))?;
    let len = file.len().map_err(|source| Error::io("read", path, source))?;
    let mut bytes = vec![0; usize::try_from(len.min(4 << 20)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).map_err(|source| Error::io("read", path, source))?;
    Ok(Some(bytes))
}

fn decode(bytes: &[u8]) -> Found {
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else { return Found::Damaged };
    if u32::from_le_bytes(*checksum) != checksum::crc32c(body) {
        return Found::Damaged;
    }
    let mut fields = Decoder::new(body);
    if fields.take(MAGIC.len()) != Some(MAGIC) {
        return Found::Damaged;
    }
    match fields.u32() {
        Some(FORMAT_VERSION) => decode_fields(&mut fields).map_or(Found::Damaged, Found::Sound),
        Some(newer) if newer > FORMAT_VERSION => Found::Newer(newer),
        _ => Found::Damaged,
    }
}

fn decode_fields(fields: &mut Decoder<'_>) -> Option<Superblock> {
    let changes = fields.u64()?;
    let store = fields.take(16)?.try_into().ok()?;
    let reference_id = ReferenceId(fields.take(20)?.try_into().ok()?);
    let (chunk_bytes, bucket_cap_bytes) = (fields.u32()?, fields.u64()?);
    let catalogue_generation = fields.u32()?;
    let bucket_count = usize::from(fields.u16()?);
    if !bucket_count.is_power_of_two() || bucket_count > BUCKETS_MAX || chunk_bytes == 0 {
        return None;
    }
    let bucket_generations = (0..bucket_count).map(|_| fields.u16()).collect::<Option<_>>()?;
    let dir_count = fields.u16()?;
    let mut bucket_dirs = Vec::new();
    for _ in 0..dir_count {
        let dir = std::str::from_utf8(fields.length_prefixed()?).ok()?;
        bucket_dirs.push(PathBuf::from(dir));
    }
    (fields.remaining() == 0 && !bucket_dirs.is_empty()).then_some(Superblock {
        changes,
        store,
        reference_id,
        chunk_bytes,
        bucket_cap_bytes,
        catalogue_generation,
        bucket_generations,
        bucket_dirs,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tallybook::vfs::faulty::{Fault, OperationClass};
    use tallybook::vfs::{FaultyFileSystem, MemoryFileSystem};

    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            changes: 1,
            store: [7; 16],
            reference_id: ReferenceId([9; 20]),
            chunk_bytes: 1 << 17,
            bucket_cap_bytes: 1 << 30,
            catalogue_generation: 1,
            bucket_generations: vec![1; 4],
            bucket_dirs: vec![PathBuf::from("buckets"), PathBuf::from("/other/disk")],
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let bytes = superblock().encode();
        assert!(matches!(decode(&bytes), Found::Sound(sound) if sound == superblock()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(matches!(decode(&damaged), Found::Damaged), "byte {at}");
        }
    }

    #[test]
    fn either_copy_is_enough_and_the_newer_one_counts() {
        let (fs, dir) = (MemoryFileSystem::new(), Path::new("/store"));
        fs.create_dir_all(dir).unwrap();
        superblock().write(&fs, dir).unwrap();
        let newer = Superblock { changes: 2, ..superblock() };
        newer.write(&fs, dir).unwrap();
        for name in NAMES {
            fs.rename(&dir.join(name), &dir.join("away")).unwrap();
            assert_eq!(Superblock::read(&fs, dir).unwrap(), newer, "without {name}");
            fs.rename(&dir.join("away"), &dir.join(name)).unwrap();
        }
    }

    /// A store whose newer description only one copy has, and that one.
    fn out_of_step(newer: &Superblock) -> MemoryFileSystem {
        let (fs, dir) = (MemoryFileSystem::new(), Path::new("/store"));
        fs.create_dir_all(dir).unwrap();
        superblock().write(&fs, dir).unwrap();
        newer.write_copy(&fs, dir, NAMES[0]).unwrap();
        fs
    }

    /// The older one stayed, and counted as soon as the other was lost.
    #[test]
    fn an_older_copy_is_written_anew_or_removed_and_never_both_are() {
        let dir = Path::new("/store");
        let newer = Superblock { changes: 2, ..superblock() };
        let fs = out_of_step(&newer);
        assert_eq!(newer.put_in_step(&fs, dir).unwrap().len(), 1);
        assert_eq!(newer.put_in_step(&fs, dir).unwrap(), Vec::<String>::new());
        fs.remove(&dir.join(NAMES[0])).unwrap();
        assert_eq!(Superblock::read(&fs, dir).unwrap(), newer);

        let is_other = |_: &str, path: &Path| path.ends_with(NAMES[1]);
        let is_write = |operation: &str, path: &Path| {
            operation == "write_all_at" && path.ends_with("STORE.tmp")
        };
        // No room; neither room nor a way to remove it; and the sound one can't be read any more.
        for (at, is_kept) in [false, true, true].into_iter().enumerate() {
            let memory = out_of_step(&newer);
            let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
            let read = Superblock::read(&fs, dir).unwrap();
            fs.fail_at(0, Fault::errno(28).only(is_write).sticky());
            match at {
                0 => {}
                1 => fs.fail_at(0, Fault::errno(5).class(OperationClass::Writes).only(is_other)),
                _ => fs.fail_at(
                    0,
                    Fault::errno(5)
                        .class(OperationClass::Reads)
                        .only(|_, path| path.ends_with(NAMES[0])),
                ),
            }
            let told = read.put_in_step(&fs, dir);
            assert_eq!(
                (told.is_err(), memory.exists(&dir.join(NAMES[1])).unwrap()),
                (is_kept, is_kept)
            );
            assert_eq!(Superblock::read(&memory, dir).unwrap(), newer);
        }
    }

    #[test]
    fn a_description_is_nowhere_until_its_first_copy_says_it() {
        let dir = Path::new("/store");
        let newer = Superblock { changes: 2, ..superblock() };
        let fs = out_of_step(&newer);
        assert!(!newer.is_nowhere(&fs, dir));
        superblock().write(&fs, dir).unwrap();
        assert!(newer.is_nowhere(&fs, dir));
        let first = dir.join(NAMES[0]);
        fs.open(&first).unwrap().write_all_at(&[0], 0).unwrap();
        assert!(newer.is_nowhere(&fs, dir));
        fs.remove(&first).unwrap();
        assert!(newer.is_nowhere(&fs, dir));
    }

    /// It would be written over by what it was to replace.
    #[test]
    fn a_copy_that_shows_to_be_newer_is_not_written_over() {
        let dir = Path::new("/store");
        let newer = Superblock { changes: 2, ..superblock() };
        let fs = out_of_step(&newer);
        assert!(superblock().put_in_step(&fs, dir).is_err());
        assert_eq!(Superblock::read(&fs, dir).unwrap(), newer);
    }

    /// What a release whose format is newer writes.
    fn of_newer_format() -> Vec<u8> {
        let mut bytes = superblock().encode();
        bytes[8] = 2;
        let end = bytes.len() - 4;
        let checksum = checksum::crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        assert!(matches!(decode(&of_newer_format()), Found::Newer(2)));
    }

    fn is_newer<T>(refused: &Result<T>) -> bool {
        matches!(refused, Err(Error::Engine(tallybook::Error::NewerFormat { version: 2, .. })))
    }

    /// It was taken for damaged, and lost to what an older release knew.
    #[test]
    fn a_copy_of_a_newer_format_is_not_written_over() {
        let dir = Path::new("/store");
        for name in NAMES {
            let fs = MemoryFileSystem::new();
            fs.create_dir_all(dir).unwrap();
            superblock().write(&fs, dir).unwrap();
            fs.open(&dir.join(name)).unwrap().write_all_at(&of_newer_format(), 0).unwrap();
            let read = Superblock::read(&fs, dir);
            assert!(is_newer(&read), "{name}: {read:?}");
            let put = superblock().put_in_step(&fs, dir);
            assert!(is_newer(&put), "{name}: {put:?}");
            assert_eq!(read_copy(&fs, &dir.join(name)).unwrap(), Some(of_newer_format()));
        }
    }
}
