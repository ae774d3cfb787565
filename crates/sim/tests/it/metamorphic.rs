//! R2: the same operations under different settings give the same answers.

use tallybook_sim::generator::{Generator, Profile};
use tallybook_sim::medium::{Medium, Memory};
use tallybook_sim::operations::Step;
use tallybook_sim::random::Random;
use tallybook_sim::violation::{At, Outcome};
use tallybook_sim::{Violation, option_sets, runner, settings};

use crate::pass;

const OPTION_SETS: usize = 13;

#[test]
fn settings_do_not_change_answers() {
    pass(settings::for_each_seed(16, |seed| {
        let profile = Profile { steps: 200, expiry: true, crashes: false };
        let steps = Generator::new(seed, profile).steps();
        agree(seed, &steps)
    }));
}

fn agree(seed: u64, steps: &[Step]) -> Outcome {
    let expected = runner::run(Medium::memory(), option_sets::tiny(), steps)?;
    let mut random = Random::new(seed);
    for _ in 1..OPTION_SETS {
        let options = option_sets::random(&mut random);
        let mut memory = Memory::new();
        memory.resources = option_sets::resources(&mut random);
        let place = || format!("under {options:?}");
        let got = runner::run(Medium::Memory(memory), options.clone(), steps).at(place)?;
        if let Some(step) = (0..expected.len()).find(|&at| got.get(at) != expected.get(at)) {
            let what = format!("step {step} is answered differently: {:?}", steps[step]);
            return Err(Violation::new(what)).at(place);
        }
    }
    Ok(())
}
