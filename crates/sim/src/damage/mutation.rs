//! The damages that are tried, and how each is done to files.

use std::io;
use std::path::PathBuf;

use tallybook::file_name::{self, FileKind};
use tallybook::vfs::{FileSystem, MemoryFileSystem};

use super::Plan;
use crate::medium::store_path;
use crate::random::Random;

/// Bytes that a disk writes whole.
const SECTOR_BYTES: u64 = 512;

/// A run of at least this many zeros is unused space, of which only some bytes are flipped.
const UNUSED_BYTES: usize = 64;

/// One damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mutation {
    Flip { file: String, offset: u64, mask: u8 },
    Truncate { file: String, len: u64 },
    ZeroSector { file: String, offset: u64 },
    CopySector { file: String, from: u64, to: u64 },
    Delete { file: String },
    Swap { a: String, b: String },
}

/// Every damage to these files.
pub(super) fn all(files: &[(String, Vec<u8>)], plan: Plan) -> Vec<Mutation> {
    let mut random = Random::new(plan.seed);
    let mut mutations = Vec::new();
    for (file, bytes) in files {
        let file = || file.clone();
        mutations.push(Mutation::Delete { file: file() });
        let start = random.index(plan.stride);
        for at in (start..bytes.len()).step_by(plan.stride) {
            let offset = at as u64;
            let len = offset;
            // A cut within unused space says no more than one at its edge.
            if !is_unused(bytes, at) || at % UNUSED_BYTES == 0 {
                let mask = 1 << random.below(8);
                mutations.push(Mutation::Flip { file: file(), offset, mask });
                mutations.push(Mutation::Truncate { file: file(), len });
            }
        }
        let sectors = (bytes.len() as u64).div_ceil(SECTOR_BYTES);
        for sector in 0..sectors {
            let offset = sector * SECTOR_BYTES;
            mutations.push(Mutation::ZeroSector { file: file(), offset });
            let from = random.below(sectors) * SECTOR_BYTES;
            if from != offset {
                mutations.push(Mutation::CopySector { file: file(), from, to: offset });
            }
        }
    }
    for (at, (a, _)) in files.iter().enumerate() {
        for (b, _) in &files[at + 1..] {
            if same_kind(a, b) {
                mutations.push(Mutation::Swap { a: a.clone(), b: b.clone() });
            }
        }
    }
    mutations
}

impl Mutation {
    /// The file of which it destroys more than one unit.
    pub(super) fn wipes(&self) -> Option<&String> {
        match self {
            Mutation::Truncate { file, .. }
            | Mutation::ZeroSector { file, .. }
            | Mutation::CopySector { file, .. } => Some(file),
            Mutation::Flip { .. } | Mutation::Delete { .. } | Mutation::Swap { .. } => None,
        }
    }

    pub(super) fn apply(&self, files: &MemoryFileSystem) -> io::Result<()> {
        match self {
            Mutation::Flip { file, offset, mask } => {
                let file = files.open(&path(file))?;
                let mut byte = [0];
                file.read_exact_at(&mut byte, *offset)?;
                file.write_all_at(&[byte[0] ^ mask], *offset)
            }
            Mutation::Truncate { file, len } => files.open(&path(file))?.set_len(*len),
            Mutation::ZeroSector { file, offset } => {
                let file = files.open(&path(file))?;
                let len = (file.len()? - offset).min(SECTOR_BYTES);
                file.write_all_at(&vec![0; len as usize], *offset)
            }
            Mutation::CopySector { file, from, to } => {
                let file = files.open(&path(file))?;
                let end = file.len()?;
                let len = (end - from).min(end - to).min(SECTOR_BYTES);
                let mut sector = vec![0; len as usize];
                file.read_exact_at(&mut sector, *from)?;
                file.write_all_at(&sector, *to)
            }
            Mutation::Delete { file } => files.remove(&path(file)),
            Mutation::Swap { a, b } => {
                let aside = path("aside");
                files.rename(&path(a), &aside)?;
                files.rename(&path(b), &path(a))?;
                files.rename(&aside, &path(b))
            }
        }
    }
}

fn path(name: &str) -> PathBuf {
    store_path().join(name)
}

/// The files of the store, but for its lock.
pub(super) fn read_files(files: &MemoryFileSystem) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = files.list(&store_path())?;
    names.retain(|name| file_name::parse(name) != Some(FileKind::Lock));
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let file = files.open_read(&path(&name))?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok((name, bytes))
        })
        .collect()
}

fn same_kind(a: &str, b: &str) -> bool {
    let kind = |name| file_name::parse(name).map(|kind| std::mem::discriminant(&kind));
    kind(a) == kind(b)
}

/// Whether the bytes around this one are all zeros.
fn is_unused(bytes: &[u8], at: usize) -> bool {
    let from = at.saturating_sub(UNUSED_BYTES / 2);
    let to = (at + UNUSED_BYTES / 2).min(bytes.len());
    bytes[from..to].iter().all(|&byte| byte == 0)
}
