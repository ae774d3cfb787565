//! Targets in processes of their own: JSON lines on the child's standard input and output.
//!
//! ```text
//! lab    {"ask":"open",..}                {"ask":"run",..}                                 {"ask":"close"}
//! child                    {"tell":"opened",..}   {"tell":"progress",..}* {"tell":"ran",..}         {"tell":"done"}
//! ```
//!
//! One question at a time, each answered by one line that isn't progress; only `stop` may come in
//! between. The whole load runs in the child, next to its target, so that nothing but figures crosses
//! the pipe. A child ends when its standard input does.

mod message;
pub(crate) mod piped;
mod serve;
mod handle;

pub use handle::Child;
pub use message::Opening;
pub(crate) use serve::take_standard_output;
pub use serve::{serve, serve_engine};
