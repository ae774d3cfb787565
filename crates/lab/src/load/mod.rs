//! Loads a target with a plan's requests, and measures from outside.
//!
//! 1. Every thread or connection gets a stream, a schedule and a recorder.
//! 2. Threads drive a session each; or one thread drives every connection, where the target has them.
//! 3. This thread collects what they measured, second by second, and tells of the progress.
//!
//! Invariant: whatever ends a run, what was measured until then comes back.

mod stop;
mod check;
mod pace;
mod interval;
mod collected;
mod recorder;
mod closed;
mod open;
mod desk;
mod read_back;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use quanta::Instant;

use crate::error::{Error, Result};
use crate::process::thread_cpu_time;
use crate::record::{FELL_BEHIND, Outcome};
use crate::spec::{Length, Pace};
use crate::target::{Session, TIME_OUT, Target};
use crate::workload::{Plan, Stream};
use closed::Lane;
pub use collected::{Collected, latency};
use desk::Driven;
use open::Timing;
use pace::Schedule;
pub use pace::Waiting;
pub(crate) use pace::planned;
pub(crate) use read_back::{READ_BACK, read_back};
use recorder::Collector;
use stop::Stop;

/// How often the watcher is told.
const TICK: Duration = Duration::from_millis(200);
/// From making threads to the first request, so that all are there when it is due.
const HEAD_START: Duration = Duration::from_millis(5);
/// An open loop that fell behind may take this much longer than planned, if that is more than as long
/// again.
const OVERRUN_LEAST: Duration = Duration::from_secs(10);
/// The figure of the processor time that generating threads in the target's process spent looking at the
/// clock until requests were due, in seconds.
const SPUN: &str = "generator.spun_s";
/// The figure of that which the thread that collects what they measure took, in seconds.
const COLLECTED: &str = "generator.collected_s";
/// The figure of the share of its rate that the writer beside `readwhilewriting` made.
pub(crate) const WRITER_KEPT: &str = "writer.kept_share";
/// The figure of the share of the time in which the thread that drives all connections was busy.
pub(crate) const GENERATOR_BUSY: &str = "generator.busy_share";
/// A run of which a greater share of the requests failed doesn't count: they are in no rate, and but for time-outs in
/// no latency.
const ERROR_SHARE_MAX: f64 = 0.001;
/// A generating thread this busy is the bottleneck itself.
const BUSY_SHARE_MAX: f64 = 0.97;

/// How a run is made.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Set to end the run early; what was measured until then counts.
    pub stop: Arc<AtomicBool>,
    /// How the time until a request is due is spent.
    pub waiting: Waiting,
    /// An open loop is invalid when more than one request in a thousand was sent later than this by
    /// the generator's own fault. Default 5 ms.
    pub lag_max: Duration,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            stop: Arc::default(),
            waiting: Waiting::Auto,
            lag_max: Duration::from_millis(5),
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// Since its start.
    pub elapsed: Duration,
    /// Until its end, where that can be told.
    pub left: Option<Duration>,
    /// Operations answered.
    pub operations: u64,
}

/// What came of a run.
#[derive(Debug)]
pub struct Loaded {
    /// What was measured, `invalid` included where the run doesn't count.
    pub outcome: Outcome,
    /// What ended the run before its time.
    pub error: Option<Error>,
}

/// Is told, several times a second, how far a run is and what was measured so far.
pub type Watch<'a> = dyn FnMut(&Progress, &Collected) + 'a;

/// Measures the rate of the cycle counter, by which operations are timed, and what a look at the processor
/// time takes. That takes 10 to 200 ms, once in a process, which must not be a run's.
pub(crate) fn calibrate_clocks() {
    Instant::now();
    pace::look_time();
}

/// Processor time of the laboratory in its own process, in seconds, that no request or check took.
pub(crate) fn spent_beside_requests_s(outcome: &Outcome) -> f64 {
    [SPUN, COLLECTED].iter().filter_map(|figure| outcome.figures.get(*figure)).sum()
}

