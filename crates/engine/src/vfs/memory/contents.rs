//! The bytes of one file: what a reader sees, and what power loss would leave of it.
//!
//! Invariants: bytes after the length are zero, in the newest pages and in the durable ones; `undo`
//! holds the durable version of exactly the pages that differ from it, so that a sync costs what
//! was written since the last one. Pages are shared between copies until one writes to them.
//!
//! Not modelled: a version of a page between the durable and the newest one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::crash::{Chance, CrashMode};

/// Bytes that the system writes back together.
pub(super) const PAGE_BYTES: usize = 4096;

/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

type Page = [u8; PAGE_BYTES];

/// A page, or `None` for one that is all zeros and takes no memory.
type Slot = Option<Arc<Page>>;

/// Contents and length of a file, newest and durable.
#[derive(Clone, Default)]
pub(super) struct Contents {
    len: u64,
    /// Newest pages; those after the last are zeros.
    pages: Vec<Slot>,
    durable_len: u64,
    /// The durable version of each page that was written since the last sync.
    undo: BTreeMap<usize, Slot>,
}

impl Contents {
    /// Bytes in the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from `offset`; `UnexpectedEof` when the file ends before.
    pub(super) fn read(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !buf.is_empty() {
            let (index, start) = place(offset);
            let (piece, rest) = buf.split_at_mut(buf.len().min(PAGE_BYTES - start));
            match self.page(index) {
                Some(page) => piece.copy_from_slice(&page[start..start + piece.len()]),
                None => piece.fill(0),
            }
            offset += piece.len() as u64;
            buf = rest;
        }
        Ok(())
    }

    /// Stores `bytes` at `offset`, growing the file as needed. Requires: the end fits in 64 bits.
    pub(super) fn write(&mut self, mut bytes: &[u8], mut offset: u64) {
        while !bytes.is_empty() {
            let (index, start) = place(offset);
            let (piece, rest) = bytes.split_at(bytes.len().min(PAGE_BYTES - start));
            self.page_mut(index)[start..start + piece.len()].copy_from_slice(piece);
            offset += piece.len() as u64;
            self.len = self.len.max(offset);
            bytes = rest;
        }
    }

