//! Which journal segments are worth collecting: a pure function from sizes to numbers.
//!
//! A segment is worth collecting when at most a set share of it is live. When the store is idle the
//! deadest ones go, whatever their share, until all segments together are near their live bytes. With a
//! share of 0 nothing is copied: only segments without anything live go.

/// When idle, closed segments are collected until they take at most this many times their live bytes.
const IDLE_SPACE_RATIO: f64 = 1.2;

/// A segment that is more live than this is never worth its copy.
const LIVE_SHARE_MAX: f64 = 0.95;

/// A closed segment, as collection sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentShare {
    /// Its number.
    pub number: u64,
    /// Bytes it takes on disk.
    pub bytes: u64,
    /// Bytes of it that the tree refers to.
    pub live_bytes: u64,
}

impl SegmentShare {
    fn live_share(&self) -> f64 {
        self.kept_bytes() as f64 / self.bytes.max(1) as f64
    }

    /// What of it is copied.
    fn kept_bytes(&self) -> u64 {
        self.live_bytes.min(self.bytes)
    }
}

/// Dead bytes in the segments that are worth collecting: what collection has before it.
pub fn backlog(segments: &[SegmentShare], live_ratio: f64) -> u64 {
    let worthwhile = segments.iter().filter(|segment| segment.live_share() <= live_ratio);
    worthwhile.map(|segment| segment.bytes.saturating_sub(segment.live_bytes)).sum()
}

/// The segments to collect together into one of at most about `output_bytes_max` and `room_bytes`; empty for none.
///
/// One that alone is more than there is room for comes behind all others: they may make the room.
pub fn pick(
    segments: &[SegmentShare],
    live_ratio: f64,
    output_bytes_max: u64,
    room_bytes: u64,
    idle: bool,
) -> Vec<u64> {
    let mut by_share: Vec<_> = segments.to_vec();
    by_share.sort_by(|a, b| {
        let [a_fits, b_fits] = [a, b].map(|segment| segment.kept_bytes() <= room_bytes);
        let by_share = a.live_share().total_cmp(&b.live_share());
        b_fits.cmp(&a_fits).then(by_share).then(a.number.cmp(&b.number))
    });
    let output_bytes_max = output_bytes_max.min(room_bytes);
    let live: u64 = segments.iter().map(SegmentShare::kept_bytes).sum();
    let mut total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut output_bytes = 0;
    let mut picked = Vec::new();
    for segment in by_share {
        let wasteful = idle && live_ratio > 0.0 && total as f64 > live as f64 * IDLE_SPACE_RATIO;
        let share = segment.live_share();
        if share > live_ratio && !(wasteful && share < LIVE_SHARE_MAX) {
            continue;
        }
        let kept = segment.kept_bytes();
        if !picked.is_empty() && output_bytes + kept > output_bytes_max {
            break;
        }
        output_bytes += kept;
        total -= segment.bytes - kept;
        picked.push(segment.number);
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(segments: &[(u64, u64, u64)], idle: bool, expected: &[u64]) {
        check_in(u64::MAX, segments, idle, expected);
    }

    fn check_in(room_bytes: u64, segments: &[(u64, u64, u64)], idle: bool, expected: &[u64]) {
        let segments: Vec<_> = segments
            .iter()
            .map(|&(number, bytes, live_bytes)| SegmentShare { number, bytes, live_bytes })
            .collect();
        assert_eq!(pick(&segments, 0.5, 100, room_bytes, idle), expected);
    }

    #[test]
    fn mostly_dead_segments_go_deadest_first() {
        check(&[(1, 100, 60), (2, 100, 40), (3, 100, 10)], false, &[3, 2]);
        check(&[(1, 100, 60)], false, &[]);
        check(&[], true, &[]);
    }

    #[test]
    fn a_share_of_zero_copies_nothing() {
        let segment = |number, live_bytes| SegmentShare { number, bytes: 100, live_bytes };
        assert_eq!(pick(&[segment(1, 10), segment(2, 0)], 0.0, 100, 100, true), [2]);
    }

    #[test]
    fn one_output_holds_what_is_collected() {
        check(&[(1, 200, 90), (2, 200, 90)], false, &[1]);
        check(&[(1, 900, 300)], false, &[1]);
    }

    /// The deadest found no room, and was the first again each time: those that would have made some never had a turn.
    #[test]
    fn a_segment_without_room_for_its_copy_waits_for_those_that_have_it() {
        check_in(100, &[(1, 640, 128), (2, 160, 40)], false, &[2]);
        check_in(200, &[(1, 640, 128), (2, 160, 40)], false, &[1]);
        check_in(30, &[(1, 160, 40), (2, 640, 128)], false, &[2]);
        for idle in [false, true] {
            check_in(100, &[(1, 640, 128), (2, 100, 97)], idle, &[1]);
        }
    }

    #[test]
    fn the_backlog_is_what_is_dead_where_collecting_is_worth_it() {
        let shares = [(100, 60), (100, 40), (100, 0), (100, 120)];
        let shares =
            shares.map(|(bytes, live_bytes)| SegmentShare { number: 1, bytes, live_bytes });
        assert_eq!(backlog(&shares, 0.5), 160);
        assert_eq!(backlog(&shares, 0.0), 100);
    }

    #[test]
    fn an_idle_store_is_brought_near_its_live_bytes() {
        check(&[(1, 100, 60), (2, 100, 98)], true, &[1]);
        check(&[(1, 100, 90), (2, 100, 98)], true, &[]);
    }
}
