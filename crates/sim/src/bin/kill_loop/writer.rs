//! One writer: a connection, keys of its own, and writes until the connection breaks.
//!
//! Keys `wNN/log/M` are each written once, in order, several in flight, and deleted from the oldest
//! on; keys `wNN/reg/M` are overwritten and deleted, alone or in atomic batches.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http::{Connection, base64};
use crate::model::{Model, State, Write};
use crate::random::Random;
use crate::report::Violation;
use crate::value;

/// Keys that are overwritten.
const REGISTER_COUNT: u64 = 32;

/// Log entries kept before the oldest are deleted.
const LOG_ENTRIES_KEPT: u64 = 400;

/// Most requests sent before their answers are awaited.
const IN_FLIGHT_MAX: u64 = 8;

/// A writer and what it knows.
pub(crate) struct Writer {
    pub(crate) model: Model,
    prefix: String,
    random: Random,
    /// The last write's number.
    sequence: u64,
    /// Log entries `[log_start, log_end)` were written and not deleted.
    log_start: u64,
    log_end: u64,
}

/// How a writer's cycle went.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) acknowledged: u64,
    pub(crate) indeterminate: u64,
    pub(crate) violation: Option<Violation>,
}

impl Writer {
    pub(crate) fn new(number: usize, random: Random) -> Self {
        Writer {
            model: Model::default(),
            prefix: format!("w{number:02}/"),
            random,
            sequence: 0,
            log_start: 0,
            log_end: 0,
        }
    }

    /// What all its keys start with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Writes until the connection breaks, which it must not do before `ending` is set.
    pub(crate) fn write_until_broken(
        &mut self,
        address: SocketAddr,
        ending: &AtomicBool,
    ) -> Written {
        let mut written = Written::default();
        let outcome = self.write(address, ending, &mut written);
        if let Err(error) = outcome
            && !ending.load(Ordering::SeqCst)
        {
            let what = format!("{}: connection broke under a running server: {error}", self.prefix);
            written.violation = Some(Violation::new(what));
        }
        written.indeterminate = self.model.under_way().len() as u64;
        written
    }

    /// Returns without an error only when the server refused a write, which it may do when it has
    /// been asked to stop.
    fn write(
        &mut self,
        address: SocketAddr,
        ending: &AtomicBool,
        written: &mut Written,
    ) -> io::Result<()> {
        let mut connection = Connection::open(address)?;
        loop {
            let count = self.push_some(&mut connection);
            connection.send()?;
            for _ in 0..count {
                let answer = connection.answer()?;
                if !(200..300).contains(&answer.status) {
                    if !ending.load(Ordering::SeqCst) {
                        let what =
                            format!("{}: a write was answered {}", self.prefix, answer.status);
                        written.violation = Some(Violation::new(what));
                    }
                    return Ok(());
                }
                self.model.acknowledge();
                written.acknowledged += 1;
            }
        }
    }

    /// Pushes the requests of the next writes; answers how many.
    fn push_some(&mut self, connection: &mut Connection) -> u64 {
        if self.log_end - self.log_start > LOG_ENTRIES_KEPT {
            for _ in 0..IN_FLIGHT_MAX {
                let key = self.log_key(self.log_start);
                self.log_start += 1;
                self.push_one(connection, key, true);
            }
            return IN_FLIGHT_MAX;
        }
        match self.random.below(100) {
            0..50 => {
                let count = 1 + self.random.below(IN_FLIGHT_MAX);
                for _ in 0..count {
                    let key = self.log_key(self.log_end);
                    self.log_end += 1;
                    self.push_one(connection, key, false);
                }
                count
            }
            50..80 => {
                let key = self.register_key();
                self.push_one(connection, key, false);
                1
            }
            80..88 => {
                let key = self.register_key();
                self.push_one(connection, key, true);
                1
            }
            _ => {
                self.push_batch(connection);
                1
            }
        }
    }

    fn push_one(&mut self, connection: &mut Connection, key: String, is_delete: bool) {
        let target = format!("/v0/entity?id={key}");
        let state = self.next_state(is_delete);
        match state {
            Some(sequence) => connection.push("PUT", &target, &value::make(&key, sequence)),
            None => connection.push("DELETE", &target, b""),
        }
        self.model.begin(Write { keys: vec![(key, state)] });
    }

    fn push_batch(&mut self, connection: &mut Connection) {
        let mut keys: Vec<String> =
            (0..2 + self.random.below(5)).map(|_| self.register_key()).collect();
        keys.sort();
        keys.dedup();
        let mut operations = Vec::new();
        let mut writes = Vec::new();
        for key in keys {
            let is_delete = self.random.chance(20);
            let state = self.next_state(is_delete);
            operations.push(operation(&key, state));
            writes.push((key, state));
        }
        let body = format!("{{\"operations\":[{}]}}", operations.join(","));
        connection.push("POST", "/kv", body.as_bytes());
        self.model.begin(Write { keys: writes });
    }

    fn next_state(&mut self, is_delete: bool) -> State {
        self.sequence += 1;
        (!is_delete).then_some(self.sequence)
    }

    fn log_key(&self, number: u64) -> String {
        format!("{}log/{number:09}", self.prefix)
    }

    fn register_key(&mut self) -> String {
        format!("{}reg/{:03}", self.prefix, self.random.below(REGISTER_COUNT))
    }
}

/// One operation of a batch in JSON.
fn operation(key: &str, state: State) -> String {
    let encoded = base64(key.as_bytes());
    match state {
        Some(sequence) => {
            let value = base64(&value::make(key, sequence));
            format!("{{\"put\":{{\"key\":\"{encoded}\",\"value\":\"{value}\"}}}}")
        }
        None => format!("{{\"delete\":{{\"key\":\"{encoded}\"}}}}"),
    }
}
