//! Commands other than `serve`. Most open a store, do one thing, and let it go; `stages` and `profile`
//! ask a running server; `lab` starts processes of its own.

pub(crate) mod embedded;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod write;
pub(crate) mod stats;
pub(crate) mod stages;
pub(crate) mod inspect;
pub(crate) mod maintain;
pub(crate) mod salvage;
pub(crate) mod profile;
pub(crate) mod files;
pub(crate) mod lab;
pub(crate) mod describe;
