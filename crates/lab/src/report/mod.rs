//! Reports: the answer to an experiment's question as one page that needs nothing else.
//!
//! Invariant: a report is drawn from records alone, so that it can be redrawn from `runs.jsonl` at any
//! time, on any machine, and says the same. It makes no runs, and knows no experiment.

mod records;
mod metric;
mod curves;
mod compare;
mod unlike;
mod table;
mod verdicts;
mod setup;
mod page;
mod document;

#[cfg(test)]
pub(crate) use compare::RUNS_MIN;
pub use compare::{Comparer, Comparison, Row, Verdict, compare};
pub use curves::{percentile_points, time_points};
pub use document::{FlameGraph, Report};
pub use metric::{Measure, Metric};
pub use records::{case_name, errors_text};
pub use setup::machine_text;
pub use table::Table;
pub(crate) use verdicts::p_text;
