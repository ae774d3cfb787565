//! Recording: shards, sampling, and the trace of one operation.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{DiskWaits, Distribution, Exit, Stage, StageSums, Stages};
use crate::vfs::cycles;
use crate::vfs::thread_number::{SHARED_NUMBER, add, thread_number};
use crate::waits;

/// Where the times and counts of one store go.
#[derive(Debug)]
pub struct Recorder {
    sample_every: AtomicU32,
    /// By the number of a thread.
    shards: Box<[Shard]>,
    /// What the store looks up for itself goes here, and nobody looks at it.
    unrecorded: Shard,
    disk_waits: DiskWaits,
}

/// What one thread recorded, or those that share a shard. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    /// One thread at a time counts here.
    is_own: bool,
    exits: [AtomicU64; Exit::COUNT],
    gets: AtomicU64,
    heads: AtomicU64,
    /// What cursors did because they went over several runs.
    steps_over_runs: AtomicU64,
    /// By stage; a distribution is made when the first time of it comes.
    times: Mutex<[Option<Box<Distribution>>; Stage::COUNT]>,
}

thread_local! {
    static THREAD: ThreadState = ThreadState::new();
}

/// What a thread keeps between operations, whatever the store.
struct ThreadState {
    /// Operations until the next that is timed.
    countdown: Cell<u32>,
    random: Cell<u64>,
}

impl ThreadState {
    fn new() -> ThreadState {
        let random = cycles::now() ^ ((thread_number() as u64) << 32) | 1;
        ThreadState { countdown: Cell::new(1), random: Cell::new(random) }
    }

    /// Whether the next operation is timed.
    #[inline]
    fn is_next_sampled(&self, every: u32) -> bool {
        // At a change to more frequent sampling the old, longer pause must not be waited out.
        let left = self.countdown.get().min(every * 2);
        if left > 1 {
            self.countdown.set(left - 1);
            return false;
        }
        self.countdown.set(self.pause(every));
        true
    }

    /// Operations to the next timed one: 1 to `2 * every - 1` evenly, so `every` on average.
    #[cold]
    fn pause(&self, every: u32) -> u32 {
        // Xorshift, Marsaglia 2003.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let span = u64::from(every) * 2 - 1;
        1 + (((random >> 32) * span) >> 32) as u32
    }
}

impl Recorder {
    /// Most operations between two that are timed.
    pub const SAMPLE_EVERY_MAX: u32 = 1 << 20;

    /// A recorder that times one operation in `sample_every`; none if 0.
    pub fn new(sample_every: u32) -> Recorder {
        cycles::prepare();
        let shards = 0..=SHARED_NUMBER;
        let shards = shards.map(|number| Shard::new(number != SHARED_NUMBER)).collect();
        let recorder = Recorder {
            sample_every: AtomicU32::new(0),
            shards,
            unrecorded: Shard::new(false),
            disk_waits: DiskWaits::default(),
        };
        recorder.set_sample_every(sample_every);
        recorder
    }

    /// Changes how often operations are timed; 0: never. At most [`Self::SAMPLE_EVERY_MAX`].
    pub fn set_sample_every(&self, sample_every: u32) {
        self.sample_every.store(sample_every.min(Self::SAMPLE_EVERY_MAX), Ordering::Relaxed);
    }

    /// One operation in so many is timed; 0: none.
    pub fn sample_every(&self) -> u32 {
        self.sample_every.load(Ordering::Relaxed)
    }

    /// Whether values come from the disk at present.
    #[inline]
    pub fn disk_waits(&self) -> &DiskWaits {
        &self.disk_waits
    }

