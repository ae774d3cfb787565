//! What hyper reads from and writes to: the socket, behind the scanner.
//!
//! Reading: bytes go from the socket straight into hyper's buffer and are scanned there; only an
//! unfinished head is taken back and held until its rest has come. Writing: goes straight to the
//! socket, unless more is certain to follow at once (`Link::more_to_write`), as in pipelining and in
//! streams of small records: then small writes are gathered. hyper's own `pipeline_flush` would copy
//! every value and gathers without a bound.
//!
//! hyper's shutdown only flushes. The connection ends in `finish`, which has the last word.
//!
//! Invariant: an answer whose end is the connection's is whole, or the connection is reset.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::StatusCode;
use hyper::rt::{Read, ReadBufCursor, Write};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::lines::{HeadLimits, Violation};
use super::origin::OriginRules;
use super::scanner::Scanner;
use crate::link::Link;
use crate::reply::{Problem, bad_request};

/// Writes are gathered up to this size.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Pieces of a write are copied together up to this size, which costs less than sending several.
const COPIED_BYTES_MAX: usize = 1 << 10;
/// Read at a time while a head is unfinished.
const HEAD_READ_BYTES: usize = 4 << 10;
/// After the last word, at most this much more is read, for at most this long.
const LINGER_BYTES_MAX: usize = 16 << 20;
const LINGER: Duration = Duration::from_secs(2);
/// How long the last word may take to leave.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// See the head of this file.
pub(crate) struct Wire {
    stream: TcpStream,
    link: Rc<Link>,
    scanner: Scanner,
    /// Bytes taken back: up to `held_released` hyper may see them, from `held_seen` it hasn't.
    held: Vec<u8>,
    held_seen: usize,
    held_released: usize,
    violation: Option<Violation>,
    /// hyper asked for a request and was told of the end because of the violation.
    violation_reached: bool,
    peer_done: bool,
    gathered: Vec<u8>,
    gathered_sent: usize,
    /// Closing the socket resets the connection.
    is_reset_by_close: bool,
}

impl Wire {
    pub(crate) fn new(
        stream: TcpStream,
        link: Rc<Link>,
        limits: HeadLimits,
        rules: Option<Arc<OriginRules>>,
    ) -> Wire {
        Wire {
            stream,
            link,
            scanner: Scanner::new(limits, rules),
            held: Vec::new(),
            held_seen: 0,
            held_released: 0,
            violation: None,
            violation_reached: false,
            peer_done: false,
            gathered: Vec::new(),
            gathered_sent: 0,
            is_reset_by_close: false,
        }
    }

    /// What the filter has to say, if every request before the offence was answered. An offence in a
    /// body is answered by the request's handler, which sees the body end early.
    pub(crate) fn refusal(&self) -> Option<Problem> {
        let in_body = self.scanner.in_body();
        if !self.violation_reached || in_body || self.link.heads.get() != self.link.answered.get() {
            return None;
        }
        let problem = |status, kind, message| Problem { status, kind, message };
        self.violation.map(|violation| match violation {
            Violation::Malformed(what) => bad_request(what),
            Violation::UriTooLong => problem(
                StatusCode::URI_TOO_LONG,
                "uri_too_long",
                "the request line is longer than the limit",
            ),
            Violation::HeadersTooLarge => problem(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                "the headers are more or longer than the limit",
            ),
            Violation::CrossOrigin => problem(
                StatusCode::FORBIDDEN,
                "cross_origin",
                "a web page of another origin asked for this, which only pages of this server may; \
                 a proxy in between must pass the Host on as it is",
            ),
            Violation::UnknownHost => problem(
                StatusCode::MISDIRECTED_REQUEST,
                "unknown_host",
                "this is no name of a server on loopback: ask by an address or localhost, or add the \
                 Host to the setting allowed-hosts",
            ),
        })
    }

    /// Sends what was gathered and the last words, ends the stream, and for a while reads what the
    /// peer was still sending: closing with unread bytes would reset the connection, and the peer
    /// could lose the answer.
    pub(crate) async fn finish(mut self, words: Option<String>) {
        let unread = words.is_some() || !self.link.is_settled();
        if let Some(words) = words {
            self.gathered.extend_from_slice(words.as_bytes());
        }
        let last_write = async {
            poll_fn(|cx| self.poll_send_gathered(cx)).await?;
            if self.is_reset_by_close {
                SockRef::from(&self.stream).set_linger(None)?;
            }
            self.stream.shutdown().await
        };
        if !matches!(tokio::time::timeout(LAST_WRITE, last_write).await, Ok(Ok(()))) {
            return;
        }
        if unread && !self.peer_done {
            let drained = async {
                let mut sink = [0u8; 4096];
                let mut total = 0;
                while total < LINGER_BYTES_MAX {
                    match self.stream.read(&mut sink).await {
                        Ok(0) | Err(_) => break,
                        Ok(count) => total += count,
                    }
                }
            };
            // Running out of time is the expected end with a peer that keeps its side open.
            let _ = tokio::time::timeout(LINGER, drained).await;
        }
    }

