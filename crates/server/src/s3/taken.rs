//! A request's body on its way to `s3s`, which is told by what it fails there and here, and whether it was taken
//! whole.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::http::request::Parts;
use parking_lot::Mutex;
use s3s::StdError;

use super::chunks::{BadChunk, Chunks};
use super::refusal::Refusal;
use crate::admission::{Quota, Share};

/// Signed chunks up to here count with what receives them.
const UNCOUNTED_BYTES_MAX: u64 = 256 << 10;

const TOO_LARGE: Refusal =
    Refusal::bad_request("InvalidRequest", "A chunk with a signature may have 16 MiB at most.");

/// What is known of a body once it was, or was to be, read.
#[derive(Default)]
pub(crate) struct Told {
    is_taken: AtomicBool,
    refusal: Mutex<Option<Refusal>>,
}

impl Told {
    /// Whether all of the body was received.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }

    /// What the answer is, whatever `s3s` made of the error that the body ended in.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal.lock().take()
    }
}

/// A body as `s3s` gets it.
pub(crate) struct Taken<B> {
    body: B,
    chunks: Option<Chunks>,
    /// What `s3s` gets before more is asked for.
    passed: VecDeque<Bytes>,
    memory: Arc<Quota>,
    /// For the chunk that `s3s` holds.
    share: Option<(Share, u64)>,
    told: Arc<Told>,
}

impl<B: HttpBody<Data = Bytes>> Taken<B> {
    pub(crate) fn new(request: &Parts, body: B, memory: Arc<Quota>, told: Arc<Told>) -> Taken<B> {
        let hash =
            request.headers.get("x-amz-content-sha256").map_or(&b""[..], |hash| hash.as_bytes());
        let is_signed = hash != b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        let chunks = hash.starts_with(b"STREAMING-").then(|| Chunks::new(is_signed));
        Taken { body, chunks, passed: VecDeque::new(), memory, share: None, told }
    }

    /// Ends the body in an error, and the answer in this.
    fn refuse(&self, refusal: Refusal) -> StdError {
        *self.told.refusal.lock() = Some(refusal);
        "the body was refused".into()
    }

    /// Takes bytes of chunks; `None` is the end.
    fn take_chunks(&mut self, bytes: Option<Bytes>) -> Result<(), StdError> {
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        let Some(bytes) = bytes else {
            return if chunks.has_ended() { Ok(()) } else { Err("a chunk is missing".into()) };
        };
        match chunks.push(bytes, &mut self.passed) {
            Ok(()) => {}
            Err(BadChunk::Malformed) => return Err("a chunk is malformed".into()),
            Err(BadChunk::TooLarge) => return Err(self.refuse(TOO_LARGE)),
        }
        let is_held = chunks.is_signed() && chunks.chunk_bytes() > UNCOUNTED_BYTES_MAX;
        let held = if is_held { chunks.chunk_bytes() } else { 0 };
        if held == self.share.as_ref().map_or(0, |share| share.1) {
            return Ok(());
        }
        self.share = None;
        if held > 0 {
            let amount = usize::try_from(held).unwrap_or(usize::MAX);
            let Some(share) = self.memory.try_take_at_most(amount) else {
                return Err(self.refuse(Refusal::SLOW_DOWN));
            };
            self.share = Some((share, held));
        }
        Ok(())
    }
}

