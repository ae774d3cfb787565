//! Answers as they come: heads by `httparse`, bodies by length, in chunks or to the connection's end.
//!
//! Invariant: bytes are never looked at twice once a part is complete, whatever the pieces they come
//! in; nothing that a server sends panics or takes more memory than the limits below.

use crate::target::Answers;

/// Longest head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most header fields.
const HEADERS_MAX: usize = 96;
/// Longest body that is held at once: a value, or one record of a range.
const BODY_BYTES_MAX: u64 = 512 << 20;
/// Longest line between chunks, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 4096;

/// What was asked, which decides how an answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Get,
    Head,
    /// A put or a delete.
    Write,
    Scan,
}

/// An answer being read.
#[derive(Debug, Default)]
pub(super) struct Response {
    state: State,
    status: u16,
    length: Option<u64>,
    closes: bool,
    /// A chunked body that is no range's.
    body: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Length(usize),
    ChunkLine,
    Chunk(usize),
    Trailers,
    ToEnd,
    Done,
}

/// How far the reading of an answer came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More bytes are needed; so many from the first unread one on, as far as that is known.
    More(usize),
    /// It is complete. Whether the server closes the connection after it.
    Done { closes: bool },
}

impl Response {
    /// Reads on in `input`, whose first `consumed` bytes have been read, and tells of what is whole.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        asked: Asked,
        answers: &mut dyn Answers,
    ) -> Result<Step, String> {
        loop {
            let unread = &input[*consumed..];
            match self.state {
                State::Head => match self.read_head(unread, asked)? {
                    Some(bytes) => *consumed += bytes,
                    None => return Ok(Step::More(unread.len() + 1)),
                },
                State::Length(length) => {
                    let Some(body) = unread.get(..length) else { return Ok(Step::More(length)) };
                    *consumed += length;
                    self.tell(asked, body, answers);
                    self.state = State::Done;
                }
                State::ChunkLine => match chunk_line(unread)? {
                    None => return Ok(Step::More(unread.len() + 1)),
                    Some((bytes, length)) => {
                        *consumed += bytes;
                        self.state =
                            if length == 0 { State::Trailers } else { State::Chunk(length) };
                    }
                },
                State::Chunk(length) => {
                    let Some(chunk) = unread.get(..length + 2) else {
                        return Ok(Step::More(length + 2));
                    };
                    if !chunk.ends_with(b"\r\n") {
                        return Err("a chunk doesn't end where it said".into());
                    }
                    *consumed += chunk.len();
                    self.take_chunk(&chunk[..length], asked, answers)?;
                    self.state = State::ChunkLine;
                }
                State::Trailers => match line(unread, HEAD_BYTES_MAX)? {
                    None => return Ok(Step::More(unread.len() + 1)),
                    Some(trailer) => {
                        *consumed += trailer.len() + 2;
                        if trailer.is_empty() {
                            let body = std::mem::take(&mut self.body);
                            self.tell(asked, &body, answers);
                            self.state = State::Done;
                        }
                    }
                },
                State::ToEnd => {
                    if unread.len() as u64 > BODY_BYTES_MAX {
                        return Err("a body is too long".into());
                    }
                    return Ok(Step::More(unread.len() + 1));
                }
                State::Done => {
                    let closes = self.closes;
                    *self =
                        Response { body: std::mem::take(&mut self.body), ..Response::default() };
                    self.body.clear();
                    return Ok(Step::Done { closes });
                }
            }
        }
    }

    /// The connection ended; whether that is how this answer ends. `unread` is the rest of it.
    pub(super) fn end(&mut self, unread: &[u8], asked: Asked, answers: &mut dyn Answers) -> bool {
        let is_end = self.state == State::ToEnd;
        if is_end {
            self.tell(asked, unread, answers);
        }
        *self = Response::default();
        is_end
    }

    fn read_head(&mut self, unread: &[u8], asked: Asked) -> Result<Option<usize>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let bytes = match head.parse(unread).map_err(|error| format!("no HTTP answer: {error}"))? {
            httparse::Status::Complete(bytes) => bytes,
            httparse::Status::Partial if unread.len() > HEAD_BYTES_MAX => {
                return Err("a head is too long".into());
            }
            httparse::Status::Partial => return Ok(None),
        };
        self.status = head.code.unwrap_or(0);
        self.length = None;
        // HTTP/1.0 closes unless it says otherwise.
        self.closes = head.version == Some(0);
        let mut is_chunked = false;
        for header in head.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let tokens = || header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            if is("content-length") {
                let length = std::str::from_utf8(header.value)
                    .ok()
                    .and_then(|text| text.trim().parse().ok());
                let length: u64 = length.ok_or("a content-length is no number")?;
                if self.length.is_some_and(|other| other != length) {
                    return Err("two content-lengths contradict".into());
                }
                self.length = Some(length);
            } else if is("transfer-encoding") {
                is_chunked =
                    tokens().next_back().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
                if !is_chunked {
                    return Err("a transfer-encoding is unknown".into());
                }
            } else if is("connection") {
                for token in tokens() {
                    if token.eq_ignore_ascii_case(b"close") {
                        self.closes = true;
                    } else if token.eq_ignore_ascii_case(b"keep-alive") {
                        self.closes = false;
                    }
                }
            }
        }
        self.state = match self.status {
            // Interim: the answer itself follows.
            100..=199 => State::Head,
            _ if asked == Asked::Head => State::Length(0),
            204 | 304 => State::Length(0),
            _ if is_chunked => State::ChunkLine,
            _ => match self.length {
                Some(length) if length > BODY_BYTES_MAX => return Err("a body is too long".into()),
                Some(length) => State::Length(length as usize),
                None => {
                    self.closes = true;
                    State::ToEnd
                }
            },
        };
        Ok(Some(bytes))
    }

    /// A record of a range is one chunk; other bodies are put together.
    fn take_chunk(
        &mut self,
        chunk: &[u8],
        asked: Asked,
        answers: &mut dyn Answers,
    ) -> Result<(), String> {
        if asked == Asked::Scan && self.status == 200 {
            tell_record(chunk, answers);
        } else if (self.body.len() + chunk.len()) as u64 > BODY_BYTES_MAX {
            return Err("a body is too long".into());
        } else {
            self.body.extend_from_slice(chunk);
        }
        Ok(())
    }

    fn tell(&self, asked: Asked, body: &[u8], answers: &mut dyn Answers) {
        match (asked, self.status) {
            (Asked::Get, 200) => answers.value(Some(body)),
            (Asked::Get, 404) => answers.value(None),
            (Asked::Head, 200) => match self.length {
                Some(length) => answers.length(Some(length)),
                None => answers.failed("200 without a length"),
            },
            (Asked::Head, 404) => answers.length(None),
            (Asked::Write, 200..=299) => answers.written(),
            // Records in chunks have been told already.
            (Asked::Scan, 200) if body.is_empty() => {}
            (Asked::Scan, 200) => tell_record(body, answers),
            (_, status) => {
                let digits = [status / 100, status / 10 % 10, status % 10];
                let text = digits.map(|digit| b'0' + (digit % 10) as u8);
                answers.failed(std::str::from_utf8(&text).unwrap_or("000"));
            }
        }
    }
}

