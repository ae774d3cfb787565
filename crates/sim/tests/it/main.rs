//! Tallybook's promises, tried: a file per behaviour. `TALLYBOOK_SEED` replays a case, `TALLYBOOK_CASES` runs more.

mod concurrency;
mod controls;
mod crashes;
mod damage;
mod disk_full;
mod faults;
mod metamorphic;
mod model;

/// Fails the test with the whole story of a violation.
fn pass<T>(outcome: Result<T, tallybook_sim::Violation>) -> T {
    match outcome {
        Ok(value) => value,
        Err(violation) => panic!("{violation}"),
    }
}
