//! `scan`: a range of keys, streamed in one of three forms.

use std::io::Write;

use bytes::Bytes;
use tallybook::head::Head;
use tallybook::store::{ScanOptions, Store};

use crate::arguments::{ScanArguments, ScanFormat};
use crate::entry_json::{entry_object, head_object};
use crate::exit::{Exit, UsageError};
use crate::key_text::{KeyEncoding, escape};
use crate::output::Output;
use crate::verbs::embedded::{Purpose, open};
use crate::verbs::read::time_text;

/// Prints a range of keys with their values or heads.
pub(crate) fn scan(arguments: &ScanArguments) -> anyhow::Result<Exit> {
    let printer = Printer {
        format: if arguments.json { ScanFormat::Ndjson } else { arguments.format },
        encoding: arguments.encoding.key_encoding,
    };
    let range = scan_options(arguments)?;
    let limit =
        arguments.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let mut out = Output::new();
    match arguments.heads {
        true => print_heads(&store, range, limit, &printer, &mut out)?,
        false => print_entries(&store, range, limit, &printer, &mut out)?,
    }
    out.flush()?;
    Ok(Exit::Success)
}

fn print_entries(
    store: &Store,
    range: ScanOptions,
    limit: usize,
    printer: &Printer,
    out: &mut Output,
) -> anyhow::Result<()> {
    for entry in store.range(range)?.take(limit) {
        let entry = entry?;
        printer.entry(out, &entry.key, &entry.head, &entry.value)?;
    }
    Ok(())
}

fn print_heads(
    store: &Store,
    range: ScanOptions,
    limit: usize,
    printer: &Printer,
    out: &mut Output,
) -> anyhow::Result<()> {
    for entry in store.range_heads(range)?.take(limit) {
        let entry = entry?;
        printer.head(out, &entry.key, &entry.head)?;
    }
    Ok(())
}

fn scan_options(arguments: &ScanArguments) -> Result<ScanOptions, UsageError> {
    let encoding = arguments.encoding.key_encoding;
    let bound = |text: &Option<String>| {
        text.as_deref().map(|text| encoding.decode(text).map(Bytes::from)).transpose()
    };
    Ok(ScanOptions {
        start: bound(&arguments.start)?,
        end: bound(&arguments.end)?,
        prefix: bound(&arguments.prefix)?,
        reverse: arguments.reverse,
    })
}

/// How entries are printed.
struct Printer {
    format: ScanFormat,
    encoding: KeyEncoding,
}

impl Printer {
    fn entry(
        &self,
        out: &mut Output,
        key: &[u8],
        head: &Head,
        value: &[u8],
    ) -> std::io::Result<()> {
        match self.format {
            ScanFormat::Lines => {
                writeln!(out, "{}\t{}", self.encoding.encode(key), escape(value))
            }
            ScanFormat::Ndjson => out.json(&entry_object(key, head, value).into()),
            ScanFormat::Raw => {
                for part in [key, b"\n", value, b"\n"] {
                    out.write_all(part)?;
                }
                Ok(())
            }
        }
    }

    fn head(&self, out: &mut Output, key: &[u8], head: &Head) -> std::io::Result<()> {
        match self.format {
            ScanFormat::Lines => writeln!(
                out,
                "{}\tversion={} length={} written_at={}",
                self.encoding.encode(key),
                head.version,
                head.length,
                time_text(head.written_at_ms)
            ),
            ScanFormat::Ndjson => out.json(&head_object(key, head).into()),
            ScanFormat::Raw => out.write_all(key).and_then(|()| out.write_all(b"\n")),
        }
    }
}
