//! `put` and `delete`: one key.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use data_encoding::BASE64;
use serde_json::json;
use tallybook::key::{SeqNo, VALUE_BYTES_MAX};
use tallybook::options::Durability;
use tallybook::store::{Condition, Store, WriteOptions};

use crate::arguments::{DeleteArguments, PutArguments, WriteArguments};
use crate::exit::{Exit, UsageError};
use crate::output::Output;
use crate::units::Span;
use crate::verbs::embedded::{Purpose, open};

/// Sets a key.
pub(crate) fn put(arguments: PutArguments) -> anyhow::Result<Exit> {
    let key = arguments.key.encoding.key_encoding.decode(&arguments.key.key)?;
    let condition = match (arguments.if_absent, arguments.if_version) {
        (true, _) => Some(Condition::Absent),
        (false, version) => version.map(Condition::Version),
    };
    let options = WriteOptions {
        durability: Some(arguments.write.durability.0),
        expires_at_ms: arguments.ttl.map_or(Ok(0), expiry_ms)?,
        attributes: Bytes::from(arguments.attributes.clone()),
        condition,
    };
    // The value is read before the store is opened, so that a slow pipe keeps nobody else out.
    let value = read_value(arguments.value, arguments.file)?;
    let store = open(&arguments.store.data, Purpose::Create)?;
    let version = store.put_with(&key, &value, &options)?;
    finish(&store, &key, version, &arguments.write)
}

/// Deletes a key.
pub(crate) fn delete(arguments: &DeleteArguments) -> anyhow::Result<Exit> {
    let key = arguments.key.encoding.key_encoding.decode(&arguments.key.key)?;
    let options = WriteOptions {
        durability: Some(arguments.write.durability.0),
        condition: arguments.if_version.map(Condition::Version),
        ..WriteOptions::default()
    };
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let version = store.delete_with(&key, &options)?;
    finish(&store, &key, version, &arguments.write)
}

/// Leaves the write as durable as was asked, and says its version if that was asked.
///
/// The store is not closed, which would flush a table for each command; the journal holds the write.
fn finish(
    store: &Store,
    key: &[u8],
    version: SeqNo,
    arguments: &WriteArguments,
) -> anyhow::Result<Exit> {
    if arguments.durability.0 != Durability::Os {
        // Nobody would be left to start the sync of an interval.
        store.sync()?;
    }
    if arguments.json {
        let mut out = Output::new();
        out.json(&json!({ "key": BASE64.encode(key), "version": version }))?;
        out.flush()?;
    }
    Ok(Exit::Success)
}

/// The moment that is `ttl` from now, in milliseconds since the Unix epoch.
fn expiry_ms(ttl: Span) -> Result<u64, UsageError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let expiry = now
        .checked_add(ttl.0)
        .and_then(|expiry| u64::try_from(expiry.as_millis()).ok())
        .filter(|_| !ttl.0.is_zero());
    expiry.ok_or_else(|| UsageError(format!("--ttl {ttl} is out of range")))
}

/// The value from the argument, the file, or standard input.
fn read_value(
    value: Option<std::ffi::OsString>,
    file: Option<std::path::PathBuf>,
) -> anyhow::Result<Vec<u8>> {
    if let Some(path) = file {
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        return read_bounded(file)
            .with_context(|| format!("cannot read a value from {}", path.display()));
    }
    match value {
        Some(value) if value != "-" => Ok(value.into_vec()),
        None if io::stdin().is_terminal() => Err(UsageError(
            "no value: give one, or --file FILE, or `-` to type it on standard input".into(),
        )
        .into()),
        _ => read_bounded(io::stdin()).context("cannot read a value from standard input"),
    }
}

/// All of `source`, unless that is more than a value may have.
fn read_bounded(source: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    source.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(UsageError(format!("a value has at most {VALUE_BYTES_MAX} bytes")).into());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_ttl_of_nothing_or_of_forever_is_refused() {
        assert!(expiry_ms(Span(Duration::ZERO)).is_err());
        assert!(expiry_ms(Span(Duration::MAX)).is_err());
        assert!(expiry_ms(Span(Duration::from_secs(1))).unwrap() > 0);
    }

    #[test]
    fn a_value_that_is_too_long_is_refused_without_reading_all_of_it() {
        let error = read_bounded(io::repeat(b'x')).unwrap_err();
        assert!(error.to_string().contains("at most"), "{error}");
        assert_eq!(read_bounded(&b"abc"[..]).unwrap(), b"abc");
    }
}
