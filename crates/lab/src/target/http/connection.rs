//! One connection: requests queued, written, answered in order, and sent again when it breaks.
//!
//! Invariant: bytes of a request are kept until its answer is whole, so that a server that closes
//! connections, between answers or in the middle of one, loses no request. What is asked may be asked
//! twice: each request of the lab has the same effect then.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Server;
use super::response::{Asked, Response, Step};
use crate::error::{Error, Result};
use crate::target::{Desk, Out, Request};

/// Room for what is read at once.
const READ_BYTES: usize = 64 << 10;
/// A request on which the connection broke so often is answered by that.
const BREAKS_MAX: u32 = 3;
/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A request without a whole answer.
#[derive(Debug)]
struct Pending {
    token: u64,
    asked: Asked,
    /// Where its bytes begin, counted from the first byte ever queued.
    start: u64,
    queued_at: Instant,
    breaks: u32,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: TcpStream,
    server: Server,
    pending: VecDeque<Pending>,
    /// Bytes of the pending requests, and of answered ones that weren't dropped yet.
    out: Vec<u8>,
    /// Where they begin, counted as above.
    out_start: u64,
    written: usize,
    input: Vec<u8>,
    input_len: usize,
    consumed: usize,
    response: Response,
    /// Something of the answer to the first pending request was told.
    has_told: bool,
}

/// What handling an event came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// All that was queued has been written.
    Written,
    /// The socket takes no more for now.
    Blocked,
}

impl Connection {
    pub(super) fn connect(server: &Server) -> Result<Connection> {
        Ok(Connection {
            socket: connect(server)?,
            server: server.clone(),
            pending: VecDeque::new(),
            out: Vec::new(),
            out_start: 0,
            written: 0,
            input: vec![0; READ_BYTES],
            input_len: 0,
            consumed: 0,
            response: Response::default(),
            has_told: false,
        })
    }

    /// Writes what is queued, as far as the socket takes it.
    pub(super) fn write(&mut self) -> io::Result<State> {
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(State::Blocked),
                Err(error) => return Err(error),
            }
        }
        Ok(State::Written)
    }

    /// Reads once, and tells of every answer that is whole. `false`: the connection has ended.
    pub(super) fn read(&mut self, desk: &mut dyn Desk) -> Result<bool> {
        if self.input_len == self.input.len() {
            self.make_room(READ_BYTES);
        }
        match self.socket.read(&mut self.input[self.input_len..]) {
            Ok(0) => return Ok(false),
            Ok(bytes) => self.input_len += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            // A reset: what was asked is asked again.
            Err(_) => return Ok(false),
        }
        self.tell_answers(desk)
    }

    fn tell_answers(&mut self, desk: &mut dyn Desk) -> Result<bool> {
        while self.consumed < self.input_len {
            let Some(first) = self.pending.front() else {
                return Err(self.gone("it answered what was not asked"));
            };
            let input = &self.input[..self.input_len];
            let answers = desk.answers(first.token);
            let before = self.consumed;
            let step = self.response.read(input, &mut self.consumed, first.asked, answers);
            self.has_told |= self.consumed > before;
            match step {
                Err(what) => return Err(self.gone(&what)),
                Ok(Step::Done { closes }) => {
                    self.finish_first(desk);
                    if closes {
                        return Ok(false);
                    }
                }
                Ok(Step::More(wanted)) => {
                    self.make_room(wanted);
                    return Ok(true);
                }
            }
        }
        (self.consumed, self.input_len) = (0, 0);
        Ok(true)
    }

    fn finish_first(&mut self, desk: &mut dyn Desk) {
        let first = self.pending.pop_front().expect("an answer has its request");
        self.has_told = false;
        // A request may be answered before all of it was taken, such as a value that is refused: the
        // rest is written all the same, or the next one would stand in the middle of it.
        let droppable = self.answered_bytes().min(self.written);
        if droppable == self.out.len() || (droppable > READ_BYTES && droppable * 2 > self.out.len())
        {
            self.drop_out(droppable);
        }
        desk.answered(first.token);
    }

    /// Makes sure that `wanted` bytes from the first unread one on fit.
    fn make_room(&mut self, wanted: usize) {
        if self.consumed > 0 {
            self.input.copy_within(self.consumed..self.input_len, 0);
            self.input_len -= self.consumed;
            self.consumed = 0;
        }
        // Beyond what is wanted, so that the next answer's head comes along.
        let needed = wanted.max(self.input_len + 1) + READ_BYTES / 4;
        if self.input.len() < needed {
            self.input.resize(needed.next_multiple_of(READ_BYTES), 0);
        }
    }

    /// Connects anew after the connection has ended, and queues what was not answered again.
    pub(super) fn renew(&mut self, desk: &mut dyn Desk) -> Result<()> {
        if let Some(first) = self.pending.front_mut() {
            let (token, asked) = (first.token, first.asked);
            let unread = &self.input[self.consumed..self.input_len];
            if self.response.end(unread, asked, desk.answers(token)) {
                self.finish_first(desk);
            } else {
                first.breaks += 1;
                // An answer of which part was told already can't be told again.
                if first.breaks >= BREAKS_MAX || (self.has_told && asked == Asked::Scan) {
                    desk.answers(token).failed("connection closed");
                    self.finish_first(desk);
                }
            }
        }
        self.response = Response::default();
        (self.consumed, self.input_len, self.has_told) = (0, 0, false);
        self.drop_out(self.answered_bytes());
        self.written = 0;
        self.socket = connect(&self.server)?;
        Ok(())
    }

    /// Queued bytes that precede the first request without an answer.
    fn answered_bytes(&self) -> usize {
        let first = self.pending.front();
        first.map_or(self.out.len(), |first| (first.start - self.out_start) as usize)
    }

    fn drop_out(&mut self, bytes: usize) {
        self.out.drain(..bytes);
        self.out_start += bytes as u64;
        self.written = self.written.saturating_sub(bytes);
    }

    /// Whether the oldest request has waited too long.
    pub(super) fn has_timed_out(&self, now: Instant) -> bool {
        let oldest = self.pending.front();
        oldest.is_some_and(|oldest| {
            now.saturating_duration_since(oldest.queued_at) > self.server.timeout
        })
    }

    /// Gives up on every request under way.
    pub(super) fn fail_all(&mut self, kind: &str, desk: &mut dyn Desk) {
        while let Some(first) = self.pending.front() {
            desk.answers(first.token).failed(kind);
            self.finish_first(desk);
        }
    }

    /// The way out, for the desk.
    pub(super) fn out(&mut self) -> ConnectionOut<'_> {
        ConnectionOut { connection: self }
    }

    fn gone(&self, what: &str) -> Error {
        Error::Target { target: self.server.name.clone(), what: what.to_owned() }
    }
}

/// Where the desk's requests for one connection go.
pub(super) struct ConnectionOut<'a> {
    connection: &'a mut Connection,
}

impl Out for ConnectionOut<'_> {
    fn send(&mut self, token: u64, request: Request<'_>) {
        let connection = &mut *self.connection;
        let start = connection.out_start + connection.out.len() as u64;
        let asked = connection.server.lines.write(request, &mut connection.out);
        connection.pending.push_back(Pending {
            token,
            asked,
            start,
            queued_at: Instant::now(),
            breaks: 0,
        });
    }
}

fn connect(server: &Server) -> Result<TcpStream> {
    let connect = || {
        let socket = TcpStream::connect_timeout(&server.address, CONNECT)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    connect().map_err(|error: io::Error| Error::Target {
        target: server.name.clone(),
        what: format!("cannot connect: {error}"),
    })
}
