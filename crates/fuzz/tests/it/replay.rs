//! Every seed goes through its target. `TALLYBOOK_LONG` makes it many changes of each.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tallybook_fuzz::{TARGETS, Target};

use crate::random::Random;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The seeds of a target that are checked in, by name.
fn seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = fuzz_dir().join("seeds").join(target.name);
    let mut seeds = Vec::new();
    for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        seeds.push((name, fs::read(entry.path()).unwrap()));
    }
    seeds.sort();
    seeds
}

/// Milliseconds each time: they get by with fewer changes.
const SLOW: [&str; 1] = ["store_salvage"];

#[test]
fn seeds_and_changed_seeds_keep_every_promise() {
    let cases = if std::env::var_os("TALLYBOOK_LONG").is_some() { 20_000 } else { 40 };
    for target in TARGETS {
        let cases = if SLOW.contains(&target.name) { cases / 10 } else { cases };
        let mut accepted = 0;
        for (name, seed) in seeds(target) {
            // The last line of a test that fails, as a panic doesn't say what it was given.
            println!("{} {name}", target.name);
            accepted += u64::from((target.run)(&seed));
            let mut random = Random(0x5eed_0000 + accepted);
            for _ in 0..cases {
                let mut bytes = seed.clone();
                random.mutate(&mut bytes);
                (target.run)(&bytes);
            }
        }
        assert!(accepted > 0, "{} gets behind the checksums and first checks", target.name);
    }
}

#[test]
fn every_target_has_valid_seeds_checked_in_and_they_are_small() {
    let mut total = 0;
    for target in TARGETS {
        let found = seeds(target);
        total += found.iter().map(|(_, seed)| seed.len()).sum::<usize>();
        assert!((target.seeds)().len() >= 2, "{} has seeds", target.name);
        // How many a store makes changes with the store; earlier ones are as good.
        let kept = found.iter().filter(|(name, _)| name.starts_with("made-")).count();
        assert!(kept >= 2, "{}: run the seed binary", target.name);
    }
    assert!(total < 300 << 10, "the seeds have {total} bytes");
}

#[test]
fn every_target_has_a_fuzz_target_and_the_other_way_round() {
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    let named = |line: &str| Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.to_owned());
    let mut bins: BTreeSet<String> = manifest.lines().filter_map(named).collect();
    assert!(bins.remove("fuzz"), "the package's own name");
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.into()).collect();
    assert_eq!(bins, targets);
    for name in targets {
        let text = fs::read_to_string(fuzz_dir().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(text.contains(&format!("tallybook_fuzz::{name}(data)")), "{name}");
    }
}
