//! What the store must hold of one writer's keys.
//!
//! Invariant: a key's value is its last acknowledged write, or one of the writes under way after it.
//! Writes under way are applied in the order they were sent, without gaps, each whole.

use std::collections::{BTreeMap, BTreeSet};

/// A value by its writer's sequence number; `None` is "absent".
pub(crate) type State = Option<u64>;

/// One write: a key or, in a batch, several.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) keys: Vec<(String, State)>,
}

/// The keys of one writer.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Keys that have a value.
    values: BTreeMap<String, u64>,
    /// Writes sent and not acknowledged, in the order they were sent.
    under_way: Vec<Write>,
    /// Keys that the next check must read: those written since the last one, and those whose writes
    /// were under way at the last one, which must not change their answer.
    touched: BTreeSet<String>,
}

impl Model {
    /// A write is about to be sent.
    pub(crate) fn begin(&mut self, write: Write) {
        for (key, _) in &write.keys {
            self.touched.insert(key.clone());
        }
        self.under_way.push(write);
    }

    /// The oldest write under way was acknowledged.
    pub(crate) fn acknowledge(&mut self) {
        let write = self.under_way.remove(0);
        for (key, state) in write.keys {
            self.set(key, state);
        }
    }

    /// Writes sent and not acknowledged, in the order they were sent.
    pub(crate) fn under_way(&self) -> &[Write] {
        &self.under_way
    }

    /// The state by the last acknowledged write.
    pub(crate) fn acknowledged(&self, key: &str) -> State {
        self.values.get(key).copied()
    }

    /// Whether a read may answer `state`.
    pub(crate) fn allows(&self, key: &str, state: State) -> bool {
        let under_way = self.under_way.iter().flat_map(|write| &write.keys);
        self.acknowledged(key) == state
            || under_way.filter(|(other, _)| other == key).any(|(_, sent)| *sent == state)
    }

    /// The keys to read: those touched lately, or all.
    pub(crate) fn keys_to_check(&self, full: bool) -> Vec<String> {
        let mut keys: Vec<String> = self.touched.iter().cloned().collect();
        if full {
            keys.extend(self.values.keys().cloned());
            keys.sort();
            keys.dedup();
        }
        keys
    }

    /// What was observed of the writes under way is what they came to: from now on it must stay so.
    pub(crate) fn settle(&mut self, applied_count: usize) {
        let under_way = std::mem::take(&mut self.under_way);
        self.touched.clear();
        for (number, write) in under_way.into_iter().enumerate() {
            for (key, state) in write.keys {
                self.touched.insert(key.clone());
                if number < applied_count {
                    self.set(key, state);
                }
            }
        }
    }

    /// All values. Requires: nothing is under way.
    pub(crate) fn values(&self) -> &BTreeMap<String, u64> {
        assert!(self.under_way.is_empty(), "values are known once writes under way are settled");
        &self.values
    }

    fn set(&mut self, key: String, state: State) {
        match state {
            Some(sequence) => self.values.insert(key, sequence),
            None => self.values.remove(&key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(key: &str, state: State) -> Write {
        Write { keys: vec![(key.to_owned(), state)] }
    }

    #[test]
    fn a_write_under_way_may_be_there_or_not_until_it_is_settled() {
        let mut model = Model::default();
        model.begin(write("a", Some(1)));
        model.acknowledge();
        model.begin(write("a", Some(2)));
        assert!(model.allows("a", Some(1)) && model.allows("a", Some(2)));
        assert!(!model.allows("a", None));
        model.settle(1);
        assert!(model.allows("a", Some(2)) && !model.allows("a", Some(1)));
    }

    #[test]
    fn a_key_whose_write_was_under_way_is_checked_again_after_the_next_restart() {
        let mut model = Model::default();
        model.begin(write("a", Some(1)));
        model.settle(0);
        assert_eq!(model.keys_to_check(false), ["a"]);
        model.settle(0);
        assert!(model.keys_to_check(true).is_empty());
        model.begin(write("b", Some(2)));
        model.acknowledge();
        model.settle(0);
        assert!(model.keys_to_check(false).is_empty());
        assert_eq!(model.keys_to_check(true), ["b"]);
    }
}
