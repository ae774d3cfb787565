//! Both loops over many connections, driven by one thread.
//!
//! Each connection has a stream, a schedule and room for `pipeline` requests. In a closed loop it is
//! refilled as its answers come; in an open one when its slots are due, or, if it had no room then,
//! as soon as it has. Nothing waits for another connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use quanta::Instant;

use super::check::{Check, Told};
use super::closed::{Lane, refuse_wrong, write_value};
use super::interval::Times;
use super::open::Timing;
use super::pace::{self, Schedule, Slot};
use super::recorder::Recorder;
use super::stop::Stop;
use crate::error::Result;
use crate::target::{Answers, Connections, Desk, Out, Request, TIME_OUT};
use crate::workload::{Kind, Operation, Stream};

/// Answers still under way after a stop are waited for this long.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What became of one thread's share of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Driven {
    /// Slots that were due long ago were given up: how long after the start the attempt ended.
    pub(super) gave_up: Option<Duration>,
    /// The share of the time in which the driving thread was busy.
    pub(super) busy_share: f64,
    /// Processor time that went by in looking at the clock until requests were due.
    pub(super) spun: Duration,
}

/// Drives every lane over its connection until their work is done. The last lane is a background
/// writer's if `has_background`: it ends with the others.
pub(super) fn run(
    lanes: Vec<Lane>,
    has_background: bool,
    pipeline: u32,
    connections: &mut dyn Connections,
    timing: Timing,
    stop: &Stop<'_>,
) -> Result<Driven> {
    pace::wake_punctually();
    let mut desk = LoadDesk::new(lanes, pipeline as usize, timing.start);
    let outcome = drive(&mut desk, has_background, connections, timing, stop);
    desk.lines.into_iter().for_each(|line| line.recorder.finish());
    outcome
}

fn drive(
    desk: &mut LoadDesk,
    has_background: bool,
    connections: &mut dyn Connections,
    timing: Timing,
    stop: &Stop<'_>,
) -> Result<Driven> {
    let mut driven = Driven::default();
    let mut waited = Duration::ZERO;
    let mut stopped_at = None;
    let mut gave_up = false;
    let foreground = desk.lines.len() - usize::from(has_background);
    pace::wait_until(timing.start, timing.margin, stop);
    for connection in 0..desk.lines.len() {
        connections.offer(connection, desk)?;
    }
    loop {
        refuse_wrong(&desk.wrong)?;
        let now = Instant::now();
        if timing.give_up.is_some_and(|give_up| now > give_up) && !desk.is_ending {
            gave_up = true;
            desk.end();
        }
        if stop.is_set() {
            desk.end();
        }
        if desk.lines[..foreground].iter().all(Line::is_done) {
            desk.end();
        }
        if desk.is_ending {
            let since = *stopped_at.get_or_insert(now);
            if desk.lines.iter().all(Line::is_done) {
                break;
            }
            if now - since > LAST_ANSWERS {
                desk.note_unanswered(now);
                break;
            }
        }
        while let Some(connection) = desk.pop_due(now) {
            connections.offer(connection, desk)?;
        }
        waited += connections.turn(desk.wait(timing.margin), desk)?;
    }
    let whole = timing.start.elapsed();
    driven.gave_up = gave_up.then_some(whole);
    driven.busy_share = 1.0 - waited.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
    Ok(driven)
}

/// One connection's work.
struct Line {
    stream: Stream,
    schedule: Schedule,
    recorder: Recorder,
    /// A slot taken from the schedule and not yet sent.
    next: Option<Slot>,
    /// Nothing more is to be sent.
    has_ended: bool,
    /// Places for requests under way.
    free: Vec<usize>,
    room: usize,
    free_since: Instant,
    /// Places whose value was read, and is to be written.
    to_write: Vec<usize>,
    is_queued: bool,
    /// A write failed, which every place of this line has to know.
    doubts: bool,
}

impl Line {
    fn is_done(&self) -> bool {
        self.has_ended && self.free.len() == self.room
    }
}

/// A request under way.
struct Place {
    operation: Operation,
    check: Check,
    due: Instant,
    sent: Instant,
    is_writing: bool,
}

struct LoadDesk {
    lines: Vec<Line>,
    places: Vec<Place>,
    pipeline: usize,
    start: Instant,
    /// Connections with room, by when their next slot is due.
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    value: Vec<u8>,
    wrong: Told,
    is_ending: bool,
}

impl LoadDesk {
    fn new(lanes: Vec<Lane>, pipeline: usize, start: Instant) -> LoadDesk {
        let mut places = Vec::with_capacity(lanes.len() * pipeline);
        for lane in &lanes {
            places.extend((0..pipeline).map(|_| Place {
                operation: Operation::empty(),
                check: Check::new(lane.stream.plan().clone()),
                due: start,
                sent: start,
                is_writing: false,
            }));
        }
        let lines = lanes.into_iter().enumerate().map(|(at, lane)| Line {
            stream: lane.stream,
            schedule: lane.schedule,
            recorder: lane.recorder,
            next: None,
            has_ended: false,
            free: (at * pipeline..(at + 1) * pipeline).collect(),
            room: pipeline,
            free_since: start,
            to_write: Vec::new(),
            is_queued: false,
            doubts: false,
        });
        LoadDesk {
            lines: lines.collect(),
            places,
            pipeline,
            start,
            queue: BinaryHeap::new(),
            value: Vec::new(),
            wrong: Told::Nothing,
            is_ending: false,
        }
    }

