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
use super::whole::Whole;
use crate::admission::{Quota, Share};

/// Signed chunks up to here count with what receives them.
const UNCOUNTED_BYTES_MAX: u64 = 256 << 10;

const TOO_LARGE: Refusal =
    Refusal::bad_request("InvalidRequest", "A chunk with a signature may have 16 MiB at most.");

const INCOMPLETE: Refusal =
    Refusal::bad_request("IncompleteBody", "The body is incomplete or malformed.");

/// What is known of a body once it was, or was to be, read.
#[derive(Default)]
pub(crate) struct Told {
    is_taken: AtomicBool,
    refusal: Mutex<Option<Refusal>>,
    /// For what was read whole, until it is done.
    memory: Mutex<Option<Share>>,
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
    kind: Kind,
    /// What `s3s` gets before more is asked for.
    passed: VecDeque<Bytes>,
    memory: Arc<Quota>,
    /// For the chunk that `s3s` holds.
    share: Option<(Share, u64)>,
    told: Arc<Told>,
}

enum Kind {
    Plain,
    Chunks(Chunks),
    Whole(Box<Whole>),
}

impl<B: HttpBody<Data = Bytes>> Taken<B> {
    /// The body of a request, unless it is refused before it is read.
    pub(crate) fn new(
        request: &Parts,
        body: B,
        memory: Arc<Quota>,
        told: Arc<Told>,
    ) -> Result<Taken<B>, Refusal> {
        let hash = request.headers.get("x-amz-content-sha256");
        let hash = hash.map_or(&b""[..], |hash| hash.as_bytes());
        let is_signed = hash != b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        let kind = match Whole::of(request, body.size_hint().exact())? {
            Some(whole) => Kind::Whole(Box::new(whole)),
            None if hash.starts_with(b"STREAMING-") => Kind::Chunks(Chunks::new(is_signed)),
            None => Kind::Plain,
        };
        Ok(Taken { body, kind, passed: VecDeque::new(), memory, share: None, told })
    }

    /// Ends the body in an error, and the answer in this.
    fn refuse(&self, refusal: Refusal) -> StdError {
        *self.told.refusal.lock() = Some(refusal);
        "the body was refused".into()
    }

