//! `get` and `head`: one key.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use tallybook::head::Head;

use crate::arguments::{GetArguments, HeadArguments};
use crate::entry_json::{entry_object, head_object};
use crate::exit::{Exit, say};
use crate::key_text::escape;
use crate::output::Output;
use crate::verbs::embedded::{Purpose, open};

/// Writes the value of a key to standard output.
pub(crate) fn get(arguments: &GetArguments) -> anyhow::Result<Exit> {
    let key = arguments.key.encoding.key_encoding.decode(&arguments.key.key)?;
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let Some((head, value)) = store.get_entry(&key)? else {
        return Ok(absent(&key));
    };
    let mut out = Output::new();
    if arguments.json {
        out.json(&entry_object(&key, &head, &value).into())?;
    } else {
        out.write_all(&value)?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// Prints what is known of a value.
pub(crate) fn head(arguments: &HeadArguments) -> anyhow::Result<Exit> {
    let key = arguments.key.encoding.key_encoding.decode(&arguments.key.key)?;
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let Some(head) = store.head(&key)? else {
        return Ok(absent(&key));
    };
    let mut out = Output::new();
    if arguments.json {
        out.json(&head_object(&key, &head).into())?;
    } else {
        write_head(&mut out, &head)?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

fn absent(key: &[u8]) -> Exit {
    say(format_args!("tallybook: there is no key {}", escape(key)));
    Exit::KeyNotFound
}

fn write_head(out: &mut Output, head: &Head) -> std::io::Result<()> {
    writeln!(out, "version     {}", head.version)?;
    writeln!(out, "length      {}", head.length)?;
    writeln!(out, "checksum    {:08x}", head.checksum)?;
    writeln!(out, "written at  {}", time_text(head.written_at_ms))?;
    if let Some(expires_at_ms) = head.expires_at_ms {
        writeln!(out, "expires at  {}", time_text(expires_at_ms))?;
    }
    if !head.attributes.is_empty() {
        writeln!(out, "attributes  {}", escape(&head.attributes))?;
    }
    Ok(())
}

/// The time as RFC 3339, or the plain number where no calendar reaches.
pub(crate) fn time_text(unix_ms: u64) -> String {
    /// The last millisecond of the year 9999, where RFC 3339 ends.
    const UNIX_MS_MAX: u64 = 253_402_300_799_999;
    if unix_ms > UNIX_MS_MAX {
        return format!("{unix_ms} ms");
    }
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time_text(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        assert_eq!(time_text(u64::MAX), format!("{} ms", u64::MAX));
    }
}
