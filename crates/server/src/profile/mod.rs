//! Profiles of the running server: processor time, allocations, waits, time blocked.
//!
//! 1. Something that depends on the kind takes call stacks where they arise (`cpu`, `allocs`, `locks`,
//!    `offcpu`), by `unwind`, into the fixed places of `samples`.
//! 2. The profile's own thread empties these, adds up equal stacks, and in the end names (`names`),
//!    cuts (`cut`) and draws them (`render`).
//!
//! One profile of a kind at a time. It ends early when nobody waits for it any more.

mod kind;
mod registers;
mod unwind;
mod samples;
mod signals;
mod threads;
mod names;
mod cut;
mod stacks;
mod cpu;
mod allocs;
mod locks;
mod offcpu;
mod pprof;
mod render;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

pub use self::allocs::SampledAllocator;
pub(crate) use self::kind::{Format, Kind, Refusal};
use self::samples::Claim;
use self::stacks::Tally;

/// How often the places are emptied.
const DRAIN_PERIOD: Duration = Duration::from_millis(20);
/// How much the threads that serve requests come before the one that draws.
const DRAWING_NICE: libc::c_int = 10;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) kind: Kind,
    pub(crate) duration: Duration,
    pub(crate) format: Format,
    /// Keep the frames below the work, and threads that wait for work.
    pub(crate) full: bool,
}

/// A profile that is being taken. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) finished: oneshot::Receiver<Result<Vec<u8>, Refusal>>,
    is_unwanted: Arc<AtomicBool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
    }
}

/// Begins to take a profile.
pub(crate) fn start(order: Order) -> Result<Running, Refusal> {
    let sampler = Sampler::start(order.kind)?;
    let (finish, finished) = oneshot::channel();
    let is_unwanted = Arc::new(AtomicBool::new(false));
    let unwanted = is_unwanted.clone();
    std::thread::Builder::new()
        .name(cut::PROFILER_THREAD.to_owned())
        .spawn(move || {
            if let Some(profile) = take(order, sampler, &unwanted) {
                // Nobody may be waiting any more.
                let _ = finish.send(profile);
            }
        })
        .map_err(|error| Refusal::Failed(format!("cannot start a thread: {error}")))?;
    Ok(Running { finished, is_unwanted })
}

/// The whole of a profile; `None` if it became unwanted.
fn take(
    order: Order,
    mut sampler: Sampler,
    is_unwanted: &AtomicBool,
) -> Option<Result<Vec<u8>, Refusal>> {
    let started = Instant::now();
    let mut tally = Tally::default();
    while started.elapsed() < order.duration {
        if is_unwanted.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(DRAIN_PERIOD.min(order.duration.saturating_sub(started.elapsed())));
        sampler.collect(&mut tally);
    }
    sampler.claim().close();
    let duration = started.elapsed();
    sampler.collect(&mut tally);
    if order.kind != Kind::OffCpu {
        tally.add_lost(sampler.claim().lost_weight());
    }
    drop(sampler);
    // SAFETY: it takes no pointers. Where it fails, drawing takes its share of the processor.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, DRAWING_NICE) };
    let profile = tally.finish(order.kind, duration, order.full);
    Some(render::render(&profile, order.format))
}

/// What takes the samples of one kind, until it is dropped.
enum Sampler {
    Cpu(cpu::Sampler),
    Allocs(allocs::Sampler),
    Locks(locks::Sampler),
    OffCpu(offcpu::Sampler),
}

impl Sampler {
    fn start(kind: Kind) -> Result<Sampler, Refusal> {
        Ok(match kind {
            Kind::Cpu => Sampler::Cpu(cpu::Sampler::start()?),
            Kind::Allocs => Sampler::Allocs(allocs::Sampler::start()?),
            Kind::Locks => Sampler::Locks(locks::Sampler::start()?),
            Kind::OffCpu => Sampler::OffCpu(offcpu::Sampler::start()?),
        })
    }

    fn claim(&self) -> &Claim {
        match self {
            Sampler::Cpu(sampler) => &sampler.claim,
            Sampler::Allocs(sampler) => &sampler.claim,
            Sampler::Locks(sampler) => &sampler.claim,
            Sampler::OffCpu(sampler) => &sampler.claim,
        }
    }

    fn collect(&mut self, tally: &mut Tally) {
        match self {
            Sampler::Cpu(sampler) => sampler.collect(tally),
            Sampler::OffCpu(sampler) => sampler.collect(tally),
            _ => self.claim().drain(|sample| tally.add(sample, sample.weight)),
        }
    }
}
