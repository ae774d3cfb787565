//! What is let in: connections by number and address, requests in flight, memory for bodies and values.
//!
//! Invariant: everything counted in is counted out by dropping its guard. Nothing here waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A number that may not pass its limit.
#[derive(Debug)]
pub(crate) struct Quota {
    used: AtomicUsize,
    max: usize,
}

impl Quota {
    pub(crate) fn new(max: usize) -> Arc<Quota> {
        Arc::new(Quota { used: AtomicUsize::new(0), max })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Whether `amount` would be granted now.
    pub(crate) fn has_room_for(&self, amount: usize) -> bool {
        self.used().checked_add(amount).is_some_and(|sum| sum <= self.max)
    }

    /// Counts `amount` in, or `None` if that would pass the limit.
    pub(crate) fn try_take(self: &Arc<Self>, amount: usize) -> Option<Share> {
        let mut share = Share { quota: self.clone(), amount: 0 };
        share.try_grow(amount).then_some(share)
    }

    /// As `try_take`, but all there is for what is larger than that: it has its turn alone.
    pub(crate) fn try_take_at_most(self: &Arc<Self>, amount: usize) -> Option<Share> {
        self.try_take(amount.min(self.max))
    }
}

/// A part of a quota, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    quota: Arc<Quota>,
    amount: usize,
}

impl Share {
    /// Counts `more` in; false, and nothing changed, if that would pass the limit.
    pub(crate) fn try_grow(&mut self, more: usize) -> bool {
        let quota = &self.quota;
        let granted = quota.used.try_update(Relaxed, Relaxed, |used| {
            used.checked_add(more).filter(|&sum| sum <= quota.max)
        });
        if granted.is_ok() {
            self.amount += more;
        }
        granted.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.used.fetch_sub(self.amount, Relaxed);
    }
}

/// Open connections, in all and by address.
#[derive(Debug)]
pub(crate) struct Connections {
    all: Arc<Quota>,
    per_address_max: usize,
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

impl Connections {
    pub(crate) fn new(max: usize, per_address_max: usize) -> Arc<Connections> {
        Arc::new(Connections {
            all: Quota::new(max),
            per_address_max,
            addresses: Mutex::new(HashMap::new()),
        })
    }

    pub(crate) fn open(&self) -> usize {
        self.all.used()
    }

    /// Counts a connection in. Loopback addresses may use the whole limit.
    pub(crate) fn try_admit(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let share = self.all.try_take(1)?;
        let address = address.to_canonical();
        if !address.is_loopback() {
            let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            let count = addresses.entry(address).or_insert(0);
            if *count >= self.per_address_max {
                return None;
            }
            *count += 1;
        }
        Some(Slot { connections: self.clone(), address, _share: share })
    }
}

/// One open connection, counted out when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Arc<Connections>,
    address: IpAddr,
    _share: Share,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.address.is_loopback() {
            return;
        }
        let mut addresses =
            self.connections.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_refuses_beyond_its_limit_and_takes_back() {
        let quota = Quota::new(10);
        let mut share = quota.try_take(6).unwrap();
        assert!(!share.try_grow(5));
        assert!(share.try_grow(4));
        assert!(quota.try_take(1).is_none());
        drop(share);
        assert_eq!(quota.used(), 0);
        assert!(!quota.has_room_for(usize::MAX));
    }

    #[test]
    fn what_is_larger_than_its_quota_takes_it_alone() {
        let quota = Quota::new(10);
        let small = quota.try_take(1).unwrap();
        assert!(quota.try_take_at_most(11).is_none());
        drop(small);
        let _large = quota.try_take_at_most(11).unwrap();
        assert!(quota.try_take(1).is_none());
    }

    #[test]
    fn one_address_cannot_take_every_connection() {
        let connections = Connections::new(3, 1);
        let first = connections.try_admit("192.0.2.1".parse().unwrap()).unwrap();
        assert!(connections.try_admit("192.0.2.1".parse().unwrap()).is_none());
        assert!(connections.try_admit("::ffff:192.0.2.1".parse().unwrap()).is_none());
        let _second = connections.try_admit("192.0.2.2".parse().unwrap()).unwrap();
        drop(first);
        let _third = connections.try_admit("192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(connections.open(), 2);
    }

    #[test]
    fn loopback_may_take_every_connection() {
        let connections = Connections::new(2, 1);
        let _first = connections.try_admit("127.0.0.1".parse().unwrap()).unwrap();
        let _second = connections.try_admit("127.0.0.1".parse().unwrap()).unwrap();
        assert!(connections.try_admit("127.0.0.1".parse().unwrap()).is_none());
    }
}
