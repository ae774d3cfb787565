//! From samples to a profile: equal stacks are added up, addresses become names, and what stands below
//! the work is cut.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::cut;
use super::kind::Kind;
use super::names::Names;
use super::samples::Sample;

/// Most different stacks of one profile; what comes beyond is only counted.
const STACKS_MAX: usize = 50_000;
/// The frame of what could not be taken down.
const LOST: &str = "[lost]";

/// A finished profile.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) kind: Kind,
    pub(super) duration: Duration,
    /// By stack: the names of its frames from the root, with `;` between them.
    pub(super) stacks: BTreeMap<String, u64>,
}

impl Profile {
    /// The weight of all stacks.
    pub(super) fn total(&self) -> u64 {
        self.stacks.values().sum()
    }
}

/// Samples, added up by stack.
#[derive(Debug, Default)]
pub(super) struct Tally {
    stacks: HashMap<Stack, u64>,
    lost_weight: u64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Stack {
    thread: String,
    label: Option<&'static str>,
    /// Innermost first.
    addresses: Box<[usize]>,
}

impl Tally {
    /// Adds a sample.
    pub(super) fn add(&mut self, sample: &Sample, weight: u64) {
        let stack = Stack {
            thread: role(&sample.thread_name()).to_owned(),
            label: sample.label,
            addresses: sample.addresses().into(),
        };
        if self.stacks.len() >= STACKS_MAX && !self.stacks.contains_key(&stack) {
            return self.add_lost(weight);
        }
        let sum = self.stacks.entry(stack).or_default();
        *sum = sum.saturating_add(weight);
    }

    /// Adds what has no stack.
    pub(super) fn add_lost(&mut self, weight: u64) {
        self.lost_weight = self.lost_weight.saturating_add(weight);
    }

    /// Names everything. `full` keeps what is cut otherwise.
    pub(super) fn finish(self, kind: Kind, duration: Duration, full: bool) -> Profile {
        let mut names = Names::new();
        let mut stacks = BTreeMap::new();
        let mut add = |stack: String, weight: u64| {
            let sum: &mut u64 = stacks.entry(stack).or_default();
            *sum = sum.saturating_add(weight);
        };
        for (stack, weight) in self.stacks {
            let mut named = Vec::new();
            for &address in stack.addresses.iter().rev() {
                named.extend_from_slice(names.of(address));
            }
            let frames: Vec<&str> = named.iter().map(String::as_str).collect();
            let Some(mut frames) = cut::cut(kind, &stack.thread, &frames, full) else {
                continue;
            };
            frames.extend(stack.label);
            if weight > 0 {
                add(frames.join(";"), weight);
            }
        }
        if self.lost_weight > 0 {
            add(LOST.to_owned(), self.lost_weight);
        }
        backtrace::clear_symbol_cache();
        Profile { kind, duration, stacks }
    }
}

/// The name of a thread without the number that tells it from others of its kind.
fn role(thread_name: &str) -> &str {
    let role = thread_name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    if role.is_empty() { "thread" } else { role }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_kind_have_one_name() {
        for (name, expected) in [
            ("tally-flush-0", "tally-flush"),
            ("tallybook-http-", "tallybook-http"),
            ("signals", "signals"),
            ("12", "thread"),
        ] {
            assert_eq!(role(name), expected);
        }
    }
}
