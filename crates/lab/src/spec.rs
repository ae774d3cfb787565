//! What is asked of a target: a workload by its name in the field, with every parameter spelled out.
//!
//! A spec is complete: the same spec and seed make the same requests, on any target. Names follow
//! LevelDB's `db_bench` and YCSB (Cooper et al. 2010).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::keys::KeyShape;

macro_rules! workloads {
    (
        keys { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }
        files { $($(#[$of_files:meta])* $file_variant:ident = $file_name:literal,)* }
    ) => {
        /// A workload by its name in the field.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Workload {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
            $($(#[$of_files])* #[serde(rename = $file_name)] $file_variant,)*
        }

        impl Workload {
            /// Every one on a store of keys and values; those on a store of files are others.
            pub const ALL: &[Workload] = &[$(Workload::$variant,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Workload::$variant => $name,)*
                    $(Workload::$file_variant => $file_name,)*
                }
            }
        }
    };
}

workloads! {
    keys {
        /// Puts new keys in order.
        FillSeq = "fillseq",
        /// Puts new keys, each once, in random order.
        FillRandom = "fillrandom",
        /// Puts new keys in random order, each synced before it is acknowledged.
        FillSync = "fillsync",
        /// Puts keys that are there, at random.
        Overwrite = "overwrite",
        /// Gets a key at random and puts it with another value.
        UpdateRandom = "updaterandom",
        /// Gets keys that are there, by the spec's distribution.
        ReadRandom = "readrandom",
        /// Gets keys that are not there, but lie between those that are.
        ReadMissing = "readmissing",
        /// Gets keys of the first hundredth of all, at random.
        ReadHot = "readhot",
        /// Gets keys that are there while one thread overwrites at the spec's `background_rate`; its puts are none
        /// of the operations.
        ReadWhileWriting = "readwhilewriting",
        /// Seeks to a key at random and reads the next `scan_keys`.
        SeekRandom = "seekrandom",
        /// Reads ranges of `scan_keys` from random keys, through the target's range request.
        Scan = "scan",
        /// Reads every key and value in order.
        FullScan = "fullscan",
        /// Deletes keys that are there, each once, in random order.
        DeleteRandom = "deleterandom",
        /// Asks for the heads of keys that are there.
        HeadRandom = "headrandom",
        /// Half reads, half updates, zipfian.
        YcsbA = "ycsb-a",
        /// 95 % reads, 5 % updates, zipfian.
        YcsbB = "ycsb-b",
        /// Reads, zipfian.
        YcsbC = "ycsb-c",
        /// 95 % reads of the latest, 5 % inserts.
        YcsbD = "ycsb-d",
        /// 95 % short scans, 5 % inserts.
        YcsbE = "ycsb-e",
        /// Half reads, half read-modify-writes, zipfian.
        YcsbF = "ycsb-f",
    }
    files {
        /// Writes a file as long as a value, reads it and unlinks it.
        WriteReadUnlink = "write-read-unlink",
        /// Writes a file into each of as many buckets as there are keys, and reads them.
        EachBucket = "each-bucket",
        /// Asks for nothing, and watches what the store does by itself.
        Rest = "rest",
    }
}

impl Workload {
    /// The workload of this name; an error that lists all when there is none.
    pub fn from_name(name: &str) -> Result<Workload> {
        let found = Self::ALL.iter().copied().find(|one| one.name() == name);
        found.ok_or_else(|| Error::Unknown {
            what: "workload",
            name: name.to_owned(),
            known: Self::ALL.iter().map(|one| one.name().to_owned()).collect(),
        })
    }

    /// Whether it starts from an empty store; the others find `keys` keys, put in random order.
    pub fn starts_empty(self) -> bool {
        matches!(self, Workload::FillSeq | Workload::FillRandom | Workload::FillSync)
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        use Workload::{
            FullScan, HeadRandom, ReadHot, ReadMissing, ReadRandom, Rest, Scan, SeekRandom,
        };
        let only_reads =
            [ReadRandom, ReadMissing, ReadHot, SeekRandom, Scan, FullScan, HeadRandom, Rest];
        !only_reads.contains(&self) && self != Workload::YcsbC
    }
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyDistribution {
    /// All alike.
    Uniform,
    /// One after another.
    Sequential,
    /// A few much more often, scattered over the key space (Gray et al. 1994, scrambled as in YCSB).
    Zipfian {
        /// 0.99 in YCSB.
        exponent: f64,
    },
    /// The newest most often.
    Latest {
        /// Of the zipfian distribution of ages.
        exponent: f64,
    },
}

/// How long values are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueSizes {
    /// All of this many bytes.
    Fixed(u32),
    /// Any from `min` to `max`.
    Uniform {
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// Many short, few long, cut off at `max`.
    Pareto {
        /// Shortest, and the scale.
        min: u32,
        /// Shape; smaller is a heavier tail.
        shape: f64,
        /// Longest.
        max: u32,
    },
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// Each when the one before it was answered: as fast as possible, and blind to pauses.
    Closed,
    /// At even intervals, whether or not earlier ones were answered.
    Constant {
        /// Requests per second over all threads or connections.
        per_second: f64,
    },
    /// At random moments, as independent clients would.
    Poisson {
        /// Requests per second on average.
        per_second: f64,
    },
}

/// How long a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// So many operations over all threads.
    Operations(u64),
    /// So long.
    Time(Duration),
}

/// What a write must survive before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The process being killed.
    Os,
    /// Power loss.
    Sync,
}

/// What is asked of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The workload.
    pub workload: Workload,
    /// Keys in the store before a run that doesn't start empty, and the key space of fills.
    pub keys: u64,
    /// Bytes of a key, at least 8.
    pub key_bytes: u32,
    /// Whether keys begin with names, each of 65,536 of them, as those of tables that share a store.
    #[serde(default)]
    pub key_names: bool,
    /// Which keys are asked for.
    pub distribution: KeyDistribution,
    /// How long values are.
    pub values: ValueSizes,
    /// The share that compression could save, 0.0 to 1.0.
    pub compressible: f64,
    /// When requests are sent.
    pub pace: Pace,
    /// How long the run goes on.
    pub length: Length,
    /// Threads, or connections.
    pub threads: u32,
    /// Requests under way on one connection; targets in process take one at a time.
    pub pipeline: u32,
    /// Keys that one scan reads.
    pub scan_keys: u32,
    /// Share of reads that ask for absent keys, 0.0 to 1.0, where the workload reads.
    pub missing: f64,
    /// Writes per second of the writer beside `readwhilewriting`; 0: as fast as it can.
    pub background_rate: f64,
    /// What a write must survive.
    pub durability: Durability,
    /// Compare what is read with what was written.
    pub verify: bool,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            workload: Workload::FillRandom,
            keys: 1_000_000,
            key_bytes: 16,
            key_names: false,
            distribution: KeyDistribution::Uniform,
            values: ValueSizes::Fixed(100),
            compressible: 0.5,
            pace: Pace::Closed,
            length: Length::Operations(1_000_000),
            threads: 1,
            pipeline: 1,
            scan_keys: 100,
            missing: 0.0,
            background_rate: 20_000.0,
            durability: Durability::Os,
            verify: true,
            seed: 1,
        }
    }
}

