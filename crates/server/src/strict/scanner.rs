//! Follows a connection's bytes: heads, bodies by length, bodies in chunks, the next head.
//!
//! 1. Bytes of a body are released at once, bytes of a head when the whole head has passed.
//! 2. Each byte is looked at once: the scanner remembers how far into an unfinished head it is.
//! 3. At the first violation it stops for good.

use std::sync::Arc;

use super::chunks::Chunks;
use super::lines::{Framing, HeadLimits, Lines, Violation};
use super::origin::OriginRules;

/// What a scan found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Bytes at the input's start that hyper may see.
    pub(crate) release: usize,
    /// Heads that end among them.
    pub(crate) heads: u64,
    /// What ended the scan for good.
    pub(crate) violation: Option<Violation>,
}

#[derive(Debug)]
enum State {
    /// In a head: the lines before `line` are judged, and `line` has no end before `looked`.
    Head { lines: Lines, line: usize, looked: usize },
    /// In a body with this much left.
    Body(u64),
    /// In a chunked body.
    Chunks(Chunks),
    /// After a violation, in a body or in a head.
    Stopped { in_body: bool },
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Scanner {
    limits: HeadLimits,
    /// `None` where it doesn't matter who asks.
    rules: Option<Arc<OriginRules>>,
    /// The Host of the last head that was judged.
    host: Vec<u8>,
    state: State,
}

fn head() -> State {
    State::Head { lines: Lines::default(), line: 0, looked: 0 }
}

impl Scanner {
    pub(crate) fn new(limits: HeadLimits, rules: Option<Arc<OriginRules>>) -> Scanner {
        Scanner { limits, rules, host: Vec::new(), state: head() }
    }

    /// Whether the last byte released belongs to an unfinished body.
    pub(crate) fn in_body(&self) -> bool {
        !matches!(self.state, State::Head { .. } | State::Stopped { in_body: false })
    }

    /// Looks at bytes. Requires: `input` begins with what the last scan didn't release. May blank
    /// the name of a header that hyper shall not see.
    pub(crate) fn scan(&mut self, input: &mut [u8]) -> Scan {
        let mut scan = Scan { release: 0, heads: 0, violation: None };
        while scan.release < input.len() {
            match self.step(&mut input[scan.release..]) {
                Ok(Step { released: 0, .. }) => break,
                Ok(step) => {
                    scan.release += step.released;
                    scan.heads += u64::from(step.head_ended);
                }
                Err(violation) => {
                    scan.violation = Some(violation);
                    self.state = State::Stopped { in_body: self.in_body() };
                    break;
                }
            }
        }
        scan
    }

