//! Re-reads every record and value of a segment and lists what is damaged.
//!
//! Damage is found, not repaired; after a bad record, checking goes on at the next valid one.

use std::path::PathBuf;

use super::reader::{SegmentReader, Step};
use super::segment::Segment;
use crate::error::Result;

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

/// Checks the records of `segment` from offset `from`, where one starts, to its end as of now.
/// An error is one of reading, not damage.
pub fn verify_segment(segment: &Segment, from: u64) -> Result<SegmentReport> {
    let mut report = SegmentReport::default();
    let mut reader = SegmentReader::new(segment, from)?;
    let mut damage = Vec::new();
    let mut note = |offset, what: String| {
        damage.push(SegmentDamage { file: segment.path().to_owned(), offset, what });
    };
    loop {
        let offset = reader.offset();
        match reader.step()? {
            Step::End => break,
            Step::Record(record) => {
                report.records += 1;
                report.entries += record.entries.len() as u64;
                report.bytes += record.header.record_bytes();
                for entry in record.entries.iter().filter(|entry| entry.is_put()) {
                    report.values += 1;
                    if !reader.is_value_sound(&record, entry)? {
                        note(record.value_offset(entry), "a value's checksum is wrong".into());
                    }
                }
            }
            Step::Bad(what) => {
                note(offset, what.into());
                match reader.next_header(offset + 1)? {
                    Some(next) => reader.seek(next),
                    None => break,
                }
            }
        }
    }
    report.damage = damage;
    Ok(report)
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
        let report = verify_segment(&segment, SEGMENT_HEADER_BYTES).unwrap();
        assert_eq!((report.records, report.values, report.damage.len()), (6, 5, 0));
        assert_eq!(report.bytes, segment.end() - SEGMENT_HEADER_BYTES);

        bench.fs.flip(segment.path(), ends[0] + 9);
        bench.fs.flip(segment.path(), ends[2] + 500);
        let report = verify_segment(&segment, SEGMENT_HEADER_BYTES).unwrap();
        let places: Vec<u64> = report.damage.iter().map(|damage| damage.offset).collect();
        assert_eq!(places.len(), 2);
        assert_eq!(places[0], ends[0]);
        assert!(places[1] > ends[2] && places[1] < ends[3]);
        assert_eq!(report.records, 5);
    }
}
