//! The store's counters: what is in each bucket, how many files there are, which numbers are next.
//!
//! Invariant: a counter changes in the same batch as what it counts, so they agree after any crash.
//! What an upload has reserved is counted in memory only: after a crash there is no upload.

use tallybook::WriteBatch;

use crate::error::Result;
use crate::key_layout;
use crate::record::{Share, decode_numbers, encode_numbers};

/// Versions and contents have smaller numbers; no writer comes near, whatever openings skip.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// What is read in a bucket has smaller ones yet: the numbers go on after it, and openings skip some.
pub(crate) const NUMBER_READ_MAX: u64 = 1 << 61;

/// A bucket is compacted when so many bytes were freed in it and a quarter of what is live.
const COMPACT_BYTES_MIN: u64 = 8 << 20;

/// How long a compaction that failed stands in the way of the next.
const IN_VAIN_FOR_NS: u64 = 300_000_000_000;

/// How long one that a writer needed stands in the way of the next such, whatever came of it, unless so many bytes
/// were freed since: each small file that is unlinked would have all of a bucket compacted on a disk that stays full.
const ROOM_TRIED_FOR_NS: u64 = 10_000_000_000;
const ROOM_BYTES_MIN: u64 = 1 << 20;

/// Counters of one bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BucketFigures {
    /// It has been made.
    pub(crate) exists: bool,
    /// Bytes of contents that names stand for.
    pub(crate) live: u64,
    /// Bytes that are to be freed.
    pub(crate) dead: u64,
    /// Bytes of uploads.
    pub(crate) reserved: u64,
    /// Bytes freed since the bucket was compacted.
    pub(crate) freed: u64,
    /// How much that was when a compaction failed last, and the clock reading: for a while none is due before as
    /// much again is freed as makes one due.
    in_vain: Option<(u64, u64)>,
    /// The clock reading when a compaction ended last that a writer needed.
    pub(crate) tried_for_room_ns: Option<u64>,
    changed: bool,
    freed_changed: bool,
}

impl BucketFigures {
    /// Bytes that count against the cap.
    pub(crate) fn used(&self) -> u64 {
        sum([self.live, self.dead, self.reserved].into_iter())
    }

    /// Whether a compaction would give back so much that it is worth what it takes.
    fn is_compaction_due(&self, now_ns: u64) -> bool {
        self.freed_anew(now_ns) >= COMPACT_BYTES_MIN.max(self.live / 4)
    }

    /// Whether a compaction may make room on a full disk, which may lack less than what little was freed.
    pub(crate) fn may_make_room(&self, now_ns: u64) -> bool {
        let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < ROOM_TRIED_FOR_NS;
        match self.tried_for_room_ns.is_some_and(is_recent) {
            true => self.freed_anew(now_ns) >= ROOM_BYTES_MIN,
            false => self.freed > 0,
        }
    }

    /// Bytes freed since the bucket was compacted, or since that failed a while ago at most.
    fn freed_anew(&self, now_ns: u64) -> u64 {
        let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < IN_VAIN_FOR_NS;
        let in_vain = self.in_vain.filter(|(_, at_ns)| is_recent(*at_ns));
        self.freed.saturating_sub(in_vain.map_or(0, |(bytes, _)| bytes))
    }
}

/// Counters of the store.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) next_version: u64,
    pub(crate) next_content: u64,
    pub(crate) files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) buckets: Vec<BucketFigures>,
}

impl Figures {
    /// Those of an empty store.
    pub(crate) fn new(bucket_count: usize) -> Figures {
        Figures {
            next_version: 1,
            next_content: 1,
            files: 0,
            file_bytes: 0,
            buckets: vec![BucketFigures::default(); bucket_count],
        }
    }

    pub(crate) fn bucket(&mut self, bucket: u8) -> &mut BucketFigures {
        let figures = &mut self.buckets[usize::from(bucket)];
        figures.changed = true;
        figures
    }

    /// The buckets that have been made.
    pub(crate) fn existing(&self) -> impl Iterator<Item = u8> {
        let numbered = (0u8..=u8::MAX).zip(&self.buckets);
        numbered.filter(|(_, figures)| figures.exists).map(|(bucket, _)| bucket)
    }

    /// Turns what an upload has reserved into what is live.
    pub(crate) fn reserved_to_live(&mut self, shares: &[Share]) {
        for share in shares {
            let bucket = self.bucket(share.bucket);
            take(&mut bucket.reserved, share.bytes);
            add(&mut bucket.live, share.bytes);
        }
    }