    /// Sends nothing more but the second halves of what was begun.
    fn end(&mut self) {
        self.is_ending = true;
        self.queue.clear();
        self.lines.iter_mut().for_each(|line| line.has_ended = true);
    }

    /// Takes note of what is still under way as of requests that timed out: they were waited for, and a server that
    /// hangs would have the latencies of the time before.
    fn note_unanswered(&mut self, now: Instant) {
        let told = Told::Failed(TIME_OUT.to_owned());
        for (at, place) in self.places.iter().enumerate() {
            let line = &mut self.lines[at / self.pipeline];
            if !line.free.contains(&at) {
                let times = Times { due: place.due, sent: place.sent, answered: now };
                line.recorder.note(&place.operation, &told, times);
            }
        }
    }

    /// A connection with room whose slot is due.
    fn pop_due(&mut self, now: Instant) -> Option<usize> {
        let Reverse((due, connection)) = *self.queue.peek()?;
        if due > now {
            return None;
        }
        self.queue.pop();
        self.lines[connection].is_queued = false;
        Some(connection)
    }

    /// How long there is nothing to send.
    fn wait(&self, margin: Duration) -> Duration {
        let Some(Reverse((due, _))) = self.queue.peek() else { return pace::SLEEP_MAX };
        let left = due.saturating_duration_since(Instant::now());
        left.saturating_sub(margin).min(pace::SLEEP_MAX)
    }

    /// Sends one new request over a connection with room; `false` when none is due.
    fn send_next(&mut self, connection: usize, out: &mut dyn Out) -> bool {
        let start = self.start;
        let line = &mut self.lines[connection];
        if line.next.is_none() {
            line.next = line.schedule.next(|| start.elapsed());
        }
        let due = match line.next {
            None => {
                line.has_ended = true;
                return false;
            }
            Some(Slot::AtOnce) => None,
            Some(Slot::At(offset)) => Some(start + offset),
        };
        let now = Instant::now();
        if let Some(due) = due.filter(|due| *due > now) {
            if !line.is_queued {
                line.is_queued = true;
                self.queue.push(Reverse((due, connection)));
            }
            return false;
        }
        line.next = None;
        let place = line.free.pop().expect("the connection has room");
        let Place { operation, check, .. } = &mut self.places[place];
        if !line.stream.next(operation) {
            line.free.push(place);
            line.has_ended = true;
            return false;
        }
        write_value(&line.stream, operation, &mut self.value);
        check.expect(operation);
        let sent = Instant::now();
        if let Some(due) = due {
            let own = sent.saturating_duration_since(due.max(line.free_since));
            line.recorder.note_lag(sent.saturating_duration_since(due), own);
        }
        let request = operation.request(&self.value);
        out.send(place as u64, request);
        let place = &mut self.places[place];
        (place.due, place.sent, place.is_writing) = (due.unwrap_or(sent), sent, false);
        true
    }
}

impl Desk for LoadDesk {
    fn answers(&mut self, token: u64) -> &mut dyn Answers {
        &mut self.places[token as usize].check
    }

    fn answered(&mut self, token: u64) {
        let at = token as usize;
        let connection = at / self.pipeline;
        let answered = self.places[at].check.finish();
        if self.places[at].check.doubts() && !self.lines[connection].doubts {
            self.lines[connection].doubts = true;
            let places = connection * self.pipeline..(connection + 1) * self.pipeline;
            self.places[places].iter_mut().for_each(|place| place.check.doubt());
        }
        let (place, line) = (&mut self.places[at], &mut self.lines[connection]);
        if let wrong @ Told::Wrong(_) = &place.check.told {
            self.wrong = wrong.clone();
        }
        let reads = place.operation.kind == Kind::ReadModifyWrite && !place.is_writing;
        if reads && place.check.told == Told::Good {
            place.is_writing = true;
            line.to_write.push(at);
            return;
        }
        let times = Times { due: place.due, sent: place.sent, answered };
        line.recorder.note(&place.operation, &place.check.told, times);
        if line.free.is_empty() {
            line.free_since = answered;
        }
        line.free.push(at);
    }

    fn refill(&mut self, connection: usize, out: &mut dyn Out) {
        while let Some(at) = self.lines[connection].to_write.pop() {
            let place = &mut self.places[at];
            write_value(&self.lines[connection].stream, &place.operation, &mut self.value);
            place.check.expect_write(&place.operation);
            let request = Request::Put { key: &place.operation.key, value: &self.value };
            out.send(at as u64, request);
        }
        while !self.lines[connection].has_ended
            && !self.lines[connection].free.is_empty()
            && self.send_next(connection, out)
        {}
    }
}