    /// Cuts the file, or grows it with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let (index, start) = place(len);
            if start > 0 && self.page(index).is_some() {
                self.page_mut(index)[start..].fill(0);
            }
            let kept = len.div_ceil(PAGE_BYTES as u64) as usize;
            for index in kept..self.pages.len() {
                let slot = self.pages[index].take();
                self.undo.entry(index).or_insert(slot);
            }
            self.pages.truncate(kept);
        }
        self.len = len;
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        self.durable_len = self.len;
        self.undo.clear();
    }

    /// Makes the pages of a range durable, and no other, and a length that holds it.
    pub(super) fn sync_range(&mut self, from: u64, end: u64) {
        self.durable_len = self.durable_len.max(end);
        let pages = place(from).0..end.div_ceil(PAGE_BYTES as u64) as usize;
        self.undo.retain(|page, _| !pages.contains(page));
    }

    /// What a crash leaves, all of it durable.
    pub(super) fn after_crash(&self, mode: CrashMode, chance: &mut Chance) -> Contents {
        let mut left = match mode {
            CrashMode::LoseUnsynced => self.rolled_back(),
            CrashMode::KeepAll => self.clone(),
            CrashMode::Random => self.torn(chance),
        };
        left.sync();
        left
    }

    fn page(&self, index: usize) -> Option<&Arc<Page>> {
        self.pages.get(index).and_then(Option::as_ref)
    }

    /// A page to write to. Its durable version is kept, if this is the first write since the sync.
    fn page_mut(&mut self, index: usize) -> &mut Page {
        if index >= self.pages.len() {
            self.pages.resize(index + 1, None);
        }
        let slot = &mut self.pages[index];
        self.undo.entry(index).or_insert_with(|| slot.clone());
        Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }

    fn put_page(&mut self, index: usize, slot: Slot) {
        if index >= self.pages.len() {
            self.pages.resize(index + 1, None);
        }
        self.pages[index] = slot;
    }

    /// The durable contents.
    fn rolled_back(&self) -> Contents {
        let mut left = self.clone();
        for (&index, old) in &self.undo {
            left.put_page(index, old.clone());
        }
        // Above the pages' own lengths, so that `set_len` cuts what was grown.
        left.len = self.len.max(self.durable_len);
        left.set_len(self.durable_len);
        left
    }

    /// A mixture of durable and newest contents: each written page is old, new, or some sectors of
    /// each, and the length is one that the file may have had on disk.
    fn torn(&self, chance: &mut Chance) -> Contents {
        let mut left = self.clone();
        // A third of the files is lost or kept as a whole: with many pages, chance alone would
        // hardly ever do that.
        let mood = chance.below(6);
        for (&index, old) in &self.undo {
            let new = self.page(index).cloned();
            let survivor = match (mood, chance.below(3)) {
                (0, _) | (2.., 0) => old.clone(),
                (1, _) | (2.., 1) => new,
                _ => torn_page(old, &new, chance),
            };
            left.put_page(index, survivor);
        }
        left.len = self.len.max(self.durable_len);
        if self.len < self.durable_len {
            left.settle_cut(self, chance);
        } else {
            left.settle_growth(self, chance);
        }
        left
    }

    /// A cut happened or it did not; if not, the bytes cut off are still there.
    fn settle_cut(&mut self, before: &Contents, chance: &mut Chance) {
        if chance.odds(1, 2) {
            self.set_len(before.len);
            return;
        }
        let first = before.len.div_ceil(PAGE_BYTES as u64) as usize;
        for (&index, old) in before.undo.range(first..) {
            self.put_page(index, old.clone());
        }
    }

    /// Growth is lost, kept without its bytes, kept with whichever pages survived, or reaches a
    /// length in between, as when the system wrote back between two appends.
    fn settle_growth(&mut self, before: &Contents, chance: &mut Chance) {
        let growth = before.len - before.durable_len;
        match chance.below(4) {
            0 => self.set_len(before.durable_len),
            1 => {
                self.set_len(before.durable_len);
                self.set_len(before.len);
            }
            2 => self.set_len(before.len),
            _ => self.set_len(before.durable_len + chance.below(growth.saturating_add(1))),
        }
    }
}

/// Each sector from the old page or from the new one.
fn torn_page(old: &Slot, new: &Slot, chance: &mut Chance) -> Slot {
    let mut torn: Page = old.as_deref().copied().unwrap_or([0; PAGE_BYTES]);
    for start in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
        if chance.odds(1, 2) {
            let sector = start..start + SECTOR_BYTES;
            match new {
                Some(page) => torn[sector.clone()].copy_from_slice(&page[sector]),
                None => torn[sector].fill(0),
            }
        }
    }
    Some(Arc::new(torn))
}

