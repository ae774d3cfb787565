//! The laboratory's integration tests, in one binary: a file per behaviour.

mod browser;
mod report_page;
mod sample_report;
mod synthetic;
