//! Files with a value in JSON on each line, only ever added to.
//!
//! Invariant: a line that is whole counts, whether or not its end was written; one that a kill cut off counts for
//! nothing, and nothing is added behind it. A loss of power leaves bytes of zero where the last ones were to be.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// An open file of such lines.
#[derive(Debug)]
pub struct JsonLines {
    file: File,
    name: String,
}

impl JsonLines {
    /// Opens the file, or makes it, and reads all of it, as [`read`] does. A last line that was cut off is taken out of
    /// it, and so are bytes of zero at its end; on an error the file is left as it was.
    pub fn open<T: DeserializeOwned>(path: &Path) -> Result<(JsonLines, Vec<T>)> {
        let name = path.display().to_string();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .map_err(Error::io(&*name))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(Error::io(&*name))?;
        let (values, whole_bytes) = parse(&name, &bytes)?;
        if whole_bytes < bytes.len() {
            file.set_len(whole_bytes as u64).map_err(Error::io(&*name))?;
        }
        if bytes[..whole_bytes].last().is_some_and(|&byte| byte != b'\n') {
            file.write_all(b"\n").map_err(Error::io(&*name))?;
        }
        Ok((JsonLines { file, name }, values))
    }

    /// Adds a value; it survives the process being killed.
    pub fn append<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let mut line = serde_json::to_vec(value)
            .map_err(|error| Error::Invalid(format!("{}: {error}", self.name)))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::io(&*self.name))
    }
}

/// The values of a file that nothing is added to. A last line that was cut off counts for nothing; any other that
/// can't be read is an error, because silence about it would skew what is made of the rest.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(Error::io(format!("reading {name}")))?;
    Ok(parse(&name, &bytes)?.0)
}

/// The values, and how many bytes are whole lines.
fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<(Vec<T>, usize)> {
    let mut values = Vec::new();
    // No value in JSON ends in a byte of zero.
    let mut whole_bytes = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let bytes = &bytes[..whole_bytes];
    for (at, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        // What a kill cut off ends too early. A whole line of something else is no tear.
        let is_torn = |error: &serde_json::Error| {
            error.is_eof() && line.starts_with(b"{") && !line.ends_with(b"\n")
        };
        match serde_json::from_slice(line) {
            Ok(value) => values.push(value),
            Err(error) if is_torn(&error) => whole_bytes -= line.len(),
            Err(error) => {
                return Err(Error::Invalid(format!("{name}, line {}: {error}", at + 1)));
            }
        }
    }
    Ok((values, whole_bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Line = BTreeMap<String, u32>;

    #[test]
    fn what_is_added_stands_behind_what_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.jsonl");
        for (before, whole) in [
            ("", ""),
            ("{\"a\":1}\n", "{\"a\":1}\n"),
            ("{\"a\":1}\n{\"a\":", "{\"a\":1}\n"),
            ("{\"a\":1}\n{\"a\":2}", "{\"a\":1}\n{\"a\":2}\n"),
            // After a loss of power.
            ("{\"a\":1}\n{\"a\0\0", "{\"a\":1}\n"),
            ("{\"a\":1}\n\0\0", "{\"a\":1}\n"),
            ("{\"a\":1}\n{\"a\":2}\0\0", "{\"a\":1}\n{\"a\":2}\n"),
        ] {
            fs::write(&path, before).unwrap();
            let (mut lines, values) = JsonLines::open::<Line>(&path).unwrap();
            assert_eq!(values.len(), whole.lines().count(), "{before:?}");
            lines.append(&Line::from([("a".to_owned(), 9)])).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{whole}{{\"a\":9}}\n"));
            fs::write(&path, before).unwrap();
            assert_eq!(read::<Line>(&path).unwrap(), values);
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        let texts = ["dear diary\n", "dear diary", "[]\n{\"a\":", "{\"a\":\n{\"a\":1}\n"];
        // A line of its own that is whole, though its end isn't written.
        for text in texts.into_iter().chain(["{\"name\":\"x\"}", "{\"name\":\"x\"}\0"]) {
            fs::write(&path, text).unwrap();
            assert!(JsonLines::open::<Line>(&path).is_err(), "{text:?}");
            assert!(read::<Line>(&path).is_err(), "{text:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
