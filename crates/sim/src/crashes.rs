//! Crashes a workload at every operation that changes its files (R4).
//!
//! 1. The workload runs once; at each file operation an image is taken.
//! 2. After each step its images are crashed: nothing, everything, and random parts of what was not synced
//!    survive. The window of what may be there is the one before the step, opened by the step's own write.
//! 3. Each crashed image is opened and compared; of some, the recovery is crashed at every k-th of its own operations.

use std::sync::{Arc, Mutex};

use tallybook::key::SeqNo;
use tallybook::options::Options;
use tallybook::vfs::{CrashMode, MemoryFileSystem, MemoryImage};

use crate::medium::{Medium, Memory};
use crate::model::{Model, Survival, Window};
use crate::random::Random;
use crate::recovery::{self, Depth, Left};
use crate::runner::{Runner, Tolerance};
use crate::violation::{At, Outcome, Violation};
use crate::workloads::Workload;

/// How thoroughly crashes are tried.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Seed of the random ones.
    pub seed: u64,
    /// Every how many file operations.
    pub stride: usize,
    /// Random crashes of each image, beside losing all and nothing of what was not synced.
    pub random_count: usize,
    /// Every how many crashes the recovery is crashed too, and the recovered store written to.
    pub deep_stride: usize,
    /// Every how many operations of such a recovery.
    pub recovery_stride: usize,
    /// Syncs do nothing: for showing that the trial notices.
    pub syncs_disabled: bool,
}

/// What was tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tried {
    /// File operations at which images were taken.
    pub images: usize,
    /// Crashed images that were opened.
    pub crashes: usize,
    /// Crashes of recoveries.
    pub recovery_crashes: usize,
}

struct Image {
    ordinal: u64,
    operation: &'static str,
    image: MemoryImage,
}

type Images = Arc<Mutex<Vec<Image>>>;

/// Runs the trial.
pub fn crash_at_every_operation(workload: &Workload, plan: Plan) -> Outcome<Tried> {
    let memory = Memory::new();
    memory.files.sync_disabled(plan.syncs_disabled);
    let images = observe(&memory.files, plan.stride);
    let mut trial = Trial {
        plan,
        options: &workload.options,
        random: Random::new(plan.seed),
        tried: Tried::default(),
    };
    let files = memory.files.clone();
    let mut runner =
        Runner::new(Medium::Memory(memory), workload.options.clone(), Tolerance::Nothing)?;
    trial
        .check(&images, &Expected::new(&Model::new(), &runner))
        .at(|| "making the store".into())?;
    for (at, step) in workload.steps.iter().enumerate() {
        let place = || format!("{}, step {at}: {step:?}", workload.name);
        let before = runner.model().clone();
        runner.step(step).at(place)?;
        trial.check(&images, &Expected::new(&before, &runner)).at(place)?;
    }
    files.set_observer(None);
    Ok(trial.tried)
}

/// Takes an image at every `stride`-th operation from now on.
fn observe(files: &MemoryFileSystem, stride: usize) -> Images {
    let images: Images = Images::default();
    let taken = images.clone();
    files.set_observer(Some(Box::new(move |ordinal, operation, moment| {
        if ordinal % stride as u64 == 0 {
            let image = moment.image();
            taken.lock().expect("no panic while held").push(Image { ordinal, operation, image });
        }
    })));
    images
}

/// What a crash in the middle of a step may leave.
struct Expected<'a> {
    /// Knows the step's own write, if it made one.
    model: &'a Model,
    after_kill: Window,
    after_power_loss: Window,
    /// The largest version that anyone had seen.
    version_max: SeqNo,
    now_ms: u64,
}

impl<'a> Expected<'a> {
    /// Of a step that took the model from `before` to what the runner has now.
    fn new(before: &'a Model, runner: &'a Runner) -> Self {
        // Without a write of its own the step may have reopened the store, and the model forgot the past.
        let wrote = runner.model().len() > before.len();
        let model = if wrote { runner.model() } else { before };
        let window = |how| Window { end: model.len(), ..before.window(how) };
        Expected {
            model,
            after_kill: window(Survival::Kill),
            after_power_loss: window(Survival::PowerLoss),
            version_max: before.version_max(),
            now_ms: runner.medium().now_ms(),
        }
    }

    fn check(
        &self,
        files: MemoryFileSystem,
        options: &Options,
        mode: CrashMode,
        depth: Depth,
    ) -> Outcome {
        let window = match mode {
            CrashMode::KeepAll => self.after_kill,
            CrashMode::LoseUnsynced | CrashMode::Random => self.after_power_loss,
        };
        let left = Left { files, now_ms: self.now_ms, version_max: self.version_max };
        recovery::check(left, options, self.model, window, depth)
    }
}

struct Trial<'a> {
    plan: Plan,
    options: &'a Options,
    random: Random,
    tried: Tried,
}

impl Trial<'_> {
    /// Crashes each of the images taken since the last time.
    fn check(&mut self, images: &Images, expected: &Expected<'_>) -> Outcome {
        let taken = std::mem::take(&mut *images.lock().expect("no panic while held"));
        for Image { ordinal, operation, image } in taken {
            self.tried.images += 1;
            let mut crashes = vec![(CrashMode::KeepAll, 0), (CrashMode::LoseUnsynced, 0)];
            crashes.extend(
                (0..self.plan.random_count).map(|_| (CrashMode::Random, self.random.number())),
            );
            for (mode, seed) in crashes {
                self.crash(&image, mode, seed, expected).at(|| {
                    format!(
                        "crash {mode:?} with seed {seed} after file operation {ordinal} ({operation})"
                    )
                })?;
            }
        }
        Ok(())
    }

    fn crash(
        &mut self,
        image: &MemoryImage,
        mode: CrashMode,
        seed: u64,
        expected: &Expected<'_>,
    ) -> Outcome {
        self.tried.crashes += 1;
        let files = image.crash(mode, seed);
        files.sync_disabled(self.plan.syncs_disabled);
        if !self.tried.crashes.is_multiple_of(self.plan.deep_stride) {
            return expected.check(files, self.options, mode, Depth::Contents);
        }
        let inner = observe(&files, self.plan.recovery_stride);
        expected.check(files, self.options, mode, Depth::ReadWriteAndLosePower)?;
        // Images of the recovery, and of nothing after it: the store that was written to is another.
        let taken = std::mem::take(&mut *inner.lock().expect("no panic while held"));
        for Image { ordinal, operation, image } in taken {
            self.tried.recovery_crashes += 1;
            let seed = self.random.number();
            let second =
                self.random.pick(&[CrashMode::LoseUnsynced, CrashMode::KeepAll, CrashMode::Random]);
            // What the first crash left may be less than what a kill would have.
            let weaker = if mode == CrashMode::KeepAll { second } else { mode };
            expected
                .check(image.crash(second, seed), self.options, weaker, Depth::Contents)
                .at(|| {
                    format!(
                        "second crash {second:?} with seed {seed} after operation {ordinal} ({operation}) of the recovery"
                    )
                })?;
        }
        Ok(())
    }
}

/// Runs every workload that the seed makes.
pub fn all_workloads(plan: Plan) -> Outcome<Tried> {
    let mut sum = Tried::default();
    for workload in crate::workloads::all(plan.seed) {
        let tried = crash_at_every_operation(&workload, plan)?;
        if tried.crashes == 0 {
            return Err(Violation::new(format!("{} made no file operation", workload.name)));
        }
        sum.images += tried.images;
        sum.crashes += tried.crashes;
        sum.recovery_crashes += tried.recovery_crashes;
    }
    Ok(sum)
}
