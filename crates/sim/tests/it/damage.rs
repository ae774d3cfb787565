//! R8: damage at every byte of every file, cuts at every length, lost and swapped files.

use tallybook_sim::damage::{Plan, Subject};
use tallybook_sim::{settings, workloads};

use crate::pass;

fn damage(close: bool) {
    pass(settings::for_each_seed(1, |seed| {
        let subject = Subject::new(&workloads::small_store(seed), close)?;
        let tried = subject.damage_everywhere(Plan { seed, stride: 1 })?;
        println!("{tried:?}");
        Ok(())
    }));
}

#[test]
fn damage_to_a_closed_store_is_never_answered_with_wrong_values_or_silence() {
    damage(true);
}

#[test]
fn damage_to_a_killed_store_costs_at_most_what_was_never_synced() {
    damage(false);
}
