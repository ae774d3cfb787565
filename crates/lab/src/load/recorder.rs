//! Where measurements go: each generator thread fills an interval of a second, one collector adds
//! them up.
//!
//! Handing whole intervals over keeps locks and merging off the threads that time requests.
//! Invariant: every answer is in exactly one interval, that of the second in which it came.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use quanta::Instant;

use super::check::Told;
use super::collected::Collected;
use super::interval::{Interval, Tally, Times, record};
use crate::keys::mix;
use crate::target::TIME_OUT;
use crate::workload::{Kind, Operation};

/// One thread's notes.
#[derive(Debug)]
pub(super) struct Recorder {
    start: Instant,
    is_open_loop: bool,
    /// What a background writer does is no part of what the run is about, nor of the work that two runs have in
    /// common.
    counts_as_work: bool,
    interval: Box<Interval>,
    full: Sender<Full>,
    give_back: Sender<Box<Interval>>,
    cleared: Receiver<Box<Interval>>,
}

/// A finished interval, and where it goes to be used again.
#[derive(Debug)]
struct Full {
    interval: Box<Interval>,
    give_back: Sender<Box<Interval>>,
}

impl Recorder {
    /// Takes note of an answered operation, unless it is wrong or never came. One that was waited for until it timed
    /// out is no operation, but its latency is one: it was no shorter than that.
    pub(super) fn note(&mut self, operation: &Operation, told: &Told, times: Times) {
        let at = times.answered.saturating_duration_since(self.start);
        if at.as_secs() != self.interval.second {
            self.hand_over(at.as_secs());
        }
        let interval = &mut *self.interval;
        let tally =
            interval.tallies[operation.kind as usize].get_or_insert_with(|| Box::new(Tally::new()));
        let is_missed = match told {
            Told::Good => false,
            Told::Missed => true,
            Told::Failed(kind) => {
                *tally.errors.entry(kind.clone()).or_default() += 1;
                if kind == TIME_OUT {
                    tally.note_latency(times, self.is_open_loop);
                }
                return;
            }
            Told::Nothing | Told::Wrong(_) => return,
        };
        tally.count += 1;
        tally.missed += u64::from(is_missed);
        tally.note_latency(times, self.is_open_loop);
        let bytes = operation.key.len() as u64;
        interval.written_bytes += match operation.kind {
            Kind::Put | Kind::ReadModifyWrite => bytes + u64::from(operation.value_bytes),
            Kind::Delete => bytes,
            Kind::Get | Kind::Head | Kind::Scan => 0,
        };
        if self.counts_as_work {
            interval.operations += 1;
            interval.last_answer = at;
            let asked = operation.hash ^ u64::from(operation.value_bytes) << 32;
            interval.checksum ^= mix(asked ^ u64::from(is_missed));
        }
    }

    /// Takes note of how late a request was sent, and how much of that was the generator's doing.
    pub(super) fn note_lag(&mut self, late: Duration, own: Duration) {
        self.interval.late_max = self.interval.late_max.max(late);
        record(&mut self.interval.lag, own);
    }

    fn hand_over(&mut self, second: u64) {
        let next = self.cleared.try_recv().unwrap_or_else(|_| Box::new(Interval::new()));
        let interval = std::mem::replace(&mut self.interval, next);
        self.interval.second = second;
        // Nobody collects any more once the run is over.
        let _ = self.full.send(Full { interval, give_back: self.give_back.clone() });
    }

    /// Hands over what is left.
    pub(super) fn finish(mut self) {
        self.hand_over(0);
    }
}

/// Hands out recorders, and takes what they measured.
pub(super) struct Collector {
    full: Receiver<Full>,
    sender: Option<Sender<Full>>,
    pub(super) collected: Collected,
}

impl Collector {
    pub(super) fn new(start: Instant, is_open_loop: bool) -> Collector {
        let (sender, full) = mpsc::channel();
        let collected = Collected::new(start, is_open_loop);
        Collector { full, sender: Some(sender), collected }
    }

    /// A recorder for one more thread. Requires: `seal` was not called.
    pub(super) fn recorder(&self, is_open_loop: bool, counts_as_work: bool) -> Recorder {
        let (give_back, cleared) = mpsc::channel();
        Recorder {
            start: self.collected.start(),
            is_open_loop,
            counts_as_work,
            interval: Box::new(Interval::new()),
            full: self.sender.clone().expect("recorders are made before the start"),
            give_back,
            cleared,
        }
    }

    /// No more recorders will be asked for: collecting ends with the last of them.
    pub(super) fn seal(&mut self) {
        self.sender = None;
    }

