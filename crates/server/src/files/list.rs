//! `GET /files`: a page of names in byte order, as JSON, or what the store holds in all.

use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use serde_json::{Value, json};
use tallybook_files::placement::is_reserved;
use tallybook_files::{FileStore, ListEntry, ListOptions, Page, Stat, hex};

use super::file_error;
use crate::api::{Answer, Api};
use crate::engine::Engine;
use crate::link::Link;
use crate::query::{parameters, percent_decode};
use crate::reply::{Problem, bad_request, json_reply};
use crate::scan::BAD_ESCAPE;

/// Most entries of a page, and how many there are when none are asked for.
const PAGE_ENTRIES_MAX: usize = 1000;

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
    let (files, link) = (files.clone(), link.clone());
    match asked(query) {
        Err(problem) => Answer::Ready(api.refuse(headers, problem)),
        Ok(Asked::Totals) => {
            api.on_pool(move |_| totals_json(&files), move |_, totals| json_reply(headers, &totals))
        }
        Ok(Asked::Page(options)) => api.on_pool(
            move |_| files.list(options),
            move |api, page| match page {
                Ok(page) => api.count_reply(&link, json_reply(headers, &page_json(page))),
                Err(error) => file_error(api, headers, &error),
            },
        ),
    }
}

pub(crate) fn asked(query: Option<&str>) -> Result<Asked, Problem> {
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

fn page_json(page: Page) -> Value {
    let mut files = Vec::new();
    let mut prefixes = Vec::new();
    for entry in page.entries {
        match entry {
            ListEntry::File(stat) => files.push(file_json(&stat)),
            ListEntry::Prefix(prefix) => prefixes.push(prefix),
        }
    }
    json!({ "files": files, "prefixes": prefixes, "next_after": page.next_after })
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
