//! `GET /files`: a page of names in byte order, as JSON, or what the store holds in all.
//!
//! Attributes make a page of up to 90 MB out of 1,000 entries. So it ends by its bytes as well, and its
//! memory is counted before it is begun: first that of a whole page, and then of what has come of it. Where
//! there is none for a whole page it is a short one, which needs none, like a small value.
//!
//! Invariant: following `next_after` shows every name that was there all the time once.

use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::HeaderMap;
use serde_json::{Value, json};
use tallybook_files::placement::is_reserved;
use tallybook_files::{FileStore, ListEntry, ListOptions, Page, Result, Stat, hex};

use super::file_error;
use crate::admission::Quota;
use crate::api::{Answer, Api};
use crate::engine::Engine;
use crate::link::Link;
use crate::query::{parameters, percent_decode};
use crate::reply::{OVERLOADED, Problem, bad_request, json_reply, json_text_reply};
use crate::scan::BAD_ESCAPE;
use crate::value_memory::{SMALL_VALUE_BYTES_MAX, counted};

/// Most entries of a page, and how many there are when none are asked for.
const PAGE_ENTRIES_MAX: usize = 1000;
/// A page ends before the entry that would take its text beyond this.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Entries that are asked for at a time, of up to 65 KiB each.
const SLICE_ENTRIES: usize = 16;
/// Room for a page's end: the name after which the next one begins has up to 6 KiB as JSON.
const PAGE_END_BYTES: usize = 8 << 10;
/// What a page takes while it is made: a slice, and the text, whose room is doubled as it grows.
const PAGE_MEMORY_BYTES: usize = 4 << 20;

/// What is asked for.
pub(crate) enum Asked {
    Page(ListOptions),
    Totals,
}

/// `GET /files?prefix=&delimiter=&after=&limit=` and `GET /files?totals`.
pub(crate) fn list<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    link: &Rc<Link>,
    headers: HeaderMap,
    query: Option<&str>,
) -> Answer {
    let files = files.clone();
    match asked(query) {
        Err(problem) => Answer::Ready(api.refuse(headers, problem)),
        Ok(Asked::Totals) => {
            api.on_pool(move |_| totals_json(&files), move |_, totals| json_reply(headers, &totals))
        }
        Ok(Asked::Page(options)) => {
            let memory = api.quotas_of(link).body_memory.clone();
            api.on_pool(
                move |_| page_text(&memory, |options| files.list(options), options),
                move |api, page| match page {
                    Ok(Some(text)) => json_text_reply(headers, text),
                    Ok(None) => api.refuse(headers, OVERLOADED),
                    Err(error) => file_error(api, headers, &error),
                },
            )
        }
    }
}

pub(crate) fn asked(query: Option<&str>) -> std::result::Result<Asked, Problem> {
    let mut options = ListOptions { limit: PAGE_ENTRIES_MAX, ..ListOptions::default() };
    let query = query.unwrap_or_default();
    if query == "totals" {
        return Ok(Asked::Totals);
    }
    for (name, raw) in parameters(query).filter(|(name, _)| !name.is_empty()) {
        let value = percent_decode(raw, true).map_err(|_| BAD_ESCAPE)?.into_owned();
        let value = String::from_utf8(value).map_err(|_| bad_request("a parameter isn't UTF-8"))?;
        match name {
            "prefix" | "after" if is_reserved(&value) => {
                return Err(bad_request("names that start with a NUL are reserved"));
            }
            "prefix" => options.prefix = value,
            "delimiter" => options.delimiter = Some(value),
            "after" => options.after = Some(value),
            "limit" => {
                options.limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=PAGE_ENTRIES_MAX).contains(limit))
                    .ok_or(bad_request("limit is 1 to 1,000"))?;
            }
            _ => return Err(bad_request("a parameter is not known")),
        }
    }
    Ok(Asked::Page(options))
}

/// The text of a page, which is counted until it is gone if it is large; `None` where there is no memory for
/// an entry that is large by itself. `list` shows the entries.
fn page_text(
    memory: &Arc<Quota>,
    list: impl FnMut(ListOptions) -> Result<Page>,
    options: ListOptions,
) -> Result<Option<Bytes>> {
    let share = memory.try_take_at_most(PAGE_MEMORY_BYTES);
    let text = match &share {
        Some(_) => page_within(PAGE_BYTES_MAX, SLICE_ENTRIES, list, options)?,
        None => page_within(SMALL_VALUE_BYTES_MAX, 1, list, options)?,
    };
    if text.len() <= SMALL_VALUE_BYTES_MAX {
        return Ok(Some(Bytes::from(text)));
    }
    let share = match share {
        Some(mut share) => {
            share.keep(text.len());
            Some(share)
        }
        None => memory.try_take_at_most(text.len()),
    };
    Ok(share.map(|share| counted(Bytes::from(text), share)))
}

