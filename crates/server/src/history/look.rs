//! One look at everything the dashboard draws, as it stands at that moment.

use std::time::{Duration, Instant};

use tallybook::stages::{Exit, Stage, Stages};
use tallybook::store::Stats;

use crate::engine::Engine;
use crate::meter::{Meter, Traffic};
use crate::process::Process;

/// Counters since the start, and sizes.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    /// `None` only in the look that no server took.
    pub(super) at: Option<Instant>,
    pub(super) traffic: Traffic,
    pub(super) stages: StageSums,
    pub(super) stats: Stats,
    pub(super) process: Process,
}

/// What comes and goes between looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauges {
    /// Open data connections.
    pub(crate) connections: usize,
    /// Requests that wait for a body, the disk or a slow reader.
    pub(crate) requests_in_flight: usize,
    /// Memory of bodies being received.
    pub(crate) body_memory_bytes: usize,
    /// 0.0 (idle) to 1.0 (writers wait).
    pub(crate) write_pressure: f64,
}

impl Gauges {
    pub(super) fn raise_to(&mut self, other: &Gauges) {
        self.connections = self.connections.max(other.connections);
        self.requests_in_flight = self.requests_in_flight.max(other.requests_in_flight);
        self.body_memory_bytes = self.body_memory_bytes.max(other.body_memory_bytes);
        self.write_pressure = self.write_pressure.max(other.write_pressure);
    }
}

/// Count and sum of each stage's times, and the counts of exits. The histograms behind them, up to
/// 40 KB a stage, aren't kept: charts of stages show means.
#[derive(Debug, Clone)]
pub(super) struct StageSums {
    /// One operation in so many is timed.
    pub(super) sample_every: u32,
    times: [(u64, Duration); Stage::COUNT],
    exits: [u64; Exit::COUNT],
}

impl Default for StageSums {
    fn default() -> Self {
        StageSums {
            sample_every: 0,
            times: [(0, Duration::ZERO); Stage::COUNT],
            exits: [0; Exit::COUNT],
        }
    }
}

impl StageSums {
    pub(super) fn of(stages: &Stages) -> StageSums {
        let mut sums = StageSums { sample_every: stages.sample_every, ..StageSums::default() };
        for (stage, times) in stages.iter() {
            sums.times[stage as usize] = (times.count(), times.total());
        }
        for &exit in Exit::ALL {
            sums.exits[exit as usize] = stages.exits(exit);
        }
        sums
    }

    /// Times recorded of a stage since `earlier`, and their sum.
    pub(super) fn since(&self, earlier: &StageSums, stage: Stage) -> (u64, Duration) {
        let (now, then) = (self.times[stage as usize], earlier.times[stage as usize]);
        (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))
    }

    pub(super) fn exits_since(&self, earlier: &StageSums, exit: Exit) -> u64 {
        self.exits[exit as usize].saturating_sub(earlier.exits[exit as usize])
    }
}

impl Look {
    pub(super) fn take<E: Engine>(engine: &E, meter: &Meter, at: Instant) -> Look {
        Look {
            at: Some(at),
            traffic: meter.traffic(),
            stages: StageSums::of(&engine.stages()),
            stats: engine.stats(),
            process: Process::read().unwrap_or_default(),
        }
    }

    /// Seconds since `earlier`. A row is never of less than a millisecond, so that no rate is of
    /// nothing.
    pub(super) fn seconds_since(&self, earlier: &Look) -> f64 {
        let (Some(now), Some(then)) = (self.at, earlier.at) else { return 1.0 };
        now.saturating_duration_since(then).as_secs_f64().max(0.001)
    }
}