/// Loads `target` with `plan`. An error means that the run could not begin.
pub fn load(
    target: &dyn Target,
    plan: &Arc<Plan>,
    options: &LoadOptions,
    watch: &mut Watch<'_>,
) -> Result<Loaded> {
    let collecting_from = thread_cpu_time();
    let is_open_loop = plan.spec().pace != Pace::Closed;
    let background = plan.background_stream();
    let count = plan.spec().threads + u32::from(background.is_some());
    let mut connections = target.connections(count)?;
    let mut sessions: Vec<Box<dyn Session>> = Vec::new();
    if connections.is_none() {
        for _ in 0..count {
            sessions.push(target.session()?);
        }
    }
    let start = Instant::now() + HEAD_START;
    let planned = pace::planned(plan.spec());
    let timing = Timing {
        start,
        margin: options.waiting.margin(),
        give_up: planned
            .filter(|_| is_open_loop)
            .map(|planned| start + planned + planned.max(OVERRUN_LEAST)),
    };
    let mut collector = Collector::new(start, is_open_loop);
    let stop = Stop::new(&options.stop);
    let mut lanes: Vec<Lane> = (0..plan.spec().threads)
        .map(|place| Lane {
            stream: plan.stream(place),
            schedule: Schedule::new(plan.spec(), place),
            recorder: collector.recorder(is_open_loop, true),
        })
        .collect();
    let background = background.map(|stream| background_lane(stream, &collector));
    let has_background = background.is_some();
    lanes.extend(background);
    collector.seal();
    let ended = std::thread::scope(|scope| {
        let running = match &mut connections {
            Some(connections) => {
                let (stop, pipeline) = (&stop, plan.spec().pipeline);
                vec![scope.spawn(move || {
                    desk::run(lanes, has_background, pipeline, &mut **connections, timing, stop)
                })]
            }
            None => spawn_sessions(scope, lanes, sessions, has_background, timing, &stop),
        };
        while collector.collect(TICK) {
            let progress = progress(plan, &collector.collected, start.elapsed(), planned);
            watch(&progress, &collector.collected);
        }
        running.into_iter().map(|one| join(one, target.name())).collect::<Vec<_>>()
    });
    let mut loaded = conclude(&collector.collected, ended, is_open_loop, options, &stop);
    let rate = plan.spec().background_rate;
    if has_background && rate > 0.0 {
        let kept = collector.collected.kept_share(rate);
        loaded.outcome.figures.insert(WRITER_KEPT.into(), kept);
    }
    let collecting = thread_cpu_time() - collecting_from;
    loaded.outcome.figures.insert(COLLECTED.into(), collecting.as_secs_f64());
    Ok(loaded)
}

fn background_lane(stream: Stream, collector: &Collector) -> Lane {
    let rate = stream.plan().spec().background_rate;
    Lane {
        schedule: Schedule::endless(rate),
        recorder: collector.recorder(rate > 0.0, false),
        stream,
    }
}

type Running<'scope> = ScopedJoinHandle<'scope, Result<Driven>>;

fn spawn_sessions<'scope>(
    scope: &'scope Scope<'scope, '_>,
    lanes: Vec<Lane>,
    sessions: Vec<Box<dyn Session>>,
    has_background: bool,
    timing: Timing,
    stop: &'scope Stop<'scope>,
) -> Vec<Running<'scope>> {
    let foreground =
        Arc::new(std::sync::atomic::AtomicUsize::new(lanes.len() - usize::from(has_background)));
    let last = lanes.len() - 1;
    let spawn = |(at, (lane, mut session)): (usize, (Lane, Box<dyn Session>))| {
        let foreground = foreground.clone();
        let is_background = has_background && at == last;
        scope.spawn(move || {
            let ending = EndsOthers { stop, foreground, is_background };
            let is_closed = lane.is_closed();
            let ended = if is_closed {
                let spun = pace::wait_until(timing.start, timing.margin, stop).spun;
                closed::run(lane, &mut *session, timing.start, stop)
                    .map(|()| Driven { spun, ..Driven::default() })
            } else {
                open::run(lane, &mut *session, timing, stop)
            };
            if ended.is_err() {
                stop.set();
            }
            drop(ending);
            ended
        })
    };
    lanes.into_iter().zip(sessions).enumerate().map(spawn).collect()
}