impl Spec {
    /// What the bytes of keys look like.
    pub fn key_shape(&self) -> KeyShape {
        KeyShape { bytes: self.key_bytes as usize, is_named: self.key_names }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::Invalid(format!("{}: {what}", self.workload.name())));
        let share = 0.0..=1.0;
        match self {
            _ if self.keys == 0 => refuse("there must be at least one key"),
            _ if !(8..=4096).contains(&self.key_bytes) => refuse("keys have 8 to 4,096 bytes"),
            _ if self.threads == 0 || self.pipeline == 0 => {
                refuse("there must be at least one thread, and one request under way")
            }
            _ if !share.contains(&self.compressible) || !share.contains(&self.missing) => {
                refuse("a share is between 0 and 1")
            }
            _ => match self.pace {
                Pace::Constant { per_second } | Pace::Poisson { per_second }
                    if !(per_second > 0.0 && per_second.is_finite()) =>
                {
                    refuse("a rate is above 0")
                }
                _ => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_an_unknown_one_lists_them() {
        for &workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()).unwrap(), workload);
        }
        let error = Workload::from_name("fillrandm").unwrap_err().to_string();
        assert!(error.contains("fillrandom") && error.contains("ycsb-f"), "{error}");
    }

    #[test]
    fn a_spec_survives_json() {
        let spec = Spec {
            distribution: KeyDistribution::Zipfian { exponent: 0.99 },
            pace: Pace::Poisson { per_second: 1000.0 },
            length: Length::Time(Duration::from_secs(3)),
            ..Spec::default()
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
        spec.check().unwrap();
        assert!(Spec { threads: 0, ..spec }.check().is_err());
    }
}
