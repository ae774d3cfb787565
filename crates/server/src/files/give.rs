//! POST of a file: another file's bytes get its name, without being copied.
//!
//! The header `x-tallybook-copy-from` or `x-tallybook-rename-from` has the other name, percent-encoded
//! as in a path. Conditions are those of a PUT: they are held against what has the new name.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::HeaderName;
use tallybook_files::{CopyOptions, FileStore};

use super::write::{Asked, created};
use super::{decode_name, file_error};
use crate::api::{Answer, Api};
use crate::engine::Engine;
use crate::reply::{Problem, bad_request};
use crate::write::text;

const COPY_FROM: HeaderName = HeaderName::from_static("x-tallybook-copy-from");
const RENAME_FROM: HeaderName = HeaderName::from_static("x-tallybook-rename-from");

/// `POST /files/{name}`.
pub(crate) fn give<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    headers: HeaderMap,
    name: String,
) -> Answer {
    let read = Asked::of(api, &headers).and_then(|asked| Ok((asked, source(&headers)?)));
    let (asked, (from, moves)) = match read {
        Ok(read) => read,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    let level = asked.level;
    let durability = Some(level.durability(api.options.interval_ms));
    let files = files.clone();
    api.on_pool(
        move |_| {
            let condition = asked.condition(&files, &name)?;
            let options = CopyOptions { durability, condition, ..CopyOptions::default() };
            match moves {
                true => files.rename(&from, &name, options),
                false => files.copy(&from, &name, options),
            }
        },
        move |api, given| match given {
            Ok(stat) => created(headers, &stat, level),
            Err(error) => file_error(api, headers, &error),
        },
    )
}

/// The name that the file has, and whether it loses it.
fn source(headers: &HeaderMap) -> Result<(String, bool), Problem> {
    match (text(headers, &COPY_FROM)?, text(headers, &RENAME_FROM)?) {
        (Some(from), None) => Ok((decode_name(from)?, false)),
        (None, Some(from)) => Ok((decode_name(from)?, true)),
        _ => Err(bad_request("one of x-tallybook-copy-from and x-tallybook-rename-from is needed")),
    }
}
