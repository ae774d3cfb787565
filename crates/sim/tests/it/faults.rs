//! R5: an error at every file operation.

use tallybook_sim::faults::{self, Plan};
use tallybook_sim::{settings, workloads};

use crate::pass;

fn fail_everywhere(make: fn(u64) -> workloads::Workload) {
    pass(settings::for_each_seed(1, |seed| {
        let plan = Plan { stride: 1, every_fault: settings::stride(2) == 1 };
        let runs = faults::error_at_every_operation(&make(seed), plan)?;
        println!("{runs} runs with a fault");
        Ok(())
    }));
}

#[test]
fn small_puts_survive_an_error_of_any_file_operation() {
    fail_everywhere(workloads::small_puts);
}

#[test]
fn large_values_survive_an_error_of_any_file_operation() {
    fail_everywhere(workloads::large_values);
}

#[test]
fn batches_survive_an_error_of_any_file_operation() {
    fail_everywhere(workloads::batches);
}
