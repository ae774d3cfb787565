//! How far long work has come, on standard error, and only when that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts bytes.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for work called `name`. It draws nothing when standard error is not a terminal.
    pub(crate) fn new(name: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template(
            "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        )
        .expect("the template is a constant that parses");
        bar.set_style(style);
        bar.set_message(name);
        Progress { bar }
    }

    /// `done` of `total` bytes are done.
    pub(crate) fn update(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

/// A bar that counts things other than bytes.
pub(crate) struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// A bar for work called `name` on so many `things`. It draws nothing when standard error is not a
    /// terminal.
    pub(crate) fn new(name: &'static str, things: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg} {eta}")
            .expect("the template is a constant that parses");
        bar.set_style(style);
        bar.set_prefix(name);
        bar.set_message(things);
        Steps { bar }
    }

    /// `done` of `total` are done.
    pub(crate) fn update(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar that counts down a time that is known beforehand.
pub(crate) struct Countdown {
    bar: ProgressBar,
    duration: Duration,
}

impl Countdown {
    /// A bar for work called `name` that takes this long. It draws nothing when standard error is not a
    /// terminal.
    pub(crate) fn new(name: &'static str, duration: Duration) -> Self {
        let bar = ProgressBar::new(duration.as_millis() as u64);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}")
            .expect("the template is a constant that parses");
        bar.set_style(style);
        bar.set_prefix(name);
        let countdown = Countdown { bar, duration };
        countdown.update(Duration::ZERO);
        countdown
    }

    /// This much of the time is over.
    pub(crate) fn update(&self, passed: Duration) {
        self.bar.set_position(passed.as_millis() as u64);
        self.bar.set_message(match self.duration.saturating_sub(passed).as_secs_f64().ceil() {
            0.0 => "waiting for the answer".to_owned(),
            left => format!("{left} s left"),
        });
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
