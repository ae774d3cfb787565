//! The token that lets somebody see the admin listener from elsewhere.
//!
//! Invariant: it is never shown, neither in an error nor by `Debug`, and comparing takes as long for a
//! wrong token as for a right one of the same length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use crate::error::{Error, Result};

/// Fewest and most characters of a token.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// A token that requests to the admin listener must bring.
#[derive(Clone)]
pub struct AdminToken(String);

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

impl AdminToken {
    /// A token of 16 to 256 visible ASCII characters.
    pub fn new(token: &str) -> Result<AdminToken> {
        if LENGTHS.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(AdminToken(token.to_owned()));
        }
        Err(Error::InvalidOption(
            "the admin token must have 16 to 256 visible ASCII characters".to_owned(),
        ))
    }

    /// Whether a request brings the token: as `Bearer`, or as the password of `Basic`, which is what a
    /// browser asks its user for.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(AUTHORIZATION).map(|value| value.as_bytes()) else {
            return false;
        };
        let after = |scheme: &str| {
            let (name, rest) = given.split_at_checked(scheme.len())?;
            name.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
        };
        if let Some(token) = after("Bearer ") {
            return self.equals(token);
        }
        let Some(credentials) = after("Basic ").and_then(|text| STANDARD.decode(text).ok()) else {
            return false;
        };
        let colon = credentials.iter().position(|&byte| byte == b':');
        colon.is_some_and(|at| self.equals(&credentials[at + 1..]))
    }

    fn equals(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn admits(authorization: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        AdminToken::new(TOKEN).unwrap().is_in(&headers)
    }

    #[test]
    fn the_token_is_a_bearer_or_the_password_of_anybody() {
        assert!(admits(&format!("Bearer {TOKEN}")));
        assert!(admits(&format!("bearer {TOKEN}")));
        for user in ["", "anybody"] {
            assert!(admits(&format!("Basic {}", STANDARD.encode(format!("{user}:{TOKEN}")))));
        }
        let wrong = STANDARD.encode(format!("{TOKEN}:wrong"));
        for other in ["", "Bearer", "Bearer ", "Bearer 0123456789abcdeF", "Basic !", "Digest x"] {
            assert!(!admits(other), "{other}");
        }
        assert!(!admits(&format!("Basic {wrong}")));
        assert!(!AdminToken::new(TOKEN).unwrap().is_in(&HeaderMap::new()));
    }

    #[test]
    fn a_short_token_is_refused_and_none_is_shown() {
        for token in ["", "short", "0123456789 abcdef", &"x".repeat(257)] {
            assert!(AdminToken::new(token).is_err(), "{token}");
        }
        assert!(!format!("{:?}", AdminToken::new(TOKEN).unwrap()).contains(TOKEN));
    }
}
