//! Reads back what a run wrote last, once its figures are taken: a target that acknowledges writes and drops
//! them would be the fastest of all.
//!
//! Requests of a stream depend on nothing but its plan, so what it wrote is told by going through them again:
//! nothing is kept while the run is made.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::keys::KeyNumber;
use crate::record::Outcome;
use crate::target::{Answers, Request, Target};
use crate::values;
use crate::workload::{Kind, Operation, Plan, Stream};

/// The figure of the writes that were read back.
pub(crate) const READ_BACK: &str = "writes.read_back";

/// Of so many operations, the last of a run, the writes are read back.
const OPERATIONS: u64 = 4096;

/// Reads back the last writes of a run of `plan`, those of a writer beside the reads too, and answers how many; none
/// where several write the same keys at once, or where a write failed, so that what has to be there isn't known.
///
/// `WrongData`: a write that was acknowledged isn't there. `Target`: a read was refused, or not answered.
pub(crate) fn read_back(target: &dyn Target, plan: &Arc<Plan>, outcome: &Outcome) -> Result<u64> {
    let spec = plan.spec();
    let beside = plan.background_stream();
    let is_known = (spec.threads == 1 || beside.is_some()) && outcome.errors() == 0;
    if !(spec.verify && spec.workload.writes() && is_known) {
        return Ok(0);
    }
    let writes = match beside {
        // All that it makes are puts, and nothing else makes any.
        Some(writer) => {
            let puts = outcome.kinds.get(Kind::Put.name()).map_or(0, |put| put.count);
            last_writes(writer, puts)
        }
        None => last_writes(plan.stream(0), outcome.kinds.values().map(|kind| kind.count).sum()),
    };
    if writes.is_empty() {
        return Ok(0);
    }
    let mut session = target.session()?;
    let mut key = Vec::new();
    for (&number, &written) in &writes {
        spec.key_shape().write(number, &mut key);
        let told = Err("it is not told of".to_owned());
        let mut found = Found { number, written, told, failed: None };
        session.perform(Request::Get { key: &key }, &mut found)?;
        let key = String::from_utf8_lossy(&key);
        if let Some(kind) = found.failed {
            let what = format!("key {key}, read back after the run: a get failed: {kind}");
            return Err(Error::Target { target: target.name().to_owned(), what });
        }
        found.told.map_err(|what| {
            Error::WrongData(format!("key {key}: {what}, after its last write was acknowledged"))
        })?;
    }
    Ok(writes.len() as u64)
}

/// What the last operations of so many of a stream wrote: each key's generation, `None` for one that was deleted.
fn last_writes(mut stream: Stream, made: u64) -> HashMap<KeyNumber, Option<u64>> {
    let mut operation = Operation::empty();
    let mut writes = HashMap::new();
    for nth in 0..made {
        if !stream.next(&mut operation) {
            break;
        }
        if nth + OPERATIONS < made {
            continue;
        }
        match operation.kind {
            Kind::Put | Kind::ReadModifyWrite => {
                writes.insert(operation.number, Some(operation.generation));
            }
            Kind::Delete => {
                writes.insert(operation.number, None);
            }
            Kind::Get | Kind::Head | Kind::Scan => {}
        }
    }
    writes
}

/// The answer for a key that was written.
struct Found {
    number: KeyNumber,
    written: Option<u64>,
    told: std::result::Result<(), String>,
    /// That nothing was told, and why.
    failed: Option<String>,
}

impl Answers for Found {
    fn value(&mut self, value: Option<&[u8]>) {
        self.told = match (self.written, value) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err("it is there".to_owned()),
            (Some(_), None) => Err("it is absent".to_owned()),
            (Some(written), Some(value)) => match values::check(self.number, value) {
                Err(what) => Err(what.to_owned()),
                // Values too short to tell tell nothing. A last request may not have been counted.
                Ok(found) if found.generation.is_none_or(|found| found >= written) => Ok(()),
                Ok(_) => Err("it has the value of an older write".to_owned()),
            },
        };
    }

    fn length(&mut self, _length: Option<u64>) {
        self.told = Err("a get was answered as a head".to_owned());
    }

    fn pair(&mut self, _key: &[u8], _value: &[u8]) {
        self.told = Err("a get was answered as a scan".to_owned());
    }

    fn written(&mut self) {
        self.told = Err("a get was answered as a write".to_owned());
    }

    fn failed(&mut self, kind: &str) {
        self.failed = Some(kind.to_owned());
    }
}
