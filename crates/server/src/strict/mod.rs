//! The strict filter under hyper: what hyper would accept and this server won't.
//!
//! `lines` judges the lines of a head, `origin` which names and web pages it may be of, `chunks` follows
//! a chunked body, `scanner` goes from head to body to head through a connection's bytes, `wire` stands
//! between hyper and the socket. Invariant: hyper sees only whole heads that passed, and bodies as they
//! are framed; after the first offence it sees the end of the stream.

mod lines;
mod origin;
mod chunks;
mod scanner;
mod wire;

pub(crate) use lines::HeadLimits;
pub(crate) use origin::OriginRules;
#[cfg(feature = "fuzzing")]
pub(crate) use scanner::Scanner;
pub(crate) use wire::Wire;
