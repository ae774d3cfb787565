//! The body of a reply: nothing, bytes that are there, or records that are still being read.
//!
//! Each piece of a streamed body becomes one chunk on the wire. A piece is two slices so that a
//! large value goes out behind its key without being copied.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::admission::Share;
use crate::value_memory::{SMALL_VALUE_BYTES_MAX, counted};

/// Two slices that are sent as one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Piece {
    first: Bytes,
    second: Bytes,
}

impl Piece {
    pub(crate) fn new(first: Bytes, second: Bytes) -> Piece {
        Piece { first, second }
    }

    /// The same, with which `share` is held if it is large.
    pub(crate) fn holding(self, share: &Arc<Share>) -> Piece {
        let hold = |bytes: Bytes| match bytes.len() {
            ..=SMALL_VALUE_BYTES_MAX => bytes,
            _ => counted(bytes, share.clone()),
        };
        Piece { first: hold(self.first), second: hold(self.second) }
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Piece {
        Piece { first: bytes, second: Bytes::new() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.first.len() + self.second.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.first.is_empty() { &self.second } else { &self.first }
    }

    fn advance(&mut self, count: usize) {
        let from_first = count.min(self.first.len());
        self.first.advance(from_first);
        self.second.advance(count - from_first);
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = [&self.first, &self.second].into_iter().filter(|part| !part.is_empty());
        slices.iter_mut().zip(parts).map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }
}

/// Why a streamed body ended before its end: the connection is cut, so that the reader sees it.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream was interrupted by an engine error")
    }
}

impl std::error::Error for Interrupted {}

/// A source of pieces.
pub(crate) trait Pieces: Unpin {
    /// The next piece, `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, Interrupted>>>;
}

/// The body of a reply.
pub(crate) enum Body {
    /// Nothing.
    Empty,
    /// These bytes, with their length announced.
    Full(Bytes),
    /// Pieces, each sent as one chunk.
    Stream(Box<dyn Pieces>),
    /// Pieces that are so many bytes together, whose length is announced.
    Sized(Box<dyn Pieces>, u64),
}

impl HttpBody for Body {
    type Data = Piece;
    type Error = Interrupted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Interrupted>>> {
        let this = self.get_mut();
        match this {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) => {
                let piece = Piece::from(std::mem::take(bytes));
                *this = Body::Empty;
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Body::Stream(pieces) | Body::Sized(pieces, _) => {
                pieces.poll_next(cx).map(|next| next.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Full(bytes) => bytes.is_empty(),
            Body::Stream(_) => false,
            Body::Sized(_, length) => *length == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(_) => SizeHint::default(),
            Body::Sized(_, length) => SizeHint::with_exact(*length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_reads_as_its_two_parts_in_order() {
        let mut piece = Piece::new(Bytes::from_static(b"key\n"), Bytes::from_static(b"value"));
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(piece.chunks_vectored(&mut slices), 2);
        assert_eq!(piece.remaining(), 9);
        piece.advance(5);
        assert_eq!(piece.chunk(), b"alue");
        assert_eq!(piece.copy_to_bytes(4), "alue");
        assert!(!piece.has_remaining());
    }
}
