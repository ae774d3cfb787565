//! A table as text, for people: properties, a line for each block, its entries on demand.
//!
//! Damage is printed where it is met, and counted; only writing the text can fail.

use std::io::{self, Write};

use crate::head::{BodyRef, EntryRef};
use crate::sstable::block::Block;
use crate::sstable::reader::Table;
use crate::sstable::source::Purpose;

/// Longest part of a key that is printed.
const KEY_BYTES_SHOWN: usize = 120;

/// Writes a table as text; with `entries`, each entry too. Values are not printed. Answers the number of blocks
/// and entries that are damaged.
pub fn inspect(table: &Table, out: &mut dyn Write, entries: bool) -> io::Result<u64> {
    properties(table, out)?;
    let mut damaged = 0;
    for tombstone in table.range_tombstones().iter() {
        let (start, end) = (escaped(&tombstone.start), escaped(&tombstone.end));
        writeln!(out, "deleted {start} to {end} before {}", tombstone.seqno)?;
    }
    for number in 0..table.block_count() {
        let Some(handle) = table.fences.handle(number) else {
            continue;
        };
        let key = escaped(table.fences.first_key(number));
        write!(out, "block {number} at {} stored {}", handle.offset, handle.frame_bytes)?;
        let bytes = match table.block_bytes(number, Purpose::Pass) {
            Ok(bytes) => bytes.into_bytes(),
            Err(error) => {
                writeln!(out, " from {key}: {error}")?;
                damaged += 1;
                continue;
            }
        };
        let Some(block) = Block::parse(&bytes) else {
            writeln!(out, " from {key}: malformed block")?;
            damaged += 1;
            continue;
        };
        let (raw, prefix) = (bytes.len(), block.prefix().len());
        writeln!(out, " raw {raw} entries {} prefix {prefix} from {key}", block.len())?;
        if entries {
            damaged += block_entries(&block, out)?;
        }
    }
    Ok(damaged)
}

fn properties(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let properties = table.properties();
    let exclusive = if properties.largest_exclusive { " (excluded)" } else { "" };
    writeln!(out, "table {} file_bytes {}", table.number(), properties.file_bytes)?;
    writeln!(out, "blocks {} index_bytes {}", table.block_count(), table.index_bytes())?;
    writeln!(
        out,
        "entries {} keys {} tombstones {} range_tombstones {} expiring {}",
        properties.entries,
        properties.keys,
        properties.tombstones,
        properties.range_tombstones,
        properties.expiring
    )?;
    writeln!(out, "smallest {}", escaped(&properties.smallest))?;
    writeln!(out, "largest {}{exclusive}", escaped(&properties.largest))?;
    for (name, min, max) in [
        ("seqno", properties.seqno_min, properties.seqno_max),
        ("written_at_ms", properties.written_at_ms_min, properties.written_at_ms_max),
        ("expires_at_ms", properties.expires_at_ms_min, properties.expires_at_ms_max),
    ] {
        writeln!(out, "{name} {min} to {max}")?;
    }
    let (keys, values) = (properties.raw_key_bytes, properties.raw_value_bytes);
    writeln!(out, "raw_key_bytes {keys} raw_value_bytes {values}")?;
    for reference in &properties.segment_refs {
        let (segment, count, bytes) = (reference.segment, reference.count, reference.bytes);
        writeln!(out, "segment {segment} pointers {count} bytes {bytes}")?;
    }
    Ok(())
}

/// Answers the number of malformed ones.
fn block_entries(block: &Block<'_>, out: &mut dyn Write) -> io::Result<u64> {
    let mut malformed = 0;
    for slot in 0..block.len() {
        let Some(raw) = block.entry(slot) else {
            writeln!(out, "  {slot}: malformed entry")?;
            malformed += 1;
            continue;
        };
        let key = escaped(&[block.prefix(), raw.suffix].concat());
        match block.whole(raw.seqno, raw.tail) {
            Some(entry) => writeln!(out, "  {slot}: {key} {}", described(&entry))?,
            None => {
                writeln!(out, "  {slot}: {key} malformed entry")?;
                malformed += 1;
            }
        }
    }
    Ok(malformed)
}

fn described(entry: &EntryRef<'_>) -> String {
    let mut text = format!("seqno {} written_at_ms {}", entry.seqno, entry.written_at_ms);
    if entry.expires_at_ms != 0 {
        text += &format!(" expires_at_ms {}", entry.expires_at_ms);
    }
    if !entry.attributes.is_empty() {
        text += &format!(" attribute_bytes {}", entry.attributes.len());
    }
    match &entry.body {
        BodyRef::Inline(value) => text += &format!(" put bytes {}", value.len()),
        BodyRef::Ref(pointer) => {
            let (segment, offset, length) = (pointer.segment, pointer.offset, pointer.length);
            text += &format!(" put segment {segment} offset {offset} bytes {length}");
        }
        BodyRef::Delete => text += " delete",
    }
    text
}

/// A key in quotes, what is not printable ASCII as `\xNN`, long ones cut.
fn escaped(key: &[u8]) -> String {
    let shown = &key[..key.len().min(KEY_BYTES_SHOWN)];
    let cut = if shown.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{cut}", shown.escape_ascii())
}
