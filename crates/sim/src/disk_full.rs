//! Fills the disk (R9): writes are refused with `NoSpace`, reads go on, and space heals the store without reopening it.

use bytes::Bytes;
use tallybook::error::Error;
use tallybook::options::Options;

use crate::medium::{Medium, Memory};
use crate::operations::{Bounds, Expiry, ReadStep, Step, ValueSpec, WriteStep};
use crate::random::Random;
use crate::runner::{Runner, Tolerance};
use crate::violation::{At, Outcome, Violation};

/// Many more writes than fit.
const WRITES_MAX: usize = 4000;

/// How often the disk is filled.
const ROUNDS: usize = 3;

/// Bytes of the disk.
const CAPACITY_BYTES: u64 = 512 << 10;

/// Runs the trial.
pub fn fill_and_heal(seed: u64, options: &Options) -> Outcome {
    let memory = Memory::new();
    let files = memory.files.clone();
    let mut runner = Runner::new(Medium::Memory(memory), options.clone(), Tolerance::Nothing)?;
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        files.set_capacity(Some(CAPACITY_BYTES));
        runner.tolerate(Tolerance::WriteFaults);
        fill(&mut runner, &mut random).at(|| format!("filling the disk, round {round}"))?;
        runner.check_contents().at(|| format!("reading on a full disk, round {round}"))?;
        for step in upkeep() {
            runner.step(&step).at(|| format!("{step:?} on a full disk, round {round}"))?;
        }
        runner.check_contents().at(|| format!("after upkeep on a full disk, round {round}"))?;

        files.set_capacity(None);
        runner.tolerate(Tolerance::Nothing);
        for step in upkeep() {
            runner.step(&step).at(|| format!("{step:?} with space again, round {round}"))?;
        }
        // What was deleted is gone from the disk, so that it can be filled once more.
        let everything = WriteStep::DeleteRange {
            start: Bytes::from_static(b"\0"),
            end: Bytes::from_static(b"\xff"),
        };
        for step in [Step::Write(everything, None), Step::Compact(None, None)] {
            runner.step(&step).at(|| format!("{step:?} with space again, round {round}"))?;
        }
        runner.check_contents()?;
    }
    runner.finish()
}

/// Puts until the store refuses; every put before was acknowledged.
fn fill(runner: &mut Runner, random: &mut Random) -> Outcome {
    for at in 0..WRITES_MAX {
        let key = Bytes::from(format!("fill/{at:05}"));
        let before = runner.model().len();
        let value = ValueSpec { len: random.pick(&[10, 200, 3000]), id: random.number() };
        let (expiry, attributes_len) = (Expiry::Never, 0);
        let put = WriteStep::Put { key, value, expiry, attributes_len };
        runner.step(&Step::Write(put, None)).at(|| format!("put {at}"))?;
        if runner.model().len() == before {
            return check_refusal(runner, at);
        }
    }
    Err(Violation::new("the store wrote more than the disk holds"))
}

/// The refusal came late enough to be the disk's, is typed as one, and is none of a damaged store.
fn check_refusal(runner: &Runner, writes: usize) -> Outcome {
    let Some(store) = runner.store() else {
        return Err(Violation::new("the store is gone"));
    };
    if writes == 0 {
        return Err(Violation::new("the very first write was refused"));
    }
    if runner.model().open_count() > 0 {
        return Err(Violation::new("a full disk left the outcome of a write open"));
    }
    if let Some(cause) = store.read_only_cause() {
        return Err(Violation::new(format!("a full disk made the store read-only: {cause}")));
    }
    match store.put(b"fill/refused", &[1; 64 << 10]) {
        Err(Error::NoSpace { .. }) => Ok(()),
        other => Err(Violation::new(format!(
            "a put of 64 KiB on a full disk answered {other:?}, not NoSpace"
        ))),
    }
}

/// A little of everything.
fn upkeep() -> Vec<Step> {
    let put = WriteStep::Put {
        key: Bytes::from_static(b"upkeep"),
        value: ValueSpec { len: 10, id: 1 },
        expiry: Expiry::Never,
        attributes_len: 0,
    };
    let delete = WriteStep::Delete { key: Bytes::from_static(b"fill/00000") };
    let bounds = Bounds::default();
    vec![
        Step::Write(delete, None),
        Step::Write(put, None),
        Step::Flush,
        Step::Read(ReadStep::Scan { bounds, reverse: true, limit: usize::MAX }),
        Step::Compact(None, None),
        Step::Read(ReadStep::Get(Bytes::from_static(b"fill/00001"))),
    ]
}
