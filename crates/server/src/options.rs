//! Settings of the server, with their defaults and ranges. Unknown names are refused when read.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use tallybook::key::VALUE_BYTES_MAX;
use tallybook::options::Durability;

use crate::error::{Error, Result};
use crate::token::AdminToken;

/// Memory for bodies that is of any use: as much as the smallest value that is counted.
const BODY_MEMORY_BYTES_MIN: u64 = 64 << 10;

/// Settings of one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerOptions {
    /// Where data is served. Default `127.0.0.1:8080`; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where health and figures are served. Default `127.0.0.1:9080`; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Threads that answer requests; 0 is one for each core. Default 0.
    pub threads: usize,
    /// Threads, for each of those, that wait for the disk. 1 to 256; default 16.
    pub pool_threads: usize,
    /// Durability of writes that name none. Default `interval`.
    pub durability: DurabilityLevel,
    /// Milliseconds within which a sync is started for `interval`. Default 100.
    pub interval_ms: u32,
    /// What `Retry-After` says on a 503. Default 1.
    pub retry_after_secs: u32,
    /// Seconds between log lines of figures; 0: none. To 86,400; default 30.
    pub log_interval_secs: u32,
    /// Listen on addresses other machines can reach, though nothing guards them. Default false.
    pub allow_insecure: bool,
    /// Names that a Host may have on loopback, beside `localhost` and addresses: those by which a proxy on
    /// this machine is asked. Without ports. Default none.
    pub allowed_hosts: Vec<String>,
    /// What requests to the admin listener must bring; health is answered without. An address that other
    /// machines can reach needs one. Default none.
    #[serde(skip)]
    pub admin_token: Option<AdminToken>,
    /// Where and for whom S3 is served; needs a file store. Default nowhere.
    #[serde(skip)]
    pub s3: Option<S3Options>,
    /// Limits on sizes and numbers.
    pub limits: Limits,
    /// Limits on time.
    pub timeouts: Timeouts,
}

/// Where and for whom S3 is served.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// Where it is served; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Who is let in. None: see `allow_anonymous`.
    pub credentials: Vec<S3Credentials>,
    /// Without credentials let everybody in who reaches the address, which must then be loopback.
    pub allow_anonymous: bool,
    /// Days after which an upload in parts that was not completed is taken away. 1 to 3,650; default 7.
    pub upload_days_max: u32,
}

impl S3Options {
    /// For nobody, at this address.
    pub fn new(listen: SocketAddr) -> S3Options {
        S3Options { listen, credentials: Vec::new(), allow_anonymous: false, upload_days_max: 7 }
    }
}

/// An access key and the secret that its requests are signed with, which is never shown.
#[derive(Clone)]
pub struct S3Credentials {
    access_key: String,
    secret_key: String,
}

impl S3Credentials {
    /// An access key of 3 to 128 and a secret key of 8 to 128 visible ASCII characters.
    pub fn new(access_key: &str, secret_key: &str) -> Result<S3Credentials> {
        let is_plain = |key: &str, least: usize| {
            (least..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
        };
        // A credential in a request names the access key up to a slash.
        if !is_plain(access_key, 3) || access_key.contains('/') || !is_plain(secret_key, 8) {
            let what =
                "an S3 access key has 3 to 128, a secret key 8 to 128 visible ASCII characters";
            return Err(Error::InvalidOption(what.to_owned()));
        }
        Ok(S3Credentials { access_key: access_key.to_owned(), secret_key: secret_key.to_owned() })
    }

    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.access_key, &self.secret_key)
    }
}

