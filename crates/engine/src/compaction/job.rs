//! Merging sorted sources within a key slice into new tables: the work of a flush or a compaction.
//!
//! 1. Merge the sources from the slice's start to its end.
//! 2. Drop the versions that no reader can see ([`Retain`]).
//! 3. Make pointers into collected segments direct.
//! 4. Write the rest ([`Output`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::output::{Output, OutputOptions, OutputTable};
use super::retain::Retain;
use crate::error::{Error, Result};
use crate::fault_points::{self, Bug};
use crate::head::{BodyRef, ValuePointer};
use crate::iter::{InternalIterator, MergingIterator};
use crate::key::{self, SEQNO_MAX, SeqNo};
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::sstable::BuildTimes;
use crate::vfs::FileSystem;

/// A cancelled job looks at its flag this often, in entries.
const CANCEL_CHECK_ENTRIES: u64 = 1024;

/// What to merge and how.
pub struct Job<'a, S> {
    /// Sorted sources that share no (key, SeqNo).
    pub sources: Vec<S>,
    /// Every range deletion of the sources.
    pub range_tombstones: Vec<RangeTombstone>,
    /// First key of the slice; `None` is the first of all.
    pub start: Option<Bytes>,
    /// End of the slice, excluded; `None` is beyond all.
    pub end: Option<Bytes>,
    /// Whether nothing older than the sources holds keys of the slice.
    pub bottom: bool,
    /// Pinned SeqNos, ascending.
    pub snapshots: Vec<SeqNo>,
    /// The wall clock.
    pub now_ms: u64,
    /// Makes a pointer direct.
    pub direct: &'a dyn Fn(&ValuePointer) -> ValuePointer,
    /// Set when the store is closing.
    pub cancel: &'a AtomicBool,
}

/// What a job did.
#[derive(Debug)]
pub struct JobResult {
    /// The new tables, in key order.
    pub tables: Vec<OutputTable>,
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// Where the time of building went.
    pub times: Arc<BuildTimes>,
}

/// Runs a job. On an error, or when it was cancelled (`Error::Busy`), nothing is left behind.
pub fn run<S: InternalIterator>(
    job: Job<'_, S>,
    fs: &Arc<dyn FileSystem>,
    next_file_number: &AtomicU64,
    options: OutputOptions,
) -> Result<JobResult> {
    let clipped = clip(job.range_tombstones, job.start.as_ref(), job.end.as_ref());
    let range_tombstones = RangeTombstones::new(clipped);
    let mut retain = Retain::new(&job.snapshots, &range_tombstones, job.bottom, job.now_ms);
    let kept_ranges = match fault_points::is_planted(Bug::ForgetRangeTombstone) {
        true => Vec::new(),
        false => retain.kept_ranges(),
    };
    let mut output = Output::new(fs, next_file_number, options, kept_ranges);
    let times = output.times();
    let mut merged = MergingIterator::new(job.sources);
    match &job.start {
        Some(start) => merged.seek(start, SEQNO_MAX)?,
        None => merged.seek_to_first()?,
    }
    let (mut entries_in, mut entries_out) = (0, 0);
    while merged.valid() {
        let source = merged.winner();
        let (user_key, seqno) = source.internal_key();
        if job.end.as_ref().is_some_and(|end| !key::is_before(user_key, end)) {
            break;
        }
        if entries_in % CANCEL_CHECK_ENTRIES == 0 && job.cancel.load(Ordering::Relaxed) {
            return Err(Error::Busy);
        }
        entries_in += 1;
        // Of what goes, no more is looked at.
        if retain.keeps(user_key, seqno, || source.expiry())? {
            let mut entry = source.entry()?;
            if let BodyRef::Ref(pointer) = &mut entry.body {
                *pointer = (job.direct)(pointer);
            }
            output.add(user_key, &entry).map_err(|error| refused(error, source))?;
            entries_out += 1;
        }
        merged.next()?;
    }
    Ok(JobResult { tables: output.finish()?, entries_in, entries_out, times })
}

/// What the output refuses as damage is damage of the source: each try has another output.
#[cold]
fn refused<S: InternalIterator>(error: Error, source: &S) -> Error {
    let of_source = match &error {
        Error::Corruption { what, .. } => source.corruption(what),
        _ => None,
    };
    of_source.unwrap_or(error)
}

