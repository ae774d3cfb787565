//! Plain HTTP to a tallybook server: where it is, and what to say when it isn't there.
//!
//! Whoever asks sets limits on what comes back; nothing is trusted.

use std::io;
use std::time::Duration;

use serde_json::Value;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::typestate::AgentScope;
use ureq::{Agent, Error};

use crate::exit::UsageError;

/// How long a server may take to accept, and to begin with an answer beyond what it was asked to take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A listener of a server.
pub(crate) struct Peer {
    pub(crate) agent: Agent,
    /// Scheme and authority.
    pub(crate) base: String,
    /// What to look at when nothing listens there.
    hint: &'static str,
}

impl Peer {
    /// The listener at `url`; `http://` may be left out. `example` is shown to who gives another thing.
    pub(crate) fn at(
        url: &str,
        example: &str,
        hint: &'static str,
        configure: impl FnOnce(ConfigBuilder<AgentScope>) -> ConfigBuilder<AgentScope>,
    ) -> Result<Peer, UsageError> {
        let base = base(url)
            .ok_or_else(|| UsageError(format!("{url:?} is not a URL such as {example}")))?;
        let config = Agent::config_builder()
            .timeout_connect(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The listener is this machine's own, most often; a proxy could not even reach it.
            .proxy(None);
        Ok(Peer { agent: configure(config).build().into(), base, hint })
    }

    /// An error of a request, with what to do about it.
    pub(crate) fn explain(&self, error: Error) -> anyhow::Error {
        let is_refused = matches!(
            &error,
            Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused
        ) || matches!(error, Error::ConnectionFailed);
        let (base, hint) = (&self.base, self.hint);
        let what = match is_refused {
            true => format!("nothing listens at {base}; {hint}"),
            false => format!("cannot ask {base}"),
        };
        anyhow::Error::new(error).context(what)
    }
}

/// Kind and message of a refusal, if it is one of a tallybook server.
pub(crate) fn refusal(answer: &[u8]) -> Option<(String, String)> {
    let json: Value = serde_json::from_slice(answer).ok()?;
    Some((json["error"].as_str()?.to_owned(), json["message"].as_str()?.to_owned()))
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
