//! `files write` and `files read`: bytes in, bytes out.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tallybook_files::{
    Condition, CreateOptions, FileStore, ReadOptions, Reader, WriteOptions, resource_options,
};

use super::{finish, not_found, open, opened, options, print, report};
use crate::data_dir;
use crate::exit::{Exit, UsageError};
use crate::file_arguments::{FileStoreArguments, ReadFileArguments, WriteFileArguments};
use crate::partial::deliver;
use crate::progress::Progress;

/// Bytes that are read from a file or pipe at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a file.
pub(super) fn write(
    arguments: &FileStoreArguments,
    command: WriteFileArguments,
) -> anyhow::Result<Exit> {
    let (mut source, size) = source(command.path)?;
    let write = WriteOptions {
        durability: Some(command.durability.0),
        condition: match (command.if_absent, command.if_version) {
            (true, _) => Some(Condition::Absent),
            (false, version) => version.map(Condition::Version),
        },
        attributes: command.attributes.into(),
        size,
        md5: command.md5,
        ..WriteOptions::default()
    };
    let store = open_or_create(&arguments.data)?;
    let mut writer = store.writer(&command.name, write)?;
    let progress = Progress::new("write");
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let len = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read what is to be written"),
        };
        writer.write(&buffer[..len])?;
        progress.update(writer.size(), size.unwrap_or(writer.size()));
    }
    let stat = writer.commit()?;
    drop(progress);
    if arguments.json {
        print(&report::stat(&stat))?;
    }
    finish(&store)
}

/// Where the bytes come from, and how many they are where that is known.
pub(super) fn source(path: Option<PathBuf>) -> anyhow::Result<(Box<dyn Read>, Option<u64>)> {
    let path = path.filter(|path| path.as_os_str() != "-");
    match &path {
        Some(path) => {
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            let metadata = file.metadata()?;
            // Of a pipe or a device nobody knows.
            let size = metadata.is_file().then_some(metadata.len());
            Ok((Box::new(file), size))
        }
        None if io::stdin().is_terminal() => {
            let what = "no PATH: give one, or `-` to type on standard input";
            Err(UsageError(what.into()).into())
        }
        None => Ok((Box::new(io::stdin()), None)),
    }
}

pub(super) fn open_or_create(dir: &Path) -> anyhow::Result<FileStore> {
    data_dir::prepare(dir)?;
    let resources = tallybook::Resources::new(resource_options())?;
    opened(dir, FileStore::open_or_create(dir, CreateOptions::default(), options(), resources))
}

/// Reads a file, or a part of it.
pub(super) fn read(
    arguments: &FileStoreArguments,
    command: &ReadFileArguments,
) -> anyhow::Result<Exit> {
    let store = open(&arguments.data)?;
    let range = match &command.range {
        Some(text) => {
            let stat = store.stat(&command.name)?.ok_or_else(|| not_found(&command.name))?;
            Some(parse_range(text, stat.size)?)
        }
        None => None,
    };
    let options = ReadOptions { range, salvage: command.salvage };
    let reader = store.reader(&command.name, options)?.ok_or_else(|| not_found(&command.name))?;
    deliver(command.path.as_deref(), |out| copy_to(reader, out))?;
    Ok(Exit::Success)
}

fn copy_to(mut reader: Reader, out: &mut dyn Write) -> anyhow::Result<()> {
    let range = reader.range();
    let progress = Progress::new("read");
    let mut done = 0;
    while let Some(bytes) = reader.next_chunk()? {
        out.write_all(&bytes)?;
        done += bytes.len() as u64;
        progress.update(done, range.end - range.start);
    }
    Ok(out.flush()?)
}

/// The bytes that `A-B`, `A-` or `-N` names of a file of `size` bytes.
pub(super) fn parse_range(text: &str, size: u64) -> Result<Range<u64>, UsageError> {
    let wrong = || UsageError(format!("{text:?} is not a range such as 0-99, 100- or -100"));
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
    let range = match (first, last) {
        ("", "") => return Err(wrong()),
        ("", count) => size.saturating_sub(number(count)?)..size,
        (first, "") => number(first)?..size.max(number(first)?),
        (first, last) => number(first)?..number(last)?.saturating_add(1),
    };
    if range.start > range.end {
        return Err(wrong());
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::parse_range;

    #[test]
    fn ranges_are_read_as_http_writes_them() {
        assert_eq!(parse_range("0-99", 1000).unwrap(), 0..100);
        assert_eq!(parse_range("100-", 1000).unwrap(), 100..1000);
        assert_eq!(parse_range("-100", 1000).unwrap(), 900..1000);
        assert_eq!(parse_range("-2000", 1000).unwrap(), 0..1000);
        assert_eq!(parse_range("5-5", 1000).unwrap(), 5..6);
        for wrong in ["", "-", "a-b", "5", "9-3", "1-2-3"] {
            assert!(parse_range(wrong, 1000).is_err(), "{wrong}");
        }
    }
}
