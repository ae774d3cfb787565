//! Which names a listener goes by, and which web pages may ask it for something.
//!
//! A page that somebody opens can have their browser send requests to their own machine: as a page of
//! another site, which the browser says (`Origin`, `Sec-Fetch-Site`), or as one whose own name its owner
//! has lead there (DNS rebinding), which shows only in the Host. Other clients say neither, and call a
//! server on their machine by its address or `localhost`. Heads that may have to be judged are picked
//! out by `Lines`, so that the others cost nothing here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::lines::Violation;

/// What a listener asks of requests beyond their form.
#[derive(Debug)]
pub(crate) struct OriginRules {
    /// The names it goes by beside `localhost` and addresses; `None`: any.
    names: Option<Vec<String>>,
}

impl OriginRules {
    /// Of a listener at this address. It goes by any name if other machines can reach it, as the names it
    /// has there are theirs to know.
    pub(crate) fn new(listen: SocketAddr, allowed_hosts: &[String]) -> OriginRules {
        let is_loopback = listen.ip().to_canonical().is_loopback();
        OriginRules { names: is_loopback.then(|| allowed_hosts.to_vec()) }
    }

    /// Whether a request may pass, by its head; answers the host that it names, empty if it names none.
    /// Requires: the head's lines have passed.
    pub(super) fn judge<'a>(&self, head: &'a [u8]) -> Result<&'a [u8], Violation> {
        let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let request_line = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let values = |wanted: &'static [u8]| {
            lines.clone().filter_map(move |line| {
                let (name, value) = line.split_at_checked(wanted.len())?;
                let value = value.strip_prefix(b":")?.trim_ascii();
                name.eq_ignore_ascii_case(wanted).then_some(value)
            })
        };
        let mut words = request_line.split(|&byte| byte == b' ');
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        // RFC 9112, 3.2.2: a target that has an authority has the last word.
        let host = authority(target).or_else(|| values(b"host").next()).unwrap_or_default();
        if !self.goes_by(host) {
            return Err(Violation::UnknownHost);
        }
        // Who follows a link sees the answer; the page that has the link doesn't.
        let follows_link = method == Some(b"GET")
            && values(b"sec-fetch-mode").any(|mode| mode == b"navigate")
            && values(b"sec-fetch-dest").any(|destination| destination == b"document");
        let is_of_another_site = values(b"sec-fetch-site")
            .any(|site| matches!(site, b"cross-site" | b"same-site"))
            && !follows_link;
        if is_of_another_site || values(b"origin").any(|origin| !is_own(origin, host)) {
            return Err(Violation::CrossOrigin);
        }
        Ok(host)
    }

    /// Whether the listener goes by this host, with or without a port.
    fn goes_by(&self, host: &[u8]) -> bool {
        let Some(names) = &self.names else { return true };
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let name_end = match host.strip_prefix('[') {
            Some(literal) => literal.find(']').map(|at| at + "[]".len()),
            None => host.find(':'),
        };
        let (name, port) = host.split_at(name_end.unwrap_or(host.len()));
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return false;
        }
        let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(literal) => literal.parse::<Ipv6Addr>().map(IpAddr::from),
            None => name.parse::<Ipv4Addr>().map(IpAddr::from),
        };
        // The unspecified address leads here, too, but a browser doesn't take it for this machine, and lets
        // pages of other sites at it that it keeps from loopback.
        let is_address = address.is_ok_and(|address| !address.to_canonical().is_unspecified());
        // A dot at the end of a name stands for the root.
        let name = without_suffix(name, ".");
        let is_known = |known: &str| without_suffix(known, ".").eq_ignore_ascii_case(name);
        host.is_empty()
            || is_address
            || is_known("localhost")
            || names.iter().any(|known| is_known(known))
    }
}

/// The authority of a target in absolute form, without what may stand before its host.
fn authority(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return None;
    }
    let start = memchr::memmem::find(target, b"://")? + "://".len();
    let rest = &target[start..];
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    rest[..end].rsplit(|&byte| byte == b'@').next()
}

/// Whether an origin is that of this host's pages, whichever of `http` and `https` a proxy makes of it.
fn is_own(origin: &[u8], host: &[u8]) -> bool {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let (Some(origin), Some(host)) = (text(origin), text(host)) else { return false };
    let (authority, default_port) = match origin.split_once("://") {
        Some(("http", authority)) => (authority, ":80"),
        Some(("https", authority)) => (authority, ":443"),
        // `null` is what pages say that are not to be told by their origin.
        _ => return false,
    };
    let host = without_suffix(host, default_port);
    !host.is_empty() && without_suffix(authority, default_port).eq_ignore_ascii_case(host)
}

