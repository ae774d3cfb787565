//! Routes: which request is answered by what. Every path that isn't named here answers 400.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::Service;
use hyper::{HeaderMap, Method, Request, Uri, Version};
use tallybook::key::KEY_BYTES_MAX;
use tallybook_files::FileStore;

use crate::api::{Answer, Api};
use crate::batch::Batch;
use crate::body::Body;
use crate::engine::Engine;
use crate::link::Link;
use crate::meter::Operation;
use crate::query::{BadEscape, Key, first};
use crate::reply::{Form, Problem, Reply, UNAUTHORIZED, bad_request, method_not_allowed};
use crate::s3::Door;
use crate::scan::BAD_ESCAPE;
use crate::strict::OriginRules;
use crate::upload::{self, Purpose, Upload};
use crate::write::{Mutation, Verb};
use crate::{admin, files, health, read, scan};

const NO_SUCH_PATH: Problem = bad_request("this server has no such path");

const NO_FILES: Problem = bad_request("this server was started without a file store");

/// Which listener a request came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Data and health.
    Data,
    /// Health and figures.
    Admin,
    /// S3.
    S3,
}

impl Listener {
    /// In which form its clients read refusals.
    pub(crate) fn form(self) -> Form {
        match self {
            Listener::Data | Listener::Admin => Form::Json,
            Listener::S3 => Form::Xml,
        }
    }
}

/// How the connections of a listener are served.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) listener: Listener,
    /// Of the S3 listener.
    pub(crate) door: Option<Arc<Door>>,
    /// For whom; `None` where every request is signed.
    pub(crate) rules: Option<Arc<OriginRules>>,
}

/// Answers the requests of one connection.
pub(crate) struct Requests<E>(Rc<Shared<E>>);

/// What the requests of a connection have in common. They count who uses it by themselves: a count
/// that all threads share would go from core to core with each request.
struct Shared<E> {
    api: Arc<Api<E>>,
    link: Rc<Link>,
    listener: Listener,
    /// Of the S3 listener.
    door: Option<Arc<Door>>,
}

/// A request without its body.
struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl<E: Engine> Service<Request<Incoming>> for Requests<E> {
    type Response = Reply;
    type Error = Infallible;
    type Future = Answering<E>;

    fn call(&self, request: Request<Incoming>) -> Answering<E> {
        let shared = self.0.clone();
        Link::add(&shared.link.started, 1);
        shared.link.body_unread.set(!request.body().is_end_stream());
        let started = Instant::now();
        let is_http_10 = request.version() == Version::HTTP_10;
        if let Some(door) = &shared.door {
            let answer = door.clone().answer(shared.link.clone(), request);
            let (operation, state) = (Some(Operation::S3), State::Later(Box::pin(answer)));
            return Answering { shared, started, is_http_10, operation, state };
        }
        let (parts, body) = request.into_parts();
        let head = Head { method: parts.method, uri: parts.uri, headers: parts.headers };
        let (operation, state) = (shared.operation(&head), shared.route(head, body));
        Answering { shared, started, is_http_10, operation, state }
    }
}

impl<E> Requests<E> {
    pub(crate) fn new(
        api: Arc<Api<E>>,
        link: Rc<Link>,
        (listener, door): (Listener, Option<Arc<Door>>),
    ) -> Requests<E> {
        Requests(Rc::new(Shared { api, link, listener, door }))
    }
}

impl<E: Engine> Shared<E> {
    fn route(&self, head: Head, body: Incoming) -> State {
        let data = self.listener == Listener::Data;
        let path = head.uri.path();
        match path {
            "/v0/entity" if data => self.entity(head, body),
            "/v0/entities" if data => self.entities(head),
            "/kv" if data => self.collection(head, body),
            "/v0/status" | "/readyz" => readable(head, |headers| health::ready(&self.api, headers)),
            "/healthz" => readable(head, health::live),
            _ if data && path.starts_with("/kv/") => self.item(head, body),
            _ if data && is_of_files(path) => match &self.api.files {
                Some(files) => self.files(files, head, body),
                None => self.refuse(head.headers, NO_FILES),
            },
            _ if !data && !self.is_admitted(&head.headers) => self.ask_for_token(),
            _ if !data => {
                match admin::route(&self.api, &self.link, &head.method, &head.uri, head.headers) {
                    Ok(answer) => answer.into(),
                    Err(headers) => self.refuse(headers, NO_SUCH_PATH),
                }
            }
            _ => self.refuse(head.headers, NO_SUCH_PATH),
        }
    }

