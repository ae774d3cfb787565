//! What is let in: connections by number and address, requests in flight, memory for bodies and values.
//!
//! What lasts as long as a client likes is counted for its address, too, which may have half of it: else one
//! address could have all. Loopback addresses may have all. Of IPv6, what is called an address here is a network
//! of 64 bits, as who has one of its addresses most often has them all.
//!
//! Invariant: everything counted in is counted out by dropping its guard. Nothing here waits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A number that may not pass its limit.
#[derive(Debug)]
pub(crate) struct Quota {
    used: AtomicUsize,
    max: usize,
    /// What this is a part of: all that is counted here is counted there.
    whole: Option<Arc<Quota>>,
}

impl Quota {
    pub(crate) fn new(max: usize) -> Arc<Quota> {
        Arc::new(Quota { used: AtomicUsize::new(0), max, whole: None })
    }

    fn part(self: &Arc<Self>, max: usize) -> Arc<Quota> {
        Arc::new(Quota { used: AtomicUsize::new(0), max, whole: Some(self.clone()) })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// A share of nothing, to be grown.
    pub(crate) fn take_nothing(self: &Arc<Self>) -> Share {
        Share { quota: self.clone(), amount: 0 }
    }

    /// Whether `amount` would be granted now.
    pub(crate) fn has_room_for(&self, amount: usize) -> bool {
        self.used().checked_add(amount).is_some_and(|sum| sum <= self.max)
            && self.whole.as_ref().is_none_or(|whole| whole.has_room_for(amount))
    }

    /// Counts `amount` in, or `None` if that would pass the limit.
    pub(crate) fn try_take(self: &Arc<Self>, amount: usize) -> Option<Share> {
        let mut share = self.take_nothing();
        share.try_grow(amount).then_some(share)
    }

    /// As `try_take`, but all there is for what is larger than that: it has its turn alone.
    pub(crate) fn try_take_at_most(self: &Arc<Self>, amount: usize) -> Option<Share> {
        self.try_take(amount.min(self.max))
    }

    fn try_add(&self, amount: usize) -> bool {
        let add = |used: usize| used.checked_add(amount).filter(|&sum| sum <= self.max);
        if self.used.try_update(Relaxed, Relaxed, add).is_err() {
            return false;
        }
        let granted = self.whole.as_ref().is_none_or(|whole| whole.try_add(amount));
        if !granted {
            self.used.fetch_sub(amount, Relaxed);
        }
        granted
    }

    fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(amount);
        }
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
        let granted = self.quota.try_add(more);
        if granted {
            self.amount += more;
        }
        granted
    }

    /// Counts in what is missing to this amount; false, and nothing changed, if that would pass the limit.
    pub(crate) fn try_grow_to(&mut self, amount: usize) -> bool {
        self.try_grow(amount.saturating_sub(self.amount))
    }

    /// Gives back what is beyond this amount.
    pub(crate) fn keep(&mut self, amount: usize) {
        let beyond = self.amount.saturating_sub(amount);
        self.quota.give_back(beyond);
        self.amount -= beyond;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.give_back(self.amount);
    }
}

/// What a client may hold for as long as it likes.
#[derive(Debug, Clone)]
pub(crate) struct Quotas {
    /// Requests in flight.
    pub(crate) in_flight: Arc<Quota>,
    /// Memory for bodies and large values.
    pub(crate) body_memory: Arc<Quota>,
    /// The longest body, for which any part of the memory has room.
    pub(crate) body_bytes_max: usize,
}

impl Quotas {
    /// Half of each, for one address.
    fn part(&self) -> Quotas {
        let memory_max = self.body_memory.max;
        let part_max = (memory_max / 2).max(self.body_bytes_max).min(memory_max);
        Quotas {
            in_flight: self.in_flight.part(self.in_flight.max.div_ceil(2)),
            body_memory: self.body_memory.part(part_max),
            body_bytes_max: self.body_bytes_max,
        }
    }
}

/// Open connections, in all and by address.
#[derive(Debug)]
pub(crate) struct Connections {
    all: Arc<Quota>,
    per_address_max: usize,
    quotas: Quotas,
    addresses: Mutex<HashMap<IpAddr, Address>>,
}

/// What one address has.
#[derive(Debug)]
struct Address {
    connections: usize,
    part: Quotas,
}

impl Connections {
    pub(crate) fn new(max: usize, per_address_max: usize, quotas: Quotas) -> Arc<Connections> {
        Arc::new(Connections {
            all: Quota::new(max),
            per_address_max,
            quotas,
            addresses: Mutex::new(HashMap::new()),
        })
    }

    pub(crate) fn open(&self) -> usize {
        self.all.used()
    }

    /// Counts a connection in. Loopback addresses may use the whole limit.
    pub(crate) fn try_admit(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let share = self.all.try_take(1)?;
        let address = counted_as(address);
        let mut part = None;
        if !address.is_loopback() {
            let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            let of_address = addresses
                .entry(address)
                .or_insert_with(|| Address { connections: 0, part: self.quotas.part() });
            if of_address.connections >= self.per_address_max {
                return None;
            }
            of_address.connections += 1;
            part = Some(of_address.part.clone());
        }
        Some(Slot { connections: self.clone(), address, part, _share: share })
    }
}

