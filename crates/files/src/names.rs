//! What is done with names alone: stat, list, unlink, rename, copy.

use bytes::Bytes;
use tallybook::{Durability, ScanOptions};

use crate::change::{Change, check_condition, check_unlinks};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::key_layout::{self, key};
use crate::options::{ATTRIBUTES_BYTES_MAX, CopyOptions, ListOptions, UnlinkOptions};
use crate::placement::check_name;
use crate::record::{ContentId, FileRecord, Stat};

/// Entries of a page when none are asked for.
const PAGE_ENTRIES: usize = 1000;

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListEntry {
    /// A file.
    File(Stat),
    /// All names that start with this, which ends with the delimiter.
    Prefix(String),
}

impl ListEntry {
    /// The name or the prefix.
    pub fn name(&self) -> &str {
        match self {
            ListEntry::File(stat) => &stat.name,
            ListEntry::Prefix(prefix) => prefix,
        }
    }
}

/// A part of a listing, in byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries.
    pub entries: Vec<ListEntry>,
    /// What `after` of the next page is; `None` at the end.
    pub next_after: Option<String>,
}

impl Core {
    pub(crate) fn stat(&self, name: &str) -> Result<Option<Stat>> {
        check_name(name)?;
        self.check_open()?;
        Ok(self.record(name)?.map(|record| record.stat(name)))
    }

    pub(crate) fn list(&self, options: &ListOptions) -> Result<Page> {
        self.check_open()?;
        let limit = if options.limit == 0 { PAGE_ENTRIES } else { options.limit };
        let delimiter = options.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
        let prefix = key(key_layout::NAME, options.prefix.as_bytes());
        let scan = ScanOptions { prefix: Some(Bytes::from(prefix.clone())), ..Default::default() };
        let mut cursor = self.catalogue.cursor(scan)?;
        match self.first_after(options, delimiter) {
            Start::At(start) if start > prefix => cursor.seek(&start)?,
            Start::At(_) => cursor.seek_to_first()?,
            Start::End => return Ok(Page::default()),
        }
        let mut page = Page::default();
        while cursor.valid() {
            if page.entries.len() == limit {
                page.next_after = page.entries.last().map(|last| last.name().to_owned());
                return Ok(page);
            }
            let name = std::str::from_utf8(&cursor.key()[1..])
                .map_err(|_| crate::core::undecodable(self.catalogue.path(), "name"))?;
            let rolled =
                delimiter.and_then(|delimiter| rolled_up(name, &options.prefix, delimiter));
            if let Some(rolled) = rolled {
                let next = key_layout::after_prefix(&key(key_layout::NAME, rolled.as_bytes()));
                page.entries.push(ListEntry::Prefix(rolled.to_owned()));
                match next {
                    Some(next) => cursor.seek(&next)?,
                    None => break,
                }
                continue;
            }
            let record = self.decode_record(&cursor.value()?)?;
            page.entries.push(ListEntry::File(record.stat(name)));
            cursor.next()?;
        }
        Ok(page)
    }

    fn first_after(&self, options: &ListOptions, delimiter: Option<&str>) -> Start {
        // Reserved names come first, and are shown to who asks for them by the prefix.
        let first = if options.prefix.is_empty() { vec![key_layout::NAME, 1] } else { Vec::new() };
        let Some(after) = &options.after else { return Start::At(first) };
        // What was rolled up is over as a whole.
        if let Some(delimiter) = delimiter
            && let Some(rolled) = rolled_up(after, &options.prefix, delimiter)
            && rolled == after
        {
            let next = key_layout::after_prefix(&key(key_layout::NAME, after.as_bytes()));
            return next.map_or(Start::End, |next| Start::At(next.max(first)));
        }
        let mut start = key(key_layout::NAME, after.as_bytes());
        start.push(0);
        Start::At(start.max(first))
    }

