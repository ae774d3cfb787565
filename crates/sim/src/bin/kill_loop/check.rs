//! After a restart: every key of interest is read and held against the model.
//!
//! 1. Each key's bytes are those of one write to it, and the model allows that write; two reads of
//!    a key whose write was under way agree.
//! 2. The writes under way when the server was killed were applied as a prefix, each whole.
//! 3. That outcome is the truth from now on, so that the next restart must agree.
//! 4. In a full check, a scan answers exactly the model's keys and values, in order.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::http::{Connection, from_base64};
use crate::model::State;
use crate::report::Violation;
use crate::value;
use crate::writer::Writer;

/// Reads sent before their answers are awaited.
const IN_FLIGHT: usize = 32;

/// How a writer's check went.
#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) checked_keys: u64,
    /// Acknowledged writes that are not there, and those of them that a later one was there after.
    pub(crate) lost: u64,
    pub(crate) holes: u64,
    pub(crate) violations: Vec<Violation>,
}

/// Checks one writer's keys: those touched lately or, in a full check, all.
pub(crate) fn check(writer: &mut Writer, address: SocketAddr, full: bool) -> Checked {
    let mut checked = Checked::default();
    if let Err(error) = check_keys(writer, address, full, &mut checked) {
        let what = format!("{}: reading failed: {error}", writer.prefix());
        checked.violations.push(Violation::new(what));
    }
    checked
}

fn check_keys(
    writer: &mut Writer,
    address: SocketAddr,
    full: bool,
    checked: &mut Checked,
) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let keys = writer.model.keys_to_check(full);
    checked.checked_keys = keys.len() as u64;
    let observed = read(&mut connection, &keys, checked)?;
    let observed_again = read(&mut connection, &keys, checked)?;
    for (key, state) in &observed {
        let again = observed_again[key];
        if again != *state {
            checked.fail(format!("{key}: two reads differ: {state:?}, then {again:?}"));
        }
    }
    check_states(writer, &observed, checked);
    let applied_count = check_under_way(writer, &observed, checked);
    if !checked.violations.is_empty() {
        return Ok(());
    }
    writer.model.settle(applied_count);
    if full {
        check_scan(writer, &mut connection, checked)?;
    }
    Ok(())
}

/// Reads keys, several at a time.
fn read(
    connection: &mut Connection,
    keys: &[String],
    checked: &mut Checked,
) -> io::Result<BTreeMap<String, State>> {
    let mut observed = BTreeMap::new();
    for some in keys.chunks(IN_FLIGHT) {
        for key in some {
            connection.push("GET", &format!("/kv/{key}"), b"");
        }
        connection.send()?;
        for key in some {
            let answer = connection.answer()?;
            let state = match answer.status {
                200 => value::sequence(key, &answer.body),
                404 => None,
                status => {
                    checked.fail(format!("{key}: a read was answered {status}"));
                    None
                }
            };
            if answer.status == 200 && state.is_none() {
                checked.fail(format!("{key}: {} bytes that nobody wrote", answer.body.len()));
            }
            observed.insert(key.clone(), state);
        }
    }
    Ok(observed)
}

/// Holds each key against the model. What is missing before something later that is there is a
/// hole; what is missing at the end is lost all the same.
fn check_states(writer: &Writer, observed: &BTreeMap<String, State>, checked: &mut Checked) {
    let last_there = observed.values().flatten().max().copied().unwrap_or(0);
    for (key, state) in observed {
        if writer.model.allows(key, *state) {
            continue;
        }
        let acknowledged = writer.model.acknowledged(key);
        checked.lost += 1;
        checked.holes += u64::from(acknowledged.is_some_and(|sequence| sequence < last_there));
        checked.fail(format!("{key}: acknowledged {acknowledged:?}, found {state:?}"));
    }
}

/// How many of the writes under way were applied; they must be the first ones, each whole.
fn check_under_way(
    writer: &Writer,
    observed: &BTreeMap<String, State>,
    checked: &mut Checked,
) -> usize {
    let mut applied_count = 0;
    for (number, write) in writer.model.under_way().iter().enumerate() {
        let applied_keys = write
            .keys
            .iter()
            .filter(|(key, state)| {
                observed[key] == *state && writer.model.acknowledged(key) != *state
            })
            .count();
        // A deletion of what was absent shows neither way, so it can't speak against the rest.
        let telling_keys = write
            .keys
            .iter()
            .filter(|(key, state)| writer.model.acknowledged(key) != *state)
            .count();
        if applied_keys != 0 && applied_keys != telling_keys {
            let keys = &write.keys;
            checked.fail(format!("a batch was applied in part: {applied_keys} of {keys:?}"));
        }
        if applied_keys == 0 {
            continue;
        }
        let gap = writer.model.under_way()[applied_count..number].iter().any(|earlier| {
            earlier.keys.iter().any(|(key, state)| writer.model.acknowledged(key) != *state)
        });
        if gap {
            checked.holes += 1;
            checked.fail(format!("{:?} is there, a write sent before it is not", write.keys));
        }
        applied_count = number + 1;
    }
    applied_count
}