    fn step(&mut self, input: &mut [u8]) -> Result<Step, Violation> {
        let (released, head_ended, next) = match &mut self.state {
            State::Stopped { .. } => (0, false, None),
            State::Head { lines, line, looked } => {
                let framing = judge_lines(lines, line, looked, input, &self.limits, &self.host)?;
                if framing.is_some()
                    && lines.is_to_be_judged()
                    && let Some(rules) = &self.rules
                {
                    let host = rules.judge(&input[..*line])?;
                    self.host.clear();
                    self.host.extend_from_slice(host);
                }
                let released = if framing.is_some() { *line } else { 0 };
                (released, framing.is_some(), framing.map(after_head))
            }
            State::Body(left) => {
                let released = (input.len() as u64).min(*left);
                *left -= released;
                (released as usize, false, (*left == 0).then(head))
            }
            State::Chunks(chunks) => {
                let (released, ended) = chunks.pass(input, &self.limits)?;
                (released, false, ended.then(head))
            }
        };
        if let Some(next) = next {
            self.state = next;
        }
        Ok(Step { released, head_ended })
    }
}

/// Judges the lines that are complete, and an incomplete one by its length. At the head's end, how
/// the body is framed; `line` is then the head's length.
fn judge_lines(
    lines: &mut Lines,
    line: &mut usize,
    looked: &mut usize,
    input: &mut [u8],
    limits: &HeadLimits,
    host: &[u8],
) -> Result<Option<Framing>, Violation> {
    while let Some(found) = memchr::memchr(b'\n', &input[*looked..]) {
        let end = *looked + found + 1;
        let framing = lines.take(&mut input[*line..end], limits, host)?;
        (*line, *looked) = (end, end);
        if framing.is_some() {
            return Ok(framing);
        }
    }
    *looked = input.len();
    lines.partial(&input[*line..], limits)?;
    Ok(None)
}

struct Step {
    released: usize,
    head_ended: bool,
}

fn after_head(framing: Framing) -> State {
    match framing {
        Framing::Length(0) => head(),
        Framing::Length(length) => State::Body(length),
        Framing::Chunked => State::Chunks(Chunks::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits =
        HeadLimits { request_line_bytes_max: 100, header_bytes_max: 200, header_count_max: 4 };

    /// Scans `input` in one piece and byte by byte; both must agree. Answers (released, heads, violation).
    fn scan(input: &str) -> (usize, u64, Option<Violation>) {
        let mut bytes = input.as_bytes().to_vec();
        let whole = Scanner::new(LIMITS, None).scan(&mut bytes);
        let mut scanner = Scanner::new(LIMITS, None);
        let (mut held, mut released, mut heads, mut violation) = (Vec::new(), 0, 0, None);
        for byte in input.bytes() {
            held.push(byte);
            let scan = scanner.scan(&mut held);
            held.drain(..scan.release);
            released += scan.release;
            heads += scan.heads;
            violation = violation.or(scan.violation);
        }
        assert_eq!((whole.release, whole.heads, whole.violation), (released, heads, violation));
        (released, heads, violation)
    }

    #[test]
    fn good_requests_are_released_whole() {
        for input in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a:80\r\nX: \t\u{e9} \r\n\r\n",
            "PUT / HTTP/1.1\r\nhost:\r\ncontent-length: 3\r\n\r\n\n\r\0",
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
        ] {
            assert_eq!(scan(input), (input.len(), 1, None), "{input:?}");
        }
    }

    #[test]
    fn next_head_is_found_after_each_body() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let put = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        let chunks =
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        let input = [get, put, chunks, get].concat();
        assert_eq!(scan(&input), (input.len(), 4, None));
        let bad = [get, put, chunks, "GET / HTTP/1.1\r\nHost: a\n\r\n"].concat();
        let (released, heads, violation) = scan(&bad);
        assert_eq!((released, heads), (get.len() + put.len() + chunks.len(), 3));
        assert_eq!(violation, Some(Violation::Malformed("a line ends in a bare line feed")));
    }

    #[test]
    fn malformed_heads_release_nothing() {
        for head in [
            "\n",
            "\r\n\r\n",
            "\u{16}\u{3}\u{1}",
            " GET / HTTP/1.1\r\n",
            "GET  / HTTP/1.1\r\n",
            "GET / HTTP/1.1 \r\n",
            "GET / HTTP/2.0\r\n",
            "GET /\r\n",
            "GET /a#b HTTP/1.1\r\n",
            "GET /\u{e9} HTTP/1.1\r\n",
            "CONNECT a:80 HTTP/1.1\r\n",
            "G(T / HTTP/1.1\r\n",
        ] {
            let (released, heads, violation) = scan(head);
            assert_eq!((released, heads), (0, 0), "{head:?}");
            assert!(matches!(violation, Some(Violation::Malformed(_))), "{head:?}");
        }
        for headers in [
            "\r\n",
            "Host: a\r\nHost: a\r\n\r\n",
            "Host: a b\r\n\r\n",
            "Host: a/b\r\n\r\n",
            "Host: a\r\n folded\r\n\r\n",
            "Host : a\r\n\r\n",
            ": a\r\n\r\n",
            "Host\r\n\r\n",
            "Host: a\r\nX: a\0b\r\n\r\n",
            "Host: a\r\nX: a\rb\r\n\r\n",
            "Host: a\r\nX: \u{7f}\r\n\r\n",
            "Host: a\r\nContent-Length: +5\r\n\r\n",
            "Host: a\r\nContent-Length: \r\n\r\n",
            "Host: a\r\nContent-Length: 5, 5\r\n\r\n",
            "Host: a\r\nContent-Length: -1\r\n\r\n",
            "Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "Host: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "Host: a\r\nTransfer-Encoding: identity\r\n\r\n",
            "Host: a\r\nTransfer-Encoding: \r\n\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let (released, heads, violation) = scan(&format!("PUT / HTTP/1.1\r\n{headers}"));
            assert_eq!((released, heads), (0, 0), "{headers:?}");
            assert!(matches!(violation, Some(Violation::Malformed(_))), "{headers:?}");
        }
        let on_10 = "PUT / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(scan(on_10).2.is_some());
    }

    #[test]
    fn oversized_heads_are_refused_before_they_end() {
        let line = format!("GET /{}", "a".repeat(200));
        assert_eq!(scan(&line).2, Some(Violation::UriTooLong));
        let header = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(250));
        assert_eq!(scan(&header).2, Some(Violation::HeadersTooLarge));
        let headers = format!("GET / HTTP/1.1\r\n{}", "X: a\r\n".repeat(5));
        assert_eq!(scan(&headers).2, Some(Violation::HeadersTooLarge));
    }