/// What stands for an address in counting.
fn counted_as(address: IpAddr) -> IpAddr {
    /// The part of an address that tells its network.
    const NETWORK: u128 = !(u64::MAX as u128);
    match address.to_canonical() {
        // Those of a link or a site are neighbours' own, one each.
        IpAddr::V6(address) if address.is_unicast_link_local() || address.is_unique_local() => {
            address.into()
        }
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()
        }
        address => address,
    }
}

/// One open connection, counted out when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Arc<Connections>,
    address: IpAddr,
    part: Option<Quotas>,
    _share: Share,
}

impl Slot {
    /// What its address may hold; `None` is all there is.
    pub(crate) fn part(&self) -> Option<Quotas> {
        self.part.clone()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.address.is_loopback() {
            return;
        }
        let mut addresses =
            self.connections.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_address) = addresses.get_mut(&self.address) {
            of_address.connections -= 1;
            if of_address.connections == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(in_flight_max: usize, body_memory_max: usize, body_bytes_max: usize) -> Quotas {
        Quotas {
            in_flight: Quota::new(in_flight_max),
            body_memory: Quota::new(body_memory_max),
            body_bytes_max,
        }
    }

    /// One address with 256 slow bodies had all shares of the requests in flight, and nobody else any.
    #[test]
    fn one_address_cannot_hold_more_than_half() {
        let quotas = quotas(5, 100, 60);
        let connections = Connections::new(9, 9, quotas.clone());
        let admit = |address: &str| connections.try_admit(address.parse().unwrap()).unwrap();
        let (first, second) = (admit("192.0.2.1"), admit("192.0.2.1"));
        let (first, second) = (first.part().unwrap(), second.part().unwrap());
        let other = admit("192.0.2.2").part().unwrap();
        assert!(admit("127.0.0.1").part().is_none());

        let held = [(); 3].map(|()| first.in_flight.try_take(1).unwrap());
        assert!(second.in_flight.try_take(1).is_none());
        let _others = [(); 2].map(|()| other.in_flight.try_take(1).unwrap());
        // Its own part has room, the whole has none.
        assert!(other.in_flight.try_take(1).is_none());
        assert_eq!(other.in_flight.used(), 2);
        drop(held);
        assert_eq!(quotas.in_flight.used(), 2);

        // The longest body fits.
        let held = first.body_memory.try_take(60).unwrap();
        assert!(!second.body_memory.has_room_for(1));
        assert!(other.body_memory.has_room_for(40));
        assert!(!other.body_memory.has_room_for(41));
        drop(held);
        assert_eq!(quotas.body_memory.used(), 0);
    }

    #[test]
    fn quota_refuses_beyond_its_limit_and_takes_back() {
        let quota = Quota::new(10);
        let mut share = quota.try_take(6).unwrap();
        assert!(!share.try_grow(5));
        assert!(share.try_grow(4));
        assert!(quota.try_take(1).is_none());
        share.keep(11);
        assert_eq!(quota.used(), 10);
        share.keep(3);
        assert_eq!(quota.used(), 3);
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
        let connections = Connections::new(3, 1, quotas(1, 1, 1));
        let first = connections.try_admit("192.0.2.1".parse().unwrap()).unwrap();
        assert!(connections.try_admit("192.0.2.1".parse().unwrap()).is_none());
        assert!(connections.try_admit("::ffff:192.0.2.1".parse().unwrap()).is_none());
        let _second = connections.try_admit("192.0.2.2".parse().unwrap()).unwrap();
        drop(first);
        let _third = connections.try_admit("192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(connections.open(), 2);
    }

    /// A host that is given a network of 64 bits has an address for each connection that it makes.
    #[test]
    fn addresses_of_one_ipv6_network_are_counted_as_one() {
        let connections = Connections::new(9, 2, quotas(4, 1, 1));
        let admit = |address: &str| connections.try_admit(address.parse().unwrap());
        let first = admit("2001:db8:0:1::1").unwrap();
        let second = admit("2001:db8:0:1:ffff::2").unwrap();
        assert!(admit("2001:db8:0:1::3").is_none());
        let _other = admit("2001:db8:0:2::1").unwrap();
        let parts = [&first, &second].map(|slot| slot.part().unwrap());
        let _held = [&parts[0], &parts[1]].map(|part| part.in_flight.try_take(1).unwrap());
        assert!(parts[0].in_flight.try_take(1).is_none());
        drop(first);
        let _third = admit("2001:db8:0:1::3").unwrap();
        // These are told by all their bits.
        let _loopback = [(); 3].map(|()| admit("::1").unwrap());
        assert_eq!(counted_as("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
        // Neighbours of a link or a site.
        for own in ["fe80::1:2", "fd00::3:4"] {
            let own: IpAddr = own.parse().unwrap();
            assert_eq!(counted_as(own), own);
        }
    }

    #[test]
    fn loopback_may_take_every_connection() {
        let connections = Connections::new(2, 1, quotas(1, 1, 1));
        let _first = connections.try_admit("127.0.0.1".parse().unwrap()).unwrap();
        let _second = connections.try_admit("127.0.0.1".parse().unwrap()).unwrap();
        assert!(connections.try_admit("127.0.0.1".parse().unwrap()).is_none());
    }
}
