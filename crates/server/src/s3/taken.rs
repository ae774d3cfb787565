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
use crate::files::INTAKE_BYTES;

/// Signed chunks up to here count with what receives them.
const UNCOUNTED_BYTES_MAX: u64 = 256 << 10;

const TOO_LARGE: Refusal =
    Refusal::bad_request("InvalidRequest", "A chunk with a signature may have 16 MiB at most.");

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

    /// The memory of what was read whole.
    pub(crate) fn memory(&self) -> Option<Share> {
        self.memory.lock().take()
    }
}

/// A body as `s3s` gets it.
pub(crate) struct Taken<B> {
    body: B,
    kind: Kind,
    /// What `s3s` gets before more is asked for.
    passed: VecDeque<Bytes>,
    memory: Arc<Quota>,
    /// For the signed chunk that `s3s` holds.
    share: Share,
    /// What of that the chunk needs that is coming.
    held_bytes: usize,
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
        let (passed, share) = (VecDeque::new(), memory.take_nothing());
        Ok(Taken { body, kind, passed, memory, share, held_bytes: 0, told })
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
        let bytes = if is_held { chunks.chunk_bytes() } else { 0 };
        // What receives it has its own share of the same memory.
        let bytes_max = self.memory.max().saturating_sub(INTAKE_BYTES);
        self.held_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(bytes_max);
        // Of the chunk before `s3s` may still have slices, whose share is kept until it asks for more.
        if self.share.try_grow_to(self.held_bytes) {
            Ok(())
        } else {
            Err(self.refuse(Refusal::SLOW_DOWN))
        }
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
        if matches!(self.kind, Kind::Whole(_)) { self.refuse(Refusal::INCOMPLETE) } else { error }
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
            this.share.keep(this.held_bytes);
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

    /// The body of a signed chunk of this size that has come to its first bytes.
    fn begun(size: usize, memory: &Arc<Quota>) -> (Taken<Frames>, Arc<Told>) {
        let told = Arc::<Told>::default();
        let line = format!("{size:x};chunk-signature=00\r\n");
        let body = frames(&[line.as_bytes(), &[7; 64 << 10]].concat(), 70_000);
        let parts = parts("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        (Taken::new(&parts, body, memory.clone(), told.clone()).unwrap(), told)
    }

    #[test]
    fn signed_chunks_that_are_held_are_counted() {
        let memory = Quota::new(1 << 20);
        let (mut small, _) = begun(256 << 10, &memory);
        assert!(next(&mut small).unwrap().is_ok() && memory.used() == 0);
        let (mut too_large, told) = begun((16 << 20) + 1, &memory);
        assert!(next(&mut too_large).unwrap().is_err());
        assert_eq!(told.refusal(), Some(TOO_LARGE));
        let memory = Quota::new(2 << 20);
        let (mut large, _) = begun(800 << 10, &memory);
        assert!(next(&mut large).unwrap().is_ok() && memory.used() == 800 << 10);
        let (mut other, told) = begun(2 << 20, &memory);
        assert!(next(&mut other).unwrap().is_err());
        assert_eq!(told.refusal(), Some(Refusal::SLOW_DOWN));
        drop(large);
        assert_eq!(memory.used(), 0);
    }

    /// What receives the chunk had of the memory already, and a chunk of as much as there is, or more, was
    /// refused for ever.
    #[test]
    fn signed_chunk_of_all_the_memory_passes_beside_what_receives_it() {
        for memory_bytes in [INTAKE_BYTES, 1 << 20, 16 << 20] {
            let memory = Quota::new(memory_bytes);
            let _receiver = memory.try_take(INTAKE_BYTES).unwrap();
            let (mut largest, _) = begun(16 << 20, &memory);
            assert!(next(&mut largest).unwrap().is_ok(), "{memory_bytes}");
            assert_eq!(memory.used(), memory_bytes);
        }
    }

    /// The share went when the next line came, while `s3s` had the slices of the chunk before, and a smaller
    /// chunk took its own anew, which others might have had meanwhile.
    #[test]
    fn share_of_a_chunk_is_kept_until_its_slices_are_gone_and_then_shrinks() {
        let (kib, bytes) = (1 << 10, vec![7; 1 << 20]);
        let chunk = |size: usize| {
            let line = format!("{size:x};chunk-signature=00\r\n");
            [line.as_bytes(), &bytes[..size], b"\r\n"].concat()
        };
        let (first, second) = (chunk(900 * kib), chunk(500 * kib));
        let at = first.len() + 100;
        let body = [&first[..], &second, b"0;chunk-signature=00\r\n"].concat();
        let ends = [0, 100_000, at, body.len() - 90, body.len()];
        let frames = [0, 1, 2, 3].map(|frame| &body[ends[frame]..ends[frame + 1]]);
        let frames = Frames(frames.map(|frame| Some(Bytes::copy_from_slice(frame))).into());
        let memory = Quota::new(2 << 20);
        let parts = parts("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        let mut taken = Taken::new(&parts, frames, memory.clone(), Arc::default()).unwrap();
        let mut used = Vec::new();
        while let Some(passed) = next(&mut taken) {
            passed.unwrap();
            used.push((taken.body.0.len(), memory.used() / kib));
        }
        used.dedup();
        assert_eq!(used, [(3, 900), (2, 900), (1, 500), (0, 500)]);
        assert_eq!(memory.used(), 0);
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
        assert!(read(&mut cut).is_err() && told.refusal() == Some(Refusal::INCOMPLETE));
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
