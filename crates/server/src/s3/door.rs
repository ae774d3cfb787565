//! The door: a request of the S3 listener to `s3s` and back, counted and limited as any other.
//!
//! What `s3s` would hold in memory whole (forms), accept by an older scheme (signatures of version 2) or
//! take for something else (sub-resources that it doesn't know) is refused here.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, EXPECT, HeaderValue,
    RANGE, RETRY_AFTER,
};
use hyper::{Method, Request, Response, StatusCode};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tallybook_files::FileStore;

use super::shelf::Shelf;
use crate::admission::{Quota, Share};
use crate::body::{Body, Interrupted, Piece, Pieces};
use crate::byte_range::ByteRange;
use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::options::S3Options;
use crate::query::parameters;
use crate::reply::Reply;
use crate::ticker::Ticker;

/// How often the sweeper goes round.
const SWEEP_PERIOD: Duration = Duration::from_secs(3600);

/// Arguments of what is there, which clients may send empty.
const ARGUMENTS: [&str; 21] = [
    "bucket-region",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "prefix",
    "start-after",
    "upload-id-marker",
    "uploadId",
    "version-id-marker",
    "versionId",
    "x-id",
];

/// Serves S3.
pub(crate) struct Door {
    service: S3Service,
    shelf: Shelf,
    in_flight: Arc<Quota>,
    is_anonymous: bool,
    upload_days_max: u32,
    retry_after: HeaderValue,
}

/// Keeps sweeping. When dropped, a sweep under way stops before its next entry.
pub(crate) struct Sweeper {
    is_stopped: Arc<AtomicBool>,
    _ticker: Ticker,
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // The ticker is dropped after this, and waits for the sweep.
        self.is_stopped.store(true, Relaxed);
    }
}

impl Door {
    pub(crate) fn new(
        options: &S3Options,
        files: FileStore,
        in_flight: Arc<Quota>,
        memory: Arc<Quota>,
        pool_threads: usize,
        retry_after: HeaderValue,
    ) -> Arc<Door> {
        let shelf = Shelf::new(files, memory, pool_threads);
        let mut builder = S3ServiceBuilder::new(shelf.clone());
        if !options.credentials.is_empty() {
            let mut auth = SimpleAuth::new();
            for credentials in &options.credentials {
                let (access_key, secret_key) = credentials.parts();
                auth.register(access_key.to_owned(), secret_key.into());
            }
            builder.set_auth(auth);
        }
        Arc::new(Door {
            service: builder.build(),
            shelf,
            in_flight,
            is_anonymous: options.credentials.is_empty(),
            upload_days_max: options.upload_days_max,
            retry_after,
        })
    }

    /// Whether it lets in who brings no credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }

    /// Sweeps now and each hour, until the sweeper is dropped.
    pub(crate) fn keep_swept(self: &Arc<Self>) -> Result<Sweeper> {
        let door = self.clone();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let told = is_stopped.clone();
        let sweep = move || {
            let swept = door.shelf.sweep(now_ms(), door.upload_days_max, &|| told.load(Relaxed));
            match swept {
                Ok(swept) => tracing::debug!(?swept, "s3 swept"),
                Err(error) => tracing::warn!(%error, "s3 was not swept; it is tried again"),
            }
        };
        let ticker = Ticker::start("tallybook-s3-sweep", SWEEP_PERIOD, sweep)
            .map_err(|source| Error::Io { what: "a thread", source })?;
        Ok(Sweeper { is_stopped, _ticker: ticker })
    }