/// The last of the threads that the run is about ends the background writer; one that panics ends all.
struct EndsOthers<'a> {
    stop: &'a Stop<'a>,
    foreground: Arc<std::sync::atomic::AtomicUsize>,
    is_background: bool,
}

impl Drop for EndsOthers<'_> {
    fn drop(&mut self) {
        use std::sync::atomic::Ordering::AcqRel;
        let is_last = !self.is_background && self.foreground.fetch_sub(1, AcqRel) == 1;
        if is_last || std::thread::panicking() {
            self.stop.set();
        }
    }
}

fn join(running: Running<'_>, target: &str) -> Result<Driven> {
    running.join().unwrap_or_else(|_| {
        let what = "it panicked, as its message says".to_owned();
        Err(Error::Target { target: target.to_owned(), what })
    })
}

fn progress(
    plan: &Plan,
    collected: &Collected,
    elapsed: Duration,
    planned: Option<Duration>,
) -> Progress {
    let operations = collected.operations();
    let left = match (planned, plan.spec().length) {
        (Some(planned), _) => Some(planned.saturating_sub(elapsed)),
        (None, Length::Operations(all)) if operations > 0 => {
            let rest = all.saturating_sub(operations) as f64 / operations as f64;
            Duration::try_from_secs_f64(elapsed.as_secs_f64() * rest).ok()
        }
        _ => None,
    };
    Progress { elapsed, left, operations }
}

/// Says whether the run counts, and if not, why.
fn conclude(
    collected: &Collected,
    ended: Vec<Result<Driven>>,
    is_open_loop: bool,
    options: &LoadOptions,
    stop: &Stop<'_>,
) -> Loaded {
    let mut outcome = collected.outcome();
    let (lag_p999, lag_max) = collected.lag();
    let mut gave_up = None;
    let mut busy_share: f64 = 0.0;
    let mut spun = Duration::ZERO;
    let mut error = None;
    for one in ended {
        match one {
            Ok(driven) => {
                gave_up = gave_up.max(driven.gave_up);
                busy_share = busy_share.max(driven.busy_share);
                spun += driven.spun;
            }
            Err(first) => error = error.or(Some(first)),
        }
    }
    if let Some(ended) = gave_up {
        // A target that hangs took what it took in all of the time, and not until its last answer.
        outcome.seconds = outcome.seconds.max(ended.as_secs_f64());
    }
    if is_open_loop {
        outcome.figures.insert("generator.lag_us_p999".into(), lag_p999.as_secs_f64() * 1e6);
        outcome.figures.insert("generator.lag_us_max".into(), lag_max.as_secs_f64() * 1e6);
    }
    if !spun.is_zero() {
        outcome.figures.insert(SPUN.into(), spun.as_secs_f64());
    }
    if busy_share > 0.0 {
        outcome.figures.insert(GENERATOR_BUSY.into(), busy_share);
    }
    if error.is_none() && stop.is_interrupted() {
        error = Some(Error::Interrupted);
    }
    let is_saturated = busy_share > BUSY_SHARE_MAX && collected.late_max() > options.lag_max;
    // What timed out, as all does that was under way when the rest was given up, wasn't refused: it is in the latencies.
    let failed = match gave_up {
        Some(_) => outcome.errors() - outcome.errors_of(TIME_OUT),
        None => outcome.errors(),
    };
    let failed_share = outcome.share_of_requests(failed);
    outcome.invalid = match &error {
        Some(error) => Some(error.to_string()),
        None if is_open_loop && lag_p999 > options.lag_max => Some(format!(
            "the generator lagged: one request in a thousand was sent {} us late or more, {} us are \
             allowed",
            lag_p999.as_micros(),
            options.lag_max.as_micros()
        )),
        None if is_open_loop && is_saturated => {
            Some("the generator lagged: it could not send this many requests itself".into())
        }
        // Before what it found: latencies are of the others alone.
        None if failed_share > ERROR_SHARE_MAX => Some(format!(
            "{failed} requests failed, {:.2} % of all; {:.1} % are allowed",
            100.0 * failed_share,
            100.0 * ERROR_SHARE_MAX
        )),
        None if gave_up.is_some() => Some(FELL_BEHIND.into()),
        None => None,
    };
    Loaded { outcome, error }
}
