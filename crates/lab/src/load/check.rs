//! Holds an answer against what had to come, the moment it is shown.
//!
//! Invariant: an answer that can't be right is `Wrong`, whatever else it may be; a refusal or an error
//! of the target is `Failed`. The clock is read before anything is compared, so that checking costs
//! the target nothing, and after a value's lines have come from memory: an engine that shows where its value
//! lies would be charged for the way there alone, and one that reads it, to check it, for both.

use std::sync::Arc;

use quanta::Instant;
use tallybook::vfs::prefetch;

use crate::keys::KeyNumber;
use crate::target::Answers;
use crate::values;
use crate::workload::{Kind, Operation, Plan};

/// What was told of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing yet.
    Nothing,
    /// What had to come.
    Good,
    /// That the key is absent, as it may be.
    Missed,
    /// That the target refused or failed.
    Failed(String),
    /// What can't be.
    Wrong(String),
}

/// The answer to one operation.
#[derive(Debug)]
pub(super) struct Check {
    plan: Arc<Plan>,
    /// A write of this stream failed, so that what is there is no longer known.
    is_uncertain: bool,
    kind: Kind,
    number: KeyNumber,
    is_present: bool,
    scan_keys: u64,
    scan_keys_min: u64,
    last_pair: Option<KeyNumber>,
    prefilled_pairs: u64,
    next_prefilled: u64,
    /// When it was shown.
    pub(super) at: Option<Instant>,
    pub(super) told: Told,
}

impl Check {
    pub(super) fn new(plan: Arc<Plan>) -> Check {
        Check {
            plan,
            is_uncertain: false,
            kind: Kind::Get,
            number: KeyNumber::present(0),
            is_present: false,
            scan_keys: 0,
            scan_keys_min: 0,
            last_pair: None,
            prefilled_pairs: 0,
            next_prefilled: 0,
            at: None,
            told: Told::Nothing,
        }
    }

    /// Gets ready for the answer to an operation; of a read-modify-write, to its read.
    pub(super) fn expect(&mut self, operation: &Operation) {
        self.expect_kind(
            operation,
            match operation.kind {
                Kind::ReadModifyWrite => Kind::Get,
                kind => kind,
            },
        );
    }

    /// Gets ready for the acknowledgement of a read-modify-write.
    pub(super) fn expect_write(&mut self, operation: &Operation) {
        self.expect_kind(operation, Kind::Put);
    }

    fn expect_kind(&mut self, operation: &Operation, kind: Kind) {
        self.kind = kind;
        self.number = operation.number;
        self.is_present = operation.is_present;
        self.at = None;
        self.told = Told::Nothing;
        if kind == Kind::Scan {
            self.scan_keys = operation.scan_keys;
            self.scan_keys_min = operation.scan_keys_min;
            self.last_pair = None;
            self.prefilled_pairs = 0;
            self.next_prefilled = operation.number.index();
        }
    }

    /// All has been told; of scans, whether it was enough is known only now.
    pub(super) fn finish(&mut self) -> Instant {
        match (&self.told, self.kind) {
            (Told::Nothing, Kind::Scan) => {
                self.at = Some(Instant::now());
                let few = self.prefilled_pairs < self.scan_keys_min;
                self.told = if few && self.verifies() && !self.is_uncertain {
                    self.wrong(&format!(
                        "a scan found {} keys of at least {}",
                        self.prefilled_pairs, self.scan_keys_min
                    ))
                } else {
                    Told::Good
                };
            }
            (Told::Nothing, kind) => {
                self.told = self.wrong(&format!("a {} was not answered", kind.name()));
            }
            (Told::Failed(_), Kind::Put | Kind::Delete) => self.is_uncertain = true,
            _ => {}
        }
        *self.at.get_or_insert_with(Instant::now)
    }

    /// A write of the same stream failed: what isn't there may never have been.
    pub(super) fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    /// Whether a write failed.
    pub(super) fn doubts(&self) -> bool {
        self.is_uncertain
    }

    fn verifies(&self) -> bool {
        self.plan.spec().verify
    }

    fn wrong(&self, what: &str) -> Told {
        let mut key = Vec::new();
        self.plan.spec().key_shape().write(self.number, &mut key);
        Told::Wrong(format!("key {}: {what}", String::from_utf8_lossy(&key)))
    }

    /// Takes note of the first answer and its moment; a second one is wrong.
    fn tell(&mut self, kinds: &[Kind], judge: impl FnOnce(&Check) -> Told) {
        self.at = Some(Instant::now());
        self.told = if !kinds.contains(&self.kind) {
            self.wrong(&format!("a {} was answered as something else", self.kind.name()))
        } else if self.told != Told::Nothing {
            self.wrong("there were two answers")
        } else {
            judge(self)
        };
    }

    fn absence(&self) -> Told {
        if self.is_present && self.verifies() && !self.is_uncertain {
            return self.wrong("it was put, and is absent");
        }
        Told::Missed
    }

    fn presence(&self, verdict: Result<(), &str>) -> Told {
        match verdict {
            _ if !self.verifies() => Told::Good,
            _ if !self.is_present => self.wrong("it was never put, and is there"),
            Ok(()) => Told::Good,
            Err(what) => self.wrong(what),
        }
    }

