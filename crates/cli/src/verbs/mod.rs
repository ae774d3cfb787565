//! Commands on an embedded store: each opens it, does one thing, and lets it go.

pub(crate) mod embedded;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod write;
pub(crate) mod stats;
pub(crate) mod inspect;
pub(crate) mod maintain;
pub(crate) mod describe;
