//! What the layers of one connection tell one another: the byte filter below hyper, the service
//! above it, the watchdog beside it. All on one thread, so plain cells.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::task::Waker;

use socket2::Socket;

use crate::admission::Quotas;

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Idle, or not taking its answer: nothing more is said.
    Silently,
    /// A request is incomplete and unanswered: 408.
    MidRequest,
}

/// Shared state of one connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Request heads that passed the filter.
    pub(crate) heads: Cell<u64>,
    /// Requests that hyper handed to the service.
    pub(crate) started: Cell<u64>,
    /// Requests that the service has answered.
    pub(crate) answered: Cell<u64>,
    /// The request under way has a body that was not received whole.
    pub(crate) body_unread: Cell<bool>,
    /// A streamed body is being sent.
    pub(crate) streaming: Cell<bool>,
    /// The streamed body has its next piece ready, so a write may wait for it.
    pub(crate) piece_ready: Cell<bool>,
    /// Bytes read from and written to the socket.
    pub(crate) bytes_in: Cell<u64>,
    /// See `bytes_in`.
    pub(crate) bytes_out: Cell<u64>,
    /// Of those, the bytes that the meter knows of.
    pub(crate) metered: Cell<(u64, u64)>,
    /// The socket takes no more for now.
    pub(crate) write_blocked: Cell<bool>,
    /// The answer has neither length nor chunks, as HTTP/1.0 has none: the connection's end is its end.
    pub(crate) ends_answer: Cell<bool>,
    /// hyper asks for more, and the socket has nothing.
    pub(crate) read_blocked: Cell<bool>,
    /// The filter stands inside the body of the last request whose head passed.
    pub(crate) in_body: Cell<bool>,
    /// The filter holds the beginning of a head.
    pub(crate) in_head: Cell<bool>,
    /// The watchdog has seen enough. Whoever sets it wakes the task.
    pub(crate) expired: Cell<Option<Expired>>,
    /// Wakes the connection's task.
    pub(crate) waker: RefCell<Option<Waker>>,
    /// What the address of the client may hold; `None` is all there is.
    pub(crate) part: Option<Quotas>,
    /// Another handle of the socket, where something needs to know whether the client is still there.
    pub(crate) peer: OnceCell<Socket>,
}

impl Link {
    /// Whether a write may wait a moment, because hyper is certain to write more before it waits for
    /// anything: the next piece of a stream is ready, or a whole further request is, and the one before it was
    /// answered. While one is under way that waits for the disk, those behind it promise nothing.
    pub(crate) fn more_to_write(&self) -> bool {
        if self.streaming.get() {
            self.piece_ready.get()
        } else {
            let started = self.started.get();
            self.heads.get() > started && started == self.answered.get()
        }
    }

    /// Whether every request whose head passed was answered and nothing of another was received.
    pub(crate) fn is_settled(&self) -> bool {
        self.heads.get() == self.answered.get() && !self.in_body.get() && !self.in_head.get()
    }

    /// Bytes read and written since this was last asked.
    pub(crate) fn take_unmetered(&self) -> (u64, u64) {
        let now = (self.bytes_in.get(), self.bytes_out.get());
        let before = self.metered.replace(now);
        (now.0 - before.0, now.1 - before.1)
    }

    /// Whether the client has closed the connection, or its sending half. What it has sent ahead hides
    /// that, and without another handle nothing is known.
    pub(crate) fn peer_is_gone(&self) -> bool {
        let look = |socket: &Socket| socket.peek(&mut [MaybeUninit::uninit()]);
        match self.peer.get().map(look) {
            None => false,
            Some(Ok(count)) => count == 0,
            Some(Err(error)) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }

    /// Has the connection's task look at what has changed.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Adds to one of the counts.
    pub(crate) fn add(count: &Cell<u64>, amount: u64) {
        count.set(count.get() + amount);
    }
}
