//! What the process says about itself: one line an event on standard error.
//!
//! Keys and values of users never go into a log.

use std::io::IsTerminal;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::exit::UsageError;

/// Names the levels to log, where no setting does.
const LOG_VARIABLE: &str = "TALLYBOOK_LOG";

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Time, level, message, then `key=value`.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging for `serve`. `levels` is a filter such as `info` or `warn,tallybook=debug`.
pub(crate) fn start(levels: &str, format: LogFormat) -> Result<(), UsageError> {
    // The S3 library logs what clients ask for, keys and all; whoever names it has it none the less.
    let filter = EnvFilter::try_new(format!("s3s=off,{levels}"))
        .map_err(|error| UsageError(format!("log: {levels:?} is not a filter: {error}")))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that can't be written would be told of on standard error as well, by a macro that panics
        // there, and a server's panic ends it.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Starts logging for a command on an embedded store: warnings, or what `TALLYBOOK_LOG` names. An
/// unreadable filter there must not keep anybody from their data, so it counts as `warn`.
pub(crate) fn start_for_verb() {
    let levels = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let levels = if EnvFilter::try_new(&levels).is_ok() && !levels.is_empty() {
        levels
    } else {
        "warn".to_owned()
    };
    start(&levels, LogFormat::Text).expect("the filter was just parsed");
}
