//! What goes over the pipe.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::load::{LoadOptions, Progress, Waiting};
use crate::record::Outcome;
use crate::run::RunOptions;
use crate::spec::{Length, Spec};
use crate::target::Budget;

/// Which target is to be opened, where and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The target's name.
    pub name: String,
    /// Where its files are to be.
    pub directory: PathBuf,
    /// What every target gets alike.
    pub budget: Budget,
    /// Settings of its own, by their names.
    pub settings: BTreeMap<String, String>,
}

/// From the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub(super) enum Ask {
    Open { opening: Opening },
    Prefill { spec: Box<Spec>, how: How },
    Run { spec: Box<Spec>, how: How },
    Settle,
    Figures,
    Close,
    Stop,
}

/// Run options, as far as they cross a pipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct How {
    warm_up: Option<Length>,
    #[serde(default)]
    settle_first: bool,
    settle: bool,
    #[serde(default)]
    cold: bool,
    lag_max_us: u64,
    waiting: String,
}

impl How {
    pub(super) fn new(options: &RunOptions) -> How {
        let waiting = match options.load.waiting {
            Waiting::Auto => "auto",
            Waiting::Spin => "spin",
            Waiting::Sleep => "sleep",
        };
        How {
            warm_up: options.warm_up,
            settle_first: options.settle_first,
            settle: options.settle,
            cold: options.cold,
            lag_max_us: u64::try_from(options.load.lag_max.as_micros()).unwrap_or(u64::MAX),
            waiting: waiting.to_owned(),
        }
    }

    pub(super) fn options(&self) -> RunOptions {
        RunOptions {
            load: LoadOptions {
                waiting: match &*self.waiting {
                    "spin" => Waiting::Spin,
                    "sleep" => Waiting::Sleep,
                    _ => Waiting::Auto,
                },
                lag_max: std::time::Duration::from_micros(self.lag_max_us),
                ..LoadOptions::default()
            },
            warm_up: self.warm_up,
            settle_first: self.settle_first,
            settle: self.settle,
            cold: self.cold,
        }
    }
}

/// From the child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "lowercase")]
pub(super) enum Tell {
    Opened {
        name: String,
        settings: BTreeMap<String, String>,
    },
    Progress {
        progress: Progress,
        /// All that was measured so far; not in every line.
        so_far: Option<Box<Outcome>>,
    },
    Ran {
        outcome: Box<Outcome>,
        problem: Option<Problem>,
    },
    Figures {
        figures: BTreeMap<String, f64>,
    },
    Done,
    Refused {
        problem: Problem,
    },
}

/// An error, as far as it crosses a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Problem {
    kind: ProblemKind,
    what: String,
    target: String,
    known: Vec<String>,
    bytes: [u64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProblemKind {
    UnknownTarget,
    UnknownSetting,
    Invalid,
    WrongData,
    Target,
    NoSpace,
    Interrupted,
}

impl Problem {
    pub(super) fn new(error: &Error, target: &str) -> Problem {
        let problem = |kind, what: &str| Problem {
            kind,
            what: what.to_owned(),
            target: target.to_owned(),
            known: Vec::new(),
            bytes: [0; 2],
        };
        match error {
            Error::Unknown { what: "setting", name, known } => {
                Problem { known: known.clone(), ..problem(ProblemKind::UnknownSetting, name) }
            }
            Error::Unknown { what: "target", name, known } => {
                Problem { known: known.clone(), ..problem(ProblemKind::UnknownTarget, name) }
            }
            Error::Invalid(what) | Error::Refused(what) => problem(ProblemKind::Invalid, what),
            Error::WrongData(what) => problem(ProblemKind::WrongData, what),
            Error::Target { target, what } => {
                Problem { target: target.clone(), ..problem(ProblemKind::Target, what) }
            }
            Error::NoSpace { what, needed_bytes, available_bytes } => Problem {
                bytes: [*needed_bytes, *available_bytes],
                ..problem(ProblemKind::NoSpace, what)
            },
            Error::Interrupted => problem(ProblemKind::Interrupted, ""),
            Error::Unknown { .. } | Error::Io { .. } => {
                problem(ProblemKind::Target, &error.to_string())
            }
        }
    }

    pub(super) fn into_error(self) -> Error {
        let Problem { kind, what, target, known, bytes: [needed_bytes, available_bytes] } = self;
        match kind {
            ProblemKind::UnknownTarget => Error::Unknown { what: "target", name: what, known },
            ProblemKind::UnknownSetting => Error::Unknown { what: "setting", name: what, known },
            ProblemKind::Invalid => Error::Invalid(what),
            ProblemKind::WrongData => Error::WrongData(what),
            ProblemKind::Target => Error::Target { target, what },
            ProblemKind::NoSpace => Error::NoSpace { what, needed_bytes, available_bytes },
            ProblemKind::Interrupted => Error::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_the_same_on_the_other_side() {
        let known = vec!["a".to_owned(), "b".to_owned()];
        for error in [
            Error::Unknown { what: "target", name: "x".into(), known: known.clone() },
            Error::Unknown { what: "setting", name: "x".into(), known },
            Error::Invalid("no".into()),
            Error::WrongData("torn".into()),
            Error::Target { target: "t".into(), what: "died".into() },
            Error::NoSpace { what: "run".into(), needed_bytes: 7, available_bytes: 3 },
            Error::Interrupted,
        ] {
            let line = serde_json::to_string(&Problem::new(&error, "t")).unwrap();
            let back: Problem = serde_json::from_str(&line).unwrap();
            assert_eq!(back.into_error().to_string(), error.to_string());
        }
    }

    #[test]
    fn questions_survive_the_pipe() {
        let options = RunOptions {
            warm_up: Some(Length::Operations(5)),
            settle_first: true,
            settle: false,
            cold: true,
            load: LoadOptions { waiting: Waiting::Sleep, ..LoadOptions::default() },
        };
        let ask = Ask::Run { spec: Box::default(), how: How::new(&options) };
        let back: Ask = serde_json::from_str(&serde_json::to_string(&ask).unwrap()).unwrap();
        assert_eq!(back, ask);
        let Ask::Run { how, .. } = back else { unreachable!("it is a run") };
        assert_eq!(How::new(&how.options()), how);
        assert!(serde_json::from_str::<Ask>("{\"ask\":\"dance\"}").is_err());
    }
}
