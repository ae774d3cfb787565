//! A segment as text: one line for each record, and one for each of its entries.
//!
//! Shows as much as can be read: damage is a line of the text, and counted, not an error. Values are not shown,
//! and their checksums not compared: `verify` does that.

use std::path::Path;
use std::sync::Arc;

use super::reader::{Record, SegmentReader, Step};
use super::record::{RecordType, Start};
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentType};
use crate::coding::Decoder;
use crate::error::{Error, Result};
use crate::file_name::{self, FileKind};
use crate::key::ValueKind;
use crate::vfs::FileSystem;

/// Tells each line of a segment's text to `line`, and why the records end where they do. Answers the number of
/// places that are damaged; a torn end is not.
pub fn inspect(fs: &Arc<dyn FileSystem>, path: &Path, line: &mut dyn FnMut(&str)) -> Result<u64> {
    let io_error = |op| move |source| Error::io(op, path, source);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(FileKind::Segment(number)) = file_name::parse(name) else {
        return Err(Error::InvalidArgument(format!("{} is no segment", path.display())));
    };
    let file = fs.open_read(path).map_err(io_error("open"))?;
    let len = file.len().map_err(io_error("read"))?;
    let mut bytes = vec![0; len.min(SEGMENT_HEADER_BYTES) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(io_error("read"))?;
    let header = SegmentHeader::decode(path, number, &bytes)?;
    line(&format!(
        "segment {number} type={:?} salt={:016x} recycled={} bytes={len}",
        header.segment_type,
        header.salt.value(),
        header.is_recycled
    ));
    let reader = SegmentReader::over(file, path, header.salt, SEGMENT_HEADER_BYTES, len);
    match header.segment_type {
        SegmentType::Log => log_records(reader, line),
        SegmentType::Collected => collected_records(reader, line),
    }
}

/// The records of the log, up to where it ends. A place that can't be read is damaged where a record behind it
/// proves that it was synced.
fn log_records(mut reader: SegmentReader, line: &mut dyn FnMut(&str)) -> Result<u64> {
    let mut damaged = 0;
    // Without the start nothing tells where in the journal this is: any sync is taken to have been behind it.
    let mut first_lsn = None;
    let mut syncs = None;
    loop {
        let offset = reader.offset();
        let what = match reader.step()? {
            Step::Record(record) => {
                describe(&record, line);
                if offset == SEGMENT_HEADER_BYTES {
                    first_lsn = Start::decode(&record.meta).map(|start| start.lsn);
                }
                continue;
            }
            Step::End => {
                line(&format!("{offset} end of file"));
                return Ok(damaged);
            }
            Step::Bad(what) => what,
        };
        let lsn = first_lsn.map_or(0, |lsn| lsn.saturating_add(offset - SEGMENT_HEADER_BYTES));
        if syncs.is_none() {
            syncs = Some(last_syncs(&mut reader, offset + 1)?);
        }
        let syncs = syncs.as_deref().unwrap_or_default();
        let behind = syncs.partition_point(|(place, _)| *place <= offset);
        let is_synced = syncs.get(behind).is_some_and(|(_, synced_upto)| *synced_upto > lsn);
        match reader.next_header(offset + 1)? {
            Some(next) if is_synced => {
                line(&format!("{offset} damaged: {what}"));
                damaged += 1;
                reader.seek(next);
            }
            _ => {
                let what = if reader.is_terminated(offset)? { "end of log" } else { what };
                line(&format!("{offset} {what}"));
                return Ok(damaged);
            }
        }
    }
}

/// Of the record headers from a place on, and what they say was synced, those that none behind them exceeds: they
/// are found once, as every record may be damaged.
fn last_syncs(reader: &mut SegmentReader, from: u64) -> Result<Vec<(u64, u64)>> {
    let mut last: Vec<(u64, u64)> = Vec::new();
    reader.scan_headers(from, |place, header| {
        while last.pop_if(|(_, synced_upto)| *synced_upto <= header.synced_upto).is_some() {}
        last.push((place, header.synced_upto));
    })?;
    Ok(last)
}

/// The records of a collected segment, which was synced before it got its name: the last is the index.
fn collected_records(mut reader: SegmentReader, line: &mut dyn FnMut(&str)) -> Result<u64> {
    let (mut damaged, mut last) = (0, None);
    loop {
        let offset = reader.offset();
        match reader.step()? {
            Step::Record(record) => {
                describe(&record, line);
                last = Some(record.header.record_type);
            }
            Step::End if last == Some(RecordType::Index) => {
                line(&format!("{offset} end of file"));
                return Ok(damaged);
            }
            Step::End => {
                line(&format!("{offset} damaged: the file ends before its index"));
                return Ok(damaged + 1);
            }
            Step::Bad(what) => {
                line(&format!("{offset} damaged: {what}"));
                damaged += 1;
                match reader.next_header(offset + 1)? {
                    Some(next) => reader.seek(next),
                    None => return Ok(damaged),
                }
            }
        }
    }
}

fn describe(record: &Record, line: &mut dyn FnMut(&str)) {
    let header = &record.header;
    let name = match header.record_type {
        RecordType::Group => "group",
        RecordType::Mark => "mark",
        RecordType::Start => "start",
        RecordType::Index => "index",
    };
    let mut text = format!(
        "{} {name} seqno={} synced_upto={} written_at_ms={} entries={} meta={} values={}",
        record.offset,
        header.first_seqno,
        header.synced_upto,
        header.written_at_ms,
        header.count,
        header.meta_bytes,
        header.value_bytes
    );
    if let (RecordType::Start, Some(start)) = (header.record_type, Start::decode(&record.meta)) {
        text += &format!(
            " lsn={} predecessor={} predecessor_end={}",
            start.lsn, start.predecessor, start.predecessor_end
        );
    }
    line(&text);
    for (at, entry) in record.entries.iter().enumerate() {
        let seqno = header.first_seqno.saturating_add(at as u64);
        let key = record.meta[entry.key.clone()].escape_ascii();
        let mut text = format!("  {seqno} {:?} \"{key}\"", entry.kind);
        if entry.kind == ValueKind::DeleteRange {
            text += &format!(" to \"{}\"", record.meta[entry.range_end.clone()].escape_ascii());
        }
        if entry.is_put() {
            let offset = record.value_offset(entry);
            text += &format!(" value={}+{} crc={:08x}", offset, entry.value_bytes, entry.checksum);
        }
        if entry.expires_at_ms != 0 {
            text += &format!(" expires_at_ms={}", entry.expires_at_ms);
        }
        if !entry.attributes.is_empty() {
            text += &format!(" attributes={}", entry.attributes.len());
        }
        line(&text);
    }
    if header.record_type == RecordType::Index {
        let mut fields = Decoder::new(&record.meta);
        while let (Some(segment), Some(offset), Some(new)) =
            (fields.varint(), fields.varint(), fields.varint())
        {
            line(&format!("  segment {segment} offset {offset} is at {new}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::collected::CollectedWriter;
    use super::super::testing::Bench;
    use super::*;
    use crate::checksum;
    use crate::head::{Body, Entry};

    fn inspected(bench: &Bench, path: &Path) -> (Vec<String>, u64) {
        let fs: Arc<dyn FileSystem> = bench.fs.clone();
        let mut lines = Vec::new();
        let damaged = inspect(&fs, path, &mut |line| lines.push(line.to_owned())).unwrap();
        (lines, damaged)
    }

    #[test]
    fn every_record_and_entry_has_a_line_with_its_key_escaped() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        journal.put(b"a\n\xff", b"value");
        journal.sync_and_mark();
        let path = journal.writer.active().unwrap().path().to_owned();
        let (lines, damaged) = inspected(&bench, &path);
        assert!(lines[1].starts_with("64 start seqno=1 "), "{lines:?}");
        assert!(lines[1].ends_with("lsn=0 predecessor=0 predecessor_end=0"), "{lines:?}");
        assert!(lines[2].starts_with("136 group seqno=1 "), "{lines:?}");
        assert!(lines[3].starts_with(r#"  1 Put "a\n\xff" value="#), "{lines:?}");
        assert!(lines[4].contains(" mark seqno=2 "), "{lines:?}");
        assert!(lines[5].ends_with("end of log"), "{lines:?}");
        assert_eq!((lines.len(), damaged), (6, 0));
    }

    #[test]
    fn what_was_synced_and_can_not_be_read_is_damage_and_the_rest_is_shown() {
        // As the disk returns it: with a wrong bit, or as zeros, which end a log.
        for is_zeroed in [false, true] {
            for damaged_record in 0..3 {
                let bench = Bench::pread();
                let mut journal = bench.journal();
                let mut places = vec![SEGMENT_HEADER_BYTES];
                for key in 0..4 {
                    let put = journal.put(&[b'k', key], &[key; 100]);
                    places.push(put.end.offset);
                    if key == 2 {
                        journal.sync_and_mark();
                    }
                }
                let path = journal.writer.active().unwrap().path().to_owned();
                let at = match damaged_record {
                    0 => SEGMENT_HEADER_BYTES,
                    at => places[at],
                };
                let mut bytes = bench.fs.bytes(&path);
                match is_zeroed {
                    true => bytes[at as usize..at as usize + 56].fill(0),
                    false => bytes[at as usize + 9] ^= 1,
                }
                bench.fs.put(&path, bytes);
                let (lines, damaged) = inspected(&bench, &path);
                assert_eq!(damaged, 1, "{lines:?}");
                let told = format!("{at} damaged: ");
                assert!(lines.iter().any(|line| line.starts_with(&told)), "{lines:?}");
                assert!(lines.iter().any(|line| line.contains(r#" "k\x03" "#)), "{lines:?}");
                assert!(lines.last().unwrap().ends_with("end of log"), "{lines:?}");
            }
        }
    }

    /// What was synced was looked for up to the end of the file, from each damaged place anew.
    #[test]
    fn a_segment_with_many_damaged_places_is_not_read_for_each() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        let mut places = Vec::new();
        for key in 0..41 {
            places.push(journal.writer.position().offset);
            journal.put(&[b'k', key], &[key; 100]);
        }
        journal.sync_and_mark();
        let path = journal.writer.active().unwrap().path().to_owned();
        let damaged_places = places.iter().skip(1).step_by(2);
        damaged_places.for_each(|at| bench.fs.flip(&path, at + 9));
        let mut bytes = bench.fs.bytes(&path);
        bytes.resize(4 << 20, 0);
        bench.fs.put(&path, bytes);
        bench.fs.faults.bytes_read.store(0, Ordering::SeqCst);
        let (lines, damaged) = inspected(&bench, &path);
        assert_eq!(damaged, 20, "{lines:?}");
        assert!(lines.last().unwrap().ends_with("end of log"), "{lines:?}");
        let bytes_read = bench.fs.faults.bytes_read.load(Ordering::SeqCst);
        assert!(bytes_read < damaged * (2 << 20), "{bytes_read} bytes were read");
    }

    #[test]
    fn what_was_not_synced_is_torn() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        journal.put(b"first", b"value");
        journal.sync_and_mark();
        let at = journal.writer.position().offset;
        let second = journal.put(b"second", b"value");
        journal.put(b"third", b"value");
        bench.fs.flip(second.segment.path(), at + 9);
        let (lines, damaged) = inspected(&bench, second.segment.path());
        assert_eq!(damaged, 0, "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("third")), "{lines:?}");
    }

    #[test]
    fn a_collected_segment_has_no_torn_end() {
        let collected = |bench: &Bench| {
            let mut writer = CollectedWriter::new(bench.files.clone(), 9, 77).unwrap();
            for seqno in 1..=3 {
                let entry = Entry {
                    seqno,
                    written_at_ms: 1,
                    expires_at_ms: 0,
                    attributes: Default::default(),
                    body: Body::Delete,
                };
                let checksum = checksum::crc32c(b"value");
                writer.copy(&[(3, 64 * seqno)], b"key", &entry, b"value", checksum).unwrap();
            }
            writer.finish().unwrap().segment
        };
        let bench = Bench::pread();
        let segment = collected(&bench);
        let path = segment.path();
        let (lines, damaged) = inspected(&bench, path);
        assert_eq!(damaged, 0, "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line.contains(" group ")).count(), 3);

        let whole = bench.fs.bytes(path);
        bench.fs.flip(path, SEGMENT_HEADER_BYTES + 9);
        let (lines, damaged) = inspected(&bench, path);
        assert_eq!(damaged, 1, "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line.contains(" group ")).count(), 2);
        assert!(lines.last().unwrap().ends_with("end of file"), "{lines:?}");

        for cut in [segment.header().index_offset, segment.end() - 8] {
            bench.fs.put(path, whole[..cut as usize].to_vec());
            let (lines, damaged) = inspected(&bench, path);
            assert_eq!(damaged, 1, "{lines:?}");
        }
    }

    #[test]
    fn another_file_is_refused() {
        let bench = Bench::pread();
        let fs: Arc<dyn FileSystem> = bench.fs.clone();
        let path = bench.files.dir.join("CURRENT");
        assert!(matches!(inspect(&fs, &path, &mut |_| ()), Err(Error::InvalidArgument(_))));
    }
}
