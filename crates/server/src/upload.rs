//! Receives the body of a write, within the limits on size and memory.
//!
//! 1. What is too long by its Content-Length, or comes while the engine stalls or memory is short,
//!    is refused before the body is read.
//! 2. A body that is already in memory goes to the engine as it is, without a copy.
//! 3. Any other is collected, counted against the limit and the memory as it arrives.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::HeaderMap;
use hyper::body::Incoming;

use crate::admission::Share;
use crate::api::{Answer, Api};
use crate::batch::Batch;
use crate::engine::Engine;
use crate::link::Link;
use crate::reply::{OVERLOADED, Problem, TOO_LARGE, bad_request};
use crate::write::Mutation;

/// Room made for a collected body at first; it grows with what arrives.
const COLLECT_BYTES_MIN: usize = 64 << 10;

/// What a body is for.
#[expect(
    clippy::large_enum_variant,
    reason = "one stands in each connection's future, not in a collection"
)]
pub(crate) enum Purpose {
    /// The value of a key.
    Put(Mutation),
    /// A batch.
    Batch(Batch),
}

impl Purpose {
    fn perform<E: Engine>(self, api: &Arc<Api<E>>, body: Bytes, memory: Option<Share>) -> Answer {
        match self {
            Purpose::Put(mutation) => mutation.perform(api, body, memory),
            Purpose::Batch(batch) => batch.perform(api, body, memory),
        }
    }
}

/// A request whose body is being waited for.
pub(crate) struct Upload<E> {
    api: Arc<Api<E>>,
    link: Rc<Link>,
    bytes_max: u64,
    awaited: Option<(Incoming, Purpose)>,
}

/// What to do before a body is read.
pub(crate) fn admit<E: Engine>(
    api: &Api<E>,
    body: &Incoming,
    bytes_max: u64,
) -> Result<(), Problem> {
    let announced = body.size_hint().lower();
    if announced > bytes_max {
        return Err(TOO_LARGE);
    }
    api.check_stall()?;
    let announced = usize::try_from(announced).map_err(|_| TOO_LARGE)?;
    if !api.body_memory.has_room_for(announced) {
        return Err(OVERLOADED);
    }
    Ok(())
}

impl<E: Engine> Upload<E> {
    pub(crate) fn new(
        api: Arc<Api<E>>,
        link: Rc<Link>,
        body: Incoming,
        bytes_max: u64,
        purpose: Purpose,
    ) -> Upload<E> {
        Upload { api, link, bytes_max, awaited: Some((body, purpose)) }
    }

    /// Waits for the first bytes, then answers or says where the answer will come from.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        let taken_once = "an upload is polled to its answer once";
        let (body, _) = self.awaited.as_mut().expect(taken_once);
        let first = if body.is_end_stream() { None } else { ready!(poll_data(body, cx)) };
        let (body, purpose) = self.awaited.take().expect(taken_once);
        Poll::Ready(match first {
            None => self.received(purpose, Bytes::new()),
            Some(Err(problem)) => self.refuse(problem),
            // The bytes are a slice of the connection's buffer, which is bounded by itself.
            Some(Ok(first)) if body.is_end_stream() => self.received(purpose, first),
            Some(Ok(first)) => self.collect(body, purpose, first),
        })
    }

    fn received(&self, purpose: Purpose, body: Bytes) -> Answer {
        self.link.body_unread.set(false);
        purpose.perform(&self.api, body, None)
    }

    fn refuse(&self, problem: Problem) -> Answer {
        Answer::Ready(self.api.refuse(HeaderMap::new(), problem))
    }

    fn collect(&self, body: Incoming, purpose: Purpose, first: Bytes) -> Answer {
        let Some(in_flight) = self.api.in_flight.try_take(1) else {
            return self.refuse(OVERLOADED);
        };
        let (api, link, bytes_max) = (self.api.clone(), self.link.clone(), self.bytes_max);
        Answer::Later(Box::pin(async move {
            let collected = collect(&api, body, bytes_max, first).await;
            drop(in_flight);
            match collected {
                Ok((body, memory)) => {
                    link.body_unread.set(false);
                    purpose.perform(&api, body, Some(memory)).wait().await
                }
                Err(problem) => api.refuse(HeaderMap::new(), problem),
            }
        }))
    }
}

async fn collect<E: Engine>(
    api: &Api<E>,
    mut body: Incoming,
    bytes_max: u64,
    first: Bytes,
) -> Result<(Bytes, Share), Problem> {
    let mut memory = api.body_memory.try_take(0).ok_or(OVERLOADED)?;
    let mut collected = BytesMut::with_capacity(COLLECT_BYTES_MIN.max(first.len()));
    let mut next = Some(Ok(first));
    while let Some(data) = next {
        let data = data?;
        if (collected.len() + data.len()) as u64 > bytes_max {
            return Err(TOO_LARGE);
        }
        if !memory.try_grow(data.len()) {
            return Err(OVERLOADED);
        }
        collected.extend_from_slice(&data);
        drop(data);
        next = poll_fn(|cx| poll_data(&mut body, cx)).await;
    }
    Ok((collected.freeze(), memory))
}

/// The next bytes of a body; trailers are passed over.
pub(crate) fn poll_data(
    body: &mut Incoming,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, Problem>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(_)) => {
                return Poll::Ready(Some(Err(bad_request("the body is incomplete or malformed"))));
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}