    /// Answers a request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        link: Rc<Link>,
        request: Request<Incoming>,
    ) -> Reply {
        // botocore expects a 100 even for an empty body, takes the answer for it, and from then on reads
        // every answer of the connection one too late (boto/botocore issue 3755).
        let expects_in_vain =
            request.headers().contains_key(EXPECT) && request.body().is_end_stream();
        let mut reply = self.reply(link, request).await;
        if expects_in_vain {
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }

    async fn reply(self: Arc<Self>, link: Rc<Link>, request: Request<Incoming>) -> Reply {
        let in_flight = link.part.as_ref().map_or(&self.in_flight, |part| &part.in_flight);
        let Some(share) = in_flight.try_take(1) else {
            let mut reply = explain(
                StatusCode::SERVICE_UNAVAILABLE,
                "SlowDown",
                "Please reduce your request rate.",
            );
            reply.headers_mut().insert(RETRY_AFTER, self.retry_after.clone());
            return reply;
        };
        if let Some((status, code, message)) = self.refusal(&request) {
            return explain(status, code, message);
        }
        let is_taken = Arc::new(AtomicBool::new(false));
        let mut request =
            request.map(|body| s3s::Body::http_body(Taken { body, is_taken: is_taken.clone() }));
        drop_foreign_range(&mut request);
        let is_head = request.method() == Method::HEAD;
        let answered = self.service.call(request).await;
        if is_taken.load(Relaxed) {
            link.body_unread.set(false);
        }
        match answered {
            Ok(mut response) => {
                // `s3s` answers 200 whatever part of an object a HEAD names.
                if is_head && response.headers().contains_key(CONTENT_RANGE) {
                    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                }
                let memory = response.extensions_mut().remove::<Arc<Share>>();
                response.map(|body| to_body(body, &link, share, memory))
            }
            Err(error) => {
                let error = s3s::StdError::from(error);
                tracing::error!(%error, "the S3 door failed");
                let message = "The request failed for an unexpected reason.";
                explain(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
            }
        }
    }

    /// What is refused before `s3s` sees it.
    fn refusal<B>(&self, request: &Request<B>) -> Option<(StatusCode, &'static str, &'static str)> {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let refuse = |what| Some((StatusCode::NOT_IMPLEMENTED, "NotImplemented", what));
        let is_form = text(CONTENT_TYPE)
            .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"));
        if request.method() == Method::POST && is_form {
            return refuse("Uploads by form are not implemented.");
        }
        let query = request.uri().query().unwrap_or("");
        let is_v2 = text(AUTHORIZATION).is_some_and(|value| value.starts_with("AWS "))
            || query.split('&').any(|parameter| parameter.starts_with("Signature="));
        if is_v2 {
            return refuse("The only signatures are of version 4.");
        }
        let is_signed = text(AUTHORIZATION).is_some() || query.contains("X-Amz-Signature=");
        if self.is_anonymous && is_signed {
            return refuse("This server has no credentials to check a signature with; send none.");
        }
        let is_framed =
            text(CONTENT_ENCODING).is_some_and(|encoding| encoding.contains("aws-chunked"));
        let is_streamed = text(hyper::header::HeaderName::from_static("x-amz-content-sha256"))
            .is_some_and(|hash| hash.starts_with("STREAMING-"));
        if (is_framed || is_streamed) && (text(AUTHORIZATION).is_none() || !is_streamed) {
            // Its frames would become part of the object.
            return refuse("Only a signed request may have its body in aws-chunked frames.");
        }
        if names_unknown(request.method(), request.uri().path(), query) {
            return refuse("The query names what is not implemented.");
        }
        None
    }
}

/// Takes away a `Range` of another kind than one range of bytes, which a server may ignore (RFC 9110, section
/// 14.2), as `s3s` refuses it. One that is signed stays, or the signature would be wrong.
fn drop_foreign_range<B>(request: &mut Request<B>) {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_foreign =
        text(RANGE).is_some_and(|range| ByteRange::parse(range, usize::MAX) == ByteRange::Whole);
    let query = request.uri().query().unwrap_or("");
    let is_signed = parameters(query)
        .filter(|(name, _)| *name == "X-Amz-SignedHeaders")
        .map(|(_, names)| names)
        .chain(text(AUTHORIZATION))
        .any(|names| names.contains("range"));
    if is_foreign && !is_signed {
        request.headers_mut().remove(RANGE);
    }
}

/// Whether a query names, without a value, a sub-resource that isn't there or what is no argument.
///
/// `s3s` takes a request for a sub-resource that it doesn't know for one without: a `PUT` of an object's
/// `?encryption` would replace the object, a `DELETE` of a bucket's `?logging` the bucket itself.
fn names_unknown(method: &Method, path: &str, query: &str) -> bool {
    let is_argument = |name: &str| {
        ARGUMENTS.contains(&name)
            || name.starts_with("response-")
            || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
    };
    parameters(query)
        .filter(|(name, value)| value.is_empty() && !name.is_empty() && !is_argument(name))
        .any(|(name, _)| !sub_resources(method, path).contains(&name))
}

/// What can be asked of a bucket or an object besides itself. What the protocol's file answers beyond it
/// is added here.
fn sub_resources(method: &Method, path: &str) -> &'static [&'static str] {
    // An escaped slash parts them too.
    let path = path.replace("%2F", "/").replace("%2f", "/");
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    match (method.as_str(), !bucket.is_empty(), !key.is_empty()) {
        ("GET", true, false) => {
            &["acl", "lifecycle", "location", "uploads", "versioning", "versions"]
        }
        ("PUT" | "DELETE", true, false) => &["lifecycle"],
        ("POST", true, false) => &["delete"],
        ("GET", true, true) => &["acl", "attributes", "tagging"],
        ("POST", true, true) => &["uploads"],
        _ => &[],
    }
}

