//! Takes the bytes of a file as they come, and writes them on the pool while the next ones come.
//!
//! Invariant: at most one piece is being written and one collected, so the memory for an upload is
//! bounded whatever its length. An intake that is dropped before its commit leaves nothing.

use bytes::Bytes;
use tallybook_files::{Error, Result, Stat, Writer};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// A piece is written when it has so many bytes.
const PIECE_BYTES: usize = 256 << 10;
/// Or so many slices, each of which may keep a buffer of the connection.
const PIECE_SLICES: usize = 512;

/// Memory that an upload may take: two pieces and what a slice may be over.
pub(crate) const INTAKE_BYTES: usize = 3 * PIECE_BYTES;

/// A file that is being received.
pub(crate) struct Intake {
    state: State,
    slices: Vec<Bytes>,
    bytes: usize,
}

enum State {
    Idle(Box<Writer>),
    Writing(JoinHandle<Result<Box<Writer>>>),
    Over,
}

impl Intake {
    /// Makes the writer on the pool.
    pub(crate) async fn open(
        open: impl FnOnce() -> Result<Writer> + Send + 'static,
    ) -> Result<Intake> {
        let writer = spawn_blocking(open).await.map_err(panicked)??;
        Ok(Intake { state: State::Idle(Box::new(writer)), slices: Vec::new(), bytes: 0 })
    }

    /// Takes bytes; waits only while an earlier piece is being written.
    pub(crate) async fn take(&mut self, bytes: Bytes) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bytes += bytes.len();
        self.slices.push(bytes);
        if self.bytes >= PIECE_BYTES || self.slices.len() >= PIECE_SLICES {
            self.write_piece().await?;
        }
        Ok(())
    }

    /// Has the name stand for what was taken.
    pub(crate) async fn commit(self) -> Result<Stat> {
        self.finish(Writer::commit).await?
    }

    /// Hands the writer, when everything taken is written, to `finish` on the pool.
    pub(crate) async fn finish<T: Send + 'static>(
        mut self,
        finish: impl FnOnce(Writer) -> T + Send + 'static,
    ) -> Result<T> {
        self.write_piece().await?;
        let writer = self.writer().await?;
        spawn_blocking(move || finish(*writer)).await.map_err(panicked)
    }

    async fn write_piece(&mut self) -> Result<()> {
        let mut writer = self.writer().await?;
        let slices = std::mem::take(&mut self.slices);
        self.bytes = 0;
        self.state = State::Writing(spawn_blocking(move || {
            slices.iter().try_for_each(|slice| writer.write(slice))?;
            Ok(writer)
        }));
        Ok(())
    }

    async fn writer(&mut self) -> Result<Box<Writer>> {
        // While it is waited for, the task stays where a dropped intake leaves it to its end.
        if let State::Writing(task) = &mut self.state {
            let written = task.await;
            self.state = State::Over;
            return written.map_err(panicked)?;
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Idle(writer) => Ok(writer),
            _ => Err(Error::InvalidArgument("an earlier write of this file failed".to_owned())),
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        // Giving up writes to the catalogue; a writer on the pool is dropped there.
        if let State::Idle(writer) = std::mem::replace(&mut self.state, State::Over)
            && let Ok(handle) = Handle::try_current()
        {
            handle.spawn_blocking(move || drop(writer));
        }
    }
}

fn panicked(_: tokio::task::JoinError) -> Error {
    Error::InvalidArgument("the request failed for an unexpected reason".to_owned())
}
