//! How far long work has come, on standard error, and only when that is a terminal.

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

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
