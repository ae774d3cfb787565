//! R4: a crash at every file operation, and another in the recovery from it.

use tallybook_sim::crashes::{self, Plan};
use tallybook_sim::settings;

use crate::pass;

#[test]
fn a_crash_at_any_file_operation_leaves_a_prefix_with_everything_acknowledged() {
    pass(settings::for_each_seed(1, |seed| {
        let tried = crashes::all_workloads(Plan {
            seed,
            stride: 1,
            random_count: 3,
            deep_stride: settings::stride(11),
            recovery_stride: settings::stride(3),
            syncs_disabled: false,
        })?;
        println!("{tried:?}");
        Ok(())
    }));
}