    /// Begins an operation, which may be one of those that are timed.
    #[inline]
    pub fn begin(&self) -> Trace<'_> {
        let every = self.sample_every.load(Ordering::Relaxed);
        let is_sampled = every != 0 && THREAD.with(|thread| thread.is_next_sampled(every));
        self.trace(self.shard(), if is_sampled { cycles::now() } else { 0 })
    }

    /// Begins something rare, which is always timed.
    pub fn begin_rare(&self) -> Trace<'_> {
        self.trace(self.shard(), cycles::now())
    }

    /// Begins something that is not the user's, such as a look-up by a collection: not timed, not
    /// counted.
    pub(crate) fn begin_unrecorded(&self) -> Trace<'_> {
        self.trace(&self.unrecorded, 0)
    }

    #[inline]
    fn trace<'a>(&'a self, shard: &'a Shard, started: u64) -> Trace<'a> {
        let disk_waits = &self.disk_waits;
        Trace { shard, disk_waits, started, last: started, of_this_thread: PhantomData }
    }

    /// Records a wait that began at `from`, a reading of the cycle counter, and tells the observer of
    /// waits.
    pub(crate) fn note_wait(&self, stage: Stage, from: u64) {
        waits::note(stage.name(), self.note(stage, from));
    }

    /// Records what passed since `from`, a reading of the cycle counter.
    pub(crate) fn note(&self, stage: Stage, from: u64) -> Duration {
        let ns = cycles::to_ns(cycles::now().saturating_sub(from));
        self.record_ns(stage, ns);
        Duration::from_nanos(ns)
    }

    /// Records a time.
    pub(crate) fn record_ns(&self, stage: Stage, ns: u64) {
        self.shard().record_ns(stage, ns);
    }

    fn shard(&self) -> &Shard {
        &self.shards[thread_number()]
    }

    /// Gets counted so far.
    pub(crate) fn gets(&self) -> u64 {
        self.sum(|shard| &shard.gets)
    }

    /// Heads counted so far.
    pub(crate) fn heads(&self) -> u64 {
        self.sum(|shard| &shard.heads)
    }

    /// Indexes that gets and heads asked in vain, but for the one that each of an absent key needs.
    pub(crate) fn probes_in_vain(&self) -> u64 {
        let exits = |exit: Exit| self.sum(|shard| &shard.exits[exit as usize]);
        exits(Exit::FileFilter).saturating_sub(exits(Exit::Missed))
    }

    /// Notes what a cursor did because it went over several runs, in steps.
    pub(crate) fn note_steps_over_runs(&self, steps: u64) {
        let shard = self.shard();
        shard.add(&shard.steps_over_runs, steps);
    }

    /// The steps that were noted.
    pub(crate) fn steps_over_runs(&self) -> u64 {
        self.sum(|shard| &shard.steps_over_runs)
    }

    fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
    }

    /// Everything recorded so far.
    pub fn stages(&self) -> Stages {
        let mut stages = Stages::default();
        stages.sample_every = self.sample_every();
        self.shards.iter().for_each(|shard| {
            shard.exits().for_each(|(exit, count)| stages.add_exits(exit, count));
            shard.each_time(|stage, times| stages.times_mut(stage).add(times));
        });
        stages
    }

    /// Counts and sums of everything recorded so far.
    pub fn sums(&self) -> StageSums {
        let mut sums = StageSums::default();
        sums.sample_every = self.sample_every();
        self.shards.iter().for_each(|shard| {
            shard.exits().for_each(|(exit, count)| sums.add_exits(exit, count));
            shard.each_time(|stage, times| sums.add_times(stage, times));
        });
        sums
    }
}

impl Shard {
    fn new(is_own: bool) -> Shard {
        let exits = [const { AtomicU64::new(0) }; Exit::COUNT];
        let (gets, heads, steps_over_runs) = Default::default();
        let times = Mutex::new([const { None }; Stage::COUNT]);
        Shard { is_own, exits, gets, heads, steps_over_runs, times }
    }

    #[inline]
    fn add(&self, counter: &AtomicU64, count: u64) {
        add(counter, count, self.is_own);
    }

    fn exits(&self) -> impl Iterator<Item = (Exit, u64)> {
        Exit::ALL.iter().map(|&exit| (exit, self.exits[exit as usize].load(Ordering::Relaxed)))
    }

    /// Shows the times of each stage that has some; who records here waits meanwhile.
    fn each_time(&self, mut show: impl FnMut(Stage, &Distribution)) {
        let times = self.times.lock();
        for &stage in Stage::ALL {
            if let Some(distribution) = &times[stage as usize] {
                show(stage, distribution);
            }
        }
    }

    fn record_ns(&self, stage: Stage, ns: u64) {
        self.times.lock()[stage as usize].get_or_insert_default().record_ns(ns);
    }
}

/// One operation's pen: counts exits always, records times if the operation is one that is timed.
///
/// A stage is either what passed since the last one ended (`lap`), or what passed since a `mark`.
#[derive(Debug)]
pub struct Trace<'a> {
    shard: &'a Shard,
    disk_waits: &'a DiskWaits,
    /// Readings of the cycle counter; 0 when the operation isn't timed.
    started: u64,
    last: u64,
    /// It counts where its thread alone does, and so stays there.
    of_this_thread: PhantomData<*const ()>,
}

