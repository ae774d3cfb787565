//! The `profile.proto` form, as `go tool pprof` reads it.
//!
//! Written directly: it is a handful of fields. Field numbers are those of
//! `github.com/google/pprof/proto/profile.proto`. Functions stand for themselves, without addresses
//! and lines, as in the other forms.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cpu;
use super::kind::Kind;
use super::stacks::Profile;

/// Encodes a profile that ended now.
pub(super) fn encode(profile: &Profile) -> Vec<u8> {
    let mut strings = Strings::default();
    strings.number("");
    let mut out = Vec::new();
    let kind = profile.kind;
    let mut types = vec![(strings.number(kind.counted()), strings.number(unit(kind)))];
    let period_ns = 1_000_000_000 / u64::from(cpu::FREQUENCY);
    if kind == Kind::Cpu {
        types.push((strings.number("cpu"), strings.number("nanoseconds")));
    }
    for &(name, unit) in &types {
        message(&mut out, 1, &value_type(name, unit));
    }

    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (stack, &weight) in &profile.stacks {
        let mut locations = Vec::new();
        // Innermost first.
        for name in stack.rsplit(';') {
            let next = functions.len() as u64 + 1;
            varint(&mut locations, *functions.entry(name).or_insert(next));
        }
        let mut values = Vec::new();
        varint(&mut values, weight);
        if kind == Kind::Cpu {
            varint(&mut values, weight.saturating_mul(period_ns));
        }
        let mut sample = Vec::new();
        message(&mut sample, 1, &locations);
        message(&mut sample, 2, &values);
        message(&mut out, 2, &sample);
    }
    for (name, &number) in &functions {
        let mut line = Vec::new();
        field(&mut line, 1, number);
        let mut location = Vec::new();
        field(&mut location, 1, number);
        message(&mut location, 4, &line);
        message(&mut out, 4, &location);

        let name = strings.number(name);
        let mut function = Vec::new();
        field(&mut function, 1, number);
        field(&mut function, 2, name);
        field(&mut function, 3, name);
        message(&mut out, 5, &function);
    }
    for text in &strings.texts {
        message(&mut out, 6, text.as_bytes());
    }
    let duration_ns = u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX);
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ended_ns = u64::try_from(ended.as_nanos()).unwrap_or(u64::MAX);
    field(&mut out, 9, ended_ns.saturating_sub(duration_ns));
    field(&mut out, 10, duration_ns);
    if kind == Kind::Cpu {
        message(&mut out, 11, &value_type(types[1].0, types[1].1));
        field(&mut out, 12, period_ns);
    }
    out
}

/// The unit, as the format writes it.
fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Cpu => "count",
        Kind::Allocs => "bytes",
        Kind::Locks | Kind::OffCpu => "nanoseconds",
    }
}

/// Texts, which everything else refers to by number.
#[derive(Default)]
struct Strings {
    texts: Vec<String>,
}

impl Strings {
    /// Adds a text; its number.
    fn number(&mut self, text: &str) -> u64 {
        self.texts.push(text.to_owned());
        self.texts.len() as u64 - 1
    }
}

fn value_type(name: u64, unit: u64) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, name);
    field(&mut out, 2, unit);
    out
}

/// A number under a field's number.
fn field(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3);
    varint(out, value);
}

/// A message, a text or packed numbers under a field's number.
fn message(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
