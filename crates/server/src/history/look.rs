//! One look at everything the dashboard draws, as it stands at that moment.

use std::time::Instant;

use tallybook::stages::StageSums;
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
    /// Requests that wait for a body, the disk or the reader of a stream.
    pub(crate) requests_in_flight: usize,
    /// Memory of bodies being received and of large values being sent.
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

impl Look {
    pub(super) fn take<E: Engine>(engine: &E, meter: &Meter, at: Instant) -> Look {
        Look {
            at: Some(at),
            traffic: meter.traffic(),
            stages: engine.stage_sums(),
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
