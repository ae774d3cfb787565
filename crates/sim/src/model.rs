//! The oracle: every write in commit order, and the states a store may be in.
//!
//! 1. A commit is acknowledged (the call answered a version) or unknown (the call failed in a way that
//!    leaves its outcome open). An unknown commit may be in a state or not, whole, so that there may be
//!    several possible states; a read that contradicts some of them rules those out for good.
//! 2. A crash leaves the state after some prefix of the commit order: at least every commit that was
//!    acknowledged at a level that survives such a crash, and no holes.
//! 3. States before the last commit known to survive any crash are forgotten, but only when [`Model::forget`] says so:
//!    a crash in the middle of a call is judged by what was known before it.
//!
//! It knows nothing of files and never opens a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tallybook::head::Head;
use tallybook::key::SeqNo;
use tallybook::options::Durability;

use crate::record::{Record, State, Write};
use crate::violation::{Outcome, Violation};

/// Most possible states; the runner stops writing well before.
const STATES_MAX: usize = 256;

/// Writes applied together.
#[derive(Debug, Clone)]
struct Commit {
    changes: Vec<Change>,
    acknowledged: bool,
    /// When the engine promised to have started a sync of it; `None` for never.
    sync_due_ms: Option<u64>,
}

#[derive(Debug, Clone)]
enum Change {
    Put(Bytes, Arc<Record>),
    Delete(Bytes),
    DeleteRange(Bytes, Bytes),
}

impl Commit {
    fn apply(&self, state: &mut State) {
        for change in &self.changes {
            match change {
                Change::Put(key, record) => {
                    state.insert(key.clone(), record.clone());
                }
                Change::Delete(key) => {
                    state.remove(key);
                }
                Change::DeleteRange(start, end) => {
                    let covered: Vec<Bytes> = state
                        .range(start.clone()..end.clone())
                        .map(|(key, _)| key.clone())
                        .collect();
                    for key in covered {
                        state.remove(&key);
                    }
                }
            }
        }
    }

    /// Takes every possible state one commit further.
    fn advance(&self, states: &mut Vec<State>) {
        let before = if self.acknowledged { Vec::new() } else { states.clone() };
        for state in states.iter_mut() {
            self.apply(state);
        }
        for state in before {
            if !states.contains(&state) {
                states.push(state);
            }
        }
        assert!(states.len() <= STATES_MAX, "a trial leaves few outcomes open");
    }
}

/// What kind of crash a store was put through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// The process was killed: everything acknowledged survives.
    Kill,
    /// Power was lost: what was acknowledged as synced survives.
    PowerLoss,
}

/// How many commits may have survived: at least `floor`, at most `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Commits that must be there.
    pub floor: usize,
    /// Commits that were ever begun.
    pub end: usize,
}

/// Every write in commit order, and the states a store may be in.
#[derive(Debug, Clone)]
pub struct Model {
    /// Possible states after the first `base_count` commits; those before are forgotten.
    base: Vec<State>,
    base_count: usize,
    /// Commits after the base.
    tail: Vec<Commit>,
    /// Commits that survive any crash; not below `base_count`.
    synced_count: usize,
    /// Possible states after every commit.
    live: Vec<State>,
    version_max: SeqNo,
    /// Commits since the last recovery whose outcome is unknown.
    open_count: usize,
}

impl Default for Model {
    fn default() -> Self {
        let empty = vec![State::new()];
        Model {
            base: empty.clone(),
            base_count: 0,
            tail: Vec::new(),
            synced_count: 0,
            live: empty,
            version_max: 0,
            open_count: 0,
        }
    }
}

impl Model {
    /// The model of a new store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Commits so far.
    pub fn len(&self) -> usize {
        self.base_count + self.tail.len()
    }

    /// Whether nothing was ever committed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest version seen.
    pub fn version_max(&self) -> SeqNo {
        self.version_max
    }

    /// The states that a reader of the running store may be seeing.
    pub fn live(&self) -> &[State] {
        &self.live
    }

    /// Adds a commit that the store acknowledged with `version`, made under `durability` at `now_ms`.
    pub fn acknowledge(
        &mut self,
        writes: Vec<Write>,
        version: SeqNo,
        durability: Durability,
        now_ms: u64,
    ) -> Outcome {
        let count = writes.len() as u64;
        if version < self.version_max + count {
            return Err(Violation::new(format!(
                "{count} writes were acknowledged with version {version}, \
                 although version {} had been seen before",
                self.version_max
            )));
        }
        self.version_max = version;
        let sync_due_ms = match durability {
            Durability::Interval(ms) => Some(now_ms + u64::from(ms)),
            Durability::Os | Durability::Sync => None,
        };
        self.push(writes, Some(version + 1 - count), sync_due_ms);
        if durability == Durability::Sync {
            self.synced();
        }
        Ok(())
    }

