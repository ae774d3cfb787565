//! R19: negative controls. Each plants a bug and runs the trial that must find it.

use tallybook_sim::crashes::{self, Plan};

use crate::pass;

fn crash_plan(seed: u64) -> Plan {
    Plan {
        seed,
        stride: 1,
        random_count: 2,
        deep_stride: 7,
        recovery_stride: 5,
        syncs_disabled: false,
    }
}

#[test]
fn a_file_system_whose_syncs_do_nothing_is_found_by_crashes() {
    let plan = Plan { syncs_disabled: true, ..crash_plan(1) };
    assert!(crashes::all_workloads(plan).is_err());
    pass(crashes::all_workloads(crash_plan(1)));
}

mod planted {
    use tallybook::fault_points::{Bug, clear, plant};
    use tallybook_sim::damage::{self, Subject};
    use tallybook_sim::generator::{Generator, Profile};
    use tallybook_sim::medium::Medium;
    use tallybook_sim::violation::{Outcome, Violation};
    use tallybook_sim::{crashes, option_sets, runner, workloads};

    use super::crash_plan;
    use crate::pass;

    /// Seeds that a trial has to find the bug with.
    const SEEDS: u64 = 20;

    /// A bug, planted for this thread as long as this lives.
    struct Planted;

    impl Planted {
        fn new(bug: Bug) -> Self {
            plant(bug);
            Planted
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            clear();
        }
    }

    /// Runs a trial with a bug until it is found. Without the bug the same trial passes, so that it was
    /// the bug that was found.
    fn find(bug: Bug, trial: impl Fn(u64) -> Outcome) -> Violation {
        let planted = Planted::new(bug);
        let (seed, found) = (1..=SEEDS)
            .find_map(|seed| trial(seed).err().map(|found| (seed, found)))
            .unwrap_or_else(|| panic!("{bug:?} was not found with {SEEDS} seeds"));
        println!("{bug:?} was found as: {found}");
        drop(planted);
        pass(trial(seed));
        found
    }

    fn crash(seed: u64) -> Outcome {
        crashes::all_workloads(crash_plan(seed)).map(drop)
    }

    fn damage(seed: u64) -> Outcome {
        let subject = Subject::new(&workloads::small_store(seed), seed.is_multiple_of(2))?;
        subject.damage_everywhere(damage::Plan { seed, stride: 3 }).map(drop)
    }

    fn model(seed: u64) -> Outcome {
        let profile = Profile { steps: 400, expiry: false, crashes: false };
        let steps = Generator::new(seed, profile).steps();
        runner::run(Medium::memory(), option_sets::tiny(), &steps).map(drop)
    }

    #[test]
    fn skipped_checksums_are_found_by_damage() {
        find(Bug::SkipChecksum, damage);
    }

    #[test]
    fn an_acknowledgement_before_its_sync_is_found_by_crashes() {
        find(Bug::AckBeforeSync, crash);
    }

    #[test]
    fn inputs_deleted_before_the_manifest_is_synced_are_found_by_crashes() {
        find(Bug::DeleteInputsBeforeManifestSync, crash);
    }

    #[test]
    fn falling_through_a_corrupt_block_is_found_by_damage() {
        find(Bug::FallThroughOnCorruptBlock, damage);
    }

    #[test]
    fn versions_used_twice_are_found_by_crashes() {
        // Recovery itself refuses a journal whose numbers go back.
        let found = find(Bug::ReuseSeqNoAfterCrash, crash);
        let is_told = found.what.contains("version") || found.what.contains("no valid record");
        assert!(is_told, "{found}");
    }

    #[test]
    fn a_collection_that_drops_a_live_value_is_found_by_the_model() {
        find(Bug::CollectionDropsLiveValue, model);
    }

    #[test]
    fn skipped_directory_syncs_are_found_by_crashes() {
        find(Bug::SkipDirSync, crash);
    }

    #[test]
    fn a_forgotten_range_tombstone_is_found_by_the_model() {
        find(Bug::ForgetRangeTombstone, model);
    }
}
