//! Large values on their way to clients: counted from before they are read until their last byte is gone.
//!
//! hyper takes the bytes of a reply at once and holds them while the client takes its time; so what counts
//! them is owned by the bytes. Values up to `SMALL_VALUE_BYTES_MAX` are bounded by the number of connections.

use std::sync::Arc;

use bytes::Bytes;
use tallybook::error::{Error, Result};

use crate::admission::{Quota, Share};

/// A value up to this size isn't counted.
pub(crate) const SMALL_VALUE_BYTES_MAX: usize = 64 << 10;

/// What `read` answers when it is told how long a value may be, with a share of the quota of its length if
/// that is large; `Error::Longer` when there is none.
#[inline]
pub(crate) fn read_within<T>(
    quota: &Arc<Quota>,
    mut read: impl FnMut(u64) -> Result<T>,
) -> Result<(T, Option<Share>)> {
    match read(SMALL_VALUE_BYTES_MAX as u64) {
        Err(Error::Longer { length }) => read_large(quota, length, read),
        read => Ok((read?, None)),
    }
}

#[cold]
fn read_large<T>(
    quota: &Arc<Quota>,
    mut length: u64,
    mut read: impl FnMut(u64) -> Result<T>,
) -> Result<(T, Option<Share>)> {
    loop {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let share = quota.try_take_at_most(bytes).ok_or(Error::Longer { length })?;
        match read(length) {
            // Another value may have come under the key since its length was asked.
            Err(Error::Longer { length: longer }) => length = longer,
            read => return Ok((read?, Some(share))),
        }
    }
}

/// A value that was read, with which its share is given back if it has one.
pub(crate) fn shared(value: Bytes, share: Option<Share>) -> Bytes {
    match share {
        None => value,
        Some(share) => counted(value, share),
    }
}

/// The same bytes, with which `share` is given back.
pub(crate) fn counted<S: Send + 'static>(bytes: Bytes, share: S) -> Bytes {
    struct Counted<S> {
        bytes: Bytes,
        _share: S,
    }
    impl<S> AsRef<[u8]> for Counted<S> {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(Counted { bytes, _share: share })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads values whose lengths come in this order.
    fn read<const N: usize>(quota: &Arc<Quota>, lengths: [u64; N]) -> Result<(u64, Option<Share>)> {
        let mut lengths = lengths.into_iter();
        read_within(quota, |max| {
            let length = lengths.next().expect("no more reads than lengths");
            if length <= max { Ok(length) } else { Err(Error::Longer { length }) }
        })
    }

    #[test]
    fn small_value_is_read_at_once_and_a_large_one_when_it_is_counted() {
        let quota = Quota::new(300_000);
        assert!(read(&quota, [65_536]).unwrap().1.is_none());
        let (_, share) = read(&quota, [65_537; 2]).unwrap();
        assert_eq!(quota.used(), 65_537);
        assert!(matches!(read(&quota, [250_000]), Err(Error::Longer { length: 250_000 })));
        drop(share);
        let (length, share) = read(&quota, [100_000, 200_000, 200_000]).unwrap();
        assert_eq!((length, quota.used()), (200_000, 200_000));
        drop(share);
        let (_, share) = read(&quota, [1 << 40; 2]).unwrap();
        assert_eq!(quota.used(), 300_000);
        drop(share);
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn share_is_given_back_with_the_last_slice() {
        let quota = Quota::new(10);
        let bytes = counted(Bytes::from_static(b"0123456789"), quota.try_take(10).unwrap());
        let part = bytes.slice(3..5);
        drop(bytes);
        assert_eq!((&part[..], quota.used()), (&b"34"[..], 10));
        drop(part);
        assert_eq!(quota.used(), 0);
    }
}
