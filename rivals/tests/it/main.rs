//! Every engine against a map in memory, at both durabilities, and through a kill.

use std::path::Path;

use rivals::options::NOT_A_KILL;
use rivals::{killtest, selftest};
use tallybook_lab::spec::Durability;

fn answers_as_a_map_does(name: &str) {
    for (durability, amount) in [(Durability::Os, selftest::OS), (Durability::Sync, selftest::SYNC)]
    {
        let directory = tempfile::tempdir().unwrap();
        let outcome = selftest::run(name, directory.path(), durability, amount);
        outcome.unwrap_or_else(|error| panic!("{name}, {durability:?}: {error}"));
    }
}

fn acknowledged_writes_survive_a_kill(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_rivals"));
    let found = killtest::run(binary, name, directory.path()).unwrap();
    assert_ne!(found.survives, NOT_A_KILL);
    assert_eq!(found.lost, 0, "of {} acknowledged", found.acknowledged);
}

macro_rules! engines {
    ($($module:ident $name:literal)*) => {
        $(
            mod $module {
                #[test]
                fn answers_as_a_map_does() {
                    super::answers_as_a_map_does($name);
                }

                #[test]
                fn acknowledged_writes_survive_a_kill() {
                    super::acknowledged_writes_survive_a_kill($name);
                }
            }
        )*

        /// The buffered one apart, whose writes don't.
        const SURVIVING: &[&str] = &[$($name,)*];
    };
}

engines! {
    rocksdb "rocksdb"
    rocksdb_tuned "rocksdb-tuned"
    rocksdb_blob "rocksdb-blob"
    rocksdb_cached "rocksdb-cached"
    leveldb "leveldb"
    leveldb_unverified "leveldb-unverified"
    fjall "fjall"
    fjall_blob "fjall-blob"
    lmdb "lmdb"
    lmdb_random "lmdb-random"
    lmdb_writemap "lmdb-writemap"
    redb "redb"
    sled "sled"
}

#[test]
fn buffered_sled_answers_as_a_map_does_and_says_that_a_kill_loses_writes() {
    answers_as_a_map_does("sled-buffered");
    let directory = tempfile::tempdir().unwrap();
    let budget = selftest::budget(Durability::Os);
    let target =
        rivals::open("sled-buffered", directory.path(), &budget, &Default::default()).unwrap();
    assert_eq!(target.settings()["survives"], NOT_A_KILL);
}

#[test]
fn every_engine_is_tested() {
    let mut tested = SURVIVING.to_vec();
    tested.push("sled-buffered");
    assert_eq!(tested, rivals::NAMES);
}
