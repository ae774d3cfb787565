//! One connection, from its first byte to its last.
//!
//! 1. hyper reads requests through the filter and writes replies, until either side is done.
//! 2. Meanwhile the watchdog may end it, and a drain tells hyper to end after the request under way.
//! 3. What only the end can say is said, and counted: the filter's refusal, or that time ran out.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use hyper::server::conn::http1;
use tokio::net::TcpStream;

use crate::api::Api;
use crate::engine::Engine;
use crate::link::{Expired, Link};
use crate::reply::{TIMED_OUT, last_words};
use crate::service::{Listener, Requests, Way};
use crate::strict::{HeadLimits, Wire};

/// hyper's buffer for reading and for unsent replies; bounds what a connection can hold.
const BUFFER_BYTES_MAX: usize = 128 << 10;
/// Header fields hyper has room for without allocating.
const HYPER_HEADERS: usize = 100;

/// The settings of hyper's side, shared by all connections.
pub(crate) fn protocol(header_count_max: usize) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(true)
        // A client that sends its requests and closes its side still gets the answers.
        .half_close(true)
        // The watchdog times heads: hyper's timer would end idle connections too.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES_MAX);
    if header_count_max > HYPER_HEADERS {
        builder.max_headers(header_count_max);
    }
    builder
}

/// Why hyper's part is over.
enum Ending {
    Done(hyper::Result<()>),
    Expired(Expired),
}

/// Serves a connection to its end. `draining` tells whether the server is stopping; a change of it is
/// noticed when the waker in `link` is woken.
pub(crate) async fn serve<E: Engine>(
    stream: TcpStream,
    api: Arc<Api<E>>,
    link: Rc<Link>,
    way: Way,
    protocol: &http1::Builder,
    draining: &Cell<bool>,
) {
    let limits = HeadLimits {
        request_line_bytes_max: api.options.limits.request_line_bytes_max,
        header_bytes_max: api.options.limits.header_bytes_max,
        header_count_max: api.options.limits.header_count_max,
    };
    if way.listener == Listener::Admin
        && let Ok(handle) = stream.as_fd().try_clone_to_owned()
    {
        // Without it a profile goes on until its time is over, whoever waits for it.
        let _ = link.peer.set(handle.into());
    }
    let wire = Wire::new(stream, link.clone(), limits, way.rules);
    let requests = Requests::new(api.clone(), link.clone(), (way.listener, way.door));
    let mut connection = protocol.serve_connection(wire, requests);
    let mut told_to_end = false;

    let ending = poll_fn(|cx| {
        if link.waker.borrow().is_none() {
            *link.waker.borrow_mut() = Some(cx.waker().clone());
        }
        if !told_to_end && draining.get() {
            told_to_end = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(done) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Ending::Done(done));
        }
        match link.expired.get() {
            Some(expired) => Poll::Ready(Ending::Expired(expired)),
            None => Poll::Pending,
        }
    })
    .await;

    // Taking hyper apart drops a request that is still being answered.
    let wire = connection.into_parts().io;
    let problem = match ending {
        Ending::Expired(Expired::Silently) => {
            tracing::debug!("connection idle or stuck too long");
            return;
        }
        Ending::Expired(Expired::MidRequest) => Some(TIMED_OUT),
        Ending::Done(done) => {
            if let Err(error) = done {
                tracing::debug!(%error, "connection ended early");
                if link.ends_answer.get() {
                    // An end in order would tell the client that it has the whole answer.
                    return;
                }
            }
            wire.refusal()
        }
    };
    if let Some(problem) = problem
        && way.listener != Listener::Admin
    {
        api.meter.note_refusal(problem.status.as_u16());
    }
    let form = way.listener.form();
    wire.finish(problem.map(|problem| last_words(problem, form, None))).await;
}