impl std::fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Limits on sizes and numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longest request line; a longer one is answered 414. Default 16 KiB.
    pub request_line_bytes_max: usize,
    /// Most header bytes of a request; more are answered 431. Default 16 KiB.
    pub header_bytes_max: usize,
    /// Most header fields of a request; more are answered 431. 1 to 1,000; default 64.
    pub header_count_max: usize,
    /// Longest value; a longer one is answered 413. To 256 MiB; default 64 MiB.
    pub value_bytes_max: u64,
    /// Longest body of a batch; a longer one is answered 413. Default 16 MiB.
    pub batch_bytes_max: u64,
    /// Most operations of a batch. Default 1,000.
    pub batch_operations_max: usize,
    /// Most connections. Default 1,024.
    pub connections_max: usize,
    /// Most connections from one address that isn't loopback. At least 1; default 256.
    pub connections_per_address_max: usize,
    /// Most requests that wait for a body, the disk or the reader of a stream at once; more are answered 503. One
    /// address that isn't loopback has at most half of them with bodies and streams. Default 256.
    pub in_flight_max: usize,
    /// Memory for bodies being received, and for values above 64 KiB while they are sent; what goes beyond it is
    /// answered 503. One address that isn't loopback has at most half of it, or the longest body. From 64 KiB; default
    /// 256 MiB.
    pub body_memory_bytes_max: usize,
    /// A value up to this size is written by the thread that read it. Default 64 KiB.
    pub inline_value_bytes_max: usize,
}

/// Limits on time. A limit is noticed up to a quarter of the shortest one late.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From a request's first byte (for the first request, from the connection) to the end of its head. Default 10 s.
    pub header_ms: u64,
    /// Between requests of a connection. Default 60 s.
    pub keep_alive_ms: u64,
    /// Without a byte received of a body that is waited for, or taken of an answer, or without memory for the
    /// next value of a range. Default 30 s.
    pub body_idle_ms: u64,
    /// Least bytes a second, over each such time, of a body received or an answer taken. Default 1 KiB.
    pub body_rate_bytes_min: u64,
    /// For requests under way when the server is asked to stop. Default 25 s.
    pub drain_ms: u64,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityLevel {
    /// Survives the process being killed.
    Os,
    /// The same, and a sync is started within `interval_ms`.
    Interval,
    /// Acknowledged after the sync; survives power loss.
    Sync,
}

impl DurabilityLevel {
    /// The name in headers and settings.
    pub fn name(self) -> &'static str {
        match self {
            DurabilityLevel::Os => "os",
            DurabilityLevel::Interval => "interval",
            DurabilityLevel::Sync => "sync",
        }
    }

    /// The level of this name.
    pub fn from_name(name: &str) -> Option<DurabilityLevel> {
        match name {
            "os" => Some(DurabilityLevel::Os),
            "interval" => Some(DurabilityLevel::Interval),
            "sync" => Some(DurabilityLevel::Sync),
            _ => None,
        }
    }

    /// The engine's word for the level.
    pub fn durability(self, interval_ms: u32) -> Durability {
        match self {
            DurabilityLevel::Os => Durability::Os,
            DurabilityLevel::Interval => Durability::Interval(interval_ms),
            DurabilityLevel::Sync => Durability::Sync,
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9080))),
            threads: 0,
            pool_threads: 16,
            durability: DurabilityLevel::Interval,
            interval_ms: 100,
            retry_after_secs: 1,
            log_interval_secs: 30,
            allow_insecure: false,
            allowed_hosts: Vec::new(),
            admin_token: None,
            s3: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_line_bytes_max: 16 << 10,
            header_bytes_max: 16 << 10,
            header_count_max: 64,
            value_bytes_max: 64 << 20,
            batch_bytes_max: 16 << 20,
            batch_operations_max: 1000,
            connections_max: 1024,
            connections_per_address_max: 256,
            in_flight_max: 256,
            body_memory_bytes_max: 256 << 20,
            inline_value_bytes_max: 64 << 10,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            header_ms: 10_000,
            keep_alive_ms: 60_000,
            body_idle_ms: 30_000,
            body_rate_bytes_min: 1 << 10,
            drain_ms: 25_000,
        }
    }
}

