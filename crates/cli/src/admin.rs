//! Asks a running server's admin listener, over plain HTTP.
//!
//! It trusts nothing that comes back: an answer has a size and a time limit, and what isn't as expected
//! is an error.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::exit::UsageError;
use crate::http::{Peer, TIMEOUT, refusal};
use crate::secret::read_secret;

/// Longest answer; a profile of a large program may be long.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The admin listener of a server.
pub(crate) struct Admin {
    peer: Peer,
    token: Option<String>,
}

/// The token in a file, without the white space around it.
pub(crate) fn read_token(path: &Path) -> Result<String, UsageError> {
    Ok(read_secret(path, "the admin token")?.trim().to_owned())
}

impl Admin {
    /// The listener at `url`, such as `http://127.0.0.1:9080`; `http://` may be left out.
    /// `token_file` holds the token that it wants, if it wants one.
    pub(crate) fn at(url: &str, token_file: Option<&Path>) -> Result<Admin, UsageError> {
        let token = token_file.map(read_token).transpose()?;
        let hint = "`tallybook serve` says at its start where its admin listener is";
        let peer = Peer::at(url, "http://127.0.0.1:9080", hint, |config| config)?;
        Ok(Admin { peer, token })
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.peer.base
    }

    /// What it answers to `GET path`, which is JSON.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.fetch(path, Duration::ZERO)?;
        serde_json::from_slice(&answer).with_context(|| {
            format!("{}{path} does not answer with JSON; is it a tallybook server?", self.url())
        })
    }

    /// The bytes that it answers to `GET path`, for which it may take `expected` and a bit more.
    pub(crate) fn fetch(&self, path: &str, expected: Duration) -> anyhow::Result<Vec<u8>> {
        let url = format!("{}{path}", self.url());
        let mut request =
            self.peer.agent.get(&url).config().timeout_global(Some(expected + TIMEOUT)).build();
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|error| self.peer.explain(error))?;
        let status = response.status();
        let answer = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .with_context(|| format!("the answer of {url} cannot be read"))?;
        if !status.is_success() {
            let message = refusal(&answer).map(|(_, message)| message);
            let said = message.as_deref().unwrap_or("without saying why");
            let hint = match &message {
                Some(message) if !message.contains("no such path") => "",
                _ => "; is this the admin listener of a tallybook server?",
            };
            bail!("{url} answers {}: {said}{hint}", status.as_u16());
        }
        Ok(answer)
    }
}
