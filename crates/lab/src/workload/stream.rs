//! The requests of one thread or connection, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::operation::{Kind, Operation};
use super::plan::{Picks, Plan};
use crate::keys::{KeyNumber, mix};
use crate::spec::Workload;

/// Bits of a generation that number a stream's writes. What is before them tells the workload, so that the
/// writes of one aren't taken for those of another on the same store.
const GENERATION_BITS: u32 = 48;

/// The requests of one thread or connection.
#[derive(Debug)]
pub struct Stream {
    plan: Arc<Plan>,
    place: u32,
    is_background: bool,
    random: Xoshiro256PlusPlus,
    sequence: u64,
    /// Own insertions that were surely answered before the next request is sent.
    inserts_ready: u64,
    /// The sequence numbers of those that may still be under way.
    inserts_under_way: VecDeque<u64>,
}

impl Stream {
    pub(super) fn new(plan: Arc<Plan>, place: u32, is_background: bool) -> Stream {
        let seed = mix(plan.spec.seed).wrapping_add(u64::from(place));
        Stream {
            random: Xoshiro256PlusPlus::seed_from_u64(mix(seed)),
            plan,
            place,
            is_background,
            sequence: 0,
            inserts_ready: 0,
            inserts_under_way: VecDeque::new(),
        }
    }

    /// The plan it follows.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Fills in the next operation; `false` when there is none left, as when every key was put once.
    pub fn next(&mut self, operation: &mut Operation) -> bool {
        let keys = self.plan.spec.keys;
        let nth = self.sequence * u64::from(self.plan.spec.threads) + u64::from(self.place);
        operation.kind = Kind::Get;
        operation.is_present = true;
        match self.plan.spec.workload {
            _ if self.is_background => self.put(operation, Kind::Put),
            Workload::FillSeq if nth < keys => self.put_new(operation, nth),
            Workload::FillRandom | Workload::FillSync if nth < keys => {
                self.put_new(operation, self.plan.filled.at(nth));
            }
            Workload::DeleteRandom if nth < keys => {
                operation.kind = Kind::Delete;
                operation.number = KeyNumber::present(self.plan.deleted.at(nth));
            }
            Workload::FillSeq
            | Workload::FillRandom
            | Workload::FillSync
            | Workload::DeleteRandom => return false,
            Workload::WriteReadUnlink | Workload::EachBucket | Workload::Rest => {
                unreachable!("a plan is never made of a workload of files")
            }
            Workload::Overwrite => self.put(operation, Kind::Put),
            Workload::UpdateRandom => self.put(operation, Kind::ReadModifyWrite),
            Workload::ReadRandom | Workload::ReadWhileWriting => self.read(operation, Kind::Get),
            Workload::HeadRandom => self.read(operation, Kind::Head),
            Workload::ReadMissing => {
                let index = self.pick().index();
                self.miss(operation, index);
            }
            Workload::ReadHot => {
                let index = self.random.random_range(0..(keys / 100).max(1));
                self.read_at(operation, KeyNumber::present(index));
            }
            Workload::SeekRandom => {
                let index = self.pick().index();
                self.scan(operation, KeyNumber::absent(index), self.plan.spec.scan_keys.into());
            }
            Workload::Scan => {
                let index = self.pick().index();
                self.scan(operation, KeyNumber::present(index), self.plan.spec.scan_keys.into());
            }
            Workload::FullScan => self.scan(operation, KeyNumber::absent(0), u64::MAX),
            Workload::YcsbA => self.mixed(operation, 0.5, Stream::update),
            Workload::YcsbB => self.mixed(operation, 0.95, Stream::update),
            Workload::YcsbC => self.read(operation, Kind::Get),
            Workload::YcsbD => self.mixed(operation, 0.95, Stream::insert),
            Workload::YcsbE if self.random.random_bool(0.95) => {
                let index = self.pick().index();
                let count = self.random.random_range(1..=self.plan.spec.scan_keys.max(1));
                self.scan(operation, KeyNumber::present(index), count.into());
            }
            Workload::YcsbE => self.insert(operation),
            Workload::YcsbF => self.mixed(operation, 0.5, |stream, operation| {
                stream.put(operation, Kind::ReadModifyWrite);
            }),
        }
        self.plan.spec.key_shape().write(operation.number, &mut operation.key);
        operation.hash = mix(mix(operation.number.get() ^ operation.kind as u64)
            ^ u64::from(self.place) << 48
            ^ self.sequence);
        self.sequence += 1;
        true
    }

    fn mixed(
        &mut self,
        operation: &mut Operation,
        reads: f64,
        otherwise: impl Fn(&mut Stream, &mut Operation),
    ) {
        if self.random.random_bool(reads) {
            self.read(operation, Kind::Get);
        } else {
            otherwise(self, operation);
        }
    }

