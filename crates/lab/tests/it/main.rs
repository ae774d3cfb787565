//! The laboratory's integration tests, in one binary: a file per behaviour.

mod harness;
mod synthetic;

mod architecture;
mod child;
mod experiments;
mod files;
mod generator;
mod http;
mod outcomes;
mod report_page;
mod sample_report;
mod verdicts;
mod workloads;
