//! Opens what a crash left and compares it with what the model says may have survived.

use tallybook::key::SeqNo;
use tallybook::options::{Durability, Options};
use tallybook::store::{Store, WriteOptions};
use tallybook::vfs::{Clock, CrashMode, MemoryFileSystem};

use crate::contents::{self, Contents};
use crate::medium::Memory;
use crate::model::{Model, Window};
use crate::violation::{At, Outcome, Violation};
use crate::workloads;

/// A key that no workload writes.
const NEW_KEY: &[u8] = b"after the crash";

/// How far a recovered store is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What it holds is compared.
    Contents,
    /// Then power is lost: what readers have seen must still be there. Then it is written to, synced, and power is
    /// lost again: the write must be there, under a version that nobody has seen before.
    ReadWriteAndLosePower,
}

/// What a crash left.
#[derive(Debug)]
pub struct Left {
    /// The files.
    pub files: MemoryFileSystem,
    /// The moment.
    pub now_ms: u64,
    /// The largest version that anyone had seen.
    pub version_max: SeqNo,
}

/// Opens the store in what was left and compares it with the prefixes in `window`.
pub fn check(
    left: Left,
    options: &Options,
    model: &Model,
    window: Window,
    depth: Depth,
) -> Outcome {
    let memory = Memory::of(left.files, left.now_ms);
    let held = open_and_read(&memory, options)?;
    model.explain(window, |state| contents::check(&held.contents, state, left.now_ms))?;
    if depth == Depth::ReadWriteAndLosePower {
        lose_power_and_go_on(memory, options, left.version_max, held)
            .at(|| "going on after the recovery".into())?;
    }
    Ok(())
}

struct Held {
    store: Store,
    contents: Contents,
}

fn open_and_read(memory: &Memory, options: &Options) -> Outcome<Held> {
    let store = memory.open(options).at(|| "open after a crash".into())?;
    let contents = contents::read_all(&store, &workloads::keys())?;
    Ok(Held { store, contents })
}

fn lose_power_and_go_on(
    memory: Memory,
    options: &Options,
    version_max: SeqNo,
    held: Held,
) -> Outcome {
    let now_ms = memory.clock.now_ms();
    let lose_power = |memory: &Memory| {
        Memory::of(memory.files.image().crash(CrashMode::LoseUnsynced, 0), now_ms)
    };
    let second = lose_power(&memory);
    drop(held.store);
    let again = open_and_read(&second, options)?;
    if again.contents != held.contents {
        return Err(Violation::new(
            "what a recovered store showed to readers was lost by the next power loss",
        ));
    }
    let versions = held.contents.values().map(|(head, _)| head.version);
    let seen = versions.max().unwrap_or(0).max(version_max);
    let synced = WriteOptions { durability: Some(Durability::Sync), ..WriteOptions::default() };
    let version =
        again.store.put_with(NEW_KEY, b"written", &synced).at(|| "write after a crash".into())?;
    if version <= seen {
        return Err(Violation::new(format!(
            "a write after a crash got version {version}, although version {seen} had been seen before"
        )));
    }
    let third = lose_power(&second);
    drop(again.store);
    let mut last = open_and_read(&third, options)?;
    match last.contents.remove(NEW_KEY) {
        Some((head, _)) if head.version == version => {}
        other => {
            return Err(Violation::new(format!(
                "a synced write after a crash did not survive the next: {other:?}"
            )));
        }
    }
    if last.contents != held.contents {
        return Err(Violation::new("a write after a crash changed what else was there"));
    }
    Ok(())
}
