//! What the data and S3 listeners did: requests by operation and status, how long they took, bytes, and what
//! was refused before it was a request.
//!
//! A runtime thread writes to a shard of its own; looking merges the shards. The time of a request is
//! from its head being read to its reply being ready to send; what of a listing follows is not in it.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tallybook::stages::Distribution;

/// Shards; runtime threads beyond so many share.
const SHARDS: usize = 16;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Get,
    Head,
    Put,
    Delete,
    Scan,
    Batch,
    /// Anything at `/files`.
    Files,
    /// Anything at the S3 listener.
    S3,
    /// Health, unknown paths, methods that are not allowed.
    Other,
}

impl Operation {
    /// Every one.
    pub(crate) const ALL: [Operation; 9] = [
        Operation::Get,
        Operation::Head,
        Operation::Put,
        Operation::Delete,
        Operation::Scan,
        Operation::Batch,
        Operation::Files,
        Operation::S3,
        Operation::Other,
    ];

    /// Its name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::Head => "head",
            Operation::Put => "put",
            Operation::Delete => "delete",
            Operation::Scan => "scan",
            Operation::Batch => "batch",
            Operation::Files => "files",
            Operation::S3 => "s3",
            Operation::Other => "other",
        }
    }
}

/// The statuses of what is refused before it is a request: by the filter, for time, for connections.
pub(crate) const REFUSED: [u16; 7] = [400, 403, 408, 414, 421, 431, 503];

/// What was done of one operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperationTraffic {
    /// How long requests took.
    pub(crate) latency: Distribution,
    /// Requests by status, in the order in which statuses first came.
    pub(crate) by_status: Vec<(u16, u64)>,
}

impl OperationTraffic {
    fn count(&mut self, status: u16, requests: u64) {
        match self.by_status.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += requests,
            None => self.by_status.push((status, requests)),
        }
    }

    /// Requests of all statuses.
    pub(crate) fn requests(&self) -> u64 {
        self.by_status.iter().map(|(_, count)| count).sum()
    }

    /// Requests answered 500 or above.
    pub(crate) fn failures(&self) -> u64 {
        self.by_status.iter().filter(|(status, _)| *status >= 500).map(|(_, count)| count).sum()
    }
}

/// What was done in all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic {
    operations: [OperationTraffic; Operation::ALL.len()],
    /// What was refused, by the statuses of `REFUSED`.
    refusals: [u64; REFUSED.len()],
    /// Bytes received on data and S3 connections, heads included.
    pub(crate) bytes_received: u64,
    /// Bytes sent on data and S3 connections, heads included.
    pub(crate) bytes_sent: u64,
}

impl Traffic {
    /// What was done of one operation.
    pub(crate) fn of(&self, operation: Operation) -> &OperationTraffic {
        &self.operations[operation as usize]
    }

    /// Statuses of what was refused before it was a request, and how often.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (u16, u64)> {
        REFUSED.into_iter().zip(self.refusals)
    }

    /// What was done since `earlier`, an earlier look.
    pub(crate) fn since(&self, earlier: &Traffic) -> Traffic {
        let mut between = self.clone();
        for (now, then) in between.operations.iter_mut().zip(&earlier.operations) {
            now.latency = now.latency.since(&then.latency);
            for (status, count) in &mut now.by_status {
                let before = then.by_status.iter().find(|(known, _)| known == status);
                *count -= before.map_or(0, |(_, count)| *count).min(*count);
            }
        }
        for (now, then) in between.refusals.iter_mut().zip(earlier.refusals) {
            *now -= then.min(*now);
        }
        between.bytes_received -= earlier.bytes_received.min(self.bytes_received);
        between.bytes_sent -= earlier.bytes_sent.min(self.bytes_sent);
        between
    }

    fn add_bytes(&mut self, (received, sent): (u64, u64)) {
        self.bytes_received += received;
        self.bytes_sent += sent;
    }

    fn add(&mut self, other: &Traffic) {
        self.add_bytes((other.bytes_received, other.bytes_sent));
        for (sum, one) in self.refusals.iter_mut().zip(other.refusals) {
            *sum += one;
        }
        for (sum, one) in self.operations.iter_mut().zip(&other.operations) {
            sum.latency.add(&one.latency);
            for &(status, count) in &one.by_status {
                sum.count(status, count);
            }
        }
    }
}

/// Counts and times requests.
#[derive(Debug)]
pub(crate) struct Meter {
    shards: Box<[Shard]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Traffic>);

/// Which shard is this thread's.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = Cell::new(NEXT.fetch_add(1, Relaxed) % SHARDS);
    }
    SHARD.get()
}

impl Default for Meter {
    fn default() -> Self {
        Meter { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Meter {
    /// Notes a request that was answered, and the bytes received and sent since the one before.
    pub(crate) fn note(
        &self,
        operation: Operation,
        status: u16,
        took: Duration,
        bytes: (u64, u64),
    ) {
        let mut traffic = self.shards[shard()].0.lock();
        traffic.add_bytes(bytes);
        let operation = &mut traffic.operations[operation as usize];
        operation.latency.record(took);
        operation.count(status, 1);
    }

    /// Notes bytes received and sent on a connection, of no request.
    pub(crate) fn note_bytes(&self, bytes: (u64, u64)) {
        self.shards[shard()].0.lock().add_bytes(bytes);
    }

    /// Notes a refusal. Requires: the status is one of `REFUSED`.
    pub(crate) fn note_refusal(&self, status: u16) {
        let at = REFUSED.iter().position(|known| *known == status);
        let at = at.expect("the statuses of refusals are all known");
        self.shards[shard()].0.lock().refusals[at] += 1;
    }

    /// Everything so far.
    pub(crate) fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        for shard in &self.shards {
            traffic.add(&shard.0.lock());
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_what_was_noted_on_every_thread_and_since_the_last_look() {
        let meter = Meter::default();
        let note = |status, bytes| {
            meter.note(Operation::Get, status, Duration::from_micros(50), bytes);
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    note(200, (10, 15));
                    note(404, (0, 0));
                    meter.note_bytes((0, 5));
                });
            }
        });
        let first = meter.traffic();
        assert_eq!((first.bytes_received, first.bytes_sent), (30, 60));
        note(503, (0, 0));
        note(200, (0, 0));
        REFUSED.into_iter().for_each(|status| meter.note_refusal(status));
        let second = meter.traffic();
        assert!(second.since(&first).refusals().eq(REFUSED.map(|status| (status, 1))));
        assert!(second.since(&second).refusals().all(|(_, count)| count == 0));
        assert_eq!(second.of(Operation::Get).requests(), 8);
        let between = second.since(&first);
        let get = between.of(Operation::Get);
        assert_eq!((get.requests(), get.failures(), get.latency.count()), (2, 1, 2));
        assert_eq!((between.bytes_sent, between.of(Operation::Put).requests()), (0, 0));
    }
}
