//! What can go wrong in starting or running the server. Failed requests are answers, not errors.

use std::io;
use std::net::SocketAddr;

/// The server's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way the server can fail to start or run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address can't be listened on, most often because another server has the port. Choose another.
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The address is reachable from other machines and nothing guards it. Listen on loopback, or
    /// say that this is meant.
    Insecure {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The admin listener's address is reachable from other machines, and there is no token. Give one, or
    /// listen on loopback.
    NoAdminToken {
        /// The address asked for.
        address: SocketAddr,
    },
    /// S3 was to be served without credentials. Give some, or, on loopback, say that this is meant.
    NoS3Credentials {
        /// The address asked for.
        address: SocketAddr,
    },
    /// A setting is out of its documented range. Fix the setting.
    InvalidOption(String),
    /// The system refused a thread, a socket or an event queue. Raise the limit it names.
    Io {
        /// What was being made.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Bind { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "cannot listen on {address}: another server has this port")
            }
            Error::Bind { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Error::Insecure { address } => write!(
                f,
                "refusing to listen on {address}: other machines can reach this address, and \
                 without authentication and TLS anyone who reaches it can read and delete \
                 everything. Listen on 127.0.0.1, or set allow_insecure if that is meant"
            ),
            Error::NoAdminToken { address } => write!(
                f,
                "refusing to listen on {address} for administration: other machines can reach this \
                 address, and there is no admin token. Set admin_token, or listen on 127.0.0.1"
            ),
            Error::NoS3Credentials { address } if address.ip().to_canonical().is_loopback() => {
                write!(
                    f,
                    "refusing to serve S3 on {address} without credentials. Set s3_credentials_file, or \
                 s3_anonymous if every program on this machine may read and delete everything"
                )
            }
            Error::NoS3Credentials { address } => write!(
                f,
                "refusing to serve S3 on {address} without credentials: other machines can reach \
                 this address. Set s3_credentials_file"
            ),
            Error::InvalidOption(what) => write!(f, "invalid option: {what}"),
            Error::Io { what, source } => write!(f, "cannot make {what}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Bind { source, .. } | Error::Io { source, .. } => Some(source),
            Error::Insecure { .. }
            | Error::NoAdminToken { .. }
            | Error::NoS3Credentials { .. }
            | Error::InvalidOption(_) => None,
        }
    }
}
