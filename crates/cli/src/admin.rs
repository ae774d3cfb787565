//! Asks a running server's admin listener, over plain HTTP.
//!
//! It trusts nothing that comes back: an answer has a size and a time limit, and what isn't as expected
//! is an error.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use ureq::http::Uri;
use ureq::{Agent, Error};

use crate::exit::UsageError;

/// How long the server may take to accept, and to begin with an answer beyond what it was asked to take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest answer; a profile of a large program may be long.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The admin listener of a server.
pub(crate) struct Admin {
    agent: Agent,
    base: String,
    token: Option<String>,
}

/// The token in a file, without the white space around it.
pub(crate) fn read_token(path: &Path) -> Result<String, UsageError> {
    match std::fs::read_to_string(path) {
        Ok(token) => Ok(token.trim().to_owned()),
        Err(error) => {
            Err(UsageError(format!("cannot read the admin token in {}: {error}", path.display())))
        }
    }
}

impl Admin {
    /// The listener at `url`, such as `http://127.0.0.1:9080`; `http://` may be left out.
    /// `token_file` holds the token that it wants, if it wants one.
    pub(crate) fn at(url: &str, token_file: Option<&Path>) -> Result<Admin, UsageError> {
        let token = token_file.map(read_token).transpose()?;
        let base = base(url).ok_or_else(|| {
            UsageError(format!("{url:?} is not a URL such as http://127.0.0.1:9080"))
        })?;
        let config = Agent::config_builder()
            .timeout_connect(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The listener is this machine's own, most often; a proxy could not even reach it.
            .proxy(None)
            .build();
        Ok(Admin { agent: config.into(), base, token })
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// What it answers to `GET path`, which is JSON.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.fetch(path, Duration::ZERO)?;
        serde_json::from_slice(&answer).with_context(|| {
            format!("{}{path} does not answer with JSON; is it a tallybook server?", self.base)
        })
    }

    /// The bytes that it answers to `GET path`, for which it may take `expected` and a bit more.
    pub(crate) fn fetch(&self, path: &str, expected: Duration) -> anyhow::Result<Vec<u8>> {
        let url = format!("{}{path}", self.base);
        let mut request =
            self.agent.get(&url).config().timeout_global(Some(expected + TIMEOUT)).build();
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|error| self.explain(error))?;
        let status = response.status();
        let answer = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .with_context(|| format!("the answer of {url} cannot be read"))?;
        if !status.is_success() {
            let json: Option<Value> = serde_json::from_slice(&answer).ok();
            let message = json.as_ref().and_then(|json| json["message"].as_str());
            let said = message.unwrap_or("without saying why");
            let hint = match message {
                Some(message) if !message.contains("no such path") => "",
                _ => "; is this the admin listener of a tallybook server?",
            };
            bail!("{url} answers {}: {said}{hint}", status.as_u16());
        }
        Ok(answer)
    }

    fn explain(&self, error: Error) -> anyhow::Error {
        let is_refused = matches!(
            &error,
            Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused
        ) || matches!(error, Error::ConnectionFailed);
        let base = &self.base;
        let what = match is_refused {
            true => format!(
                "nothing listens at {base}; `tallybook serve` says at its start where its admin \
                 listener is"
            ),
            false => format!("cannot ask {base}"),
        };
        anyhow::Error::new(error).context(what)
    }
}

/// Scheme and authority of a URL without a path, `None` if it isn't one.
fn base(url: &str) -> Option<String> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = whole.parse().ok()?;
    let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let is_http = uri.scheme_str() == Some("http");
    (is_bare && is_http && !authority.host().is_empty()).then(|| format!("http://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_host_and_a_port() {
        for url in ["http://127.0.0.1:9080", "http://127.0.0.1:9080/", "127.0.0.1:9080"] {
            assert_eq!(base(url).as_deref(), Some("http://127.0.0.1:9080"), "{url}");
        }
        assert_eq!(base("[::1]:1").as_deref(), Some("http://[::1]:1"));
        assert_eq!(base("http://books.example").as_deref(), Some("http://books.example"));
        for wrong in ["", "https://h", "http://h/stages", "http://h?x", "http://u:p@h", "a b"] {
            assert_eq!(base(wrong), None, "{wrong}");
        }
    }
}