impl ServerOptions {
    /// Refuses settings out of their documented ranges.
    pub fn check(&self) -> Result<()> {
        fn within(name: &str, value: u64, min: u64, max: u64) -> Result<()> {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Error::InvalidOption(format!("{name} is {value}, must be {min} to {max}")))
        }
        for host in &self.allowed_hosts {
            let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_of_a_name) {
                return Err(Error::InvalidOption(format!(
                    "allowed_hosts has {host:?}, which is not a name such as books.example, without \
                     scheme and port"
                )));
            }
        }
        let (limits, timeouts) = (&self.limits, &self.timeouts);
        within("threads", self.threads as u64, 0, 1024)?;
        within("pool_threads", self.pool_threads as u64, 1, 256)?;
        within("interval_ms", u64::from(self.interval_ms), 1, 3_600_000)?;
        within("log_interval_secs", u64::from(self.log_interval_secs), 0, 86_400)?;
        let head_max = 64 << 10;
        within("request_line_bytes_max", limits.request_line_bytes_max as u64, 64, head_max)?;
        within("header_bytes_max", limits.header_bytes_max as u64, 64, head_max)?;
        within("header_count_max", limits.header_count_max as u64, 1, 1000)?;
        within("value_bytes_max", limits.value_bytes_max, 0, VALUE_BYTES_MAX as u64)?;
        within("batch_bytes_max", limits.batch_bytes_max, 1, VALUE_BYTES_MAX as u64)?;
        within("batch_operations_max", limits.batch_operations_max as u64, 1, 100_000)?;
        within("connections_max", limits.connections_max as u64, 1, 1 << 20)?;
        let per_address_max = limits.connections_per_address_max as u64;
        within("connections_per_address_max", per_address_max, 1, 1 << 20)?;
        within("in_flight_max", limits.in_flight_max as u64, 1, 1 << 20)?;
        // With none every write would be answered 503, and every larger value.
        let memory = limits.body_memory_bytes_max as u64;
        within("body_memory_bytes_max", memory, BODY_MEMORY_BYTES_MIN, u64::MAX)?;
        for (name, value) in [
            ("header_ms", timeouts.header_ms),
            ("keep_alive_ms", timeouts.keep_alive_ms),
            ("body_idle_ms", timeouts.body_idle_ms),
        ] {
            within(name, value, 20, 86_400_000)?;
        }
        if let Some(s3) = &self.s3 {
            within("s3_upload_days_max", u64::from(s3.upload_days_max), 1, 3650)?;
        }
        within("drain_ms", timeouts.drain_ms, 0, 86_400_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        ServerOptions::default().check().unwrap();
    }

    #[test]
    fn settings_keep_defaults_for_what_is_not_named() {
        let options: ServerOptions =
            serde_json::from_str(r#"{"listen":"127.0.0.1:1","limits":{"in_flight_max":7}}"#)
                .unwrap();
        assert_eq!(options.listen.port(), 1);
        assert_eq!(options.limits.in_flight_max, 7);
        assert_eq!(options.limits.connections_max, 1024);
    }

    #[test]
    fn limits_that_let_nothing_in_are_refused() {
        let check = |limits: &str| {
            let options: ServerOptions =
                serde_json::from_str(&format!("{{\"limits\":{{{limits}}}}}")).unwrap();
            options.check().map_err(|error| error.to_string())
        };
        for (name, least) in [
            ("connections_max", 1),
            ("connections_per_address_max", 1),
            ("in_flight_max", 1),
            ("body_memory_bytes_max", BODY_MEMORY_BYTES_MIN),
        ] {
            check(&format!("\"{name}\":{least}")).unwrap();
            let refused = check(&format!("\"{name}\":{}", least - 1)).unwrap_err();
            assert!(refused.contains(&format!("{name} is {}", least - 1)), "{refused}");
        }
    }

    #[test]
    fn allowed_hosts_are_names() {
        let check = |host: &str| {
            let allowed_hosts = vec!["books.example".to_owned(), host.to_owned()];
            ServerOptions { allowed_hosts, ..ServerOptions::default() }.check()
        };
        for host in ["kv", "kv.books.example.", "xn--bcher-kva.example", "my_host"] {
            check(host).unwrap();
        }
        for host in ["", "http://books.example", "books.example:8080", "*.example", "[::1]"] {
            assert!(check(host).is_err(), "{host}");
        }
    }

    #[test]
    fn unknown_setting_is_refused() {
        assert!(serde_json::from_str::<ServerOptions>(r#"{"lisen":"127.0.0.1:1"}"#).is_err());
        assert!(serde_json::from_str::<ServerOptions>(r#"{"limits":{"keys":1}}"#).is_err());
    }
}