    /// Turns what an upload has reserved into what is to be freed; answers what that is. In a bucket that
    /// could not be made there is nothing.
    pub(crate) fn reserved_to_dead(&mut self, shares: &[Share]) -> Vec<Share> {
        let mut dead = Vec::new();
        for &share in shares {
            let bucket = self.bucket(share.bucket);
            take(&mut bucket.reserved, share.bytes);
            if bucket.exists {
                add(&mut bucket.dead, share.bytes);
                dead.push(share);
            }
        }
        dead
    }

    /// Turns what is live into what is to be freed.
    pub(crate) fn live_to_dead(&mut self, shares: &[Share]) {
        for share in shares {
            let bucket = self.bucket(share.bucket);
            take(&mut bucket.live, share.bytes);
            add(&mut bucket.dead, share.bytes);
        }
    }

    /// Takes away what has been freed.
    pub(crate) fn freed(&mut self, share: Share) {
        let bucket = self.bucket(share.bucket);
        take(&mut bucket.dead, share.bytes);
    }

    /// Counts what names have come to stand for: a content that had no name before.
    pub(crate) fn now_live(&mut self, shares: &[Share]) {
        for share in shares {
            add(&mut self.bucket(share.bucket).live, share.bytes);
        }
    }

    /// Counts a file of so many bytes.
    pub(crate) fn count_file(&mut self, bytes: u64) {
        add(&mut self.files, 1);
        add(&mut self.file_bytes, bytes);
    }

    /// Takes a file out.
    pub(crate) fn take_file(&mut self, bytes: u64) {
        take(&mut self.files, 1);
        take(&mut self.file_bytes, bytes);
    }

    /// Counts bytes that a compaction would give back.
    pub(crate) fn count_freed(&mut self, bucket: u8, bytes: u64) {
        let figures = &mut self.buckets[usize::from(bucket)];
        add(&mut figures.freed, bytes);
        figures.freed_changed = true;
    }

    /// The first bucket that is to be compacted, from this one on and round to it.
    pub(crate) fn compaction_due(&self, from: u8, now_ns: u64) -> Option<u8> {
        let figures = |bucket: u8| self.buckets.get(usize::from(bucket));
        let is_due =
            |bucket: &u8| figures(*bucket).is_some_and(|figures| figures.is_compaction_due(now_ns));
        (from..=u8::MAX).chain(0..from).find(is_due)
    }

    /// Takes away what a compaction gave back.
    pub(crate) fn compacted(&mut self, bucket: u8, bytes: u64) {
        let figures = &mut self.buckets[usize::from(bucket)];
        take(&mut figures.freed, bytes);
        figures.in_vain = None;
        figures.freed_changed = true;
    }

    /// Notes that a compaction failed, which was to give back so many bytes. The next opening tries again, too.
    pub(crate) fn compacted_in_vain(&mut self, bucket: u8, bytes: u64, now_ns: u64) {
        self.buckets[usize::from(bucket)].in_vain = Some((bytes, now_ns));
    }

    /// The counters as the catalogue's keys say; `None` where one doesn't decode.
    pub(crate) fn decode(
        totals: Option<&[u8]>,
        buckets: impl Iterator<Item = (u8, Vec<u8>)>,
        bucket_count: usize,
    ) -> Option<Figures> {
        let mut figures = Figures::new(bucket_count);
        if let Some(totals) = totals {
            [figures.next_version, figures.next_content, figures.files, figures.file_bytes] =
                Figures::decode_totals(totals)?;
        }
        for (bucket, value) in buckets {
            let [live, dead] = Figures::decode_bucket(&value)?;
            *figures.buckets.get_mut(usize::from(bucket))? =
                BucketFigures { exists: true, live, dead, ..BucketFigures::default() };
        }
        Some(figures)
    }

    /// Next version, next content, files, bytes of files.
    pub(crate) fn decode_totals(totals: &[u8]) -> Option<[u64; 4]> {
        let numbers: [u64; 4] = decode_numbers(totals)?;
        (numbers[0].max(numbers[1]) <= NUMBER_MAX).then_some(numbers)
    }

    /// Has bytes that earlier openings freed counted as this one's. A value that doesn't decode is as good as none.
    pub(crate) fn recover_freed(&mut self, bucket: u8, value: &[u8]) {
        let exists = self.buckets.get(usize::from(bucket)).is_some_and(|figures| figures.exists);
        if let Some([freed]) = decode_numbers(value).filter(|_| exists) {
            self.count_freed(bucket, freed);
        }
    }