    /// Adds a commit whose outcome the store left open.
    pub fn leave_open(&mut self, writes: Vec<Write>) {
        self.open_count += 1;
        self.push(writes, None, None);
    }

    /// Commits since the last recovery whose outcome is unknown. A trial keeps them few: each doubles the
    /// states that are possible.
    pub fn open_count(&self) -> usize {
        self.open_count
    }

    /// The store was closed or killed and opened again, and not yet read as a whole: every open outcome
    /// may have been decided anew.
    pub fn restarted(&mut self) {
        self.live = self.states_at(self.len());
    }

    fn push(&mut self, writes: Vec<Write>, first: Option<SeqNo>, sync_due_ms: Option<u64>) {
        let changes = writes
            .into_iter()
            .zip(0..)
            .map(|(write, at)| match write {
                Write::Put(key, record) => {
                    let version = first.map(|first| first + at);
                    Change::Put(key, Arc::new(Record { version, ..record }))
                }
                Write::Delete(key) => Change::Delete(key),
                Write::DeleteRange(start, end) => Change::DeleteRange(start, end),
            })
            .collect();
        let commit = Commit { changes, acknowledged: first.is_some(), sync_due_ms };
        commit.advance(&mut self.live);
        self.tail.push(commit);
    }

    /// Everything so far was reported as synced: it survives any crash.
    pub fn synced(&mut self) {
        self.synced_count = self.len();
    }

    /// A write at `now_ms` was acknowledged: the interval syncs that were due by then have been made.
    /// `before` is how many commits there were before that write.
    pub fn interval_passed(&mut self, now_ms: u64, before: usize) {
        let within = before.saturating_sub(self.base_count).min(self.tail.len());
        let due = self.tail[..within]
            .iter()
            .rposition(|commit| commit.sync_due_ms.is_some_and(|due| due <= now_ms));
        if let Some(last) = due {
            self.synced_count = self.synced_count.max(self.base_count + last + 1);
        }
    }

    /// Forgets the states before the last commit that survives any crash.
    pub fn forget(&mut self) {
        for commit in self.tail.drain(..self.synced_count - self.base_count) {
            commit.advance(&mut self.base);
        }
        self.base_count = self.synced_count;
    }

    /// Which prefixes a crash now may leave.
    pub fn window(&self, survival: Survival) -> Window {
        let floor = match survival {
            Survival::PowerLoss => self.synced_count,
            Survival::Kill => {
                let acknowledged = self.tail.iter().rposition(|commit| commit.acknowledged);
                self.base_count + acknowledged.map_or(0, |last| last + 1)
            }
        };
        Window { floor, end: self.len() }
    }

    /// The possible states after the first `count` commits. Requires: not forgotten.
    pub fn states_at(&self, count: usize) -> Vec<State> {
        let mut states = self.base.clone();
        for commit in &self.tail[..count - self.base_count] {
            commit.advance(&mut states);
        }
        states
    }

    /// Finds the longest prefix in the window whose state passes `check`.
    pub fn explain(
        &self,
        window: Window,
        mut check: impl FnMut(&State) -> Result<(), String>,
    ) -> Outcome<usize> {
        let mut states = self.states_at(window.floor);
        let mut found = None;
        let mut refusals = Vec::new();
        for count in window.floor..=window.end {
            let mut refusal = None;
            for state in &states {
                match check(state) {
                    Ok(()) => found = Some(count),
                    Err(why) => refusal = Some(why),
                }
            }
            refusals.extend(refusal.map(|why| format!("after {count} commits: {why}")));
            if count < window.end {
                self.tail[count - self.base_count].advance(&mut states);
            }
        }
        found.ok_or_else(|| {
            let mut what = format!(
                "the store holds no state of the commit order between {} and {} commits",
                window.floor, window.end
            );
            // The first and the last say most: what is missing at least, and what there is too much.
            refusals.dedup();
            for refusal in refusals.iter().take(1).chain(refusals.iter().skip(1).last()) {
                what.push_str("\n      ");
                what.push_str(refusal);
            }
            Violation::new(what)
        })
    }

    /// Rules out the live states that contradict what a read showed; a violation if none is left.
    pub fn read(&mut self, check: impl FnMut(&State) -> Result<(), String>) -> Outcome {
        retain_possible(&mut self.live, check)
    }

