//! A target that does nothing: what the generator itself costs, and nothing else.
//!
//! Every answer is right in form and empty, so runs against it don't verify.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{Answers, Request, Session, Target};
use crate::error::Result;

/// A target that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Target for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(Nothing))
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Nothing {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        match request {
            Request::Put { .. } | Request::Delete { .. } => answers.written(),
            Request::Get { .. } => answers.value(Some(&[])),
            Request::Head { .. } => answers.length(Some(0)),
            Request::Scan { .. } => {}
        }
        Ok(())
    }
}
