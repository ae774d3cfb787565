//! Draws operations from a seed.
//!
//! Keys are few (about 200), so that overwrites, tombstones and collections meet.

use bytes::Bytes;
use tallybook::options::Durability;

use crate::operations::{
    Bounds, ConditionStep, Expiry, Move, ReadStep, Step, ValueSpec, WriteStep,
};
use crate::random::Random;

/// What sorts of operations are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Operations in all.
    pub steps: usize,
    /// Entries may expire and the clock is moved.
    pub expiry: bool,
    /// The store is crashed now and then.
    pub crashes: bool,
}

/// The key space: short, long with a shared prefix, nested prefixes, binary, one of the longest.
pub fn keys() -> Vec<Bytes> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    keys.extend((0..70).map(|n| format!("k{n:03}").into_bytes()));
    keys.extend((0..40).map(|n| format!("user:{:02}:{}", n % 10, n / 10).into_bytes()));
    let shared = "a/long/shared/prefix/".repeat(12);
    keys.extend((0..40).map(|n| format!("{shared}{n:04}").into_bytes()));
    keys.extend((1..=20).map(|len| vec![b'n'; len]));
    keys.extend(
        [&b"\0"[..], b"\0\0", b"\0\x01", b"\x7f", b"\xff", b"\xff\0", b"\xff\xff"].map(Vec::from),
    );
    keys.extend((0..20u8).map(|n| vec![0x80 | n, 0, n, 0xff]));
    keys.push(vec![b'z'; tallybook::key::KEY_BYTES_MAX]);
    keys.into_iter().map(Bytes::from).collect()
}

/// Draws operations.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    keys: Vec<Bytes>,
    profile: Profile,
    value_id: u64,
}

impl Generator {
    /// The generator of this seed.
    pub fn new(seed: u64, profile: Profile) -> Self {
        Generator { random: Random::new(seed), keys: keys(), profile, value_id: seed << 20 }
    }

    /// All operations of the trial.
    pub fn steps(mut self) -> Vec<Step> {
        (0..self.profile.steps).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        match self.random.below(1000) {
            0..260 => Step::Write(self.put(), self.durability()),
            260..330 => Step::Write(self.delete(), self.durability()),
            330..350 => Step::Write(self.delete_range(), None),
            350..420 => self.batch(),
            420..480 => self.conditional(),
            480..780 => Step::Read(self.read()),
            780..810 => Step::Snapshot,
            810..860 => Step::ReadSnapshot(self.random.index(8), self.read()),
            860..880 => Step::DropSnapshot(self.random.index(8)),
            880..905 => self.advance(),
            905..935 => Step::Flush,
            935..955 => self.compact(),
            955..970 => Step::Sync,
            970..975 => Step::Verify,
            975..980 => Step::Checkpoint,
            980..990 => Step::Reopen,
            _ if self.profile.crashes => {
                Step::Crash { power_loss: self.random.chance(60), seed: self.random.number() }
            }
            _ => Step::Reopen,
        }
    }

    fn key(&mut self) -> Bytes {
        // Half of all operations meet on a tenth of the keys.
        let reach = if self.random.chance(50) { self.keys.len() / 10 } else { self.keys.len() };
        let at = self.random.index(reach) * 7 % self.keys.len();
        self.keys[at].clone()
    }

    /// A key, or something near one that is no key.
    fn place(&mut self) -> Bytes {
        let mut key = self.key().to_vec();
        if self.random.chance(30) && key.len() < 100 {
            key.push(self.random.number() as u8);
        }
        if self.random.chance(20) && key.len() > 1 {
            key.truncate(1 + self.random.index(key.len() - 1));
        }
        key.into()
    }

    fn value(&mut self) -> ValueSpec {
        let len = match self.random.below(100) {
            0..10 => 0,
            10..20 => 1,
            20..60 => 100,
            60..70 => self.random.pick(&[63, 64, 65, 255, 256, 257]),
            70..80 => self.random.pick(&[1023, 1024, 1025]),
            80..97 => 5 << 10,
            _ => 70 << 10,
        };
        self.value_id += 1;
        ValueSpec { len, id: self.value_id }
    }