    /// Takes what comes for this long; whether more may come.
    pub(super) fn collect(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.full.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Full { mut interval, give_back }) => {
                    self.collected.add(&interval);
                    interval.clear();
                    // Its thread may have ended.
                    let _ = give_back.send(interval);
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hdrhistogram::Histogram;

    use super::super::collected::latency;
    use super::super::interval::histogram;
    use super::*;
    use crate::record::Latency;

    fn operation(kind: Kind, hash: u64) -> Operation {
        Operation { kind, hash, key: vec![b'k'; 16], value_bytes: 100, ..Operation::empty() }
    }

    fn note(recorder: &mut Recorder, kind: Kind, told: &Told, answered_ms: u64, took_ms: u64) {
        let answered = recorder.start + Duration::from_millis(answered_ms);
        let due = answered - Duration::from_millis(took_ms);
        let sent = due + Duration::from_millis(took_ms / 2);
        recorder.note(&operation(kind, answered_ms), told, Times { due, sent, answered });
    }

    #[test]
    fn seconds_and_totals_of_all_threads_add_up() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut collector = Collector::new(start, true);
        let mut one = collector.recorder(true, true);
        let mut other = collector.recorder(true, true);
        let mut stuck = collector.recorder(true, true);
        collector.seal();
        for second in 0..30_u64 {
            note(&mut one, Kind::Put, &Told::Good, second * 1000 + 100, 10);
            note(&mut other, Kind::Get, &Told::Missed, second * 1000 + 300, 20);
            note(&mut other, Kind::Get, &Told::Good, second * 1000 + 400, 40);
        }
        note(&mut other, Kind::Get, &Told::Failed("503".into()), 29_500, 500);
        // What happened long ago is handed over late by a thread that was stuck.
        note(&mut stuck, Kind::Put, &Told::Good, 2500, 60);
        one.finish();
        other.finish();
        collector.collect(Duration::ZERO);
        stuck.finish();
        while collector.collect(Duration::from_secs(1)) {}
        let outcome = collector.collected.outcome();
        let mut per_second = vec![3; 30];
        per_second[2] = 4;
        assert_eq!((outcome.operations, &outcome.per_second), (91, &per_second));
        let (put, get) = (&outcome.kinds["put"], &outcome.kinds["get"]);
        assert_eq!((put.count, get.count, get.missed), (31, 60, 30));
        assert_eq!(get.errors, BTreeMap::from([("503".into(), 1)]));
        assert_eq!(outcome.user_written_bytes, 31 * 116);
        let about = |ns: u64, ms: f64| (ns as f64 / 1e6 / ms - 1.0).abs() < 0.002;
        assert!(about(get.latency.max_ns, 40.0) && about(get.from_sent.max_ns, 20.0));
        assert!(about(get.latency.p50_ns, 20.0), "{:?}", get.latency);
        assert!(get.per_second.iter().all(|second| about(second[2], 40.0)));
        assert!(about(put.per_second[2][2], 60.0) && about(put.per_second[3][2], 10.0));
        assert!(
            (outcome.seconds - 29.4).abs() < 1e-6,
            "errors are no answers: {}",
            outcome.seconds
        );
    }

    /// Requests that hung until they timed out were in no latency, which was the better for it.
    #[test]
    fn a_time_out_is_a_latency_and_no_operation() {
        let mut collector = Collector::new(Instant::now() + Duration::from_secs(10), true);
        let mut recorder = collector.recorder(true, true);
        collector.seal();
        note(&mut recorder, Kind::Get, &Told::Good, 100, 10);
        note(&mut recorder, Kind::Get, &Told::Failed(TIME_OUT.into()), 3500, 3000);
        recorder.finish();
        while collector.collect(Duration::from_secs(1)) {}
        let outcome = collector.collected.outcome();
        let get = &outcome.kinds["get"];
        assert_eq!((get.count, get.errors[TIME_OUT], outcome.operations), (1, 1, 1));
        let about = |ns: u64, ms: f64| (ns as f64 / 1e6 / ms - 1.0).abs() < 0.002;
        assert!(about(get.latency.max_ns, 3000.0), "{:?}", get.latency);
        assert!(about(get.from_sent.max_ns, 1500.0), "{:?}", get.from_sent);
        assert_eq!(outcome.per_second, [1, 0, 0, 0]);
        assert!(about(get.per_second[3][2], 3000.0), "{:?}", get.per_second);
        assert!((outcome.seconds - 0.1).abs() < 1e-6, "{}", outcome.seconds);
    }

    #[test]
    fn histograms_in_records_can_be_read_back() {
        use base64::Engine as _;
        use hdrhistogram::serialization::Deserializer;
        let mut histogram = histogram();
        (1..=1000).for_each(|us| record(&mut histogram, Duration::from_micros(us)));
        let latency = latency(&histogram);
        let bytes = base64::engine::general_purpose::STANDARD.decode(&latency.histogram).unwrap();
        let back: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(back, histogram);
        assert_eq!(
            super::super::collected::latency(&Histogram::new(3).unwrap()),
            Latency::default()
        );
    }

    #[test]
    fn checksum_tells_work_apart_but_not_its_order() {
        let checksum = |notes: &[(u64, Told)]| {
            let mut collector = Collector::new(Instant::now(), false);
            let mut recorder = collector.recorder(false, true);
            collector.seal();
            for (at, told) in notes {
                note(&mut recorder, Kind::Get, told, *at, 0);
            }
            recorder.finish();
            while collector.collect(Duration::from_secs(1)) {}
            collector.collected.outcome().work_checksum
        };
        let (good, missed) = (Told::Good, Told::Missed);
        let one = checksum(&[(1, good.clone()), (2, good.clone())]);
        assert_eq!(one, checksum(&[(2, good.clone()), (1, good.clone())]));
        assert_ne!(one, checksum(&[(1, good.clone()), (2, missed)]));
        assert_ne!(one, checksum(&[(1, good.clone()), (3, good)]));
    }
}