    /// Live and dead bytes of a bucket.
    pub(crate) fn decode_bucket(value: &[u8]) -> Option<[u64; 2]> {
        decode_numbers(value)
    }

    /// Adds what has changed to a batch.
    pub(crate) fn write_to(&mut self, batch: &mut WriteBatch) -> Result<()> {
        let numbers = [self.next_version, self.next_content, self.files, self.file_bytes];
        batch.put(vec![key_layout::TOTALS], encode_numbers(&numbers))?;
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            if std::mem::take(&mut bucket.changed) && bucket.exists {
                let key = key_layout::key(key_layout::BUCKET, &[number as u8]);
                batch.put(key, encode_numbers(&[bucket.live, bucket.dead]))?;
            }
            if std::mem::take(&mut bucket.freed_changed) {
                let key = key_layout::key(key_layout::GARBAGE, &[number as u8]);
                match bucket.freed {
                    0 => batch.delete(key)?,
                    freed => batch.put(key, encode_numbers(&[freed]))?,
                }
            }
        }
        Ok(())
    }

    /// What is told of them.
    pub(crate) fn totals(&self, cap_bytes: u64) -> Totals {
        let numbered = (0u8..=u8::MAX).zip(&self.buckets);
        let buckets = numbered.map(|(bucket, figures)| BucketTotals {
            bucket,
            exists: figures.exists,
            live_bytes: figures.live,
            dead_bytes: figures.dead,
            uploading_bytes: figures.reserved,
            free_bytes: cap_bytes.saturating_sub(figures.used()),
            cap_bytes,
        });
        let buckets: Vec<BucketTotals> = buckets.collect();
        Totals {
            files: self.files,
            file_bytes: self.file_bytes,
            live_bytes: sum(buckets.iter().map(|bucket| bucket.live_bytes)),
            dead_bytes: sum(buckets.iter().map(|bucket| bucket.dead_bytes)),
            uploading_bytes: sum(buckets.iter().map(|bucket| bucket.uploading_bytes)),
            free_bytes: sum(buckets.iter().map(|bucket| bucket.free_bytes)),
            cap_bytes: cap_bytes.saturating_mul(buckets.len() as u64),
            buckets,
        }
    }
}

/// The sum, or the largest number there is: a cap may be that itself.
pub(crate) fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// Adds to a counter: bytes of what only says that it is so large may come to more than there is.
fn add(counter: &mut u64, bytes: u64) {
    *counter = counter.saturating_add(bytes);
}

/// Takes bytes out of a counter that has them.
fn take(counter: &mut u64, bytes: u64) {
    debug_assert!(*counter >= bytes, "{bytes} bytes are taken out of {counter}");
    *counter = counter.saturating_sub(bytes);
}

/// What a store holds. Bytes are those of files; what the engine adds is about 60 bytes a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Names.
    pub files: u64,
    /// Bytes of all files by name: a copy counts again.
    pub file_bytes: u64,
    /// Bytes that files take: copies share theirs.
    pub live_bytes: u64,
    /// Bytes of unlinked files that have not been freed yet.
    pub dead_bytes: u64,
    /// Bytes of files that are being written.
    pub uploading_bytes: u64,
    /// Bytes that fit in.
    pub free_bytes: u64,
    /// Bytes of all buckets' caps.
    pub cap_bytes: u64,
    /// Each bucket.
    pub buckets: Vec<BucketTotals>,
}

/// What a bucket holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketTotals {
    /// Its number.
    pub bucket: u8,
    /// Whether it has been made: it is on first use.
    pub exists: bool,
    /// Bytes that files take in it.
    pub live_bytes: u64,
    /// Bytes of unlinked files that have not been freed yet.
    pub dead_bytes: u64,
    /// Bytes of files that are being written.
    pub uploading_bytes: u64,
    /// Bytes that fit in.
    pub free_bytes: u64,
    /// Its cap.
    pub cap_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that entries say came to more than there is.
    #[test]
    fn counters_end_at_the_largest_number() {
        let mut figures = Figures::new(1);
        let shares = [Share { bucket: 0, bytes: u64::MAX - 1 }];
        for _ in 0..2 {
            figures.now_live(&shares);
            figures.count_file(u64::MAX - 1);
        }
        assert_eq!((figures.buckets[0].live, figures.file_bytes), (u64::MAX, u64::MAX));
        figures.live_to_dead(&shares);
        figures.take_file(u64::MAX - 1);
        assert_eq!(figures.buckets[0].used(), u64::MAX);
        assert_eq!((figures.files, figures.file_bytes), (1, 1));
    }
}