    fn put(&mut self) -> WriteStep {
        let expiry = match self.random.below(100) {
            0..8 if self.profile.expiry => Expiry::In(1000 * (1 + self.random.below(20))),
            8..10 if self.profile.expiry => Expiry::Past,
            _ => Expiry::Never,
        };
        let attributes_len =
            if self.random.chance(15) { self.random.pick(&[1, 20, 300, 1024]) } else { 0 };
        WriteStep::Put { key: self.key(), value: self.value(), expiry, attributes_len }
    }

    fn delete(&mut self) -> WriteStep {
        WriteStep::Delete { key: self.key() }
    }

    fn delete_range(&mut self) -> WriteStep {
        loop {
            let (a, b) = (self.place(), self.place());
            if a != b {
                let (start, end) = if a < b { (a, b) } else { (b, a) };
                return WriteStep::DeleteRange { start, end };
            }
        }
    }

    fn batch(&mut self) -> Step {
        let len = 1 + self.random.index(12);
        let writes = (0..len)
            .map(|_| match self.random.below(100) {
                0..70 => self.put(),
                70..95 => self.delete(),
                _ => self.delete_range(),
            })
            .collect();
        Step::Batch(writes, self.durability())
    }

    fn conditional(&mut self) -> Step {
        let write = if self.random.chance(80) { self.put() } else { self.delete() };
        let condition = self.random.pick(&[
            ConditionStep::Absent,
            ConditionStep::Present,
            ConditionStep::CurrentVersion,
            ConditionStep::OtherVersion,
            ConditionStep::NotCurrentVersion,
            ConditionStep::NotOtherVersion,
        ]);
        Step::Conditional(write, condition)
    }

    fn durability(&mut self) -> Option<Durability> {
        match self.random.below(100) {
            0..60 => None,
            60..75 => Some(Durability::Os),
            75..85 => Some(Durability::Interval(self.random.pick(&[0, 10, 1000]))),
            _ => Some(Durability::Sync),
        }
    }

    fn read(&mut self) -> ReadStep {
        let limit = self.random.pick(&[0, 1, 5, 50, usize::MAX]);
        match self.random.below(100) {
            0..25 => ReadStep::Get(self.place()),
            25..35 => ReadStep::Head(self.place()),
            35..50 => ReadStep::Entry(self.key()),
            50..70 => {
                ReadStep::Scan { bounds: self.bounds(), reverse: self.random.chance(50), limit }
            }
            70..80 => ReadStep::ScanHeads {
                bounds: self.bounds(),
                reverse: self.random.chance(50),
                limit,
            },
            _ => {
                let len = 1 + self.random.index(25);
                ReadStep::Walk {
                    bounds: self.bounds(),
                    moves: (0..len).map(|_| self.cursor_move()).collect(),
                }
            }
        }
    }

    fn bounds(&mut self) -> Bounds {
        let mut bounds = Bounds::default();
        if self.random.chance(40) {
            bounds.start = Some(self.place());
        }
        if self.random.chance(40) {
            bounds.end = Some(self.place());
        }
        if self.random.chance(25) {
            let key = self.place();
            bounds.prefix = Some(key.slice(..1 + self.random.index(key.len())));
        }
        bounds
    }

    fn cursor_move(&mut self) -> Move {
        match self.random.below(100) {
            0..5 => Move::First,
            5..10 => Move::Last,
            10..20 => Move::Seek(self.place()),
            20..30 => Move::SeekBefore(self.place()),
            30..70 => Move::Next,
            _ => Move::Prev,
        }
    }

    fn advance(&mut self) -> Step {
        Step::Advance(self.random.pick(&[5, 200, 2000, 8000]))
    }

    fn compact(&mut self) -> Step {
        if self.random.chance(60) {
            return Step::Compact(None, None);
        }
        let (a, b) = (self.place(), self.place());
        let (start, end) = if a < b { (a, b) } else { (b, a) };
        Step::Compact(
            self.random.chance(70).then_some(start),
            self.random.chance(70).then_some(end),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_operations_again() {
        let profile = Profile { steps: 300, expiry: true, crashes: true };
        let steps = Generator::new(5, profile).steps();
        assert_eq!(steps, Generator::new(5, profile).steps());
        assert_ne!(steps, Generator::new(6, profile).steps());
    }

    #[test]
    fn keys_are_distinct_and_allowed() {
        let mut keys = keys();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert!(keys.iter().all(|key| tallybook::key::check_key(key).is_ok()));
    }
}
