//! POST of a file: another file's bytes get its name, without being copied.
//!
//! The header `x-tallybook-copy-from` or `x-tallybook-rename-from` has the other name, percent-encoded
//! as in a path. Conditions are those of a PUT: they are held against what has the new name.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::HeaderName;
use tallybook_files::{CopyOptions, FileStore};

use super::decode_name;
use super::write::{change, created};
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
    let (from, moves) = match source(&headers) {
        Ok(source) => source,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    change(
        api,
        files,
        headers,
        name,
        move |files, name, durability, condition| {
            let options = CopyOptions { durability, condition, ..CopyOptions::default() };
            match moves {
                true => files.rename(&from, name, options),
                false => files.copy(&from, name, options),
            }
        },
        |_, headers, level, stat| created(headers, &stat, level),
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
