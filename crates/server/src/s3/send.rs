//! Sends the bytes of an object: a few chunks are sent while the next are read on the pool.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use s3s::StdError;
use s3s::stream::{ByteStream, RemainingLength};
use tallybook_files::{Reader, Result};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::files::Unnamed;
use crate::stream::BATCH_BYTES;

/// Chunks that were read, and the reader if there may be more.
pub(crate) struct Batch {
    chunks: VecDeque<Bytes>,
    reader: Option<Reader>,
}

/// Reads the next chunks; blocks.
pub(crate) fn read_batch(mut reader: Reader) -> Result<Batch> {
    let mut chunks = VecDeque::new();
    let mut bytes = 0;
    while bytes < BATCH_BYTES {
        let Some(chunk) = reader.next_chunk()? else {
            return Ok(Batch { chunks, reader: None });
        };
        bytes += chunk.len();
        chunks.push_back(chunk);
    }
    Ok(Batch { chunks, reader: Some(reader) })
}

/// The bytes of an object as a stream. An error ends it early, which the announced length shows.
pub(crate) struct Sending {
    chunks: VecDeque<Bytes>,
    next: Option<JoinHandle<Result<Batch>>>,
    left: u64,
}

impl Sending {
    pub(crate) fn new(batch: Batch, length: u64) -> Sending {
        let mut sending = Sending { chunks: VecDeque::new(), next: None, left: length };
        sending.begin(batch);
        sending
    }

    fn begin(&mut self, batch: Batch) {
        self.chunks = batch.chunks;
        self.next = batch.reader.map(|reader| spawn_blocking(move || read_batch(reader)));
    }
}

impl Stream for Sending {
    type Item = std::result::Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                self.left = self.left.saturating_sub(chunk.len() as u64);
                return Poll::Ready(Some(Ok(chunk)));
            }
            let Some(task) = &mut self.next else { return Poll::Ready(None) };
            let read = ready!(Pin::new(task).poll(cx));
            self.next = None;
            match read {
                Ok(Ok(batch)) => self.begin(batch),
                Ok(Err(error)) => {
                    let error = Unnamed(error);
                    tracing::error!(%error, "an object's body was cut");
                    return Poll::Ready(Some(Err(error.to_string().into())));
                }
                Err(panicked) => return Poll::Ready(Some(Err(panicked.into()))),
            }
        }
    }
}

impl ByteStream for Sending {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}
