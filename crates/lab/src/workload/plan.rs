//! What the streams of one run share: its spec, made ready to be drawn from.

use std::sync::Arc;

use super::stream::Stream;
use super::zipf::Zipf;
use crate::error::{Error, Result};
use crate::keys::{Permutation, mix};
use crate::spec::{Durability, KeyDistribution, Length, Pace, Spec, Workload};
use crate::values::Values;

/// Zipfian exponent of YCSB, where the spec's distribution doesn't bring its own.
const YCSB_EXPONENT: f64 = 0.99;

/// What the streams of one run share.
#[derive(Debug)]
pub struct Plan {
    pub(super) spec: Spec,
    pub(super) values: Values,
    /// The order in which the store was filled, and the scatter of popular keys.
    pub(super) filled: Permutation,
    /// Where inserted keys lie.
    pub(super) scatter: Permutation,
    /// The order of deletions.
    pub(super) deleted: Permutation,
    pub(super) zipf: Option<Zipf>,
    pub(super) picks: Picks,
    /// Insertions that came before this run's.
    pub(super) inserts_before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picks {
    Uniform,
    Sequential,
    Zipfian,
    Latest,
}

impl Plan {
    /// The plan of a spec; refuses one that makes no sense.
    pub fn new(spec: &Spec) -> Result<Arc<Plan>> {
        spec.check()?;
        spec.key_shape().check(spec.keys)?;
        let (picks, exponent) = picks(spec);
        let zipf = match picks {
            Picks::Zipfian | Picks::Latest => Some(
                Zipf::new(spec.keys, exponent)
                    .ok_or_else(|| Error::Invalid(format!("{exponent} is no zipfian exponent")))?,
            ),
            _ => None,
        };
        if !Workload::ALL.contains(&spec.workload) {
            let what = format!("{}: it is for stores of files", spec.workload.name());
            return Err(Error::Invalid(what));
        }
        if spec.workload == Workload::FillSync && spec.durability != Durability::Sync {
            return Err(Error::Invalid("fillsync: its durability is sync".into()));
        }
        Ok(Arc::new(Plan {
            values: Values::new(spec.values, spec.compressible)?,
            // Not the seed's: runs with different seeds may share one prefilled store.
            filled: Permutation::new(spec.keys, spec.keys),
            scatter: Permutation::new(spec.keys, mix(spec.keys)),
            deleted: Permutation::new(spec.keys, mix(spec.seed)),
            zipf,
            picks,
            inserts_before: 0,
            spec: spec.clone(),
        }))
    }

    /// The plan of a warm-up before a run of this spec: the same work, other keys. `None` where it
    /// would do what the run is to do, once.
    pub fn warm_up(spec: &Spec, length: Length) -> Result<Option<Arc<Plan>>> {
        if spec.workload.starts_empty() || spec.workload == Workload::DeleteRandom {
            return Ok(None);
        }
        let spec = Spec { length, seed: mix(spec.seed), ..spec.clone() };
        let mut plan = Arc::unwrap_or_clone(Plan::new(&spec)?);
        // Far from the places that the run's own inserts take.
        plan.inserts_before = 64 * spec.keys;
        Ok(Some(Arc::new(plan)))
    }

    /// What fills the store for runs of this spec: every key once, in random order, as fast as
    /// possible.
    pub fn prefill(spec: &Spec, threads: u32, pipeline: u32) -> Spec {
        Spec {
            workload: Workload::FillRandom,
            pace: Pace::Closed,
            length: Length::Operations(spec.keys),
            threads,
            pipeline,
            ..spec.clone()
        }
    }

    /// What is asked.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The values of the run.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The requests of one thread or connection, of `0..threads`.
    pub fn stream(self: &Arc<Self>, place: u32) -> Stream {
        Stream::new(self.clone(), place, false)
    }

    /// The writer beside `readwhilewriting`; other workloads have none.
    pub fn background_stream(self: &Arc<Self>) -> Option<Stream> {
        let has_one = self.spec.workload == Workload::ReadWhileWriting;
        has_one.then(|| Stream::new(self.clone(), self.spec.threads, true))
    }
}

impl Clone for Plan {
    fn clone(&self) -> Plan {
        Plan {
            spec: self.spec.clone(),
            values: self.values.clone(),
            filled: self.filled.clone(),
            scatter: self.scatter.clone(),
            deleted: self.deleted.clone(),
            ..*self
        }
    }
}

/// How keys are picked: YCSB's mixes bring a distribution of their own, whose exponent the spec may
/// set by naming the same distribution.
fn picks(spec: &Spec) -> (Picks, f64) {
    use Workload::{YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF};
    match (spec.workload, spec.distribution) {
        (YcsbD, KeyDistribution::Latest { exponent }) => (Picks::Latest, exponent),
        (YcsbD, _) => (Picks::Latest, YCSB_EXPONENT),
        (_, KeyDistribution::Zipfian { exponent }) => (Picks::Zipfian, exponent),
        (YcsbA | YcsbB | YcsbC | YcsbE | YcsbF, _) => (Picks::Zipfian, YCSB_EXPONENT),
        (_, KeyDistribution::Latest { exponent }) => (Picks::Latest, exponent),
        (_, KeyDistribution::Uniform) => (Picks::Uniform, 0.0),
        (_, KeyDistribution::Sequential) => (Picks::Sequential, 0.0),
    }
}
