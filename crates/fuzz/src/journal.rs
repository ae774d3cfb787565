//! The journal: headers, groups, indexes of collected segments, recovery.

use std::collections::HashSet;
use std::sync::Arc;

use tallybook::Reading;
use tallybook::file_cache::FileCache;
use tallybook::file_name::{self, FileKind};
use tallybook::journal::record::{RECORD_HEADER_BYTES, RecordHeader, Salt, Start};
use tallybook::journal::segment_header::SegmentHeader;
use tallybook::journal::{
    self, CollectedIndex, JournalFiles, JournalPosition, Recovered, Segment, verify_segment,
};
use tallybook::stages::Recorder;
use tallybook::vfs::{FileSystem, MemoryFileSystem};

use crate::disk;
use crate::input::{Input, part, u32_at};
use crate::store;

/// Where the `Start` record of a segment says its LSN; what precedes it, and where that ends, follow.
pub(crate) const START_LSN_AT: usize = 112;

/// Headers of segments and records, and what a `Start` says: what decodes is encoded to the same bytes.
pub(crate) fn headers(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (offset, kind) = (u64::from(input.u16()) * 8, input.u8());
    let mut bytes = input.rest().to_vec();
    match kind % 3 {
        0 => {
            let salt = Salt::new(7);
            if let Some(header) = bytes.get(4..RECORD_HEADER_BYTES as usize) {
                let crc = salt.crc(offset, header);
                bytes[..4].copy_from_slice(&crc.to_le_bytes());
            }
            let Some(header) = RecordHeader::decode(&bytes, salt, offset) else { return false };
            assert_eq!(header.encode(salt, offset)[..], bytes[..RECORD_HEADER_BYTES as usize]);
            assert!(header.record_bytes().is_multiple_of(8));
            assert!(RecordHeader::decode(&bytes, salt, offset + 8).is_none());
            true
        }
        1 => {
            disk::correct_segment(offset, &mut bytes);
            let Ok(header) = SegmentHeader::decode("segment".as_ref(), offset, &bytes) else {
                return false;
            };
            let again = SegmentHeader::decode("segment".as_ref(), offset, &header.encode());
            assert_eq!(again.ok(), Some(header));
            true
        }
        _ => {
            let Some(start) = Start::decode(&bytes) else { return false };
            assert_eq!(start.encode()[..], bytes);
            true
        }
    }
}

/// The meta section of a group.
pub(crate) fn group(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (count, value_bytes) = (u32::from(input.u16()), input.u32());
    journal::fuzzing::group(input.rest(), count, value_bytes)
}

/// The index of a collected segment.
pub(crate) fn collected_index(data: &[u8]) -> bool {
    let mut input = Input(data);
    let count = u32::from(input.u16());
    journal::fuzzing::collected_index(input.rest(), count)
}

/// Up to three segment files, and what a manifest says of them.
pub(crate) struct Given {
    /// Whether checksums were made right.
    pub(crate) is_corrected: bool,
    pub(crate) fs: MemoryFileSystem,
    pub(crate) from: JournalPosition,
    pub(crate) synced_lsn: u64,
    pub(crate) kept: HashSet<u64>,
    /// For salvage alone: the newest segment that is known, and the newest write in tables.
    pub(crate) newest: Option<u64>,
    pub(crate) seqno_in_tables: u64,
}

impl Given {
    /// Their checksums are right, or as they are.
    pub(crate) fn of(data: &[u8]) -> Given {
        let mut input = Input(data);
        let flags = input.u8();
        let named = (flags & 2 != 0).then(|| JournalPosition {
            segment: u64::from(input.u8()),
            offset: u64::from(input.u16()),
            lsn: input.u64(),
        });
        let synced_lsn = if flags & 4 == 0 { 0 } else { input.u64() };
        let kept = if flags & 8 == 0 { 0 } else { input.u8() };
        let newest = (flags & 16 != 0).then(|| u64::from(input.u8()));
        let seqno_in_tables = if flags & 32 == 0 { 0 } else { input.u64() };
        let fs = disk::empty();
        let mut first_lsn = 0;
        for number in 1..=3 {
            let mut bytes = input.part().to_vec();
            if bytes.is_empty() {
                continue;
            }
            if flags & 1 == 0 {
                disk::correct_segment(number, &mut bytes);
            }
            if number == 1 {
                first_lsn = bytes.get(START_LSN_AT..).map_or(0, |lsn| Input(lsn).u64());
            }
            disk::write(&fs, &file_name::segment(disk::dir(), number), &bytes);
        }
        let from = named.unwrap_or(JournalPosition { segment: 1, offset: 64, lsn: first_lsn });
        let kept = (1..=3).filter(|number| kept >> number & 1 == 1).collect();
        let is_corrected = flags & 1 == 0;
        Given { is_corrected, fs, from, synced_lsn, kept, newest, seqno_in_tables }
    }
}

