//! Streams records of any number in flat memory.
//!
//! The engine is read on the pool, a batch at a time, and while one batch is sent the next is read:
//! two batches are all there is in memory, and a slow reader holds no thread. The first batch is read
//! before the reply begins, so that an error there still has a status; a later one cuts the connection,
//! with a reset where its end would pass for the end of the records (HTTP/1.0). Where there is no memory
//! for a large value, the first batch is refused and a later one waits, for as long as a body may be silent:
//! then the stream is cut.

use std::fmt::Display;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use tallybook::error::{Error, Result};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Sleep, sleep};

use crate::admission::Share;
use crate::api::{Answer, Api};
use crate::body::{Body, Interrupted, Piece, Pieces};
use crate::engine::Engine;
use crate::link::Link;
use crate::reply::{INTERNAL, OVERLOADED, reply};

/// A batch ends at the first record that takes it to this size.
pub(crate) const BATCH_BYTES: usize = 256 << 10;
/// How long a stream waits before it asks again whether there is memory.
const MEMORY_PAUSE: Duration = Duration::from_millis(20);

/// Reads records and writes them as pieces. `F` is how it fails.
pub(crate) trait Produce<F = Error>: Send {
    /// Adds about `BATCH_BYTES` of pieces; false at the end. None, and true, while there is no memory for
    /// the next one.
    fn fill(&mut self, pieces: &mut Vec<Piece>) -> Result<bool, F>;
}

/// Pieces that were read, who reads on, and whether there is more.
pub(crate) struct Batch<F = Error> {
    producer: Box<dyn Produce<F>>,
    pieces: Vec<Piece>,
    pub(crate) more: Result<bool, F>,
}

impl<F> Batch<F> {
    /// Whether there was no memory for a single piece.
    fn lacks_memory(&self) -> bool {
        self.pieces.is_empty() && matches!(self.more, Ok(true))
    }
}

/// Reads the next batch; blocks.
pub(crate) fn read_batch<F>(mut producer: Box<dyn Produce<F>>) -> Batch<F> {
    let mut pieces = Vec::new();
    let more = producer.fill(&mut pieces);
    Batch { producer, pieces, more }
}

/// Answers with what the producer that `open` makes has to give.
pub(crate) fn answer<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Rc<Link>,
    mut headers: HeaderMap,
    content_type: HeaderValue,
    open: impl FnOnce(&E) -> Result<Box<dyn Produce>> + Send + 'static,
) -> Answer {
    let Some(in_flight) = api.quotas_of(link).in_flight.try_take(1) else {
        return Answer::Ready(api.refuse(headers, OVERLOADED));
    };
    let (api, link) = (api.clone(), link.clone());
    Answer::Later(Box::pin(async move {
        let engine = api.engine.clone();
        let opened = spawn_blocking(move || open(&engine).map(read_batch)).await;
        let batch = match opened {
            Err(_) => return api.refuse(headers, INTERNAL),
            Ok(Err(error)) | Ok(Ok(Batch { more: Err(error), .. })) => {
                return api.engine_error(headers, &error);
            }
            Ok(Ok(batch)) if batch.lacks_memory() => return api.refuse(headers, OVERLOADED),
            Ok(Ok(batch)) => batch,
        };
        headers.clear();
        headers.insert(CONTENT_TYPE, content_type);
        let records = Records::new(link, batch, in_flight, api.memory_patience());
        reply(StatusCode::OK, headers, Body::Stream(Box::new(records)))
    }))
}

/// What comes after the batch that is being sent.
enum Next<F> {
    Reading(JoinHandle<Batch<F>>),
    /// Until there may be memory again.
    Pausing(Pin<Box<Sleep>>, Box<dyn Produce<F>>),
    Failed,
    End,
}

/// The pieces of batches that are read one ahead.
pub(crate) struct Records<F = Error> {
    link: Rc<Link>,
    pieces: std::vec::IntoIter<Piece>,
    next: Next<F>,
    in_flight: Arc<Share>,
    /// Since when there has been no memory for the next piece, and nothing has left: the moment, and the bytes
    /// that had.
    starving: Option<(Instant, u64)>,
    /// How long that may last: meanwhile the stream holds its share and a snapshot of the store.
    patience: Duration,
}

impl<F: Display + Send + 'static> Records<F> {
    pub(crate) fn new(
        link: Rc<Link>,
        batch: Batch<F>,
        in_flight: Share,
        patience: Duration,
    ) -> Records<F> {
        link.streaming.set(true);
        let mut records = Records {
            link,
            pieces: Vec::new().into_iter(),
            next: Next::End,
            in_flight: Arc::new(in_flight),
            starving: None,
            patience,
        };
        records.begin(batch);
        records
    }

    /// Takes up a batch and begins reading the one after it.
    fn begin(&mut self, batch: Batch<F>) {
        let lacks_memory = batch.lacks_memory();
        // Bytes that leave meanwhile are of the value before, which may hold what this one waits for.
        let sent = self.link.bytes_out.get();
        let still = self.starving.filter(|&(_, before)| before == sent);
        self.starving = lacks_memory.then(|| still.unwrap_or_else(|| (Instant::now(), sent)));
        let is_over = self.starving.is_some_and(|(since, _)| since.elapsed() >= self.patience);
        self.pieces = batch.pieces.into_iter();
        self.next = match batch.more {
            Ok(true) if is_over => {
                let patience = self.patience;
                tracing::warn!(
                    ?patience,
                    "a stream was cut: there was no memory for a large value"
                );
                Next::Failed
            }
            Ok(true) if lacks_memory => {
                Next::Pausing(Box::pin(sleep(MEMORY_PAUSE)), batch.producer)
            }
            Ok(true) => Next::Reading(spawn_blocking(move || read_batch(batch.producer))),
            Ok(false) => Next::End,
            Err(error) => {
                tracing::error!(%error, "a stream was cut");
                Next::Failed
            }
        };
    }
}

impl<F: Display + Send + 'static> Pieces for Records<F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, Interrupted>>> {
        loop {
            if let Some(piece) = self.pieces.next() {
                // hyper asks for the next piece once it has taken this one, without waiting for the
                // socket; so this one's bytes may wait for it.
                self.link.piece_ready.set(!self.pieces.as_slice().is_empty());
                return Poll::Ready(Some(Ok(piece.holding(&self.in_flight))));
            }
            self.link.piece_ready.set(false);
            match &mut self.next {
                Next::End => return Poll::Ready(None),
                Next::Failed => return Poll::Ready(Some(Err(Interrupted))),
                Next::Reading(task) => match ready!(Pin::new(task).poll(cx)) {
                    Ok(batch) => self.begin(batch),
                    Err(_) => self.next = Next::Failed,
                },
                Next::Pausing(pause, _) => {
                    ready!(pause.as_mut().poll(cx));
                    if let Next::Pausing(_, producer) =
                        std::mem::replace(&mut self.next, Next::Failed)
                    {
                        self.next = Next::Reading(spawn_blocking(move || read_batch(producer)));
                    }
                }
            }
        }
    }
}

impl<F> Drop for Records<F> {
    fn drop(&mut self) {
        self.link.streaming.set(false);
        self.link.piece_ready.set(false);
    }
}