impl<B> HttpBody for Taken<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.passed.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            if frame.is_none() || this.body.is_end_stream() {
                this.told.is_taken.store(true, Relaxed);
            }
            let frame = frame.transpose().map_err(Into::into)?;
            if this.chunks.is_none() {
                return Poll::Ready(frame.map(Ok));
            }
            let is_end = frame.is_none();
            // Trailers of HTTP's own frames say nothing.
            let bytes = frame.map(|frame| frame.into_data().unwrap_or_default());
            this.take_chunks(bytes)?;
            if is_end {
                return Poll::Ready(None);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.chunks.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use hyper::Request;

    use super::*;

    /// A body that comes in these frames, and ends in an error where one is `None`.
    struct Frames(VecDeque<Option<Bytes>>);

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = StdError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
            let frame = self.0.pop_front();
            Poll::Ready(frame.map(|frame| frame.map(Frame::data).ok_or_else(|| "gone".into())))
        }

        fn size_hint(&self) -> SizeHint {
            let bytes = |frame: &Option<Bytes>| frame.as_ref().map_or(1, Bytes::len) as u64;
            SizeHint::with_exact(self.0.iter().map(bytes).sum())
        }
    }

    fn frames(body: &[u8], frame_bytes: usize) -> Frames {
        Frames(body.chunks(frame_bytes).map(|frame| Some(Bytes::copy_from_slice(frame))).collect())
    }

    fn parts(hash: &str) -> Parts {
        let request = Request::put("/bucket/key").header("x-amz-content-sha256", hash);
        request.body(()).unwrap().into_parts().0
    }

    /// The next bytes; an error is what it says.
    fn next(body: &mut Taken<Frames>) -> Option<Result<Bytes, String>> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(next) = polled else { panic!("nothing is waited for") };
        next.map(|next| next.map(|frame| frame.into_data().unwrap()).map_err(|e| e.to_string()))
    }

    fn read(body: &mut Taken<Frames>) -> Result<Vec<u8>, String> {
        std::iter::from_fn(|| next(body)).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
    }

    #[test]
    fn unsigned_chunks_are_made_as_large_as_frames() {
        let body = [b"a00000\r\n", &[7; 10 << 20][..], b"\r\n0\r\nx-a:b\r\n\r\n"].concat();
        let told = Arc::<Told>::default();
        let parts = parts("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        let memory = Quota::new(0);
        let mut taken = Taken::new(&parts, frames(&body, 64 << 10), memory, told.clone());
        assert_eq!(next(&mut taken).unwrap().unwrap(), "fff8\r\n");
        assert_eq!(next(&mut taken).unwrap().unwrap().len(), 0xfff8);
        assert!(taken.body.0.len() > 100 && !told.is_taken());
        let rest = read(&mut taken).unwrap();
        assert!(rest.ends_with(b"\r\n0\r\nx-a:b\r\n\r\n") && rest.len() > 9 << 20);
        assert!(told.is_taken() && told.refusal().is_none());
        // What ends before its last chunk was taken for what ends there.
        for end in [0, 3, 9, body.len() - 18] {
            let body = frames(&body[..end], 1 << 20);
            let mut taken = Taken::new(&parts, body, Quota::new(0), told.clone());
            assert_eq!(read(&mut taken), Err("a chunk is missing".into()), "{end}");
        }
    }

    #[test]
    fn signed_chunks_that_are_held_are_counted() {
        let parts = parts("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        let memory = Quota::new(1 << 20);
        let begun = |size: usize, memory: &Arc<Quota>| {
            let told = Arc::<Told>::default();
            let body = format!("{size:x};chunk-signature=00\r\nbytes");
            let body = frames(body.as_bytes(), 1000);
            (Taken::new(&parts, body, memory.clone(), told.clone()), told)
        };
        let (mut small, _) = begun(256 << 10, &memory);
        assert!(next(&mut small).unwrap().is_ok() && memory.used() == 0);
        let (mut large, _) = begun(800 << 10, &memory);
        assert!(next(&mut large).unwrap().is_ok() && memory.used() == 800 << 10);
        let (mut other, told) = begun(300 << 10, &memory);
        assert!(next(&mut other).unwrap().is_err());
        assert_eq!(told.refusal(), Some(Refusal::SLOW_DOWN));
        drop(large);
        assert_eq!(memory.used(), 0);
        // The quota is less than one of these, which then has its turn alone.
        let (mut largest, _) = begun(16 << 20, &memory);
        assert!(next(&mut largest).unwrap().is_ok() && memory.used() == 1 << 20);
        let (mut too_large, told) = begun((16 << 20) + 1, &memory);
        assert!(next(&mut too_large).unwrap().is_err());
        assert_eq!(told.refusal(), Some(TOO_LARGE));
        // The next chunk is less, and what was held is given back.
        let body = [b"80000;chunk-signature=0\r\n", &[7; 512 << 10][..], b"\r\n0;\r\n"].concat();
        drop(largest);
        let mut taken = Taken::new(&parts, frames(&body, 300 << 10), memory.clone(), told);
        assert!(next(&mut taken).unwrap().is_ok() && memory.used() == 512 << 10);
        assert!(next(&mut taken).unwrap().is_ok() && memory.used() == 0);
    }
}