    #[test]
    fn malformed_chunks_end_the_stream() {
        let start = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for chunks in [
            "\r\n",
            "g\r\n",
            "3\nabc\r\n",
            "3 \r\nabc\r\n",
            ";x\r\n",
            "0x3\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "11111111111111111\r\n",
            "-1\r\n",
            "0\r\n folded\r\n\r\n",
            "0\r\nA: b\n\r\n",
        ] {
            let (_, heads, violation) = scan(&format!("{start}{chunks}"));
            assert_eq!(heads, 1, "{chunks:?}");
            assert!(matches!(violation, Some(Violation::Malformed(_))), "{chunks:?}");
        }
    }

    #[test]
    fn each_head_is_judged_whose_host_or_page_may_be_another() {
        let rules = Arc::new(OriginRules::new("127.0.0.1:80".parse().unwrap(), &[]));
        let heads = |lines: &[&str]| {
            let request = |line: &&str| format!("GET / HTTP/1.1\r\n{line}\r\n\r\n");
            let mut input = lines.iter().map(request).collect::<String>().into_bytes();
            let scan = Scanner::new(LIMITS, Some(rules.clone())).scan(&mut input);
            (scan.heads, scan.violation)
        };
        let (local, evil) = ("Host: localhost", "Host: evil");
        let foreign = "Host: localhost\r\nOrigin: http://evil";
        let own = "Origin: http://localhost\r\nHost: localhost";
        assert_eq!(heads(&[local, local, "host: 127.0.0.1:1", local, own, local]), (6, None));
        assert_eq!(heads(&[evil, local]), (0, Some(Violation::UnknownHost)));
        assert_eq!(heads(&[local, local, evil]), (2, Some(Violation::UnknownHost)));
        assert_eq!(heads(&[local, "Host:", evil]), (2, Some(Violation::UnknownHost)));
        assert_eq!(heads(&[local, foreign, local]), (1, Some(Violation::CrossOrigin)));
        let cross = "Host: localhost\r\nSec-Fetch-Site: cross-site";
        assert_eq!(heads(&[local, local, cross]), (2, Some(Violation::CrossOrigin)));
    }

    #[test]
    fn upgrade_is_blanked() {
        let mut input = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n".to_vec();
        assert_eq!(Scanner::new(LIMITS, None).scan(&mut input).heads, 1);
        assert!(input.windows(11).any(|window| window == b"xpgrade: h2"));
    }
}