impl<'a> Trace<'a> {
    /// Whether reads wait for the disk at present.
    #[inline]
    pub(crate) fn disk_waits(&self) -> &'a DiskWaits {
        self.disk_waits
    }

    /// Counts that a read, or a request to a file, ended here.
    #[inline]
    pub fn count(&self, exit: Exit) {
        self.count_many(exit, 1);
    }

    /// Counts a get.
    #[inline]
    pub(crate) fn count_get(&self) {
        self.shard.add(&self.shard.gets, 1);
    }

    /// Counts a head.
    #[inline]
    pub(crate) fn count_head(&self) {
        self.shard.add(&self.shard.heads, 1);
    }

    /// Counts so many exits.
    #[inline]
    pub fn count_many(&self, exit: Exit, count: u64) {
        if count > 0 {
            self.shard.add(&self.shard.exits[exit as usize], count);
        }
    }

    /// Ends a stage that began when the last one ended.
    #[inline]
    pub fn lap(&mut self, stage: Stage) {
        if self.last != 0 {
            self.last = self.record(stage, self.last);
        }
    }

    /// What passed since the last stage ended belongs to none.
    #[inline]
    pub fn skip(&mut self) {
        if self.last != 0 {
            self.last = cycles::now();
        }
    }

    /// A moment to measure from; 0 when the operation isn't timed.
    #[inline]
    pub fn mark(&self) -> u64 {
        if self.last != 0 { cycles::now() } else { 0 }
    }

    /// Ends a stage that began at `mark`, whatever stages came within.
    #[inline]
    pub fn since(&mut self, stage: Stage, mark: u64) {
        if self.last != 0 {
            self.last = self.record(stage, mark);
        }
    }

    /// Ends the whole operation.
    #[inline]
    pub fn total(&mut self, stage: Stage) {
        self.since(stage, self.started);
    }

    #[cold]
    fn record(&self, stage: Stage, from: u64) -> u64 {
        let now = cycles::now();
        self.shard.record_ns(stage, cycles::to_ns(now.saturating_sub(from)));
        // Read again: writing it down belongs to no stage.
        cycles::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::thread_number::OWN_NUMBERS;

    fn timed(recorder: &Recorder, operations: u32) -> u64 {
        for _ in 0..operations {
            recorder.begin().lap(Stage::GetHead);
        }
        recorder.stages().times(Stage::GetHead).count()
    }

    #[test]
    fn about_one_operation_in_so_many_is_timed() {
        assert_eq!(timed(&Recorder::new(0), 1000), 0);
        assert_eq!(timed(&Recorder::new(1), 1000), 1000);
        let found = timed(&Recorder::new(100), 100_000);
        assert!((800..1200).contains(&found), "{found}");
    }

    #[test]
    fn sampling_follows_no_rhythm_of_the_load() {
        let recorder = Recorder::new(16);
        for at in 0..100_000 {
            let stage = if at % 16 == 0 { Stage::PutTotal } else { Stage::GetTotal };
            recorder.begin().total(stage);
        }
        let puts = recorder.stages().times(Stage::PutTotal).count();
        assert!((250..550).contains(&puts), "{puts} of about 391");
    }

    #[test]
    fn a_change_of_sampling_takes_effect_at_once() {
        let recorder = Recorder::new(Recorder::SAMPLE_EVERY_MAX);
        timed(&recorder, 10);
        let before = recorder.stages();
        recorder.set_sample_every(1);
        assert!(timed(&recorder, 10) >= before.times(Stage::GetHead).count() + 8);
    }

    #[test]
    fn exits_are_exact_whatever_is_sampled() {
        let recorder = Recorder::new(0);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        recorder.begin().count(Exit::L1);
                    }
                });
            }
        });
        assert_eq!(recorder.stages().exits(Exit::L1), 20_000);
        assert_eq!(recorder.stages().iter().count(), 0);
    }

    #[test]
    fn counts_of_threads_that_end_stay_and_nothing_is_lost_when_they_are_many() {
        let recorder = Recorder::new(0);
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..2 * OWN_NUMBERS {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            recorder.begin().count_get();
                            std::thread::yield_now();
                        }
                    });
                }
            });
        }
        assert_eq!(recorder.gets(), 3 * 2 * OWN_NUMBERS as u64 * 1000);
    }

    #[test]
    fn a_trace_of_a_thread_that_ends_goes_to_the_shared_shard() {
        struct CountsAtTheEnd(std::sync::Arc<Recorder>);
        impl Drop for CountsAtTheEnd {
            fn drop(&mut self) {
                self.0.begin().count_head();
                self.0.begin_rare().count_head();
            }
        }
        thread_local! {
            static AT_THE_END: Cell<Option<CountsAtTheEnd>> = const { Cell::new(None) };
        }
        let recorder = std::sync::Arc::new(Recorder::new(0));
        let at_the_end = CountsAtTheEnd(recorder.clone());
        let thread = std::thread::spawn(move || {
            let recorder = at_the_end.0.clone();
            // Made before what the recorder keeps of a thread, and so dropped after it.
            AT_THE_END.set(Some(at_the_end));
            recorder.begin().count_head();
        });
        thread.join().unwrap();
        assert_eq!(recorder.heads(), 3);
    }

    #[test]
    fn stages_lie_within_their_operation() {
        let recorder = Recorder::new(1);
        let mut trace = recorder.begin();
        let mark = trace.mark();
        std::thread::sleep(Duration::from_millis(2));
        trace.lap(Stage::TableFetch);
        trace.lap(Stage::TableSearch);
        trace.since(Stage::HeadL0, mark);
        trace.total(Stage::GetTotal);
        let stages = recorder.stages();
        let total = |stage| stages.times(stage).total();
        assert!(total(Stage::TableFetch) >= Duration::from_millis(2));
        assert!(total(Stage::TableSearch) < Duration::from_millis(2));
        assert!(total(Stage::HeadL0) >= total(Stage::TableFetch));
        assert!(total(Stage::GetTotal) >= total(Stage::HeadL0));
    }
}
