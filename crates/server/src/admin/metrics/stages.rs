//! How long each stage took, and where reads ended.

use std::fmt::Error;
use std::time::Duration;

use tallybook::stages::{Exit, Stage, Stages};

use super::Families;

/// Bounds of a stage: 1-3-10 from 100 ns to 10 s. The shortest stage, a search in a block, takes
/// about 200 ns; finer steps would double the series of all stages to 2,000.
const BOUNDS: [Duration; 17] = {
    let mut bounds = [Duration::ZERO; 17];
    let (mut at, mut decade_ns) = (0, 100);
    while at < bounds.len() {
        bounds[at] = Duration::from_nanos(if at % 2 == 0 { decade_ns } else { decade_ns * 3 });
        if at % 2 == 1 {
            decade_ns *= 10;
        }
        at += 1;
    }
    bounds
};

pub(super) fn encode(families: &mut Families<'_>, stages: &Stages) -> Result<(), Error> {
    families.gauge(
        "tallybook_stage_sample_every",
        "One operation in this many is timed by stages; 0: none",
        stages.sample_every,
    )?;
    families.histograms(
        "tallybook_stage_seconds",
        "Time of each stage of the operations that are timed; not scaled up for sampling",
        &BOUNDS,
        "stage",
        Stage::ALL.iter().map(|&stage| (stage.name(), stages.times(stage))),
    )?;
    families.counters(
        "tallybook_read_exits_total",
        "Where reads (head.*), requests to files (file.*), blocks and values ended; all are counted",
        "exit",
        Exit::ALL.iter().map(|&exit| (exit.name(), stages.exits(exit))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_run_from_100_nanoseconds_to_ten_seconds() {
        assert_eq!(BOUNDS[..4], [100, 300, 1_000, 3_000].map(Duration::from_nanos));
        assert_eq!(BOUNDS[16], Duration::from_secs(10));
    }
}
