//! What a trial reports when the store broke a promise.

use std::fmt;

/// A broken promise: what was seen, and where in the trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What was seen and what was promised.
    pub what: String,
    /// Where it happened, from the innermost place outwards.
    pub places: Vec<String>,
}

/// A trial's result.
pub type Outcome<T = ()> = Result<T, Violation>;

impl Violation {
    /// A violation without a place yet.
    pub fn new(what: impl Into<String>) -> Self {
        Violation { what: what.into(), places: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        for place in &self.places {
            write!(f, "\n    at {place}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// Adds the place to a violation on its way out.
pub trait At<T> {
    /// Names where the violation happened.
    fn at(self, place: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> At<T> for Outcome<T> {
    fn at(self, place: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|mut violation| {
            violation.places.push(place());
            violation
        })
    }
}

impl<T> At<T> for tallybook::error::Result<T> {
    fn at(self, place: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Violation {
            what: format!("unexpected error: {error}"),
            places: vec![place()],
        })
    }
}

/// Bytes as a reader can recognise them: text where it is text, shortened where it is long.
pub fn show(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 24;
    let head = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let more = if bytes.len() > SHOWN_BYTES {
        format!("..({} bytes)", bytes.len())
    } else {
        String::new()
    };
    format!("\"{}\"{more}", head.escape_ascii())
}

/// What a panic said.
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}