    pub(crate) fn unlink<G, E>(
        &self,
        name: &str,
        options: &UnlinkOptions,
        hold: impl FnOnce() -> Result<G, E>,
    ) -> Result<Result<bool, E>> {
        check_name(name)?;
        let durability = self.durability(options.durability);
        let held = match hold() {
            Ok(held) => held,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut change = Change::begin(self)?;
        let old = self.record(name)?;
        check_condition(options.condition, old.as_ref().map(|old| old.version))?;
        let Some(old) = old else {
            drop(change);
            drop(held);
            // Who took it away may still wait for the sync, or have been told that it failed.
            self.finish(durability, &[])?;
            return Ok(Ok(false));
        };
        change.remove(name, &old)?;
        change.use_reserve();
        change.commit(durability)?;
        drop(held);
        self.finish(durability, &[])?;
        Ok(Ok(true))
    }

    /// Has another name stand for what `from` stands for, and `from` for nothing if `moves`.
    pub(crate) fn give_name<G, E>(
        &self,
        (from, to): (&str, &str),
        options: &CopyOptions,
        moves: bool,
        hold: impl Fn() -> Result<G, E>,
    ) -> Result<Result<Stat, E>> {
        check_name(from)?;
        check_name(to)?;
        check_unlinks(options.unlinks.as_deref(), &[from, to])?;
        self.check_open()?;
        if options.attributes.as_ref().is_some_and(|bytes| bytes.len() > ATTRIBUTES_BYTES_MAX) {
            let what = format!("attributes have at most {ATTRIBUTES_BYTES_MAX} bytes");
            return Err(Error::InvalidArgument(what));
        }
        let durability = self.durability(options.durability);
        loop {
            let source = self.source_record(from, options)?;
            // Opened before the lock that every change waits for.
            let bucket = self.buckets.get(source.primary)?;
            if durability != Durability::Os {
                self.sync_chunks(source.content)?;
            }
            let held = match hold() {
                Ok(held) => held,
                Err(refused) => return Ok(Err(refused)),
            };
            let mut change = Change::begin(self)?;
            if self.source_record(from, options)?.content != source.content {
                continue;
            }
            let source = self.source_record(from, options)?;
            let old = self.record(to)?;
            check_condition(options.condition, old.as_ref().map(|old| old.version))?;
            let changes_nothing = options.attributes.is_none() && options.unlinks.is_none();
            if from == to && changes_nothing {
                drop(change);
                drop(held);
                // Who wrote it may still wait for the sync, or have been told that it failed.
                self.finish(durability, &[&bucket])?;
                return Ok(Ok(source.stat(to)));
            }
            let record = FileRecord {
                version: change.take_version(),
                changed_at_ms: self.now_ms(),
                attributes: options.attributes.clone().unwrap_or(source.attributes.clone()),
                ..source.clone()
            };
            let stat = record.stat(to);
            change.set(to, record, old.as_ref())?;
            if moves && from != to {
                change.remove(from, &source)?;
            }
            change.remove_beside(options.unlinks.as_deref())?;
            change.commit(durability)?;
            drop(held);
            self.finish(durability, &[&bucket])?;
            return Ok(Ok(stat));
        }
    }

    /// Syncs the chunks of a content, which were not if it was written at `Os`.
    fn sync_chunks(&self, id: ContentId) -> Result<()> {
        let shares = self.content(id)?.map_or_else(Vec::new, |content| content.shares());
        shares.iter().try_for_each(|share| self.buckets.sync(share.bucket))
    }

    fn source_record(&self, name: &str, options: &CopyOptions) -> Result<FileRecord> {
        let record = self.record(name)?;
        check_condition(options.source_condition, record.as_ref().map(|record| record.version))?;
        record.ok_or_else(|| Error::NotFound { name: name.to_owned() })
    }
}

/// Where a listing starts.
enum Start {
    At(Vec<u8>),
    End,
}

/// The part of a name up to and with the first delimiter after the prefix.
fn rolled_up<'a>(name: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(prefix)?;
    let at = rest.find(delimiter)?;
    Some(&name[..prefix.len() + at + delimiter.len()])
}

#[cfg(test)]
mod tests {
    use super::rolled_up;

    #[test]
    fn names_are_rolled_up_to_the_first_delimiter_after_the_prefix() {
        assert_eq!(rolled_up("a/b/c", "", "/"), Some("a/"));
        assert_eq!(rolled_up("a/b/c", "a/", "/"), Some("a/b/"));
        assert_eq!(rolled_up("a/b/c", "a/b/", "/"), None);
        assert_eq!(rolled_up("a--b", "", "--"), Some("a--"));
    }
}