fn tell_record(record: &[u8], answers: &mut dyn Answers) {
    match record.iter().position(|&byte| byte == b'\n') {
        Some(at) => answers.pair(&record[..at], &record[at + 1..]),
        None => answers.failed("a record without a key"),
    }
}

/// The line that begins `unread`, without its end; `None` when that hasn't come.
fn line(unread: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, String> {
    match unread.windows(2).take(bytes_max).position(|two| two == b"\r\n") {
        Some(at) => Ok(Some(&unread[..at])),
        None if unread.len() > bytes_max => Err("a line is too long".into()),
        None => Ok(None),
    }
}

/// The bytes of a chunk's line and the chunk's length.
fn chunk_line(unread: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let Some(line) = line(unread, CHUNK_LINE_BYTES_MAX)? else { return Ok(None) };
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let is_hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex);
    let length = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    match length {
        Some(length) if length <= BODY_BYTES_MAX => Ok(Some((line.len() + 2, length as usize))),
        Some(_) => Err("a chunk is too long".into()),
        None => Err("a chunk has no length".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Debug, PartialEq, Clone)]
    struct Heard(Vec<String>);

    impl Answers for Heard {
        fn value(&mut self, value: Option<&[u8]>) {
            let value = value.map(|value| String::from_utf8_lossy(value).into_owned());
            self.0.push(format!("value {value:?}"));
        }
        fn length(&mut self, length: Option<u64>) {
            self.0.push(format!("length {length:?}"));
        }
        fn pair(&mut self, key: &[u8], value: &[u8]) {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.0.push(format!("pair {} {}", text(key), text(value)));
        }
        fn written(&mut self) {
            self.0.push("written".into());
        }
        fn failed(&mut self, kind: &str) {
            self.0.push(format!("failed {kind}"));
        }
    }

    /// Reads an answer that comes in pieces of so many bytes; whether it closes, and what was told.
    fn read_in(text: &[u8], asked: Asked, piece: usize) -> Result<(Option<bool>, Heard), String> {
        let (mut response, mut heard, mut consumed) = (Response::default(), Heard::default(), 0);
        let mut came = 0;
        while came < text.len() {
            came = (came + piece).min(text.len());
            match response.read(&text[..came], &mut consumed, asked, &mut heard)? {
                Step::Done { closes } => {
                    assert_eq!(consumed, text.len());
                    return Ok((Some(closes), heard));
                }
                Step::More(wanted) => assert!(wanted > came - consumed),
            }
        }
        let is_end = response.end(&text[consumed..], asked, &mut heard);
        Ok((is_end.then_some(true), heard))
    }

    fn check(text: &str, asked: Asked, closes: Option<bool>, told: &[&str]) {
        for piece in [1, 2, 7, 10_000] {
            let (found, heard) = read_in(text.as_bytes(), asked, piece).unwrap();
            assert_eq!(
                (found, &heard.0[..]),
                (closes, &told.map_owned()[..]),
                "{text:?} by {piece}"
            );
        }
    }

    trait MapOwned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl MapOwned for [&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    #[test]
    fn bodies_of_every_kind_are_read_in_any_pieces() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let stays = Some(false);
        check(
            &format!("{ok}CONTENT-length: 3\r\n\r\nabc"),
            Asked::Get,
            stays,
            &["value Some(\"abc\")"],
        );
        check(
            &format!(
                "{ok}transfer-ENCODING: Chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n"
            ),
            Asked::Get,
            stays,
            &["value Some(\"abc\")"],
        );
        check(&format!("{ok}\r\nabc"), Asked::Get, Some(true), &["value Some(\"abc\")"]);
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\ncontent-length: 2\r\nConnection: x, Close\r\n\r\nno",
            Asked::Get,
            Some(true),
            &["value None"],
        );
        check(
            "HTTP/1.0 201 Created\r\ncontent-length: 0\r\n\r\n",
            Asked::Write,
            Some(true),
            &["written"],
        );
        check("HTTP/1.1 204 No\r\n\r\n", Asked::Write, stays, &["written"]);
        check(&format!("{ok}content-length: 77\r\n\r\n"), Asked::Head, stays, &["length Some(77)"]);
        check("HTTP/1.1 404 No\r\n\r\n", Asked::Head, stays, &["length None"]);
        check(
            "HTTP/1.1 503 Busy\r\ncontent-length: 1\r\n\r\nx",
            Asked::Write,
            stays,
            &["failed 503"],
        );
        check(
            &format!("{ok}transfer-encoding: chunked\r\n\r\n4\r\na\n\nb\r\n2\r\nc\n\r\n0\r\n\r\n"),
            Asked::Scan,
            stays,
            &["pair a \nb", "pair c "],
        );
        check(&format!("{ok}content-length: 0\r\n\r\n"), Asked::Scan, stays, &[]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n+1\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(read_in(text.as_bytes(), Asked::Get, 10_000).is_err(), "{text:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(70_000));
        assert!(read_in(long.as_bytes(), Asked::Get, 10_000).is_err());
        let cut =
            read_in(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", Asked::Get, 5).unwrap();
        assert_eq!(cut, (None, Heard::default()));
    }
}