    /// Starts again from what a reopened store holds, after [`explain`](Self::explain) accepted it. It has
    /// to survive any further crash, because readers have seen it.
    pub fn recovered(&mut self, contents: &BTreeMap<Bytes, (Head, Bytes)>) {
        let state: State = contents
            .iter()
            .map(|(key, (head, value))| (key.clone(), Arc::new(Record::observed(head, value))))
            .collect();
        let newest = contents.values().map(|(head, _)| head.version).max();
        self.version_max = self.version_max.max(newest.unwrap_or(0));
        self.synced_count = self.len();
        self.base_count = self.len();
        self.base = vec![state.clone()];
        self.live = vec![state];
        self.tail.clear();
        self.open_count = 0;
    }
}

/// Keeps the states that pass `check`; a violation if none does.
pub fn retain_possible(
    states: &mut Vec<State>,
    mut check: impl FnMut(&State) -> Result<(), String>,
) -> Outcome {
    let mut why = String::new();
    states.retain(|state| match check(state) {
        Ok(()) => true,
        Err(message) => {
            why = message;
            false
        }
    });
    if states.is_empty() { Err(Violation::new(why)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, value: &'static str) -> Vec<Write> {
        let record = Record {
            value: Bytes::from(value),
            checksum: 0,
            attributes: Bytes::new(),
            expires_at_ms: 0,
            version: None,
            written_ms: (0, 0),
        };
        vec![Write::Put(Bytes::from(key), record)]
    }

    fn holds(
        key: &'static str,
        value: Option<&'static str>,
    ) -> impl Fn(&State) -> Result<(), String> {
        move |state| match state.get(key.as_bytes()).map(|record| &record.value[..]) {
            got if got == value.map(str::as_bytes) => Ok(()),
            got => Err(format!("{key} is {got:?}")),
        }
    }

    fn model() -> Model {
        let mut model = Model::new();
        model.acknowledge(put("a", "1"), 1, Durability::Sync, 0).unwrap();
        model.acknowledge(put("a", "2"), 2, Durability::Interval(100), 0).unwrap();
        model.acknowledge(put("b", "3"), 3, Durability::Os, 0).unwrap();
        model
    }

    #[test]
    fn a_kill_loses_nothing_and_a_power_loss_only_what_was_not_synced() {
        let mut model = model();
        assert_eq!(model.window(Survival::Kill), Window { floor: 3, end: 3 });
        assert_eq!(model.window(Survival::PowerLoss), Window { floor: 1, end: 3 });
        model.interval_passed(99, 3);
        assert_eq!(model.window(Survival::PowerLoss).floor, 1);
        model.interval_passed(100, 3);
        assert_eq!(model.window(Survival::PowerLoss).floor, 2);
        model.synced();
        assert_eq!(model.window(Survival::PowerLoss).floor, 3);
    }

    #[test]
    fn a_hole_in_the_commit_order_is_a_violation() {
        let model = model();
        let window = model.window(Survival::PowerLoss);
        let hole = |state: &State| holds("a", Some("1"))(state).and(holds("b", Some("3"))(state));
        assert!(model.explain(window, hole).is_err());
        assert_eq!(model.explain(window, holds("a", Some("1"))), Ok(1));
        assert_eq!(model.explain(window, holds("b", Some("3"))), Ok(3));
        assert!(model.explain(model.window(Survival::Kill), holds("b", None)).is_err());
    }

    #[test]
    fn an_open_outcome_may_be_either_but_does_not_flicker() {
        let mut model = model();
        model.leave_open(put("a", "4"));
        model.acknowledge(put("c", "5"), 9, Durability::Os, 0).unwrap();
        assert_eq!(model.live().len(), 2);
        model.read(holds("a", Some("4"))).unwrap();
        assert!(model.clone().read(holds("a", Some("2"))).is_err());
        let window = model.window(Survival::Kill);
        assert_eq!(model.explain(window, holds("a", Some("2"))), Ok(5));
        assert_eq!(model.explain(window, holds("a", Some("4"))), Ok(5));
    }

    #[test]
    fn a_version_is_never_used_twice() {
        let mut model = model();
        assert!(model.acknowledge(put("a", "6"), 3, Durability::Os, 0).is_err());
        model.recovered(&BTreeMap::new());
        assert!(model.acknowledge(put("a", "6"), 2, Durability::Os, 0).is_err());
        assert!(model.acknowledge(put("a", "6"), 4, Durability::Os, 0).is_ok());
    }
}
