//! A bare hyper server that answers a constant: what any server in Rust can reach at most.
//!
//! It stores nothing, unless it is asked to answer from a hash map in memory: the least that a store can be. For
//! tests of the generator it can pause once, and delay every answer by a known time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::error::{Error, Result};
use crate::keys::KeyNumber;
use crate::spec::Spec;

/// Timers count in milliseconds, so the rest of a delay is spent looking at the clock.
const TIMER: Duration = Duration::from_millis(2);
/// Room for what is read at once.
const READ_BYTES: usize = 16 << 10;

/// How a bare server answers.
#[derive(Debug, Clone)]
pub struct BareOptions {
    /// Where it listens. Default: a free port of loopback.
    pub listen: SocketAddr,
    /// Threads, each with a runtime of its own. Default 2.
    pub threads: usize,
    /// Bytes of every value. Default 100.
    pub body_bytes: usize,
    /// How many prefilled keys, of a spec's usual length, a hash map holds, which then has the values of gets
    /// and heads, and takes those of puts. Default none: each answer is the constant.
    pub keys: u64,
    /// By how much every answer is delayed. Default not at all.
    pub delay: Duration,
    /// When, after the first request, it pauses once, and for how long. Default never.
    pub pause: Option<(Duration, Duration)>,
}

impl Default for BareOptions {
    fn default() -> Self {
        BareOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: 2,
            body_bytes: 100,
            keys: 0,
            delay: Duration::ZERO,
            pause: None,
        }
    }
}

/// A bare server that runs until it is dropped.
#[derive(Debug)]
pub struct Bare {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Bare {
    /// Starts one.
    pub fn start(options: BareOptions) -> Result<Bare> {
        let listener = StdListener::bind(options.listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(Error::io(format!("listen on {}", options.listen)))?;
        let address = listener.local_addr().map_err(Error::io("local address"))?;
        let (stop, stopped) = watch::channel(false);
        let answers = Arc::new(Answers::new(&options));
        let mut bare = Bare { address, stop, threads: Vec::new() };
        let mut inboxes = Vec::new();
        for _ in 0..options.threads.max(1) {
            let (inbox, arrivals) = mpsc::unbounded_channel();
            inboxes.push(inbox);
            let (answers, stopped) = (answers.clone(), stopped.clone());
            bare.spawn("bare", serve(arrivals, answers, stopped))?;
        }
        bare.spawn("bare-accept", accept(listener, inboxes, stopped))?;
        Ok(bare)
    }

    fn spawn(&mut self, name: &str, work: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::io("runtime"))?;
        let local = move || {
            let tasks = tokio::task::LocalSet::new();
            runtime.block_on(tasks.run_until(work));
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(local);
        self.threads.push(thread.map_err(Error::io("thread"))?);
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for its end, which comes only when something kills it.
    pub fn wait(mut self) {
        for thread in self.threads.drain(..) {
            // It panics only by a bug, and has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Accepts, and hands connections to the threads in turn, so that they have equally many.
async fn accept(
    listener: StdListener,
    inboxes: Vec<mpsc::UnboundedSender<StdStream>>,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    for inbox in inboxes.iter().cycle() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        match accepted.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => drop(inbox.send(stream)),
            // Out of descriptors, most likely.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve(
    mut arrivals: mpsc::UnboundedReceiver<StdStream>,
    answers: Arc<Answers>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let stream = tokio::select! {
            stream = arrivals.recv() => stream,
            _ = stopped.changed() => None,
        };
        let Some(stream) = stream else { return };
        let Ok(stream) = stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream)) else {
            continue;
        };
        let answers = answers.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| answers.answer(request));
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .pipeline_flush(true)
                .serve_connection(Io::new(stream), service);
            // How a connection ends is the client's affair.
            let _ = connection.await;
        });
    }
}

