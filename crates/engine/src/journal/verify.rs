//! Re-reads every record and value of a segment and lists what is damaged.
//!
//! Damage is found, not repaired; after a bad record, checking goes on at the next valid one. What the disk
//! can't read is listed too, and ends the check.

use std::path::PathBuf;

use super::reader::{SegmentReader, Step};
use super::segment::Segment;
use crate::error::{Error, Result};

/// One damaged place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentDamage {
    /// The segment's file.
    pub file: PathBuf,
    /// Offset of the damaged record or value.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

/// What was checked, and what was damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentReport {
    /// Records that were sound, but perhaps for their values.
    pub records: u64,
    /// Entries in these.
    pub entries: u64,
    /// Values checked.
    pub values: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What was damaged.
    pub damage: Vec<SegmentDamage>,
}

impl SegmentReport {
    fn note(&mut self, segment: &Segment, offset: u64, what: impl Into<String>) {
        let file = segment.path().to_owned();
        self.damage.push(SegmentDamage { file, offset, what: what.into() });
    }
}

/// Checks the records of `segment` from offset `from`, where one starts, to its end as of now.
pub fn verify_segment(segment: &Segment, from: u64) -> SegmentReport {
    let mut report = SegmentReport::default();
    let mut at = from;
    if let Err(error) = check_records(segment, &mut at, &mut report) {
        report.note(segment, at, error.to_string());
    }
    report
}

/// Checks the records from `at` on, which follows.
fn check_records(segment: &Segment, at: &mut u64, report: &mut SegmentReport) -> Result<()> {
    let file = segment.file("read")?;
    let len = file.len().map_err(|source| Error::io("read", segment.path(), source))?;
    let end = segment.end();
    if len < end {
        report.note(segment, len, "the file ends before its records");
    }
    let salt = segment.header().salt;
    let mut reader = SegmentReader::over(file, segment.path(), salt, *at, end.min(len));
    loop {
        *at = reader.offset();
        match reader.step()? {
            Step::End => return Ok(()),
            Step::Record(record) => {
                report.records += 1;
                report.entries += record.entries.len() as u64;
                report.bytes += record.header.record_bytes();
                for entry in record.entries.iter().filter(|entry| entry.is_put()) {
                    report.values += 1;
                    if !reader.is_value_sound(&record, entry)? {
                        let offset = record.value_offset(entry);
                        report.note(segment, offset, "a value's checksum is wrong");
                    }
                }
            }
            Step::Bad(what) => {
                report.note(segment, *at, what);
                match reader.next_header(*at + 1)? {
                    Some(next) => reader.seek(next),
                    None => return Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment_header::SEGMENT_HEADER_BYTES;
    use super::super::testing::Bench;
    use super::*;

    #[test]
    fn damage_is_listed_and_the_rest_still_checked() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        let mut ends = Vec::new();
        for n in 0..5u8 {
            let appended = journal.put(&[b'k', n], &[n; 2_000]);
            ends.push(appended.end.offset);
        }
        let segment = journal.writer.active().unwrap().clone();
        let report = verify_segment(&segment, SEGMENT_HEADER_BYTES);
        assert_eq!((report.records, report.values, report.damage.len()), (6, 5, 0));
        assert_eq!(report.bytes, segment.end() - SEGMENT_HEADER_BYTES);

        bench.fs.flip(segment.path(), ends[0] + 9);
        bench.fs.flip(segment.path(), ends[2] + 500);
        let report = verify_segment(&segment, SEGMENT_HEADER_BYTES);
        let places: Vec<u64> = report.damage.iter().map(|damage| damage.offset).collect();
        assert_eq!(places.len(), 2);
        assert_eq!(places[0], ends[0]);
        assert!(places[1] > ends[2] && places[1] < ends[3]);
        assert_eq!(report.records, 5);

        // As something else may while the store is open.
        let cut = ends[3] + 500;
        bench.fs.truncate(segment.path(), cut);
        let report = verify_segment(&segment, SEGMENT_HEADER_BYTES);
        let places: Vec<u64> = report.damage.iter().map(|damage| damage.offset).collect();
        assert_eq!((report.records, places.len()), (4, 4), "{:?}", report.damage);
        assert!(places.contains(&cut) && places.contains(&ends[3]), "{places:?}");
    }
}
