//! As much HTTP/1.1 as the loop speaks: requests on one connection, answers in their order.
//!
//! Not a general client: it trusts the server it started, and gives up on anything unexpected.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that is silent for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(60);

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// One connection.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
    requests: Vec<u8>,
}

/// One answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Connection { reader: BufReader::with_capacity(64 << 10, stream), requests: Vec::new() })
    }

    /// Adds a request to those that `send` sends. `target` is ASCII that needs no escapes.
    pub(crate) fn push(&mut self, method: &str, target: &str, body: &[u8]) {
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        );
        self.requests.extend_from_slice(head.as_bytes());
        self.requests.extend_from_slice(body);
    }

    /// Sends what was pushed.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let sent = self.reader.get_mut().write_all(&self.requests);
        self.requests.clear();
        sent
    }

    /// Sends one request and reads its answer.
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> io::Result<Answer> {
        self.push(method, target, body);
        self.send()?;
        self.answer()
    }

    /// Reads the next answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| malformed("status line"))?;
        let mut length = 0;
        let mut is_chunked = false;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, text) = line.split_once(':').ok_or_else(|| malformed("header"))?;
            if name.eq_ignore_ascii_case("content-length") {
                length = text.trim().parse().map_err(|_| malformed("length"))?;
            }
            is_chunked |= name.eq_ignore_ascii_case("transfer-encoding");
        }
        let body = if is_chunked { self.chunks()? } else { self.bytes(length)? };
        Ok(Answer { status, body })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let length = u64::from_str_radix(&line, 16).map_err(|_| malformed("chunk"))?;
            body.extend(self.bytes(length)?);
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        if !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }

    fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.by_ref().take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what} in an answer"))
}

/// Bytes in base64, padded.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place)) as usize & 63;
            text.push(if place <= group.len() { char::from(BASE64[sextet]) } else { '=' });
        }
    }
    text
}

/// The bytes that padded base64 stands for.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let digits = text.trim_end_matches('=').as_bytes();
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for (place, digit) in group.iter().enumerate() {
            let sextet = BASE64.iter().position(|known| known == digit)? as u32;
            bits |= sextet << (18 - 6 * place);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_reads_back() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xff\xfe", "//4="),
        ] {
            assert_eq!(base64(bytes), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes));
        }
        assert_eq!(from_base64("*"), None);
    }
}
