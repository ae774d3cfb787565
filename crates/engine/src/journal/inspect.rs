//! A segment as text: one line for each record, and one for each of its entries.
//!
//! Values are not shown, and their checksums not compared: `verify` does that.

use std::path::Path;
use std::sync::Arc;

use super::reader::{Record, SegmentReader, Step};
use super::record::{RecordType, Start};
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::coding::Decoder;
use crate::error::{Error, Result};
use crate::file_name::{self, FileKind};
use crate::key::ValueKind;
use crate::vfs::FileSystem;

/// Tells each line of a segment's text to `line`. Ends, saying why, where the records end.
pub fn inspect(fs: &Arc<dyn FileSystem>, path: &Path, line: &mut dyn FnMut(&str)) -> Result<()> {
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
    let mut reader = SegmentReader::over(file, path, header.salt, SEGMENT_HEADER_BYTES, len);
    loop {
        match reader.step()? {
            Step::Record(record) => describe(&record, line),
            Step::End => {
                line(&format!("{len} end of file"));
                return Ok(());
            }
            Step::Bad(what) => {
                let offset = reader.offset();
                let what = if reader.is_terminated(offset)? { "end of log" } else { what };
                line(&format!("{offset} {what}"));
                return Ok(());
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
    use super::super::testing::Bench;
    use super::*;

    #[test]
    fn every_record_and_entry_has_a_line_with_its_key_escaped() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        journal.put(b"a\n\xff", b"value");
        journal.sync_and_mark();
        let fs: Arc<dyn FileSystem> = bench.fs.clone();
        let mut lines = Vec::new();
        let path = journal.writer.active().unwrap().path().to_owned();
        inspect(&fs, &path, &mut |line| lines.push(line.to_owned())).unwrap();
        assert!(lines[1].starts_with("64 start seqno=1 "), "{lines:?}");
        assert!(lines[1].ends_with("lsn=0 predecessor=0 predecessor_end=0"), "{lines:?}");
        assert!(lines[2].starts_with("136 group seqno=1 "), "{lines:?}");
        assert!(lines[3].starts_with(r#"  1 Put "a\n\xff" value="#), "{lines:?}");
        assert!(lines[4].contains(" mark seqno=2 "), "{lines:?}");
        assert!(lines[5].ends_with("end of log"), "{lines:?}");
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn another_file_is_refused() {
        let bench = Bench::pread();
        let fs: Arc<dyn FileSystem> = bench.fs.clone();
        let path = bench.files.dir.join("CURRENT");
        assert!(matches!(inspect(&fs, &path, &mut |_| ()), Err(Error::InvalidArgument(_))));
    }
}
