//! The lines of a request head: which are refused, and what they say about the body (RFC 9112).
//!
//! Refused beyond what hyper refuses: a bare line feed, a missing or second Host (HTTP/1.0 may
//! lack it), any second Content-Length or Transfer-Encoding or both, a Content-Length that isn't
//! all digits, codings other than `chunked`. An `Upgrade` is blanked, so that hyper won't act on it.
//! What a web page may be behind is told apart, for `origin` to judge.

/// Limits on a head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadLimits {
    pub(crate) request_line_bytes_max: usize,
    pub(crate) header_bytes_max: usize,
    pub(crate) header_count_max: usize,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// 400.
    Malformed(&'static str),
    /// 414.
    UriTooLong,
    /// 431.
    HeadersTooLarge,
    /// 403.
    CrossOrigin,
    /// 421.
    UnknownHost,
}

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This many bytes, perhaps none.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// What the lines of one head have said so far.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    request_line_seen: bool,
    blank_seen: bool,
    http_10: bool,
    header_bytes: usize,
    header_count: usize,
    host_seen: bool,
    content_length: Option<u64>,
    chunked: bool,
    is_to_be_judged: bool,
}

impl Lines {
    /// Whether the head names another Host than the one before, or has what only browsers and proxies say.
    pub(super) fn is_to_be_judged(&self) -> bool {
        self.is_to_be_judged
    }

    /// Judges a line that isn't complete, by its length and first byte.
    pub(crate) fn partial(&self, line: &[u8], limits: &HeadLimits) -> Result<(), Violation> {
        if self.request_line_seen {
            if self.header_bytes + line.len() > limits.header_bytes_max + 1 {
                return Err(Violation::HeadersTooLarge);
            }
        } else if line.len() > limits.request_line_bytes_max + 1 {
            return Err(Violation::UriTooLong);
        } else if line.first().is_some_and(|&byte| byte != b'\r' && !is_token(byte)) {
            return Err(Violation::Malformed("the request line is malformed"));
        }
        Ok(())
    }

    /// Takes the next line, with its line feed. At the head's end, how the body is framed. `host` is that
    /// of the head before.
    pub(crate) fn take(
        &mut self,
        line: &mut [u8],
        limits: &HeadLimits,
        host: &[u8],
    ) -> Result<Option<Framing>, Violation> {
        let Some(length) = line.len().checked_sub(2).filter(|&end| line[end] == b'\r') else {
            return Err(Violation::Malformed("a line ends in a bare line feed"));
        };
        let line = &mut line[..length];
        if !self.request_line_seen {
            return self.request_line(line, limits).map(|()| None);
        }
        if line.is_empty() {
            return self.end().map(Some);
        }
        self.header_bytes += line.len() + 2;
        self.header_count += 1;
        if self.header_bytes > limits.header_bytes_max
            || self.header_count > limits.header_count_max
        {
            return Err(Violation::HeadersTooLarge);
        }
        self.header(line, host).map(|()| None)
    }

    fn request_line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), Violation> {
        let malformed = Violation::Malformed("the request line is malformed");
        if line.is_empty() && !self.blank_seen {
            // RFC 9112, 2.2: one empty line before a request is ignored; old clients end bodies so.
            self.blank_seen = true;
            return Ok(());
        }
        if line.len() > limits.request_line_bytes_max {
            return Err(Violation::UriTooLong);
        }
        let mut words = line.split(|&byte| byte == b' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let (Some(method), Some(target), Some(version), None) =
            (method, target, version, words.next())
        else {
            return Err(malformed);
        };
        let target_is_plain =
            target.iter().all(|&byte| matches!(byte, 0x21..=0x7e) && byte != b'#');
        if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
            return Err(malformed);
        }
        if target.is_empty() || !target_is_plain {
            return Err(Violation::Malformed("the request target is malformed"));
        }
        if method == b"CONNECT" {
            return Err(Violation::Malformed("this server is no proxy"));
        }
        self.http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => {
                return Err(Violation::Malformed("the version is not HTTP/1.1 or HTTP/1.0"));
            }
        };
        self.is_to_be_judged = target[0] != b'/';
        self.request_line_seen = true;
        Ok(())
    }

    fn header(&mut self, line: &mut [u8], host_before: &[u8]) -> Result<(), Violation> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(Violation::Malformed("a header is folded"));
        }
        let Some(colon) = line.iter().position(|&byte| !is_token(byte)) else {
            return Err(Violation::Malformed("a header has no colon"));
        };
        if line[colon] != b':' || colon == 0 {
            return Err(Violation::Malformed("a header's name is malformed"));
        }
        let (name, value) = line.split_at_mut(colon);
        let value = value[1..].trim_ascii();
        if !value.iter().all(|&byte| is_text(byte)) {
            return Err(Violation::Malformed("a header holds a control character"));
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.is_to_be_judged |= value != host_before;
                self.host(value)
            }
            6 if name.eq_ignore_ascii_case(b"origin") => {
                self.is_to_be_judged = true;
                Ok(())
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                name[0] = b'x';
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.length(value),
            14 if name.eq_ignore_ascii_case(b"sec-fetch-site") => {
                self.is_to_be_judged = true;
                Ok(())
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.coding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Violation> {
        let plain = value.iter().all(|&byte| {
            matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
                || b"-._~%!$&'()*+;=:[]".contains(&byte)
        });
        if self.host_seen || !plain {
            return Err(Violation::Malformed("the Host is malformed or given twice"));
        }
        self.host_seen = true;
        Ok(())
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Violation> {
        let malformed = Violation::Malformed("the Content-Length is malformed or given twice");
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        match parsed {
            Some(length) if digits && self.content_length.is_none() => {
                self.content_length = Some(length);
                Ok(())
            }
            _ => Err(malformed),
        }
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Violation> {
        if self.chunked || self.http_10 || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Violation::Malformed("the Transfer-Encoding is not chunked, once"));
        }
        self.chunked = true;
        Ok(())
    }

    fn end(&self) -> Result<Framing, Violation> {
        if !self.host_seen && !self.http_10 {
            return Err(Violation::Malformed("the Host is missing"));
        }
        match (self.chunked, self.content_length) {
            (true, Some(_)) => {
                Err(Violation::Malformed("Content-Length and Transfer-Encoding are both given"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

/// Whether a byte may stand in a token (RFC 9110, 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    const TOKEN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 128 {
            let code = byte as u8;
            table[byte] = code.is_ascii_alphanumeric();
            byte += 1;
        }
        let marks = b"!#$%&'*+-.^_`|~";
        let mut mark = 0;
        while mark < marks.len() {
            table[marks[mark] as usize] = true;
            mark += 1;
        }
        table
    };
    TOKEN[byte as usize]
}

/// Whether a byte may stand in a header's value.
pub(super) fn is_text(byte: u8) -> bool {
    (byte >= 0x20 && byte != 0x7f) || byte == b'\t'
}