    /// Scans bytes that begin where the last scan's release ended; answers how many are released.
    fn scan(&mut self, bytes: ScanOf<'_>) -> usize {
        let input = match bytes {
            ScanOf::Held => &mut self.held[self.held_seen..],
            ScanOf::Fresh(fresh) => fresh,
        };
        let length = input.len();
        let scan = self.scanner.scan(input);
        Link::add(&self.link.heads, scan.heads);
        self.link.in_body.set(self.scanner.in_body());
        self.link.in_head.set(scan.release < length);
        self.violation = scan.violation;
        scan.release
    }

    /// Gives hyper what it may see.
    fn poll_read_released(
        &mut self,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.held_seen < self.held_released {
                let count = cursor.remaining().min(self.held_released - self.held_seen);
                cursor.put_slice(&self.held[self.held_seen..self.held_seen + count]);
                self.held_seen += count;
                return Poll::Ready(Ok(()));
            }
            if self.violation.is_some() || self.peer_done {
                self.violation_reached = self.violation.is_some();
                return Poll::Ready(Ok(()));
            }
            if self.held_seen == self.held.len() {
                self.held.clear();
                (self.held_seen, self.held_released) = (0, 0);
                if ready!(self.poll_read_direct(cx, &mut cursor))? {
                    return Poll::Ready(Ok(()));
                }
            } else {
                ready!(self.poll_read_held(cx))?;
            }
        }
    }

    /// Reads into hyper's buffer; true if something is released there, or the stream is at its end.
    fn poll_read_direct(
        &mut self,
        cx: &mut Context<'_>,
        cursor: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<bool>> {
        // SAFETY: the slice only goes into a `ReadBuf`, which never makes a byte of it uninitialized.
        let mut buffer = ReadBuf::uninit(unsafe { cursor.as_mut() });
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let filled = buffer.filled_mut();
        self.note_read(filled.len());
        let released = self.scan(ScanOf::Fresh(filled));
        let at_end = filled.is_empty();
        if self.violation.is_none() {
            self.held.extend_from_slice(&filled[released..]);
        }
        // SAFETY: `released` is at most the number of bytes the `ReadBuf` knows to be filled.
        unsafe { cursor.advance(released) };
        Poll::Ready(Ok(released > 0 || at_end))
    }

    /// Reads behind the unfinished head that is held.
    fn poll_read_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.held.drain(..self.held_seen);
        (self.held_seen, self.held_released) = (0, 0);
        let length = self.held.len();
        self.held.resize(length + HEAD_READ_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut self.held[length..]);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        self.held.truncate(length + count);
        ready!(polled)?;
        self.note_read(count);
        self.held_released = self.scan(ScanOf::Held);
        Poll::Ready(Ok(()))
    }

    fn note_read(&mut self, count: usize) {
        self.peer_done = count == 0;
        Link::add(&self.link.bytes_in, count as u64);
    }

    /// Has the connection reset by whoever closes it before `finish` does, be it the system after a kill.
    fn reset_by_close(&mut self) {
        match self.stream.set_zero_linger() {
            Ok(()) => self.is_reset_by_close = true,
            Err(error) => tracing::debug!(%error, "a cut answer would look whole"),
        }
    }

    fn poll_send_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.gathered_sent < self.gathered.len() {
            let unsent = &self.gathered[self.gathered_sent..];
            let sent = Pin::new(&mut self.stream).poll_write(cx, unsent);
            self.gathered_sent += ready!(self.note_sent(sent))?;
        }
        self.gathered.clear();
        self.gathered_sent = 0;
        Poll::Ready(Ok(()))
    }

    fn note_sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.link.write_blocked.set(sent.is_pending());
        match sent {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => {
                Link::add(&self.link.bytes_out, count as u64);
                Poll::Ready(Ok(count))
            }
            other => other,
        }
    }
}

enum ScanOf<'a> {
    Held,
    Fresh(&'a mut [u8]),
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = this.poll_read_released(cx, cursor);
        this.link.read_blocked.set(read.is_pending());
        read
    }
}

impl Write for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.link.ends_answer.get() && !this.is_reset_by_close {
            this.reset_by_close();
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let gather = !this.gathered.is_empty() || this.link.more_to_write();
        if gather && this.gathered.len() + total <= GATHERED_BYTES_MAX {
            slices.iter().for_each(|slice| this.gathered.extend_from_slice(slice));
            return Poll::Ready(Ok(total));
        }
        ready!(this.poll_send_gathered(cx))?;
        let stream = Pin::new(&mut this.stream);
        let sent = match slices {
            [one] => stream.poll_write(cx, one),
            _ if total <= COPIED_BYTES_MAX => {
                // Nothing is gathered any more, and what isn't sent here is offered again.
                slices.iter().for_each(|slice| this.gathered.extend_from_slice(slice));
                let sent = stream.poll_write(cx, &this.gathered);
                this.gathered.clear();
                sent
            }
            _ => stream.poll_write_vectored(cx, slices),
        };
        this.note_sent(sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.gathered.is_empty() || this.link.more_to_write() {
            return Poll::Ready(Ok(()));
        }
        this.poll_send_gathered(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send_gathered(cx)
    }
}