    fn read(&mut self, operation: &mut Operation, kind: Kind) {
        operation.kind = kind;
        let number = self.pick();
        self.read_at(operation, number);
    }

    fn read_at(&mut self, operation: &mut Operation, number: KeyNumber) {
        operation.number = number;
        let missing = self.plan.spec.missing;
        if missing > 0.0 && self.random.random_bool(missing) {
            self.miss(operation, number.index());
        }
    }

    fn miss(&mut self, operation: &mut Operation, index: u64) {
        operation.number = KeyNumber::absent(index);
        operation.is_present = false;
    }

    fn update(&mut self, operation: &mut Operation) {
        self.put(operation, Kind::Put);
    }

    fn put(&mut self, operation: &mut Operation, kind: Kind) {
        operation.number =
            if self.is_background { self.pick_uniform() } else { self.pick_prefilled() };
        operation.kind = kind;
        self.give_value(operation);
    }

    fn put_new(&mut self, operation: &mut Operation, index: u64) {
        operation.kind = Kind::Put;
        operation.number = KeyNumber::present(index);
        self.give_value(operation);
    }

    fn insert(&mut self, operation: &mut Operation) {
        let own = self.inserts_ready + self.inserts_under_way.len() as u64;
        operation.kind = Kind::Put;
        operation.number = self.inserted(own);
        self.inserts_under_way.push_back(self.sequence);
        self.give_value(operation);
    }

    fn scan(&mut self, operation: &mut Operation, start: KeyNumber, count: u64) {
        operation.kind = Kind::Scan;
        operation.number = start;
        operation.scan_keys = count;
        // Keys inserted meanwhile may take the place of prefilled ones among the first `count`.
        let inserts = self.plan.spec.workload == Workload::YcsbE;
        let prefilled = count.min(self.plan.spec.keys - start.index());
        operation.scan_keys_min = if inserts { 0 } else { prefilled };
    }

    fn give_value(&mut self, operation: &mut Operation) {
        let streams = u64::from(self.plan.spec.threads) + 1;
        let nth = self.sequence * streams + u64::from(self.place) + 1;
        operation.generation = (self.plan.spec.workload as u64) << GENERATION_BITS | nth;
        operation.value_bytes = self.plan.values.length(&mut self.random);
    }

    /// The key of this stream's `own`-th insertion.
    fn inserted(&self, own: u64) -> KeyNumber {
        let nth = own * u64::from(self.plan.spec.threads) + u64::from(self.place);
        let nth = self.plan.inserts_before + nth;
        KeyNumber::inserted(nth, self.plan.spec.keys, &self.plan.scatter)
    }

    /// A key that is there, by the distribution.
    fn pick(&mut self) -> KeyNumber {
        if self.plan.picks != Picks::Latest {
            return self.pick_prefilled();
        }
        while self.inserts_under_way.front().is_some_and(|&sent| {
            // Answers come in order, so what is a pipeline's length back has been answered.
            sent + u64::from(self.plan.spec.pipeline) <= self.sequence
        }) {
            self.inserts_under_way.pop_front();
            self.inserts_ready += 1;
        }
        let age = self.rank();
        if age < self.inserts_ready {
            self.inserted(self.inserts_ready - 1 - age)
        } else {
            self.filled_before(age - self.inserts_ready)
        }
    }

    /// A prefilled key, by the distribution.
    fn pick_prefilled(&mut self) -> KeyNumber {
        let keys = self.plan.spec.keys;
        match self.plan.picks {
            Picks::Uniform => self.pick_uniform(),
            Picks::Sequential => {
                let nth = self.sequence * u64::from(self.plan.spec.threads);
                KeyNumber::present((nth + u64::from(self.place)) % keys)
            }
            Picks::Zipfian => {
                let rank = self.rank();
                KeyNumber::present(self.plan.filled.at(rank))
            }
            Picks::Latest => {
                let age = self.rank();
                self.filled_before(age)
            }
        }
    }

    fn pick_uniform(&mut self) -> KeyNumber {
        KeyNumber::present(self.random.random_range(0..self.plan.spec.keys))
    }

    /// The key that was put so many before the last of the prefill.
    fn filled_before(&self, age: u64) -> KeyNumber {
        let keys = self.plan.spec.keys;
        KeyNumber::present(self.plan.filled.at((keys - 1).saturating_sub(age)))
    }

    /// A number below `keys`, 0 the most likely.
    fn rank(&mut self) -> u64 {
        let zipf = self.plan.zipf.as_ref().expect("zipfian picks have a distribution");
        zipf.sample(&mut self.random)
    }
}
