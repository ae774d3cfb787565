//! The door: a request of the S3 listener to `s3s` and back, counted and limited as any other.
//!
//! What `s3s` would hold in memory whole (forms), accept by an older scheme (signatures of version 2) or
//! unsigned (headers), or take for something else (sub-resources that it doesn't know) is refused here.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, EXPECT, HeaderName,
    HeaderValue, RETRY_AFTER,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode};
use s3s::auth::SimpleAuth;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use tallybook_files::FileStore;

use super::guards::{check_ascii, check_guards};
use super::protocol::Counted;
use super::query::{Query, check_names};
use super::refusal::Refusal;
use super::shelf::Shelf;
use super::signed::{check_signed, lift_headers, plain_range};
use super::taken::{Taken, Told};
use super::whole::WHOLE_BYTES_MAX;
use crate::admission::{Quota, Share};
use crate::body::{Body, Interrupted, Piece, Pieces};
use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::options::S3Options;
use crate::reply::Reply;
use crate::ticker::Ticker;
use crate::value_memory::SMALL_VALUE_BYTES_MAX;

/// How often the sweeper goes round.
const SWEEP_PERIOD: Duration = Duration::from_secs(3600);

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
        let mut config = S3Config::default();
        config.xml_max_body_size = WHOLE_BYTES_MAX as usize;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
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

    /// Sweeps now and each hour, until the sweeper is dropped. Requires: nothing is asked of it before.
    pub(crate) fn keep_swept(self: &Arc<Self>) -> Result<Sweeper> {
        if let Err(error) = self.shelf.end_made() {
            tracing::warn!(%error, "not all uploads that were completed before could be ended");
        }
        let door = self.clone();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let told = is_stopped.clone();
        let sweep = move || {
            let swept = door.shelf.sweep(now_ms(), door.upload_days_max, &|| told.load(Relaxed));
            match swept {
                Ok(swept) => tracing::debug!(?swept, "s3 swept"),
                Err(error) => tracing::warn!(%error, "not all of s3 was swept; it is tried again"),
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

    async fn reply<B>(self: Arc<Self>, link: Rc<Link>, request: Request<B>) -> Reply
    where
        B: HttpBody<Data = Bytes> + Send + Sync + Unpin + 'static,
        B::Error: Into<s3s::StdError>,
    {
        let in_flight = link.part.as_ref().map_or(&self.in_flight, |part| &part.in_flight);
        let Some(share) = in_flight.try_take(1) else { return self.refuse(&Refusal::SLOW_DOWN) };
        let (mut parts, body) = request.into_parts();
        if let Err(refusal) = self.check(&mut parts) {
            return self.refuse(&refusal);
        }
        let (is_head, is_post) = (parts.method == Method::HEAD, parts.method == Method::POST);
        let memory = link.part.as_ref().map_or(&self.shelf.memory, |part| &part.body_memory);
        parts.extensions.insert(memory.clone());
        let told = Arc::new(Told::default());
        let body = match Taken::new(&parts, body, memory.clone(), told.clone()) {
            Ok(body) => body,
            Err(refusal) => return self.refuse(&refusal),
        };
        let share = Arc::new(share);
        if is_post {
            parts.extensions.insert(Counted { in_flight: share.clone(), told: told.clone() });
        }
        let request = Request::from_parts(parts, s3s::Body::http_body(body));
        let answered = self.service.call(request).await;
        if told.is_taken() {
            link.body_unread.set(false);
        }
        if let Some(refusal) = told.refusal() {
            return self.refuse(&refusal);
        }
        match answered {
            Ok(mut response) => {
                // `s3s` answers 200 whatever part of an object a HEAD names.
                if is_head && response.headers().contains_key(CONTENT_RANGE) {
                    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                }
                self.say_when(response.status(), response.headers_mut());
                let listed = response.extensions_mut().remove::<Arc<Share>>();
                let memory = match listed {
                    Some(_) => Ok(listed),
                    None => hold(response.body(), told.memory(), memory),
                };
                let memory = match memory {
                    Ok(memory) => memory,
                    Err(refusal) => return self.refuse(&refusal),
                };
                response.map(|body| to_body(body, &link, share, memory, is_post))
            }
            Err(error) => {
                let error = s3s::StdError::from(error);
                tracing::error!(%error, "the S3 door failed");
                let message = "The request failed for an unexpected reason.";
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                self.refuse(&Refusal::new(status, "InternalError", message))
            }
        }
    }

    fn refuse(&self, refusal: &Refusal) -> Reply {
        let mut reply = refusal.answer();
        self.say_when(refusal.status, reply.headers_mut());
        reply
    }

    /// Has an answer of 503 say when to try again.
    fn say_when(&self, status: StatusCode, headers: &mut HeaderMap) {
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, self.retry_after.clone());
        }
    }

    /// Refuses what `s3s` shouldn't see, and shows it what it would pass over.
    fn check(&self, request: &mut Parts) -> std::result::Result<(), Refusal> {
        let query = Query::of(request.uri.query().unwrap_or(""))?;
        self.check_signature(&request.headers, &query)?;
        check_names(&request.method, request.uri.path(), &query)?;
        lift_headers(&mut request.headers, &query)?;
        plain_range(&mut request.headers, &query)?;
        check_ascii(&request.headers)?;
        check_guards(&request.headers)?;
        check_body(request)
    }

    /// Refuses what is signed by another scheme, where nothing can be, or not as far as it should be.
    fn check_signature(
        &self,
        headers: &HeaderMap,
        query: &Query<'_>,
    ) -> std::result::Result<(), Refusal> {
        let refuse = |what| Err(Refusal::not_implemented(what));
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let is_v2 = authorization.is_some_and(|value| value.starts_with("AWS "));
        if is_v2 || query.has("Signature") {
            return refuse("The only signatures are of version 4.");
        }
        if self.is_anonymous && (authorization.is_some() || query.is_presigned()) {
            return refuse("This server has no credentials to check a signature with; send none.");
        }
        check_signed(headers, query)
    }
}