/// A page that ends before the entry that would take it beyond `bytes_max`, but for its first, as entries are
/// asked for `slice_entries` at a time.
fn page_within(
    bytes_max: usize,
    slice_entries: usize,
    list: impl FnMut(ListOptions) -> Result<Page>,
    options: ListOptions,
) -> Result<Vec<u8>> {
    let mut text = PageText::default();
    let next_after =
        in_slices(slice_entries, list, options, |entry| Ok(text.add(&entry, bytes_max)))?;
    Ok(text.end(next_after.as_deref()))
}

/// Hands out the entries of a page, asked for `slice_entries` at a time, until `add` says of one that it is too
/// much; what the next page begins after, if there is one. Requires: the first isn't too much.
pub(crate) fn in_slices<E>(
    slice_entries: usize,
    mut list: impl FnMut(ListOptions) -> std::result::Result<Page, E>,
    mut options: ListOptions,
    mut add: impl FnMut(ListEntry) -> std::result::Result<bool, E>,
) -> std::result::Result<Option<String>, E> {
    let mut left = options.limit;
    loop {
        options.limit = slice_entries.min(left);
        let Page { entries, next_after } = list(options.clone())?;
        left = left.saturating_sub(entries.len());
        for entry in entries {
            let name = entry.name().to_owned();
            if !add(entry)? {
                return Ok(options.after);
            }
            options.after = Some(name);
        }
        if next_after.is_none() || left == 0 {
            return Ok(next_after);
        }
        options.after = next_after;
    }
}

/// A page as JSON, of which the end is missing.
#[derive(Default)]
struct PageText {
    files: Vec<u8>,
    prefixes: Vec<u8>,
}

impl PageText {
    /// Adds an entry; false, and nothing is changed, if that would take the page beyond `bytes_max` and it
    /// isn't the first.
    fn add(&mut self, entry: &ListEntry, bytes_max: usize) -> bool {
        let is_first = self.files.is_empty() && self.prefixes.is_empty();
        let (list, value) = match entry {
            ListEntry::File(stat) => (&mut self.files, file_json(stat)),
            ListEntry::Prefix(prefix) => (&mut self.prefixes, json!(prefix)),
        };
        let before = list.len();
        if before > 0 {
            list.push(b',');
        }
        serde_json::to_writer(&mut *list, &value).expect("a Vec takes every write");
        let bytes = self.files.len() + self.prefixes.len() + PAGE_END_BYTES;
        let is_within = is_first || bytes <= bytes_max;
        if !is_within {
            match entry {
                ListEntry::File(_) => self.files.truncate(before),
                ListEntry::Prefix(_) => self.prefixes.truncate(before),
            }
        }
        is_within
    }

    fn end(self, next_after: Option<&str>) -> Vec<u8> {
        let next_after = json!(next_after).to_string();
        let parts: [&[u8]; 7] = [
            br#"{"files":["#,
            &self.files,
            br#"],"prefixes":["#,
            &self.prefixes,
            br#"],"next_after":"#,
            next_after.as_bytes(),
            b"}",
        ];
        parts.concat()
    }
}

fn file_json(stat: &Stat) -> Value {
    json!({
        "name": stat.name,
        "size": stat.size,
        "version": stat.version,
        "blake3": hex(&stat.blake3),
        "md5": stat.md5.map(|md5| hex(&md5)),
        "written_at_ms": stat.written_at_ms,
        "changed_at_ms": stat.changed_at_ms,
        "attributes": STANDARD.encode(&stat.attributes),
    })
}

