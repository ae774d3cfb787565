//! R1: random operations on a store and on the model of it; every answer is compared.

use tallybook::options::{Durability, Options};
use tallybook_sim::generator::{Generator, Profile};
use tallybook_sim::medium::{Medium, Memory};
use tallybook_sim::random::Random;
use tallybook_sim::{option_sets, runner, settings};

use crate::pass;

#[test]
fn a_store_in_memory_answers_as_the_model_through_reopenings_and_crashes() {
    pass(settings::for_each_seed(600, |seed| {
        let mut random = Random::new(seed);
        let profile = Profile { steps: 200, expiry: true, crashes: true };
        let options =
            if random.chance(50) { option_sets::tiny() } else { option_sets::random(&mut random) };
        let mut memory = Memory::new();
        memory.resources = option_sets::resources(&mut random);
        let steps = Generator::new(seed, profile).steps();
        runner::run(Medium::Memory(memory), options, &steps).map(drop)
    }));
}

#[test]
fn a_store_on_the_disk_with_threads_answers_as_the_model() {
    pass(settings::for_each_seed(12, |seed| {
        let profile = Profile { steps: 200, expiry: false, crashes: true };
        let options = Options { durability: Durability::Interval(10), ..option_sets::tiny() };
        let steps = Generator::new(seed, profile).steps();
        let medium = Medium::disk().expect("a temporary directory can be made");
        runner::run(medium, options, &steps).map(drop)
    }));
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    let profile = Profile { steps: 200, expiry: true, crashes: true };
    let run = || {
        let steps = Generator::new(settings::seed(), profile).steps();
        pass(runner::run(Medium::memory(), option_sets::tiny(), &steps))
    };
    assert_eq!(run(), run());
}