/// The parts of the deletions inside `[start, end)`.
fn clip(
    tombstones: Vec<RangeTombstone>,
    start: Option<&Bytes>,
    end: Option<&Bytes>,
) -> impl Iterator<Item = RangeTombstone> {
    tombstones.into_iter().filter_map(move |mut tombstone| {
        if let Some(start) = start
            && tombstone.start < *start
        {
            tombstone.start = start.clone();
        }
        if let Some(end) = end
            && tombstone.end > *end
        {
            tombstone.end = end.clone();
        }
        (tombstone.start < tombstone.end).then_some(tombstone)
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::head::{Entry, EntryRef};
    use crate::key::KEY_BYTES_MAX;
    use crate::options::Compression;
    use crate::salt::Salts;
    use crate::vfs::MemoryFileSystem;

    /// A source of entries that no writer makes.
    struct Forged {
        keys: Vec<Vec<u8>>,
        at: usize,
        path: PathBuf,
    }

    impl InternalIterator for Forged {
        fn seek_to_first(&mut self) -> Result<()> {
            self.at = 0;
            Ok(())
        }
        fn seek_to_last(&mut self) -> Result<()> {
            self.seek_to_first()
        }
        fn seek(&mut self, _user_key: &[u8], _seqno: SeqNo) -> Result<()> {
            self.seek_to_first()
        }
        fn seek_before(&mut self, _user_key: &[u8]) -> Result<()> {
            self.seek_to_first()
        }
        fn next(&mut self) -> Result<()> {
            self.at += 1;
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.next()
        }
        fn valid(&self) -> bool {
            self.at < self.keys.len()
        }
        fn internal_key(&self) -> (&[u8], SeqNo) {
            (&self.keys[self.at], 1)
        }
        fn entry(&self) -> Result<EntryRef<'_>> {
            let body = BodyRef::Inline(b"value");
            Ok(EntryRef { seqno: 1, written_at_ms: 0, expires_at_ms: 0, attributes: &[], body })
        }
        fn owned_entry(&self) -> Result<Entry> {
            Ok(self.entry()?.to_entry())
        }
        fn corruption(&self, what: &str) -> Option<Error> {
            Some(Error::corruption(&self.path, 77, what))
        }
    }

    /// Merges entries of these keys into tables of a few blocks.
    fn merge(keys: Vec<Vec<u8>>) -> Result<JobResult> {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let path = PathBuf::from("/000007.sst");
        let job = Job {
            sources: vec![Forged { keys, at: 0, path }],
            range_tombstones: Vec::new(),
            start: None,
            end: None,
            bottom: true,
            snapshots: Vec::new(),
            now_ms: 0,
            direct: &|pointer| *pointer,
            cancel: &AtomicBool::new(false),
        };
        let options = OutputOptions {
            dir: "/".into(),
            table_bytes: 1 << 10,
            block_bytes: 256,
            compression: Compression::None,
            salts: Arc::new(Salts::new(1)),
        };
        run(job, &fs, &AtomicU64::new(10), options)
    }

    fn check_refused(keys: Vec<Vec<u8>>) {
        match merge(keys) {
            Err(Error::Corruption { file, offset, .. }) => {
                assert_eq!((&*file, offset), (Path::new("/000007.sst"), 77));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_entry_that_no_table_can_hold_is_damage_of_the_table_it_is_in() {
        let merged = merge(vec![vec![b'k'; KEY_BYTES_MAX]]).unwrap();
        assert_eq!(merged.entries_out, 1);
        check_refused(vec![vec![b'k'; KEY_BYTES_MAX + 1]]);
    }

    /// Where a table was full it began the next, which took it: the two overlapped, the manifest refused them as its
    /// own damage, and the merge was done in vain again and again, with all others behind it.
    #[test]
    fn an_entry_out_of_order_is_damage_of_the_table_it_is_in_wherever_a_table_ends() {
        let keys: Vec<_> = (1..300u32).map(|key| key.to_be_bytes().to_vec()).collect();
        let merged = merge(keys.clone()).unwrap();
        assert!(merged.tables.len() > 2, "{} tables", merged.tables.len());
        for at in 1..keys.len() {
            check_refused([&keys[..at], &[vec![0]]].concat());
        }
    }
}
