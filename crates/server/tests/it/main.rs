//! The server as its clients see it: bytes on a socket, over a real store in a directory of its own.

mod faults;
mod harness;

mod exposition;

mod batch;
mod books;
mod dashboard;
mod dashboard_figures;
mod dashboard_screenshots;
mod drain;
mod files;
mod http_table;
mod item;
mod large_values;
mod metrics;
mod openapi;
mod ops;
mod origins;
mod overload;
mod pipelining;
mod profile;
mod refusals;
mod s3;
mod s3_signature;
mod scan;
mod stages;
mod start;
mod timeouts;