    /// Whether a request to the admin listener brings what it must.
    fn is_admitted(&self, headers: &HeaderMap) -> bool {
        self.api.options.admin_token.as_ref().is_none_or(|token| token.is_in(headers))
    }

    fn ask_for_token(&self) -> State {
        let mut reply = self.api.refuse(HeaderMap::new(), UNAUTHORIZED);
        // A browser then asks its user, and sends the answer along from there on.
        let scheme = HeaderValue::from_static("Basic realm=\"tallybook admin\", charset=\"UTF-8\"");
        reply.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        reply.into()
    }

    /// What the meter counts a request as; `None` on the admin listener.
    fn operation(&self, head: &Head) -> Option<Operation> {
        if self.listener == Listener::Admin {
            return None;
        }
        let path = head.uri.path();
        let is_item = path == "/v0/entity" || path.starts_with("/kv/");
        Some(match head.method {
            Method::GET if is_item => Operation::Get,
            Method::HEAD if is_item => Operation::Head,
            Method::PUT if is_item => Operation::Put,
            Method::DELETE if is_item => Operation::Delete,
            Method::GET if path == "/kv" || path == "/v0/entities" => Operation::Scan,
            Method::POST if path == "/kv" => Operation::Batch,
            _ if is_of_files(path) => Operation::Files,
            _ => Operation::Other,
        })
    }

    /// `/v0/entity?id=K`.
    fn entity(&self, head: Head, body: Incoming) -> State {
        let Head { method, uri, headers } = head;
        if !matches!(method, Method::GET | Method::PUT | Method::DELETE | Method::HEAD) {
            return method_not_allowed(headers, "GET, HEAD, PUT, DELETE").into();
        }
        let key = Key::from_target(uri, true, |uri| first(uri.query(), "id"));
        let key = match check_key(key.unwrap_or(Ok(Key::Decoded(Vec::new())))) {
            Ok(key) => key,
            Err(problem) => return self.refuse(headers, problem),
        };
        match method {
            Method::GET => read::get_entity(&self.api, &self.link, headers, key).into(),
            Method::HEAD => read::head_entity(&self.api, headers, key).into(),
            Method::PUT => self.put(Mutation::entity(&self.api, Verb::Put, key, headers), body),
            _ => self.delete(Mutation::entity(&self.api, Verb::Delete, key, headers)),
        }
    }

    /// `/v0/entities?start=S[&end=E]`.
    fn entities(&self, head: Head) -> State {
        if head.method != Method::GET {
            return method_not_allowed(head.headers, "GET").into();
        }
        scan::entities(&self.api, &self.link, head.headers, head.uri.query()).into()
    }

    /// `/kv/{key}`.
    fn item(&self, head: Head, body: Incoming) -> State {
        let Head { method, uri, headers } = head;
        if !matches!(method, Method::GET | Method::PUT | Method::DELETE | Method::HEAD) {
            return method_not_allowed(headers, "GET, HEAD, PUT, DELETE").into();
        }
        if uri.query().is_some() {
            // A question mark that was meant as part of the key would silently name another key.
            return self.refuse(headers, bad_request("a key's question mark is written %3F"));
        }
        let key = Key::from_target(uri, false, |uri| uri.path().strip_prefix("/kv/"));
        let key = match check_key(key.unwrap_or(Ok(Key::Decoded(Vec::new())))) {
            Ok(key) => key,
            Err(problem) => return self.refuse(headers, problem),
        };
        let verb = match method {
            Method::GET => return read::get(&self.api, &self.link, headers, key).into(),
            Method::HEAD => return read::head(&self.api, headers, key).into(),
            Method::PUT => Verb::Put,
            _ => Verb::Delete,
        };
        match (Mutation::kv(&self.api, verb, key, headers), verb) {
            (Err(problem), _) => self.refuse(HeaderMap::new(), problem),
            (Ok(mutation), Verb::Put) => self.put(mutation, body),
            (Ok(mutation), Verb::Delete) => self.delete(mutation),
        }
    }

    /// `/kv`.
    fn collection(&self, head: Head, body: Incoming) -> State {
        let Head { method, uri, headers } = head;
        match method {
            Method::GET => scan::list(&self.api, &self.link, headers, uri.query()).into(),
            Method::POST => {
                let bytes_max = self.api.options.limits.batch_bytes_max;
                self.receive(Purpose::Batch(Batch::new(headers)), body, bytes_max)
            }
            _ => method_not_allowed(headers, "GET, POST").into(),
        }
    }

