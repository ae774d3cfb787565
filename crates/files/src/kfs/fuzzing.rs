//! What the fuzz targets call of the reader of KFS tables.

use std::path::Path;

use super::leveldb;
use super::parse_key;

/// Reads a LevelDB directory and every value in it; answers whether it holds any.
pub fn leveldb(dir: &Path) -> bool {
    let Ok(contents) = leveldb::read(dir) else {
        return false;
    };
    for (key, place) in &contents.values {
        parse_key(key);
        let value = place.read().expect("a value whose block was sound is read");
        assert_eq!(value.len(), place.length());
    }
    !contents.values.is_empty()
}
