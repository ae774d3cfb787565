//! What goes over the pipe.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::Durability;

/// How a store is to be opened; it is made where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesOpening {
    /// Which store.
    pub name: String,
    /// Where its files are to be.
    pub directory: PathBuf,
    /// The 40 hex digits that it is made with, where it has a use for them.
    pub reference_id: String,
    /// What an acknowledged write must survive.
    pub durability: Durability,
    /// Buckets that it is made with; `None` is its own number.
    pub buckets: Option<u32>,
}

/// From the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub(super) enum Ask {
    Open { opening: FilesOpening },
    Write { name: String, bytes: u64, seed: u32 },
    Read { name: String, bytes: u64, seed: u32 },
    Unlink { name: String },
    Figures,
    Close,
}

/// From the child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "lowercase")]
pub(super) enum Tell {
    Opened {
        settings: BTreeMap<String, String>,
    },
    /// How long it took; of a write and a read also the sum that tells which bytes they were.
    Done {
        ns: u64,
        #[serde(default)]
        sum: Option<u32>,
    },
    Figures {
        figures: BTreeMap<String, f64>,
    },
    Closed,
    /// Other bytes were read than were written.
    Wrong {
        what: String,
    },
    /// It refused or failed.
    Failed {
        what: String,
    },
}
