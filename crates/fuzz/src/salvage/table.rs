//! A table as far as it can be read: what is of a sound one, and of another what is in order.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use tallybook::Reading;
use tallybook::block_cache::BlockCache;
use tallybook::file_cache::FileCache;
use tallybook::file_name;
use tallybook::head::Entry;
use tallybook::key::check_key;
use tallybook::sstable::{SalvagedTable, Table};
use tallybook::vfs::FileSystem;

use crate::disk;
use crate::table::{ENTRIES_MAX, NUMBER, file_seeds, sections, tables, walk};

/// A whole table whose checksums are right.
pub(crate) fn table(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    disk::correct_table(NUMBER, &mut bytes);
    let fs = disk::empty();
    let path = file_name::table(disk::dir(), NUMBER);
    disk::write(&fs, &path, &bytes);
    let fs: Arc<dyn FileSystem> = Arc::new(fs);
    let files = Arc::new(FileCache::new(fs, 4));
    let cache = Arc::new(BlockCache::new(1 << 20, 1 << 16));
    let len = bytes.len() as u64;
    let table = Table::open(&files, path.clone(), NUMBER, len, Reading::Pread, cache);
    let salvaged = match SalvagedTable::open(&files, path, NUMBER, len) {
        Ok(salvaged) => salvaged,
        Err(error) => {
            assert!(table.is_err(), "a table that opens is lost: {error}");
            return false;
        }
    };
    let entries = entries(&salvaged);
    let Ok(table) = table else { return false };
    let table = Arc::new(table);
    if !table.verify(&mut |_| {}).is_empty() {
        return false;
    }
    let entries = entries.expect("every block of a sound table is read");
    let walked = walk(&table, false, false).expect("a sound table is read");
    assert!(entries.len().min(ENTRIES_MAX) == walked.len());
    assert!(entries.iter().zip(&walked).all(|(one, other)| one == other));
    assert!(salvaged.properties().is_ok_and(|own| own == table.properties()));
    assert!(salvaged.check_index().is_ok() && salvaged.range_tombstones().is_ok());
    true
}

/// What is in all blocks, if each can be read.
fn entries(table: &SalvagedTable) -> Option<Vec<(Bytes, Entry)>> {
    let place = |(key, entry): &(Bytes, Entry)| (key.clone(), Reverse(entry.seqno));
    let (mut all, mut is_whole, mut last_read) = (Vec::<(Bytes, Entry)>::new(), true, None);
    for block in 0..table.block_count() {
        let Ok(entries) = table.entries(block) else {
            (is_whole, last_read) = (false, None);
            continue;
        };
        assert!(entries.iter().all(|(key, _)| check_key(key).is_ok()));
        assert!(entries.is_sorted_by(|one, next| place(one) < place(next)), "{entries:?}");
        // Two blocks may have writes to one key; which of them are newer nobody knows if one between can't be read.
        let follows = |next: &(Bytes, Entry)| {
            all.last().is_none_or(|(last, _)| *last <= next.0)
                && last_read.as_ref().is_none_or(|last| *last < place(next))
        };
        assert!(entries.first().is_none_or(follows), "block {block} isn't behind the one before");
        last_read = entries.last().map(place);
        all.extend(entries);
    }
    is_whole.then_some(all)
}

/// Seeds of `table`.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = file_seeds();
    // A section that can't be decoded, of a table with several blocks: range deletions, point index, properties.
    let [_, several, ..] = &tables()[..] else { return seeds };
    for section in [0, 2, 3] {
        let (offset, bytes) = &sections(several)[section];
        let mut table = several.clone();
        table[*offset as usize..][..bytes.len()].fill(0xff);
        seeds.push(table);
    }
    seeds
}