/// What is answered, and how late.
#[derive(Debug)]
struct Answers {
    value: Bytes,
    values: Option<RwLock<HashMap<Vec<u8>, Bytes>>>,
    delay: Duration,
    pause: Option<(Duration, Duration)>,
    first_at: Mutex<Option<Instant>>,
}

impl Answers {
    fn new(options: &BareOptions) -> Answers {
        let value = vec![b'x'; options.body_bytes];
        let shape = Spec::default().key_shape();
        let entry = |index| {
            let mut key = Vec::new();
            shape.write(KeyNumber::present(index), &mut key);
            (key, Bytes::from(value.clone()))
        };
        Answers {
            values: (options.keys > 0).then(|| RwLock::new((0..options.keys).map(entry).collect())),
            value: Bytes::from(value),
            delay: options.delay,
            pause: options.pause,
            first_at: Mutex::new(None),
        }
    }

    /// What is answered to a query of `id=KEY`.
    fn find(&self, query: Option<&str>) -> Option<Bytes> {
        match &self.values {
            None => Some(self.value.clone()),
            Some(values) => {
                let values = values.read().unwrap_or_else(PoisonError::into_inner);
                values.get(key_of(query)?).cloned()
            }
        }
    }

    /// Takes a value, if there is a map for it.
    fn take(&self, query: Option<&str>, value: Bytes) {
        if let (Some(values), Some(key)) = (&self.values, key_of(query)) {
            values.write().unwrap_or_else(PoisonError::into_inner).insert(key.to_vec(), value);
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> std::result::Result<Response<Value>, Infallible> {
        let (status, value) = match *request.method() {
            Method::GET | Method::HEAD => match self.find(request.uri().query()) {
                Some(value) => (StatusCode::OK, value),
                None => (StatusCode::NOT_FOUND, Bytes::new()),
            },
            Method::PUT => (StatusCode::CREATED, Bytes::new()),
            Method::DELETE => (StatusCode::ACCEPTED, Bytes::new()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        };
        let came = Instant::now();
        let is_kept = self.values.is_some() && *request.method() == Method::PUT;
        let (head, mut body) = request.into_parts();
        // A copy, so that what is kept keeps no connection's buffer.
        let mut kept = Vec::new();
        if !body.is_end_stream() {
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                if let Some(piece) = frame.data_ref().filter(|_| is_kept) {
                    kept.extend_from_slice(piece);
                }
            }
        }
        if is_kept {
            self.take(head.uri.query(), Bytes::from(kept));
        }
        if !self.delay.is_zero() {
            wait_until(came + self.delay).await;
        }
        if let Some((after, pause)) = self.pause {
            let first =
                *self.first_at.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(came);
            if (first + after..first + after + pause).contains(&Instant::now()) {
                wait_until(first + after + pause).await;
            }
        }
        let mut response = Response::new(Value(Some(value)));
        *response.status_mut() = status;
        Ok(response)
    }
}

/// The key in a query of `id=KEY`.
fn key_of(query: Option<&str>) -> Option<&[u8]> {
    Some(query?.strip_prefix("id=")?.as_bytes())
}

async fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > TIMER {
        tokio::time::sleep(left - TIMER).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}

/// A body of one piece.
struct Value(Option<Bytes>);

impl Body for Value {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().filter(|value| !value.is_empty()).map(|v| Ok(Frame::data(v))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// A socket as hyper wants it.
struct Io {
    stream: TcpStream,
    buffer: Box<[u8]>,
}

impl Io {
    fn new(stream: TcpStream) -> Io {
        Io { stream, buffer: vec![0; READ_BYTES].into_boxed_slice() }
    }
}

impl hyper::rt::Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Io { stream, buffer } = self.get_mut();
        let room = into.remaining().min(buffer.len());
        let mut read = ReadBuf::new(&mut buffer[..room]);
        std::task::ready!(tokio::io::AsyncRead::poll_read(Pin::new(stream), cx, &mut read))?;
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }
}
