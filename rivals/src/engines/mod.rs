//! Every engine by its name, and how it is opened.

mod commits;
mod cursor;
mod fjall;
mod leveldb;
mod lmdb;
mod redb;
mod rocksdb;
mod sled;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use heed::EnvFlags;
use tallybook_lab::files::{FileTarget, FilesOpening};
use tallybook_lab::target::{Budget, Target};
use tallybook_lab::{Error, Result};

use crate::options::Opening;

type Open = fn(Opening) -> Result<Box<dyn Target>>;

const ENGINES: [(&str, Open); 14] = [
    ("rocksdb", |opening| rocksdb::open(opening, rocksdb::Variant::Defaults)),
    ("rocksdb-tuned", |opening| rocksdb::open(opening, rocksdb::Variant::Tuned)),
    ("rocksdb-blob", |opening| rocksdb::open(opening, rocksdb::Variant::Blob)),
    ("rocksdb-cached", |opening| rocksdb::open(opening, rocksdb::Variant::Cached)),
    ("leveldb", |opening| leveldb::open(opening, true)),
    ("leveldb-unverified", |opening| leveldb::open(opening, false)),
    ("fjall", |opening| fjall::open(opening, false)),
    ("fjall-blob", |opening| fjall::open(opening, true)),
    ("lmdb", |opening| lmdb::open(opening, EnvFlags::empty())),
    ("lmdb-random", |opening| lmdb::open(opening, EnvFlags::NO_READ_AHEAD)),
    ("lmdb-writemap", |opening| lmdb::open(opening, EnvFlags::WRITE_MAP)),
    ("redb", redb::open),
    ("sled", |opening| sled::open(opening, true)),
    ("sled-buffered", |opening| sled::open(opening, false)),
];

/// Every engine's name, variants included.
pub const NAMES: [&str; ENGINES.len()] = {
    let mut names = [""; ENGINES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ENGINES[at].0;
        at += 1;
    }
    names
};

/// Opens an engine's store in a directory, which is made if need be and must be this process's alone.
/// No engine takes a setting; one that is given is refused.
pub fn open(
    name: &str,
    directory: &Path,
    budget: &Budget,
    settings: &BTreeMap<String, String>,
) -> Result<Box<dyn Target>> {
    let Some(&(name, open)) = ENGINES.iter().find(|(known, _)| *known == name) else {
        return Err(Error::Unknown {
            what: "target",
            name: name.to_owned(),
            known: NAMES.map(str::to_owned).to_vec(),
        });
    };
    if let Some(setting) = settings.keys().next() {
        return Err(Error::Unknown {
            what: "setting",
            name: setting.clone(),
            known: vec!["none".to_owned()],
        });
    }
    fs::create_dir_all(directory).map_err(Error::io(format!("making {}", directory.display())))?;
    open(Opening { name, directory: directory.to_owned(), budget: budget.clone() })
}

/// Opens a store of files in a directory, which is made if need be and must be this process's alone.
pub fn open_files(opening: &FilesOpening) -> Result<Box<dyn FileTarget>> {
    let directory = &opening.directory;
    fs::create_dir_all(directory).map_err(Error::io(format!("making {}", directory.display())))?;
    match &*opening.name {
        leveldb::files::NAME => Ok(Box::new(leveldb::files::LevelDbFiles::open(opening)?)),
        other => Err(Error::Unknown {
            what: "store of files",
            name: other.to_owned(),
            known: vec![leveldb::files::NAME.to_owned()],
        }),
    }
}

#[cfg(test)]
mod tests {
    use tallybook_lab::spec::Durability;

    use super::*;

    const BUDGET: Budget =
        Budget { write_buffer_bytes: 4 << 20, cache_bytes: 1 << 20, durability: Durability::Os };

    #[test]
    fn an_unknown_engine_lists_the_known_ones() {
        let directory = tempfile::tempdir().unwrap();
        let opened = open("rocksdbx", directory.path(), &BUDGET, &BTreeMap::new());
        let error = opened.err().unwrap().to_string();
        assert!(NAMES.iter().all(|name| error.contains(name)), "{error}");
    }

    #[test]
    fn an_unknown_setting_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let settings = BTreeMap::from([("compression".to_owned(), "lz4".to_owned())]);
        let opened = open("lmdb", directory.path(), &BUDGET, &settings);
        assert!(opened.err().unwrap().to_string().contains("compression"));
    }

    #[test]
    fn only_lmdb_for_random_reads_has_no_page_read_ahead() {
        let told = |name: &str| {
            let directory = tempfile::tempdir().unwrap();
            let target = open(name, directory.path(), &BUDGET, &BTreeMap::new()).unwrap();
            target.settings()["read_ahead"].clone()
        };
        assert!(told("lmdb-random").contains("NO_READ_AHEAD"));
        assert_eq!(told("lmdb"), "the system's");
    }
}