fn without_suffix<'a>(text: &'a str, suffix: &str) -> &'a str {
    text.strip_suffix(suffix).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(address: &str) -> OriginRules {
        OriginRules::new(address.parse().unwrap(), &["books.example".to_owned()])
    }

    fn judge(address: &str, head: &str) -> Result<String, Violation> {
        let judged = rules(address).judge(head.as_bytes());
        judged.map(|host| String::from_utf8(host.to_vec()).unwrap())
    }

    #[test]
    fn a_listener_on_loopback_goes_by_addresses_and_names_it_was_given() {
        for host in [
            "",
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.1.2.3:1",
            "[::1]",
            "[::1]:8080",
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "localhost.:8080",
            "localhost:",
            "books.example",
            "BOOKS.example.:443",
        ] {
            let head = format!("GET /kv HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(judge("127.0.0.1:8080", &head).as_deref(), Ok(host));
            assert_eq!(judge("[::1]:8080", &head).as_deref(), Ok(host));
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "evil.localhost",
            "localhost..",
            "127.0.0.1.evil.example",
            "127.0.0.1:8080.evil.example",
            "0.0.0.0",
            "0.0.0.0:8080",
            "[::]",
            "[::]:8080",
            "[::ffff:0.0.0.0]",
            "127.1",
            "2130706433",
            "[evil.example]",
            "[::1",
            "[::1]evil.example",
            "[]",
            "::1",
            ":8080",
            "localhost:80:80",
            "www.books.example",
            "books.example.evil",
            "books%2eexample",
        ] {
            let head = format!("GET /kv HTTP/1.1\r\nHost: {host}\r\n\r\n");
            for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
                assert_eq!(judge(loopback, &head), Err(Violation::UnknownHost), "{host}");
            }
            assert_eq!(judge("0.0.0.0:8080", &head).as_deref(), Ok(host));
        }
    }

    #[test]
    fn the_authority_of_a_target_counts_before_the_host() {
        for (target, host, expected) in [
            ("http://localhost:1/kv", "evil.example", Ok("localhost:1")),
            ("http://[::1]?a", "evil.example", Ok("[::1]")),
            ("http://evil.example/kv", "localhost", Err(Violation::UnknownHost)),
            ("http://localhost@evil.example/kv", "localhost", Err(Violation::UnknownHost)),
            ("http://evil.example@localhost/@evil.example", "a", Ok("localhost")),
            ("/kv?http://evil.example/", "localhost", Ok("localhost")),
            ("/kv?http://localhost/", "evil.example", Err(Violation::UnknownHost)),
            ("*", "localhost", Ok("localhost")),
        ] {
            let head = format!("\r\nPUT {target} HTTP/1.1\r\nX: y\r\nhost:  {host} \r\n\r\n");
            assert_eq!(judge("127.0.0.1:1", &head).as_deref(), expected.as_deref(), "{target}");
        }
    }

    #[test]
    fn a_page_may_ask_its_own_server_alone() {
        for (host, origin, is_let_in) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
            ("LOCALHOST:8080", "http://localhost:8080", true),
            ("localhost", "http://localhost", true),
            ("localhost:80", "http://localhost", true),
            ("books.example", "https://books.example", true),
            ("books.example:443", "https://books.example", true),
            ("127.0.0.1:8080", "http://127.0.0.1:8081", false),
            ("127.0.0.1:8080", "http://127.0.0.1", false),
            ("127.0.0.1:8080", "http://localhost:8080", false),
            ("127.0.0.1:8080", "https://evil.example", false),
            ("localhost:443", "http://localhost", false),
            ("127.0.0.1:8080", "null", false),
            ("127.0.0.1:8080", "127.0.0.1:8080", false),
            ("127.0.0.1:8080", "", false),
            ("", "http://", false),
            ("127.0.0.1", "chrome-extension://127.0.0.1", false),
        ] {
            let head = format!("POST /kv HTTP/1.1\r\nORIGIN: {origin}\r\nHost: {host}\r\n\r\n");
            for address in ["127.0.0.1:8080", "0.0.0.0:8080"] {
                assert_eq!(judge(address, &head).is_ok(), is_let_in, "{host} and {origin}");
            }
        }
        let both =
            "POST /kv HTTP/1.1\r\nHost: [::1]\r\nOrigin: http://[::1]\r\nOrigin: http://a\r\n\r\n";
        assert_eq!(judge("[::1]:80", both), Err(Violation::CrossOrigin));
    }

    #[test]
    fn what_the_browser_says_of_the_page_is_heeded() {
        let ask = |method: &str, lines: &str| {
            let head = format!("{method} /kv HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
            judge("127.0.0.1:8080", &head).is_ok()
        };
        for site in ["none", "same-origin"] {
            assert!(ask("GET", &format!("Sec-Fetch-Site: {site}\r\n")), "{site}");
            assert!(ask("POST", &format!("sec-fetch-site: {site}\r\n")), "{site}");
        }
        let link = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
        let frame = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n";
        let image = "Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n";
        for site in ["same-site", "cross-site"] {
            let site = format!("Sec-Fetch-Site: {site}\r\n");
            assert!(!ask("GET", &site), "{site}");
            assert!(ask("GET", &format!("{site}{link}")), "{site}");
            assert!(!ask("POST", &format!("{site}{link}")), "{site}");
            assert!(!ask("GET", &format!("{site}{link}Origin: null\r\n")), "{site}");
            for other in [frame, image] {
                assert!(!ask("GET", &format!("{site}{other}")), "{site}");
            }
        }
    }
}