    /// Takes bytes of chunks; `None` is the end.
    fn take_chunks(&mut self, bytes: Option<Bytes>) -> Result<(), StdError> {
        let Kind::Chunks(chunks) = &mut self.kind else { return Ok(()) };
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

impl<B: HttpBody<Data = Bytes>> Taken<B> {
    /// Takes bytes of a body that is read whole. With the first of them all of it is counted.
    fn take_whole(&mut self, bytes: &[u8]) -> Result<(), StdError> {
        let Kind::Whole(whole) = &mut self.kind else { return Ok(()) };
        let mut held = self.told.memory.lock();
        if held.is_none() {
            // They are collected, and then made one piece.
            let amount = usize::try_from(2 * whole.left()).unwrap_or(usize::MAX);
            *held = self.memory.try_take_at_most(amount);
        }
        let taken = if held.is_some() { whole.take(bytes) } else { Err(Refusal::SLOW_DOWN) };
        drop(held);
        taken.map_err(|refusal| self.refuse(refusal))
    }

    /// An error that the body ended in.
    fn cut(&self, error: StdError) -> StdError {
        if matches!(self.kind, Kind::Whole(_)) { self.refuse(INCOMPLETE) } else { error }
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
            let frame = match frame.transpose() {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Some(Err(this.cut(error.into())))),
            };
            let Kind::Chunks(_) = &this.kind else {
                if let Some(bytes) = frame.as_ref().and_then(Frame::data_ref) {
                    this.take_whole(bytes)?;
                }
                return Poll::Ready(frame.map(Ok));
            };
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
        !matches!(self.kind, Kind::Chunks(_)) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.kind {
            Kind::Chunks(_) => SizeHint::default(),
            _ => self.body.size_hint(),
        }
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
        let mut taken = Taken::new(&parts, frames(&body, 64 << 10), memory, told.clone()).unwrap();
        assert_eq!(next(&mut taken).unwrap().unwrap(), "fff8\r\n");
        assert_eq!(next(&mut taken).unwrap().unwrap().len(), 0xfff8);
        assert!(taken.body.0.len() > 100 && !told.is_taken());
        let rest = read(&mut taken).unwrap();
        assert!(rest.ends_with(b"\r\n0\r\nx-a:b\r\n\r\n") && rest.len() > 9 << 20);
        assert!(told.is_taken() && told.refusal().is_none());
        // What ends before its last chunk was taken for what ends there.
        for end in [0, 3, 9, body.len() - 18] {
            let body = frames(&body[..end], 1 << 20);
            let mut taken = Taken::new(&parts, body, Quota::new(0), told.clone()).unwrap();
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
            (Taken::new(&parts, body, memory.clone(), told.clone()).unwrap(), told)
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
        let body = frames(&body, 300 << 10);
        let mut taken = Taken::new(&parts, body, memory.clone(), told).unwrap();
        assert!(next(&mut taken).unwrap().is_ok() && memory.used() == 512 << 10);
        assert!(next(&mut taken).unwrap().is_ok() && memory.used() == 0);
    }

    const NAMED: &[u8] = b"<Delete><Object><Key>k</Key></Object></Delete>";

    /// A body of `NAMED` that is read whole, in frames of seven bytes.
    fn whole(
        headers: &[(&str, &str)],
        memory: &Arc<Quota>,
    ) -> Result<(Taken<Frames>, Arc<Told>), Refusal> {
        let request = Request::post("/bucket?delete");
        let request = headers.iter().fold(request, |request, one| request.header(one.0, one.1));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let told = Arc::<Told>::default();
        let taken = Taken::new(&parts, frames(NAMED, 7), memory.clone(), told.clone())?;
        Ok((taken, told))
    }

    /// A wrong digest was found, where it was, after the last bytes were handed on, and by what took it for a
    /// fault of its own.
    #[test]
    fn last_bytes_of_what_is_read_whole_pass_if_it_is_what_was_said() {
        let memory = Quota::new(1000);
        for (header, right, wrong) in [
            (
                "x-amz-content-sha256",
                "3772c7c4b33a45c00daf1adda33bcbd10adf4d689257b04268b77f09731fc85d",
                "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            ),
            ("content-md5", "5DKh5iefM5MSKvRILIuFwQ==", "JfnnlDI7RTiF9RgfG2JNCw=="),
            ("x-amz-checksum-crc32", "A8uZRQ==", "y/Q5Jg=="),
        ] {
            let (mut taken, told) = whole(&[(header, right)], &memory).unwrap();
            assert_eq!(read(&mut taken).as_deref(), Ok(NAMED), "{header}");
            // It is counted until it is done.
            assert!(told.refusal().is_none() && memory.used() == 2 * NAMED.len());
            drop((taken, told));
            assert_eq!(memory.used(), 0);

            let (mut taken, told) = whole(&[(header, wrong)], &memory).unwrap();
            let passed = std::iter::from_fn(|| next(&mut taken)).take_while(Result::is_ok).count();
            assert_eq!(passed, NAMED.len() / 7, "{header}");
            assert_eq!(told.refusal().unwrap().status, 400);
        }
        assert!(whole(&[("content-md5", "short")], &memory).is_err());
        let long = |bytes: usize| {
            let body = frames(&vec![b' '; bytes], bytes);
            let parts = Request::post("/bucket?delete").body(()).unwrap().into_parts().0;
            Taken::new(&parts, body, memory.clone(), Arc::default()).is_err()
        };
        assert!(long((8 << 20) + 1) && !long(8 << 20));
        let (mut cut, told) = whole(&[], &memory).unwrap();
        cut.body.0[3] = None;
        assert!(read(&mut cut).is_err() && told.refusal() == Some(INCOMPLETE));
    }

    #[test]
    fn what_is_read_whole_is_counted() {
        let memory = Quota::new(2 * NAMED.len() + 9);
        let (mut first, told) = whole(&[], &memory).unwrap();
        assert_eq!(memory.used(), 0);
        assert!(next(&mut first).unwrap().is_ok());
        let (mut second, refused) = whole(&[], &memory).unwrap();
        assert!(next(&mut second).unwrap().is_err());
        assert_eq!(refused.refusal(), Some(Refusal::SLOW_DOWN));
        drop((first, told));
        let (mut third, _told) = whole(&[], &memory).unwrap();
        assert_eq!(read(&mut third).as_deref(), Ok(NAMED));
        // What is larger than all there is has its turn alone.
        let (mut large, _told) = whole(&[], &Quota::new(10)).unwrap();
        assert_eq!(read(&mut large).as_deref(), Ok(NAMED));
    }
}