/// An answer in S3's words that isn't from `s3s`.
fn explain(status: StatusCode, code: &str, message: &str) -> Reply {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut reply = Response::new(Body::Full(Bytes::from(text)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    reply
}

/// A request's body that tells whether it was taken whole.
struct Taken {
    body: Incoming,
    is_taken: Arc<AtomicBool>,
}

impl HttpBody for Taken {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_taken.store(true, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn to_body(body: s3s::Body, link: &Rc<Link>, share: Share, memory: Option<Arc<Share>>) -> Body {
    if body.is_end_stream() {
        return Body::Empty;
    }
    let length = body.size_hint().exact();
    link.streaming.set(true);
    let held = std::iter::once(Arc::new(share)).chain(memory).collect();
    let pieces = Box::new(Answered { body, link: link.clone(), held });
    match length {
        Some(length) => Body::Sized(pieces, length),
        None => Body::Stream(pieces),
    }
}

/// The body of an answer of `s3s`.
struct Answered {
    body: s3s::Body,
    link: Rc<Link>,
    /// Its request in flight, and its memory if that is counted.
    held: Vec<Arc<Share>>,
}

impl Pieces for Answered {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Piece, Interrupted>>> {
        loop {
            return Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => None,
                Some(Err(_)) => Some(Err(Interrupted)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        Some(Ok(self.held.iter().fold(Piece::from(bytes), Piece::holding)))
                    }
                    Err(_) => continue,
                },
            });
        }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.link.streaming.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// hyper takes the bytes at once and drops what they came from, while the client takes its time.
    #[test]
    fn memory_of_an_answer_is_held_by_its_bytes() {
        let (in_flight, memory) = (Quota::new(1), Quota::new(100_000));
        let shares = (in_flight.try_take(1).unwrap(), memory.try_take(100_000).unwrap());
        let body = s3s::Body::from(Bytes::from(vec![0; 100_000]));
        let link = Rc::new(Link::default());
        let body = to_body(body, &link, shares.0, Some(Arc::new(shares.1)));
        let Body::Sized(mut pieces, 100_000) = body else { panic!("the length is known") };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Some(Ok(piece))) = pieces.poll_next(&mut cx) else { panic!("no piece") };
        drop(pieces);
        assert_eq!((in_flight.used(), memory.used()), (1, 100_000));
        drop(piece);
        assert_eq!((in_flight.used(), memory.used()), (0, 0));
    }
}