/// The page that holds a byte, and the byte's place in it.
fn place(offset: u64) -> (usize, usize) {
    ((offset / PAGE_BYTES as u64) as usize, (offset % PAGE_BYTES as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(contents: &Contents) -> Vec<u8> {
        let mut bytes = vec![0; contents.len() as usize];
        contents.read(&mut bytes, 0).unwrap();
        bytes
    }

    fn lose(contents: &Contents) -> Vec<u8> {
        bytes(&contents.after_crash(CrashMode::LoseUnsynced, &mut Chance::new(0, 0)))
    }

    #[test]
    fn a_synced_range_is_kept_without_the_pages_beside_it() {
        let mut contents = Contents::default();
        contents.write(&[1; 3 * PAGE_BYTES], 0);
        contents.sync();
        contents.write(&[2; 3 * PAGE_BYTES], 0);
        contents.sync_range(PAGE_BYTES as u64 + 7, PAGE_BYTES as u64 + 9);
        let expected = [[1; PAGE_BYTES], [2; PAGE_BYTES], [1; PAGE_BYTES]].concat();
        assert_eq!(lose(&contents), expected);

        let mut grown = Contents::default();
        grown.write(&[1; 3 * PAGE_BYTES], 0);
        grown.sync_range(PAGE_BYTES as u64, 2 * PAGE_BYTES as u64);
        assert_eq!(lose(&grown), [[0; PAGE_BYTES], [1; PAGE_BYTES]].concat());
    }

    #[test]
    fn a_cut_that_was_not_synced_is_undone_with_its_bytes() {
        let mut contents = Contents::default();
        contents.write(&[1; 10_000], 0);
        contents.sync();
        contents.set_len(100);
        contents.set_len(9_000);
        assert_eq!(bytes(&contents)[100..], [0; 8_900]);
        assert_eq!(lose(&contents), [1; 10_000]);
        contents.sync();
        assert_eq!(lose(&contents), bytes(&contents));
    }

    #[test]
    fn a_random_cut_is_whole_or_never_happened() {
        let mut contents = Contents::default();
        contents.write(&[1; 3 * PAGE_BYTES], 0);
        contents.sync();
        contents.set_len(PAGE_BYTES as u64);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let left = contents.after_crash(CrashMode::Random, &mut Chance::new(seed, 0));
            assert_eq!(bytes(&left), vec![1; left.len() as usize]);
            seen.insert(left.len() as usize);
        }
        assert_eq!(Vec::from_iter(seen), [PAGE_BYTES, 3 * PAGE_BYTES]);
    }

    #[test]
    fn a_torn_page_mixes_whole_sectors() {
        let mut contents = Contents::default();
        contents.write(&[1; PAGE_BYTES], 0);
        contents.sync();
        contents.write(&[2; PAGE_BYTES], 0);
        let (mut old, mut new, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let left = contents.after_crash(CrashMode::Random, &mut Chance::new(seed, 0));
            let left = bytes(&left);
            for sector in left.chunks(SECTOR_BYTES) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
            }
            match (left.contains(&1), left.contains(&2)) {
                (true, false) => old += 1,
                (false, true) => new += 1,
                _ => torn += 1,
            }
        }
        assert!(old > 20 && new > 20 && torn > 20, "{old} old, {new} new, {torn} torn");
    }

    #[test]
    fn random_growth_is_lost_zero_kept_or_partly_there() {
        let mut contents = Contents::default();
        contents.write(&[1; 100], 0);
        contents.sync();
        contents.write(&[2; 2_000], 100);
        let (mut lost, mut zero, mut kept, mut partly) = (0, 0, 0, 0);
        for seed in 0..400 {
            let left = contents.after_crash(CrashMode::Random, &mut Chance::new(seed, 0));
            let left = bytes(&left);
            assert_eq!(left[..100], [1; 100], "synced bytes survive");
            match left.len() {
                100 => lost += 1,
                2_100 if left[100..] == [0; 2_000] => zero += 1,
                2_100 if left[100..] == [2; 2_000] => kept += 1,
                _ => partly += 1,
            }
        }
        let all_seen = [lost, zero, kept, partly].iter().all(|&count| count > 20);
        assert!(all_seen, "{lost} lost, {zero} zero, {kept} kept, {partly} partly");
    }

    #[test]
    fn what_follows_the_end_reads_as_zeros_when_the_file_grows_again() {
        let mut contents = Contents::default();
        contents.write(&[1; 5_000], 0);
        for len in [4_096, 4_095, 1, 0] {
            let mut cut = contents.clone();
            cut.set_len(len);
            cut.set_len(5_000);
            assert_eq!(bytes(&cut)[len as usize..], vec![0; 5_000 - len as usize]);
        }
        assert_eq!(bytes(&contents), [1; 5_000]);
    }
}
