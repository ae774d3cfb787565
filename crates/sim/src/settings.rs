//! How long trials run and from which seed: `TALLYBOOK_SEED` and `TALLYBOOK_CASES`.
//!
//! A failing test prints the seed of its case; `TALLYBOOK_SEED=<seed> TALLYBOOK_CASES=1` replays it.

use crate::random::Random;
use crate::violation::{At, Outcome};

const DEFAULT_SEED: u64 = 0x7a11_b00c;

/// The seed of the first case.
pub fn seed() -> u64 {
    number("TALLYBOOK_SEED").unwrap_or(DEFAULT_SEED)
}

/// How many cases to run; `short` unless `TALLYBOOK_CASES` says otherwise.
pub fn cases(short: u64) -> u64 {
    number("TALLYBOOK_CASES").unwrap_or(short)
}

/// Every how many points an exhaustive trial looks: 1 (all of them) in the long mode, which
/// `TALLYBOOK_CASES` switches on, else `short`.
pub fn stride(short: usize) -> usize {
    if number("TALLYBOOK_CASES").is_some() { 1 } else { short }
}

/// Runs `case` with as many seeds; the first is [`seed`] itself, so that a case replays by its seed.
pub fn for_each_seed(short: u64, mut case: impl FnMut(u64) -> Outcome) -> Outcome {
    let mut seeds = Random::new(seed());
    let mut case_seed = seed();
    for _ in 0..cases(short) {
        case(case_seed)
            .at(|| format!("replay with TALLYBOOK_SEED={case_seed} TALLYBOOK_CASES=1"))?;
        case_seed = seeds.number();
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}