/// Refuses bodies that would be taken for something else. Requires: all headers are there, those of the query
/// too, and what is compared of them is ASCII.
fn check_body(request: &Parts) -> std::result::Result<(), Refusal> {
    let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
    let refuse = |what| Err(Refusal::not_implemented(what));
    // By bytes, and each of several: `s3s` takes what is UTF-8, and passes over what isn't.
    let form = b"multipart/form-data";
    let is_form = |kind: &HeaderValue| {
        kind.as_bytes().get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form))
    };
    if request.method == Method::POST && request.headers.get_all(CONTENT_TYPE).iter().any(is_form) {
        return refuse("Uploads by form are not implemented.");
    }
    // Codings have no case, and `s3s` doesn't look at those of a part.
    let names_frames = |encoding: &HeaderValue| {
        let encoding = encoding.to_str().unwrap_or("").to_ascii_lowercase();
        encoding.contains("aws-chunked")
    };
    let is_framed = request.headers.get_all(CONTENT_ENCODING).iter().any(names_frames);
    let is_streamed = text(HeaderName::from_static("x-amz-content-sha256"))
        .is_some_and(|hash| hash.starts_with("STREAMING-"));
    if (is_framed || is_streamed) && (text(AUTHORIZATION).is_none() || !is_streamed) {
        // Its frames would become part of the object.
        return refuse("Only a signed request may have its body in aws-chunked frames.");
    }
    Ok(())
}

