//! A manifest's bytes, read whole: as many as stand before the first gap.
//!
//! A file may have any number of zeros that take no space. No record has many of them in a row, so that none goes
//! on behind a gap of them; what counts of what is there is only whether a mark is, which makes the gap damage.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::record::{self, RECORD_HEADER_BYTES};
use crate::error::{Error, Result};
use crate::vfs::{File, FileSystem};

/// A manifest is shorter: its first edit is below 4 GiB, as any other, and at twice that it is made anew.
pub(super) const MANIFEST_BYTES_MAX: u64 = 16 << 30;

/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// So many zeros, at a multiple of as many, are a gap: the longest key has a quarter of that, and every key has
/// its length before it.
const GAP_BYTES: usize = 16 << 10;

/// What there is of a manifest.
#[derive(Debug)]
pub(super) struct Contents {
    /// Up to the first gap.
    pub(super) bytes: Vec<u8>,
    /// Bytes of the file.
    pub(super) file_bytes: u64,
    /// Whether a mark stands behind the gap.
    pub(super) has_mark_behind: bool,
}

impl Contents {
    /// Those of manifest `number`; `None` when there is none.
    pub(super) fn read(fs: &dyn FileSystem, path: &Path, number: u64) -> Result<Option<Contents>> {
        let Some((file, file_bytes)) = open(fs, path, MANIFEST_BYTES_MAX)? else {
            return Ok(None);
        };
        let (mut bytes, mut offset, mut has_gap) = (Vec::new(), 0, false);
        while offset < file_bytes && !has_gap {
            let piece = read_piece(&*file, path, offset, file_bytes)?;
            let is_gap = |part: &[u8]| part.len() == GAP_BYTES && is_zero(part);
            let gap = piece.chunks(GAP_BYTES).position(is_gap);
            has_gap = gap.is_some();
            bytes.extend_from_slice(&piece[..gap.map_or(piece.len(), |at| at * GAP_BYTES)]);
            offset += piece.len() as u64;
        }
        let (mut offset, mut has_mark_behind) = (bytes.len() as u64, false);
        while offset + (RECORD_HEADER_BYTES as u64) <= file_bytes && !has_mark_behind {
            let piece = read_piece(&*file, path, offset, file_bytes)?;
            has_mark_behind = !is_zero(&piece) && record::has_mark(&piece, number, offset);
            // One may begin in this piece, and end in the next.
            offset += (piece.len() - RECORD_HEADER_BYTES + 1) as u64;
        }
        Ok(Some(Contents { bytes, file_bytes, has_mark_behind }))
    }

    /// Whether a mark stands anywhere after `offset`.
    pub(super) fn has_mark_beyond(&self, number: u64, offset: usize) -> bool {
        let behind = self.bytes.get(offset + 1..).unwrap_or(&[]);
        self.has_mark_behind || record::has_mark(behind, number, offset as u64 + 1)
    }
}

/// A file that has at most so many bytes, and how many it has; `None` when there is none.
pub(super) fn open(
    fs: &dyn FileSystem,
    path: &Path,
    most: u64,
) -> Result<Option<(Arc<dyn File>, u64)>> {
    let file = match fs.open_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| Error::io("open", path, error))?,
    };
    let file_bytes = file.len().map_err(|error| Error::io("read", path, error))?;
    if file_bytes > most {
        let what = format!("the file has {file_bytes} bytes, which is too many");
        return Err(Error::corruption(path, most, what));
    }
    Ok(Some((file, file_bytes)))
}

/// The bytes of a file from `offset` on, as many as are read at once.
pub(super) fn read_piece(
    file: &dyn File,
    path: &Path,
    offset: u64,
    file_bytes: u64,
) -> Result<Vec<u8>> {
    let mut piece = vec![0; PIECE_BYTES.min(file_bytes - offset) as usize];
    let read = file.read_exact_at(&mut piece, offset);
    read.map_err(|error| Error::io("read", path, error))?;
    Ok(piece)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::manifest::recover::recover_file;
    use crate::version::VersionEdit;
    use crate::vfs::MemoryFileSystem;

    #[test]
    fn zeros_take_no_memory_whatever_stands_behind_them() {
        let fs = MemoryFileSystem::new();
        let dir = Path::new("d");
        fs.create_dir_all(dir).unwrap();
        let manifest = Manifest::create(&fs, dir, 4, &VersionEdit::default()).unwrap();
        let path = manifest.path();
        let file = fs.open(path).unwrap();
        // Also where one piece ends and the next one begins.
        let gap_at = GAP_BYTES as u64;
        for at in [5 << 20, gap_at + PIECE_BYTES - 4, gap_at + 2 * PIECE_BYTES - 12] {
            file.set_len(manifest.bytes()).unwrap();
            file.write_all_at(b"torn", at).unwrap();
            let contents = Contents::read(&fs, path, 4).unwrap().unwrap();
            assert!(contents.bytes.len() <= GAP_BYTES && !contents.has_mark_behind);
            let recovered = recover_file(&fs, dir, 4).unwrap();
            let cut_bytes = at + 4 - manifest.bytes();
            assert_eq!((recovered.edits, recovered.cut_bytes), (1, cut_bytes));
            // It was synced, so that what stood before it was, too.
            file.write_all_at(&record::mark(4, at), at).unwrap();
            assert!(matches!(recover_file(&fs, dir, 4), Err(Error::Corruption { .. })), "{at}");
        }
    }
}