fn totals_json(files: &FileStore) -> Value {
    let totals = files.totals();
    let made = totals.buckets.iter().filter(|bucket| bucket.exists);
    let buckets: Vec<Value> = made
        .map(|bucket| {
            json!({
                "bucket": bucket.bucket,
                "live_bytes": bucket.live_bytes,
                "dead_bytes": bucket.dead_bytes,
                "uploading_bytes": bucket.uploading_bytes,
                "free_bytes": bucket.free_bytes,
                "cap_bytes": bucket.cap_bytes,
            })
        })
        .collect();
    json!({
        "reference_id": files.reference_id().to_string(),
        "chunk_bytes": files.chunk_bytes(),
        "files": totals.files,
        "file_bytes": totals.file_bytes,
        "live_bytes": totals.live_bytes,
        "dead_bytes": totals.dead_bytes,
        "uploading_bytes": totals.uploading_bytes,
        "free_bytes": totals.free_bytes,
        "cap_bytes": totals.cap_bytes,
        "buckets": buckets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a store with these names, each with attributes of so many bytes.
    fn listing(files: &[(&str, usize)]) -> impl Fn(ListOptions) -> Result<Page> {
        let stat = |&(name, length): &(&str, usize)| Stat {
            name: name.to_owned(),
            version: 1,
            size: 0,
            blake3: [0; 32],
            md5: None,
            written_at_ms: 0,
            changed_at_ms: 0,
            attributes: vec![0; length].into(),
        };
        let files: Vec<Stat> = files.iter().map(stat).collect();
        move |options| {
            assert!((1..=SLICE_ENTRIES).contains(&options.limit));
            let after = options.after.unwrap_or_default();
            let mut rest = files.iter().filter(|stat| stat.name > after).cloned();
            let entries: Vec<ListEntry> =
                rest.by_ref().take(options.limit).map(ListEntry::File).collect();
            let next_after = rest.next().and(entries.last().map(|last| last.name().to_owned()));
            Ok(Page { entries, next_after })
        }
    }

    /// Names and `next_after` of a page.
    fn page(memory: &Arc<Quota>, files: &[(&str, usize)], limit: usize) -> Option<(String, Value)> {
        let options = ListOptions { limit, ..ListOptions::default() };
        let text = page_text(memory, listing(files), options).unwrap()?;
        assert_eq!(memory.used(), if text.len() > SMALL_VALUE_BYTES_MAX { text.len() } else { 0 });
        let page: Value = serde_json::from_slice(&text).unwrap();
        let names = page["files"].as_array().unwrap().iter();
        let names = names.map(|file| file["name"].as_str().unwrap().to_owned()).collect();
        Some((names, page["next_after"].clone()))
    }

    #[test]
    fn page_ends_by_entries_or_by_bytes_and_says_where_the_next_goes_on() {
        let memory = Quota::new(10 << 20);
        let small: Vec<String> = (0..40).map(|at| format!("{at:02}")).collect();
        let small: Vec<(&str, usize)> = small.iter().map(|name| (name.as_str(), 1)).collect();
        let all: String = small.iter().map(|(name, _)| *name).collect();
        assert_eq!(page(&memory, &small, 1000), Some((all.clone(), Value::Null)));
        assert_eq!(page(&memory, &small, 40), Some((all.clone(), Value::Null)));
        assert_eq!(page(&memory, &small, 17), Some((all[..34].to_owned(), json!("16"))));
        assert_eq!(page(&memory, &[], 5), Some((String::new(), Value::Null)));
        let large = [("a", 500_000), ("b", 200_000), ("c", 100_000), ("d", 1)];
        assert_eq!(page(&memory, &large, 1000), Some(("ab".to_owned(), json!("b"))));
        assert_eq!(page(&memory, &large[2..], 1000), Some(("cd".to_owned(), Value::Null)));
        let huge = [("a", 2 << 20), ("b", 1)];
        assert_eq!(page(&memory, &huge, 1000), Some(("a".to_owned(), json!("a"))));
    }

    #[test]
    fn page_without_memory_for_a_whole_one_is_short() {
        let memory = Quota::new(200_000);
        let files = [("a", 20_000), ("b", 20_000), ("c", 20_000), ("d", 60_000), ("e", 1)];
        let held = memory.try_take(150_000).unwrap();
        let short = |files| {
            let options = ListOptions { limit: 1000, ..ListOptions::default() };
            let text = page_text(&memory, listing(files), options).unwrap();
            text.map(|text| serde_json::from_slice::<Value>(&text).unwrap()["next_after"].clone())
        };
        assert_eq!(short(&files), Some(json!("b")));
        assert_eq!(short(&files[2..]), Some(json!("c")));
        assert_eq!(short(&files[3..]), None);
        assert_eq!(memory.used(), 150_000);
        drop(held);
        assert_eq!(page(&memory, &files, 1000), Some(("abcde".to_owned(), Value::Null)));
    }
}
