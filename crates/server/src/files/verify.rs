//! `POST /files?verify`: reads everything, or a share of it, and checks it.
//!
//! The answer is lines of JSON: while it goes on how far it has come, and at the end the report, or why
//! there is none. One verification goes on at a time; it takes a thread of the pool for a line's worth
//! of work, reads on only while its lines are taken, and ends with the connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tallybook_files::{FileStore, Result, Verification, VerifyOptions};

use super::file_error;
use crate::admission::Share;
use crate::api::{Answer, Api};
use crate::body::{Body, Piece};
use crate::engine::Engine;
use crate::json::verified;
use crate::link::Link;
use crate::query::parameters;
use crate::reply::{NDJSON, Problem, Reply, STOPPING, bad_request};
use crate::stream::{self, Produce};

/// Work between two lines.
const LINE_PERIOD: Duration = Duration::from_millis(500);

/// 409.
const RUNNING: Problem = Problem {
    status: StatusCode::CONFLICT,
    kind: "verify_running",
    message: "the file store is being verified; ask again when that is done",
};

/// `POST /files?verify[&bytes=N]`.
pub(crate) fn verify<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    link: &Rc<Link>,
    headers: HeaderMap,
    query: Option<&str>,
) -> Answer {
    let options = match asked(query) {
        Ok(options) => options,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    let Some(turn) = api.verifying.try_take(1) else {
        return Answer::Ready(api.refuse(headers, RUNNING));
    };
    let (shared, files) = (api.clone(), files.clone());
    stream::answer(api, link, headers, NDJSON, move |_| {
        let verification = files.verification(&options);
        Ok(Box::new(Lines { api: shared, verification, _turn: turn }))
    })
}

fn asked(query: Option<&str>) -> std::result::Result<VerifyOptions, Problem> {
    let mut options = VerifyOptions::default();
    let mut is_asked = false;
    for (name, value) in parameters(query.unwrap_or_default()) {
        match name {
            "verify" if value.is_empty() => is_asked = true,
            "bytes" => {
                let bytes = value.parse().map_err(|_| bad_request("bytes is a number"))?;
                options.bytes_max = Some(bytes);
            }
            _ => return Err(bad_request("a parameter is not known")),
        }
    }
    match is_asked {
        true => Ok(options),
        false => Err(bad_request("a POST without a name is /files?verify")),
    }
}

/// The lines of a verification.
struct Lines<E> {
    api: Arc<Api<E>>,
    verification: Result<Verification>,
    _turn: Share,
}

impl<E: Engine> Lines<E> {
    /// Works for a while; the line that says what came of it, and whether it is the last.
    fn work(&mut self) -> Result<(Value, bool)> {
        let verification = self.verification.as_mut().map_err(|error| error.clone())?;
        let start = Instant::now();
        while start.elapsed() < LINE_PERIOD {
            if !verification.step()? {
                return Ok((json!({ "report": verified(verification.report()) }), true));
            }
        }
        let (done, total) = verification.progress();
        Ok((json!({ "done": done, "total": total }), false))
    }
}

impl<E: Engine> Produce for Lines<E> {
    fn fill(&mut self, pieces: &mut Vec<Piece>) -> tallybook::error::Result<bool> {
        let (line, is_last) = if self.api.is_draining() {
            (said(self.api.refuse(HeaderMap::new(), STOPPING)), true)
        } else {
            match self.work() {
                Ok((line, is_last)) => (line.to_string().into(), is_last),
                Err(error) => (said(file_error(&self.api, HeaderMap::new(), &error)), true),
            }
        };
        pieces.push(Piece::new(line, Bytes::from_static(b"\n")));
        Ok(!is_last)
    }
}

/// The words of a refusal whose status can't be sent any more.
fn said(refusal: Reply) -> Bytes {
    match refusal.into_body() {
        Body::Full(words) => words,
        _ => unreachable!("a refusal has a body that is there"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use bytes::Buf;
    use tallybook::options::Options;
    use tallybook::store::Store;
    use tallybook_files::{CreateOptions, OpenOptions};

    use super::*;
    use crate::options::ServerOptions;

    #[test]
    fn a_stop_or_a_failing_store_ends_the_lines_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let create = CreateOptions { bucket_count: 1, ..CreateOptions::default() };
        let files = FileStore::create(dir.path(), create, OpenOptions::default()).unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let api = Api::new(store, Some(files.clone()), ServerOptions::default());
        let last = |kind: &str| {
            let verification = files.verification(&VerifyOptions::default());
            let turn = api.verifying.try_take(1).unwrap();
            let mut lines = Lines { api: api.clone(), verification, _turn: turn };
            let mut pieces = Vec::new();
            assert!(!lines.fill(&mut pieces).unwrap());
            let mut line = pieces.pop().unwrap();
            let line = line.copy_to_bytes(line.remaining());
            let line: Value = serde_json::from_slice(line.strip_suffix(b"\n").unwrap()).unwrap();
            assert_eq!(line["error"], kind);
        };
        api.draining.store(true, Relaxed);
        last("draining");
        api.draining.store(false, Relaxed);
        files.close().unwrap();
        last("invalid_argument");
    }
}
