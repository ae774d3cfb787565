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

use crate::admission::{Quota, Share};
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
pub(crate) struct Upload {
    bytes_max: u64,
    awaited: Option<(Incoming, Purpose)>,
}

/// What to do before a body is read.
pub(crate) fn admit<E: Engine>(
    api: &Api<E>,
    link: &Link,
    body: &Incoming,
    bytes_max: u64,
) -> Result<(), Problem> {
    let announced = body.size_hint().lower();
    if announced > bytes_max {
        return Err(TOO_LARGE);
    }
    api.check_stall()?;
    let announced = usize::try_from(announced).map_err(|_| TOO_LARGE)?;
    if !api.quotas_of(link).body_memory.has_room_for(announced) {
        return Err(OVERLOADED);
    }
    Ok(())
}

impl Upload {
    pub(crate) fn new(body: Incoming, bytes_max: u64, purpose: Purpose) -> Upload {
        Upload { bytes_max, awaited: Some((body, purpose)) }
    }

    /// Waits for the first bytes, then answers or says where the answer will come from.
    pub(crate) fn poll<E: Engine>(
        &mut self,
        api: &Arc<Api<E>>,
        link: &Rc<Link>,
        cx: &mut Context<'_>,
    ) -> Poll<Answer> {
        let taken_once = "an upload is polled to its answer once";
        let (body, _) = self.awaited.as_mut().expect(taken_once);
        let first = if body.is_end_stream() { None } else { ready!(poll_data(body, cx)) };
        let (body, purpose) = self.awaited.take().expect(taken_once);
        let whole = match first {
            None => Bytes::new(),
            Some(Err(problem)) => return Poll::Ready(refuse(api, problem)),
            // The bytes are a slice of the connection's buffer, which is bounded by itself.
            Some(Ok(first)) if body.is_end_stream() => first,
            Some(Ok(first)) => {
                return Poll::Ready(self.collect(api, link, (body, first), purpose));
            }
        };
        link.body_unread.set(false);
        Poll::Ready(purpose.perform(api, whole, None))
    }

    fn collect<E: Engine>(
        &self,
        api: &Arc<Api<E>>,
        link: &Rc<Link>,
        (body, first): (Incoming, Bytes),
        purpose: Purpose,
    ) -> Answer {
        let Some(in_flight) = api.quotas_of(link).in_flight.try_take(1) else {
            return refuse(api, OVERLOADED);
        };
        let (api, link, bytes_max) = (api.clone(), link.clone(), self.bytes_max);
        Answer::Later(Box::pin(async move {
            let memory = &api.quotas_of(&link).body_memory;
            let collected = collect(memory, body, bytes_max, first).await;
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

fn refuse<E: Engine>(api: &Api<E>, problem: Problem) -> Answer {
    Answer::Ready(api.refuse(HeaderMap::new(), problem))
}

async fn collect(
    memory: &Arc<Quota>,
    mut body: Incoming,
    bytes_max: u64,
    first: Bytes,
) -> Result<(Bytes, Share), Problem> {
    let mut memory = memory.try_take(0).ok_or(OVERLOADED)?;
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