/// The memory that an answer holds until it was sent, in which that of its request goes on. One that is there
/// whole is counted unless it is short; one that is still being made keeps what its request had.
///
/// Where there is no room the request was done in vain, and is to be made again: that deletes nothing twice.
fn hold(
    answer: &s3s::Body,
    of_request: Option<Share>,
    memory: &Arc<Quota>,
) -> std::result::Result<Option<Arc<Share>>, Refusal> {
    let Some(bytes) = answer.bytes() else { return Ok(of_request.map(Arc::new)) };
    if bytes.len() <= SMALL_VALUE_BYTES_MAX {
        return Ok(None);
    }
    // What is larger than all there is has its turn alone.
    let amount = bytes.len().min(memory.max());
    let mut share = of_request.unwrap_or_else(|| memory.take_nothing());
    if !share.try_grow_to(amount) {
        return Err(Refusal::SLOW_DOWN);
    }
    share.keep(amount);
    Ok(Some(Arc::new(share)))
}

fn to_body(
    body: s3s::Body,
    link: &Rc<Link>,
    share: Arc<Share>,
    memory: Option<Arc<Share>>,
    is_post: bool,
) -> Body {
    if body.is_end_stream() {
        return Body::Empty;
    }
    let length = body.size_hint().exact();
    link.streaming.set(true);
    let pieces = Box::new(Answered {
        body,
        link: link.clone(),
        held: std::iter::once(share).chain(memory).collect(),
        is_document: is_post && length.is_none(),
        is_begun: false,
    });
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
    /// It is XML that began before its end was known.
    is_document: bool,
    is_begun: bool,
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
                        let goes_on = std::mem::replace(&mut self.is_begun, true);
                        let bytes =
                            if self.is_document && goes_on { undeclared(bytes) } else { bytes };
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

/// XML without the declaration that it may begin with: the answer has one.
///
/// `s3s` declares the error of a long completion though the answer began with a declaration, and no parser
/// takes a second one.
fn undeclared(xml: Bytes) -> Bytes {
    let end = match xml.starts_with(b"<?xml") {
        true => xml.windows(2).position(|window| window == b"?>").map_or(0, |at| at + 2),
        false => 0,
    };
    xml.slice(end..)
}

#[cfg(test)]
mod tests {
    use tallybook_files::WriteOptions;

    use super::super::layout;
    use super::super::meta::{ObjectMeta, encode};
    use super::*;
    use crate::admission::Quotas;

    /// A form whose type held a byte beyond ASCII was none here, and one for `s3s`, which stored it unsigned.
    #[test]
    fn forms_are_refused_whatever_stands_beside_their_type() {
        let check = |kinds: &[&[u8]]| {
            let mut request = Request::post("/bucket").body(()).unwrap().into_parts().0;
            for kind in kinds {
                let kind = HeaderValue::from_bytes(kind).unwrap();
                request.headers.append(CONTENT_TYPE, kind);
            }
            check_body(&request).is_err()
        };
        let form = b"Multipart/form-data; boundary=x; a=\"\xc3\xa9\"";
        assert!(check(&[form]) && check(&[b"\xff", form]));
        assert!(!check(&[b"multipart"]) && !check(&[b"text/plain; a=\"\xc3\xa9\""]));
    }

    /// What an address may have of the memory was all there is, for bodies and pages: one with slow bodies had all
    /// others refused. And what was refused behind the door didn't say when to try again.
    #[test]
    fn memory_of_a_request_is_that_of_its_client() {
        let (_dir, shelf) = Shelf::with_bucket("bucket");
        let meta = ObjectMeta { key: "k".to_owned(), ..ObjectMeta::default() };
        let options = WriteOptions { attributes: encode(&meta), ..WriteOptions::default() };
        let upload = "0".repeat(32);
        shelf.note(&layout::upload("bucket", &upload), options).unwrap();
        let options = S3Options::new(([127, 0, 0, 1], 0).into());
        let (in_flight, memory) = (Quota::new(9), Quota::new(8 << 20));
        let retry_after = HeaderValue::from(7);
        let door = Door::new(
            &options,
            shelf.files.clone(),
            in_flight.clone(),
            memory.clone(),
            2,
            retry_after,
        );
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |method: &str, target: &str, part: Option<&Arc<Quota>>| {
            let part = part.map(|part| Quotas {
                in_flight: in_flight.clone(),
                body_memory: part.clone(),
                body_bytes_max: 0,
            });
            let link = Rc::new(Link { part, ..Link::default() });
            let request = Request::builder().method(method).uri(target);
            let request = request.body(s3s::Body::from("value".to_owned())).unwrap();
            let reply = runtime.block_on(door.clone().reply(link, request));
            (reply.status().as_u16(), reply.headers().get(RETRY_AFTER).cloned())
        };
        let few = Quota::new(1000);
        for target in ["/bucket/k", &format!("/bucket/k?partNumber=1&uploadId={upload}")] {
            assert_eq!(ask("PUT", target, Some(&few)), (503, Some(7.into())), "{target}");
            assert_eq!(ask("PUT", target, Some(&Quota::new(1 << 20))), (200, None), "{target}");
            assert_eq!(ask("PUT", target, None), (200, None), "{target}");
        }
        // Of a page that says again more than there is memory for.
        let target = format!("/bucket?prefix={}", "%2B".repeat(15_000));
        assert_eq!(ask("GET", &target, Some(&few)), (200, None));
        let held = few.try_take(1000);
        for target in [&target, &target.replace("prefix", "list-type=2&prefix")] {
            assert_eq!(ask("GET", target, Some(&few)), (503, Some(7.into())), "{target}");
            assert_eq!(ask("GET", target, None), (200, None));
        }
        drop(held);
    }

    /// The answer to a delete of 1,000 long keys was 5 MB of which nothing was counted while it was sent.
    #[test]
    fn answers_of_many_bytes_are_counted_in_what_their_request_had() {
        let memory = Quota::new(1 << 20);
        let share = |amount| Some(memory.try_take(amount).unwrap());
        let answer = |bytes: usize| s3s::Body::from(vec![b' '; bytes]);
        for (bytes, had, counted) in [
            (64 << 10, 500_000, 0),
            (200_000, 500_000, 200_000),
            (200_000, 1000, 200_000),
            (2 << 20, 1000, 1 << 20),
        ] {
            let held = hold(&answer(bytes), share(had), &memory).unwrap();
            assert_eq!(memory.used(), counted, "{bytes}");
            drop(held);
            assert_eq!(memory.used(), 0);
        }
        let held = hold(&answer(200_000), None, &memory).unwrap();
        assert_eq!(memory.used(), 200_000);
        assert_eq!(hold(&answer(900_000), share(1000), &memory).err(), Some(Refusal::SLOW_DOWN));
        drop(held);
        // What waits for its parts to be joined.
        let joining = s3s::Body::http_body(s3s::Body::from(Bytes::new()));
        let held = hold(&joining, share(1000), &memory).unwrap();
        assert!(held.is_some() && memory.used() == 1000);
    }

    /// hyper takes the bytes at once and drops what they came from, while the client takes its time.
    #[test]
    fn memory_of_an_answer_is_held_by_its_bytes() {
        let (in_flight, memory) = (Quota::new(1), Quota::new(100_000));
        let shares = (in_flight.try_take(1).unwrap(), memory.try_take(100_000).unwrap());
        let body = s3s::Body::from(Bytes::from(vec![0; 100_000]));
        let link = Rc::new(Link::default());
        let body = to_body(body, &link, Arc::new(shares.0), Some(Arc::new(shares.1)), false);
        let Body::Sized(mut pieces, 100_000) = body else { panic!("the length is known") };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Some(Ok(piece))) = pieces.poll_next(&mut cx) else { panic!("no piece") };
        drop(pieces);
        assert_eq!((in_flight.used(), memory.used()), (1, 100_000));
        drop(piece);
        assert_eq!((in_flight.used(), memory.used()), (0, 0));
    }
}
