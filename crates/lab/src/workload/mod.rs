//! Turns a spec into requests: one stream for each thread or connection.
//!
//! Invariant: what a stream asks depends on the spec and the stream's place alone, never on a target,
//! the clock, or other streams. So the same spec makes the same requests anywhere, and every read
//! knows beforehand whether its key is there. Nothing here sends or checks anything.

mod zipf;
mod operation;
mod plan;
mod stream;

pub use operation::{Kind, Operation};
pub use plan::Plan;
pub use stream::Stream;

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::keys::Permutation;
    use crate::spec::{Durability, KeyDistribution, Length, Spec, Workload};

    fn operations(spec: &Spec, place: u32, count: usize) -> Vec<Operation> {
        let mut stream = Plan::new(spec).unwrap().stream(place);
        let mut operation = Operation::empty();
        (0..count).map_while(|_| stream.next(&mut operation).then(|| operation.clone())).collect()
    }

    fn spec(workload: Workload) -> Spec {
        Spec { workload, keys: 1000, threads: 3, scan_keys: 10, ..Spec::default() }
    }

    #[test]
    fn fills_and_deletions_cover_every_key_once_over_all_streams() {
        for workload in [Workload::FillSeq, Workload::FillRandom, Workload::DeleteRandom] {
            let spec = spec(workload);
            let all: Vec<Operation> =
                (0..3).flat_map(|place| operations(&spec, place, 2000)).collect();
            let keys: HashSet<&[u8]> = all.iter().map(|operation| &operation.key[..]).collect();
            assert_eq!((all.len(), keys.len()), (1000, 1000), "{workload:?}");
            assert!(all.iter().all(|operation| operation.number.is_prefilled()));
        }
    }

    #[test]
    fn the_same_spec_makes_the_same_operations_and_a_seed_makes_others() {
        for &workload in Workload::ALL {
            let mut spec = spec(workload);
            if workload == Workload::FillSync {
                spec.durability = Durability::Sync;
            }
            let hashes = |spec: &Spec| -> Vec<(u64, u32)> {
                let operations = operations(spec, 1, 300);
                operations.iter().map(|one| (one.hash, one.value_bytes)).collect()
            };
            assert_eq!(hashes(&spec), hashes(&spec), "{workload:?}");
            let same_whatever_the_seed = workload.starts_empty() || workload == Workload::FullScan;
            let other = Spec { seed: 2, ..spec.clone() };
            assert_eq!(hashes(&spec) == hashes(&other), same_whatever_the_seed, "{workload:?}");
        }
    }

    #[test]
    fn zipfian_frequencies_match_theory_and_are_scattered() {
        let spec = Spec {
            distribution: KeyDistribution::Zipfian { exponent: 0.99 },
            workload: Workload::ReadRandom,
            keys: 1000,
            ..Spec::default()
        };
        const COUNT: usize = 400_000;
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for operation in operations(&spec, 0, COUNT) {
            *counts.entry(operation.number.index()).or_default() += 1;
        }
        let order = Permutation::new(1000, 1000);
        let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [0_u64, 1, 2, 9, 49, 99] {
            let expected = COUNT as f64 * ((rank + 1) as f64).powf(-0.99) / zeta;
            let found = counts[&order.at(rank)] as f64;
            // Five standard deviations of a binomial count.
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {found} {expected}");
        }
        let hottest: Vec<u64> = (0..10).map(|rank| order.at(rank)).collect();
        assert!(hottest.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{hottest:?}");
    }

    #[test]
    fn latest_prefers_own_inserts_that_were_answered() {
        let spec = Spec { pipeline: 4, ..spec(Workload::YcsbD) };
        let operations = operations(&spec, 2, 20_000);
        let mut inserted = HashMap::new();
        let mut reads_of_inserts = 0;
        for (at, operation) in operations.iter().enumerate() {
            if operation.kind == Kind::Put {
                assert!(inserted.insert(operation.number, at).is_none(), "an insert is new");
            } else if !operation.number.is_prefilled() {
                assert!(inserted[&operation.number] + 4 <= at, "it may still be under way");
                reads_of_inserts += 1;
            }
        }
        assert!((900..1100).contains(&inserted.len()), "5 %: {}", inserted.len());
        assert!(reads_of_inserts > 5000, "{reads_of_inserts}");
    }

    #[test]
    fn mixes_have_their_shares() {
        let share = |workload, kind| {
            let operations = operations(&spec(workload), 0, 20_000);
            operations.iter().filter(|one| one.kind == kind).count() as f64 / 20_000.0
        };
        for (workload, kind, expected) in [
            (Workload::YcsbA, Kind::Put, 0.5),
            (Workload::YcsbB, Kind::Get, 0.95),
            (Workload::YcsbC, Kind::Get, 1.0),
            (Workload::YcsbE, Kind::Scan, 0.95),
            (Workload::YcsbF, Kind::ReadModifyWrite, 0.5),
            (Workload::UpdateRandom, Kind::ReadModifyWrite, 1.0),
            (Workload::HeadRandom, Kind::Head, 1.0),
        ] {
            let found = share(workload, kind);
            assert!((found - expected).abs() < 0.015, "{workload:?} {found}");
        }
    }

    #[test]
    fn missing_reads_ask_for_what_nobody_puts() {
        let with_misses = Spec { missing: 0.34, ..spec(Workload::ReadRandom) };
        let read = operations(&with_misses, 0, 20_000);
        let missing = read.iter().filter(|operation| !operation.is_present).count();
        assert!((6500..7100).contains(&missing), "{missing}");
        assert!(read.iter().all(|one| one.is_present == one.number.is_prefilled()));
        let all = operations(&spec(Workload::ReadMissing), 0, 100);
        assert!(all.iter().all(|one| !one.is_present && !one.number.is_prefilled()));
    }

    #[test]
    fn warm_up_leaves_the_runs_inserts_to_the_run() {
        let spec = spec(Workload::YcsbD);
        let warm = Plan::warm_up(&spec, Length::Operations(1000)).unwrap().unwrap();
        let mut stream = warm.stream(0);
        let mut operation = Operation::empty();
        let mut warmed = HashSet::new();
        for _ in 0..5000 {
            stream.next(&mut operation);
            warmed.extend((operation.kind == Kind::Put).then_some(operation.number));
        }
        let run = operations(&spec, 0, 5000);
        assert!(run.iter().all(|one| one.kind != Kind::Put || !warmed.contains(&one.number)));
        for once in [Workload::DeleteRandom, Workload::FillSeq] {
            let spec = Spec { workload: once, ..spec.clone() };
            assert!(Plan::warm_up(&spec, Length::Operations(1)).unwrap().is_none());
        }
    }
}