/// A scan must answer the model's keys and values and nothing else.
fn check_scan(
    writer: &Writer,
    connection: &mut Connection,
    checked: &mut Checked,
) -> io::Result<()> {
    let answer = connection.ask("GET", &format!("/kv?prefix={}", writer.prefix()), b"")?;
    if answer.status != 200 {
        checked.fail(format!("a scan was answered {}", answer.status));
        return Ok(());
    }
    let body = String::from_utf8_lossy(&answer.body);
    let mut expected = writer.model.values().iter();
    for line in body.lines() {
        let (key, found) = match parse_line(line) {
            Some(entry) => entry,
            None => {
                checked.fail(format!("a scan answered the line {line:?}"));
                return Ok(());
            }
        };
        match expected.next() {
            Some((expected_key, sequence)) if *expected_key == key => {
                if value::sequence(&key, &found) != Some(*sequence) {
                    checked.fail(format!("{key}: a scan answers another value than a read"));
                }
            }
            other => {
                checked.fail(format!("a scan answers {key} where {other:?} belongs"));
                return Ok(());
            }
        }
    }
    if let Some((key, _)) = expected.next() {
        checked.fail(format!("a scan ended before {key}"));
    }
    Ok(())
}

/// Key and value of a line of newline-delimited JSON.
fn parse_line(line: &str) -> Option<(String, Vec<u8>)> {
    let field = |name: &str| {
        // Base64 has no escapes, so a field ends at the next quote.
        let start = line.find(&format!("\"{name}\":\""))? + name.len() + 4;
        from_base64(line[start..].split('"').next()?)
    };
    Some((String::from_utf8(field("key")?).ok()?, field("value")?))
}

impl Checked {
    fn fail(&mut self, what: String) {
        self.violations.push(Violation::new(what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Write;
    use crate::random::Random;

    /// Checks what was observed after a kill with these writes under way; `None` is "refused".
    fn applied(under_way: &[&[(&str, State)]], observed: &[(&str, State)]) -> Option<usize> {
        let mut writer = Writer::new(0, Random::new(1));
        for write in under_way {
            let keys = write.iter().map(|(key, state)| ((*key).to_owned(), *state)).collect();
            writer.model.begin(Write { keys });
        }
        let observed = observed.iter().map(|(key, state)| ((*key).to_owned(), *state)).collect();
        let mut checked = Checked::default();
        check_states(&writer, &observed, &mut checked);
        let count = check_under_way(&writer, &observed, &mut checked);
        checked.violations.is_empty().then_some(count)
    }

    #[test]
    fn writes_under_way_are_applied_as_a_prefix() {
        let under_way: [&[_]; 2] = [&[("a", Some(1))], &[("b", Some(2))]];
        assert_eq!(applied(&under_way, &[("a", None), ("b", None)]), Some(0));
        assert_eq!(applied(&under_way, &[("a", Some(1)), ("b", None)]), Some(1));
        assert_eq!(applied(&under_way, &[("a", Some(1)), ("b", Some(2))]), Some(2));
        assert_eq!(applied(&under_way, &[("a", None), ("b", Some(2))]), None);
    }

    #[test]
    fn a_batch_is_applied_whole_or_not_at_all() {
        let under_way: [&[_]; 1] = [&[("a", Some(1)), ("b", Some(2)), ("c", None)]];
        assert_eq!(applied(&under_way, &[("a", None), ("b", None), ("c", None)]), Some(0));
        assert_eq!(applied(&under_way, &[("a", Some(1)), ("b", Some(2)), ("c", None)]), Some(1));
        assert_eq!(applied(&under_way, &[("a", Some(1)), ("b", None), ("c", None)]), None);
    }

    #[test]
    fn a_value_of_no_write_is_refused() {
        assert_eq!(applied(&[&[("a", Some(5))]], &[("a", Some(4))]), None);
    }

    #[test]
    fn a_line_of_a_scan_is_read_whatever_the_order_of_its_fields() {
        let line = "{\"value\":\"dg==\",\"version\":3,\"key\":\"aw==\"}";
        assert_eq!(parse_line(line), Some(("k".to_owned(), b"v".to_vec())));
        assert_eq!(parse_line("{}"), None);
    }
}
