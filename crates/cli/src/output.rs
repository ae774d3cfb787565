//! Standard output, buffered, that tells a closed pipe from a failure.

use std::io::{self, BufWriter, StdoutLock, Write};

use crate::exit::OutputClosed;

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Standard output. What was written is out only after `flush`.
pub(crate) struct Output {
    inner: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Locks standard output.
    pub(crate) fn new() -> Self {
        Output { inner: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()) }
    }

    /// Writes one JSON value and a newline.
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> io::Result<()> {
        writeln!(self, "{value}")
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(mark_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(mark_closed)
    }
}

fn mark_closed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        _ => error,
    }
}
