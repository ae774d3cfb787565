//! What can't be read, as far as there is room to tell of it.

use std::path::Path;

use super::NAMED_MAX;
use crate::error::Error;
use crate::store::Damage;

/// Errors: the first ones, and how many there were behind them. A file can be made to have millions.
#[derive(Debug, Default)]
pub(super) struct Errors {
    first: Vec<Error>,
    others: u64,
}

impl Errors {
    pub(super) fn add(&mut self, error: Error) {
        match self.first.len() < NAMED_MAX {
            true => self.first.push(error),
            false => self.others += 1,
        }
    }

    pub(super) fn append(&mut self, others: Errors) {
        others.first.into_iter().for_each(|error| self.add(error));
        self.others += others.others;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// What they tell of a store in `dir`, and of how many places they don't.
    pub(super) fn into_damage(self, dir: &Path) -> (Vec<Damage>, u64) {
        let mut damage: Vec<Damage> = Vec::new();
        for error in self.first {
            let place = Damage::of(error, dir);
            // A segment may have been read for its keys, and for where its values were moved from.
            if !damage.contains(&place) {
                damage.push(place);
            }
        }
        (damage, self.others)
    }
}
