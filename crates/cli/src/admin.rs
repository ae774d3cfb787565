//! Asks a running server's admin listener, over plain HTTP.
//!
//! It trusts nothing that comes back: an answer has a size and a time limit, and what isn't the
//! expected JSON is an error.

use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use ureq::http::Uri;
use ureq::{Agent, Error};

use crate::exit::UsageError;

/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The admin listener of a server.
pub(crate) struct Admin {
    agent: Agent,
    base: String,
}

impl Admin {
    /// The listener at `url`, such as `http://127.0.0.1:9080`; `http://` may be left out.
    pub(crate) fn at(url: &str) -> Result<Admin, UsageError> {
        let base = base(url).ok_or_else(|| {
            UsageError(format!("{url:?} is not a URL such as http://127.0.0.1:9080"))
        })?;
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWER_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The listener is this machine's own, most often; a proxy could not even reach it.
            .proxy(None)
            .build();
        Ok(Admin { agent: config.into(), base })
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// What it answers to `GET path`, which is JSON.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.base);
        let mut response = self.agent.get(&url).call().map_err(|error| self.explain(error))?;
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string()
            .with_context(|| format!("the answer of {url} cannot be read"))?;
        let json: Option<Value> = serde_json::from_str(&text).ok();
        if !status.is_success() {
            let message = json.as_ref().and_then(|json| json["message"].as_str());
            bail!(
                "{url} answers {}: {}; is this the admin listener of a tallybook server?",
                status.as_u16(),
                message.unwrap_or("without saying why")
            );
        }
        json.with_context(|| format!("{url} does not answer with JSON; is it a tallybook server?"))
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