    fn judge_pair(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let number = self.plan.spec().key_shape().read(key);
        let number = number.ok_or("a scan found a key that nobody put")?;
        if number < self.number || self.last_pair.is_some_and(|last| number <= last) {
            return Err("a scan's keys are out of order".into());
        }
        self.last_pair = Some(number);
        if number.is_prefilled() {
            if number.index() != self.next_prefilled && !self.is_uncertain {
                return Err(format!("a scan left out the key of index {}", self.next_prefilled));
            }
            self.next_prefilled = number.index() + 1;
            self.prefilled_pairs += 1;
            if self.prefilled_pairs > self.scan_keys {
                return Err(format!("a scan went beyond its {} keys", self.scan_keys));
            }
        }
        values::check(number, value).map(drop).map_err(|what| format!("in a scan: {what}"))
    }
}

impl Answers for Check {
    fn value(&mut self, value: Option<&[u8]>) {
        if let Some(value) = value {
            prefetch::load(value);
        }
        self.tell(&[Kind::Get], |check| match value {
            None => check.absence(),
            Some(_) if !check.verifies() => Told::Good,
            Some(value) => check.presence(values::check(check.number, value).map(drop)),
        });
    }

    fn length(&mut self, length: Option<u64>) {
        self.tell(&[Kind::Head], |check| match length {
            None => check.absence(),
            Some(length) if check.plan.values().may_be_long(length) => check.presence(Ok(())),
            Some(_) => check.presence(Err("no value of it was that long")),
        });
    }

    fn pair(&mut self, key: &[u8], value: &[u8]) {
        if self.kind != Kind::Scan {
            self.tell(&[], |_| Told::Nothing);
        } else if !self.verifies() || matches!(self.told, Told::Wrong(_)) {
            self.prefilled_pairs += 1;
        } else if let Err(what) = self.judge_pair(key, value) {
            self.told = self.wrong(&what);
        }
    }

    fn written(&mut self) {
        self.tell(&[Kind::Put, Kind::Delete], |_| Told::Good);
    }

    fn failed(&mut self, kind: &str) {
        self.at = Some(Instant::now());
        if !matches!(self.told, Told::Wrong(_)) {
            self.told = Told::Failed(kind.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Spec, ValueSizes, Workload};

    fn told(workload: Workload, missing: f64, answer: impl FnOnce(&mut Check, &Operation)) -> Told {
        let values = ValueSizes::Fixed(50);
        let spec = Spec { workload, missing, keys: 100, values, scan_keys: 3, ..Spec::default() };
        let plan = Plan::new(&spec).unwrap();
        let mut operation = Operation::empty();
        assert!(plan.stream(0).next(&mut operation));
        let mut check = Check::new(plan);
        check.expect(&operation);
        answer(&mut check, &operation);
        check.finish();
        check.told
    }

    fn value_of(number: KeyNumber, length: u32) -> Vec<u8> {
        let mut value = Vec::new();
        let values = values::Values::new(ValueSizes::Fixed(length), 0.5).unwrap();
        values.write(number, 7, length, &mut value);
        value
    }

    fn is_wrong(told: Told) -> bool {
        matches!(told, Told::Wrong(_))
    }

    #[test]
    fn reads_are_held_against_what_was_put() {
        let read = Workload::ReadRandom;
        let good = told(read, 0.0, |check, asked| {
            check.value(Some(&value_of(asked.number, 50)));
        });
        assert_eq!(good, Told::Good);
        let other = KeyNumber::present(1000);
        assert!(is_wrong(told(read, 0.0, |check, _| check.value(Some(&value_of(other, 50))))));
        assert!(is_wrong(told(read, 0.0, |check, _| check.value(None))));
        assert_eq!(told(read, 1.0, |check, _| check.value(None)), Told::Missed);
        assert!(is_wrong(told(read, 1.0, |check, asked| {
            check.value(Some(&value_of(asked.number, 50)));
        })));
        assert!(is_wrong(told(read, 0.0, |check, _| check.written())));
        assert!(is_wrong(told(read, 0.0, |_, _| {})));
        let failed = told(read, 0.0, |check, _| check.failed("503"));
        assert_eq!(failed, Told::Failed("503".into()));
    }

    #[test]
    fn heads_are_held_against_the_lengths_there_may_be() {
        let head = Workload::HeadRandom;
        assert_eq!(told(head, 0.0, |check, _| check.length(Some(50))), Told::Good);
        assert!(is_wrong(told(head, 0.0, |check, _| check.length(Some(49)))));
        assert!(is_wrong(told(head, 0.0, |check, _| check.length(None))));
    }

    #[test]
    fn scans_miss_nothing_and_keep_order() {
        let scan = |indexes: &'static [u64]| {
            told(Workload::Scan, 0.0, move |check, asked| {
                // Scans near the end find fewer; the first key of this seed is far from it.
                assert!(asked.number.index() < 90);
                for &offset in indexes {
                    let number = KeyNumber::present(asked.number.index() + offset);
                    let mut key = Vec::new();
                    Spec::default().key_shape().write(number, &mut key);
                    check.pair(&key, &value_of(number, 50));
                }
            })
        };
        assert_eq!(scan(&[0, 1, 2]), Told::Good);
        for wrong in [&[0, 1][..], &[1, 2, 3], &[0, 2, 3], &[0, 0, 1], &[1, 0, 2], &[0, 1, 2, 3]] {
            let wrong: &'static [u64] = Vec::leak(wrong.to_vec());
            assert!(is_wrong(scan(wrong)), "{wrong:?}");
        }
        assert!(is_wrong(told(Workload::Scan, 0.0, |check, _| check.pair(b"?", b""))));
    }
}
