//! Notices connections that have stopped: late heads, idle connections, bodies and answers that
//! crawl.
//!
//! It looks at a connection's counts a few times within the shortest limit instead of reading the
//! clock at every request; so a limit is noticed up to a quarter of that late, and costs nothing on
//! the way. hyper's own header timeout would count idle time too and allocates for each request.

use std::time::{Duration, Instant};

use crate::link::{Expired, Link};
use crate::options::Timeouts;

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first request.
    First,
    /// The rest of the head after this many.
    Head(u64),
    /// The next request after this many.
    Idle(u64),
    /// The body of the request with this number.
    Body(u64),
    /// The peer, to take what is sent.
    Sending,
    /// Ourselves.
    Working,
}

/// Watches one connection.
#[derive(Debug)]
pub(crate) struct Watchdog {
    phase: Phase,
    /// When the phase, or its current window of measuring the rate, began, and at what count.
    since: Instant,
    base: u64,
    /// When the count last moved, and to what.
    moved: Instant,
    count: u64,
}

/// How often to look.
pub(crate) fn period(timeouts: &Timeouts) -> Duration {
    let shortest = timeouts.header_ms.min(timeouts.keep_alive_ms).min(timeouts.body_idle_ms);
    Duration::from_millis((shortest / 4).clamp(5, 5_000))
}

impl Watchdog {
    pub(crate) fn new(now: Instant) -> Watchdog {
        Watchdog { phase: Phase::First, since: now, base: 0, moved: now, count: 0 }
    }

    /// Looks at the connection as of `now`.
    pub(crate) fn look(
        &mut self,
        link: &Link,
        timeouts: &Timeouts,
        now: Instant,
    ) -> Option<Expired> {
        let phase = phase(link);
        let count =
            if phase == Phase::Sending { link.bytes_out.get() } else { link.bytes_in.get() };
        if phase != self.phase {
            // The first head's time runs from the connection's start.
            let late = self.phase == Phase::First && phase == Phase::Head(0);
            let since = if late { self.since } else { now };
            *self = Watchdog { phase, since, base: count, moved: now, count };
        }
        if count != self.count {
            (self.moved, self.count) = (now, count);
        }
        let in_phase = now - self.since;
        let over = |limit_ms: u64| in_phase >= Duration::from_millis(limit_ms);
        match phase {
            Phase::Working => None,
            Phase::Head(_) => over(timeouts.header_ms).then_some(Expired::MidRequest),
            Phase::First => over(timeouts.header_ms).then_some(Expired::Silently),
            Phase::Idle(_) => over(timeouts.keep_alive_ms).then_some(Expired::Silently),
            Phase::Body(_) => self.crawls(timeouts, now).then_some(Expired::MidRequest),
            Phase::Sending => self.crawls(timeouts, now).then_some(Expired::Silently),
        }
    }

    /// Whether nothing moved for the idle time, or too little over it.
    fn crawls(&mut self, timeouts: &Timeouts, now: Instant) -> bool {
        let idle = Duration::from_millis(timeouts.body_idle_ms);
        if now - self.moved >= idle {
            return true;
        }
        let window = now - self.since;
        if window < idle {
            return false;
        }
        let moved_bytes = (self.count - self.base) as f64;
        (self.since, self.base) = (now, self.count);
        moved_bytes < timeouts.body_rate_bytes_min as f64 * window.as_secs_f64()
    }
}

fn phase(link: &Link) -> Phase {
    let heads = link.heads.get();
    if link.write_blocked.get() {
        Phase::Sending
    } else if link.answered.get() < heads || link.streaming.get() {
        if awaits_body(link) { Phase::Body(heads) } else { Phase::Working }
    } else if link.in_head.get() {
        Phase::Head(heads)
    } else if heads == 0 {
        Phase::First
    } else {
        Phase::Idle(heads)
    }
}

/// Whether the request under way waits for its own body, and for the client to send it: behind it the
/// body of a later one may have begun, and while its handler takes nothing, hyper reads nothing.
fn awaits_body(link: &Link) -> bool {
    let is_under_way = link.answered.get() < link.started.get();
    let is_the_last = link.started.get() == link.heads.get();
    is_under_way && is_the_last && link.in_body.get() && link.read_blocked.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeouts() -> Timeouts {
        Timeouts {
            header_ms: 100,
            keep_alive_ms: 400,
            body_idle_ms: 200,
            body_rate_bytes_min: 1000,
            drain_ms: 0,
        }
    }

    /// Looks every 25 ms for a second; `each` changes the connection before each look. Answers when it expired.
    fn watch(link: &Link, mut each: impl FnMut(u64)) -> Option<(u64, Expired)> {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(start);
        (25..1000).step_by(25).find_map(|ms| {
            each(ms);
            let now = start + Duration::from_millis(ms);
            watchdog.look(link, &timeouts(), now).map(|expired| (ms, expired))
        })
    }

    #[test]
    fn trickled_head_expires_from_the_connections_start() {
        let link = Link::default();
        let expired = watch(&link, |ms| {
            link.in_head.set(ms >= 50);
            Link::add(&link.bytes_in, 1);
        });
        assert_eq!(expired, Some((100, Expired::MidRequest)));
        assert_eq!(watch(&Link::default(), |_| ()), Some((100, Expired::Silently)));
    }

    #[test]
    fn idle_connection_expires_and_a_busy_one_does_not() {
        let link = Link::default();
        let next = || {
            for count in [&link.heads, &link.started, &link.answered] {
                Link::add(count, 1);
            }
        };
        assert_eq!(
            watch(&link, |ms| if ms <= 200 {
                next()
            }),
            Some((600, Expired::Silently))
        );
        assert_eq!(watch(&link, |_| next()), None);
    }

    #[test]
    fn crawling_body_expires_and_a_steady_one_does_not() {
        let body = |bytes_per_look: u64| {
            let link = Link::default();
            link.heads.set(1);
            link.started.set(1);
            link.in_body.set(true);
            link.read_blocked.set(true);
            watch(&link, |_| Link::add(&link.bytes_in, bytes_per_look))
        };
        assert!(matches!(body(0), Some((225, Expired::MidRequest))));
        assert!(matches!(body(1), Some((225, Expired::MidRequest))));
        assert_eq!(body(30), None);
    }

    #[test]
    fn body_that_we_do_not_take_is_not_held_against_the_client() {
        let link = Link::default();
        link.heads.set(1);
        link.started.set(1);
        link.in_body.set(true);
        assert_eq!(watch(&link, |_| ()), None);
        // From when it is taken again, its time runs anew.
        let expired = watch(&link, |ms| link.read_blocked.set(ms > 500));
        assert_eq!(expired, Some((725, Expired::MidRequest)));
    }

    #[test]
    fn body_of_a_later_request_waits_for_the_one_under_way() {
        let link = Link::default();
        link.heads.set(2);
        link.started.set(1);
        link.in_body.set(true);
        link.read_blocked.set(true);
        assert_eq!(watch(&link, |_| ()), None);
        let expired = watch(&link, |ms| {
            if ms == 500 {
                link.answered.set(1);
                link.started.set(2);
            }
        });
        assert_eq!(expired, Some((700, Expired::MidRequest)));
    }

    #[test]
    fn reader_that_takes_nothing_expires_and_slow_work_does_not() {
        let link = Link::default();
        link.heads.set(1);
        link.started.set(1);
        assert_eq!(watch(&link, |_| ()), None);
        link.write_blocked.set(true);
        assert!(matches!(watch(&link, |_| ()), Some((_, Expired::Silently))));
    }
}