    /// `/files` and `/files/{name}`.
    fn files(&self, files: &FileStore, head: Head, body: Incoming) -> State {
        let Head { method, uri, headers } = head;
        let api = &self.api;
        if uri.path() == "/files" {
            return match method {
                Method::GET => files::list(api, files, &self.link, headers, uri.query()).into(),
                Method::POST => files::verify(api, files, &self.link, headers, uri.query()).into(),
                _ => method_not_allowed(headers, "GET, POST").into(),
            };
        }
        if !matches!(
            method,
            Method::GET | Method::PUT | Method::POST | Method::DELETE | Method::HEAD
        ) {
            return method_not_allowed(headers, "GET, HEAD, PUT, POST, DELETE").into();
        }
        let name = match files::name_of(&uri) {
            Ok(name) => name,
            Err(problem) => return self.refuse(headers, problem),
        };
        match method {
            Method::GET => files::get(api, files, &self.link, headers, name).into(),
            Method::HEAD => files::head(api, files, headers, name).into(),
            Method::PUT => files::put(api, files, &self.link, headers, name, body).into(),
            Method::POST => files::give(api, files, headers, name).into(),
            _ => files::delete(api, files, headers, name).into(),
        }
    }

    fn put(&self, mutation: Mutation, body: Incoming) -> State {
        let bytes_max = self.api.options.limits.value_bytes_max;
        self.receive(Purpose::Put(mutation), body, bytes_max)
    }

    fn receive(&self, purpose: Purpose, body: Incoming, bytes_max: u64) -> State {
        match upload::admit(&self.api, &self.link, &body, bytes_max) {
            Ok(()) => State::Receiving(Upload::new(body, bytes_max, purpose)),
            Err(problem) => self.refuse(HeaderMap::new(), problem),
        }
    }

    fn delete(&self, mutation: Mutation) -> State {
        match self.api.check_stall() {
            Ok(()) => mutation.perform(&self.api, bytes::Bytes::new(), None).into(),
            Err(problem) => self.refuse(HeaderMap::new(), problem),
        }
    }

    fn refuse(&self, headers: HeaderMap, problem: Problem) -> State {
        self.api.refuse(headers, problem).into()
    }
}

fn is_of_files(path: &str) -> bool {
    path == "/files" || path.starts_with("/files/")
}

fn check_key(key: Result<Key, BadEscape>) -> Result<Key, Problem> {
    let key = key.map_err(|BadEscape| BAD_ESCAPE)?;
    match key.as_slice().len() {
        0 => Err(bad_request("the key is missing or empty")),
        1..=KEY_BYTES_MAX => Ok(key),
        _ => Err(bad_request("the key is longer than 4,096 bytes")),
    }
}

fn readable(head: Head, answer: impl FnOnce(HeaderMap) -> Reply) -> State {
    match head.method {
        Method::GET | Method::HEAD => answer(head.headers).into(),
        _ => method_not_allowed(head.headers, "GET, HEAD").into(),
    }
}

/// The reply to one request, when it is there. Only what must wait is boxed.
pub(crate) struct Answering<E> {
    shared: Rc<Shared<E>>,
    started: Instant,
    is_http_10: bool,
    operation: Option<Operation>,
    state: State,
}

#[expect(clippy::large_enum_variant, reason = "it stands in the connection's one future slot")]
enum State {
    Ready(Option<Reply>),
    Receiving(Upload),
    Later(Pin<Box<dyn Future<Output = Reply>>>),
}

impl From<Reply> for State {
    fn from(reply: Reply) -> Self {
        State::Ready(Some(reply))
    }
}

impl From<Answer> for State {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Ready(reply) => State::Ready(Some(reply)),
            Answer::Later(reply) => State::Later(reply),
        }
    }
}

impl<E: Engine> Future for Answering<E> {
    type Output = Result<Reply, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { shared, started, is_http_10, operation, state } = &mut *self;
        let Shared { api, link, .. } = &**shared;
        let mut reply = loop {
            match state {
                State::Ready(reply) => break reply.take().expect("a reply is taken once"),
                State::Receiving(upload) => *state = ready!(upload.poll(api, link, cx)).into(),
                State::Later(reply) => break ready!(reply.as_mut().poll(cx)),
            }
        };
        if link.body_unread.get() {
            // Whether hyper could pass over the rest of the body depends on how much of it has come.
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if *is_http_10 && matches!(reply.body(), Body::Stream(_)) {
            link.ends_answer.set(true);
        }
        Link::add(&link.answered, 1);
        if let Some(operation) = *operation {
            let (status, took) = (reply.status().as_u16(), started.elapsed());
            api.meter.note(operation, status, took, link.take_unmetered());
        }
        Poll::Ready(Ok(reply))
    }
}