/// Segment files: read, verified, recovered from. A journal that was recovered is recovered to the same
/// end again.
pub(crate) fn recovery(data: &[u8]) -> bool {
    let Given { fs, from, synced_lsn, kept, .. } = Given::of(data);
    look_at_each(&fs);
    let Ok((groups, recovered)) = recover(&fs, from, synced_lsn, &kept) else {
        return false;
    };
    let proven_lsn = recovered.proven_lsn.max(synced_lsn);
    let (again, second) = recover(&fs, recovered.start, proven_lsn, &kept)
        .expect("a journal that was recovered is recovered again");
    assert_eq!(again, groups);
    assert_eq!((second.end, second.last_seqno), (recovered.end, recovered.last_seqno));
    assert_eq!((second.torn_bytes, second.torn_records), (0, 0));
    recovered.replayed_groups > 0
}

pub(crate) fn files_of(fs: &MemoryFileSystem) -> Arc<JournalFiles> {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    Arc::new(JournalFiles {
        file_cache: Arc::new(FileCache::new(fs.clone(), 4)),
        fs,
        dir: disk::dir().to_owned(),
        reading: Reading::Mapped,
        recorder: Arc::new(Recorder::new(0)),
    })
}

pub(crate) fn numbers(fs: &MemoryFileSystem) -> Vec<u64> {
    let names = fs.list(disk::dir()).expect("the directory is there");
    let number = |name: &String| match file_name::parse(name) {
        Some(FileKind::Segment(number)) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn look_at_each(fs: &MemoryFileSystem) {
    let files = files_of(fs);
    for number in numbers(fs) {
        let path = file_name::segment(disk::dir(), number);
        let _ = journal::inspect(&files.fs, &path, &mut |_| {});
        let len = disk::read(fs, &path).len() as u64;
        let Ok(segment) = Segment::open(files.clone(), number, len) else { continue };
        let _ = verify_segment(&segment, 64);
        if let Ok(index) = CollectedIndex::read(&segment) {
            for (old, moved) in index.iter() {
                assert!(index.of(old).is_some());
                for (offset, new) in moved.iter() {
                    assert_eq!(moved.lookup(offset), Some(new));
                    let _ = segment.read_value(new, 1, 0, true);
                }
            }
        }
    }
}

/// What each group says, and what recovery found.
type Replay = (Vec<String>, Recovered);

fn recover(
    fs: &MemoryFileSystem,
    from: JournalPosition,
    synced_lsn: u64,
    kept: &HashSet<u64>,
) -> tallybook::Result<Replay> {
    let mut groups = Vec::new();
    let numbers = numbers(fs);
    let recovered =
        journal::recover(&files_of(fs), from, synced_lsn, &numbers, kept, &mut |replayed| {
            groups.push(format!("{:?} {:?}", replayed.end, replayed.changes.collect::<Vec<_>>()));
            Ok(())
        })?;
    Ok((groups, recovered))
}

/// Seeds of `headers`.
pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    let segment = first_segment();
    let seed =
        |offset: u16, kind: u8, bytes: &[u8]| [&offset.to_le_bytes()[..], &[kind], bytes].concat();
    vec![
        seed(8, 0, &segment[64..112]),
        seed(17, 0, &segment[136..184]),
        seed(1, 1, &segment[..64]),
        seed(0, 2, &segment[112..136]),
    ]
}

/// Seeds of `group`.
pub(crate) fn group_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for segment in store::segments() {
        let mut at = 136;
        while let Some(header) = segment.get(at..at + 48) {
            let field = |at: usize| u32_at(header, at).expect("a header has its fields");
            let (meta_bytes, value_bytes, count) =
                (field(32) as usize, field(36), field(40) as u16);
            let Some(meta) = segment.get(at + 48..at + 48 + meta_bytes) else { break };
            if count > 0 {
                seeds.push([&count.to_le_bytes()[..], &value_bytes.to_le_bytes(), meta].concat());
            }
            at += (48 + meta_bytes + value_bytes as usize).next_multiple_of(8);
        }
    }
    // The last is the batch.
    let last = seeds.split_off(seeds.len().saturating_sub(1));
    seeds.truncate(7);
    [seeds, last].concat()
}

/// Seeds of `collected_index`.
pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![1, 0, 1, 112, 112],
        vec![3, 0, 1, 112, 112, 1, 0x80, 2, 0x90, 1, 2, 112, 0xff, 0xff, 3],
        vec![0, 0],
    ]
}

/// Seeds of `recovery`.
pub(crate) fn recovery_seeds() -> Vec<Vec<u8>> {
    let segments = store::segments();
    let whole = |flags: u8, parts: &[&[u8]]| {
        let mut seed = vec![flags];
        parts.iter().for_each(|bytes| seed.extend(part(bytes)));
        seed
    };
    let first = first_segment();
    let mut seeds = vec![whole(0, &[&first]), whole(1, &[&first]), whole(0, &[&first[..400]])];
    if let [one, two, ..] = &segments[..] {
        // The second follows the first, under the numbers that they get here.
        let mut two = two.clone();
        two[START_LSN_AT + 8..START_LSN_AT + 16].copy_from_slice(&1u64.to_le_bytes());
        seeds.push(whole(0, &[one, &two]));
        seeds.push(whole(0, &[one, b"", &two]));
    }
    seeds
}

fn first_segment() -> Vec<u8> {
    store::segments().into_iter().next().expect("a store has a segment")
}
