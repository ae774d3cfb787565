//! The last day of the server, in about a megabyte: what the dashboard draws.
//!
//! 1. Once a second a [`Look`] is taken: counters, histograms and sizes as they stand.
//! 2. For each [`Span`] whose interval ends then, a row is made of the difference between this look
//!    and the one at the interval's start. So rates, means and percentiles of a long interval are its
//!    own, never averages of shorter ones; a percentile comes from the interval's histogram.
//! 3. Sizes are those at the interval's end. What comes and goes within it ([`Gauges`]) is the
//!    largest of the interval's looks.
//!
//! Invariant: memory is bounded: [`ROWS_MAX`] rows of 4 bytes a column (0.8 MB), and one look for each
//! span (at most 0.4 MB each, when latencies from nanoseconds to a day were met).

mod look;
mod ring;
mod row;

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::now_ms;
use crate::engine::Engine;
use crate::meter::Meter;

pub(crate) use look::Gauges;
use look::Look;
use ring::{Column, Ring};
use row::Row;

/// Time between looks.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// How far back a chart goes; each has rows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Minutes,
    Hour,
    Day,
}

impl Span {
    /// Every one.
    pub(crate) const ALL: [Span; 3] = [Span::Minutes, Span::Hour, Span::Day];

    /// Its name in requests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Span::Minutes => "5m",
            Span::Hour => "1h",
            Span::Day => "24h",
        }
    }

    /// The one of this name.
    pub(crate) fn from_name(name: &str) -> Option<Span> {
        Span::ALL.into_iter().find(|span| span.name() == name)
    }

    /// Ticks that one row covers.
    pub(crate) const fn interval_ticks(self) -> u64 {
        match self {
            Span::Minutes => 1,
            Span::Hour => 10,
            Span::Day => 120,
        }
    }

    /// Rows kept: the span, and a little over so that a chart's left edge is never bare.
    const fn rows_max(self) -> usize {
        match self {
            Span::Minutes => 310,
            Span::Hour => 370,
            Span::Day => 730,
        }
    }
}

/// Rows kept in all.
#[cfg(test)]
const ROWS_MAX: usize = Span::Minutes.rows_max() + Span::Hour.rows_max() + Span::Day.rows_max();

/// What was seen, by span.
#[derive(Debug)]
pub(crate) struct History {
    /// Milliseconds since the Unix epoch; tells one run of a server from the next.
    started_ms: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ticks: u64,
    names: Vec<String>,
    series: [Series; Span::ALL.len()],
}

/// The rows of one span, and where the one under way began.
#[derive(Debug)]
struct Series {
    rows: Ring,
    from: Option<Look>,
    /// The largest of each gauge since `from`.
    peaks: Gauges,
}

/// What a page that has every row before `since` lacks, in columns.
#[derive(Debug, Serialize)]
pub(crate) struct Excerpt<'a> {
    /// Which run of a server this is; another value makes every sequence number void.
    pub(crate) run: u64,
    /// Seconds a row covers.
    pub(crate) interval_s: u64,
    /// The number `since` that continues this excerpt.
    pub(crate) next: u64,
    /// When each row's interval ended, in milliseconds since the Unix epoch.
    pub(crate) times: Vec<u64>,
    /// The name of each column.
    pub(crate) names: &'a [String],
    /// The rows' values, by column.
    pub(crate) columns: Vec<Column>,
    /// The values of the last second, by column, whatever the span.
    pub(crate) latest: &'a [f32],
}

impl History {
    /// A history that begins now.
    pub(crate) fn new() -> History {
        let series = |span: Span| Series {
            rows: Ring::new(span.rows_max()),
            from: None,
            peaks: Gauges::default(),
        };
        let names = Row::between(&Look::default(), &Look::default(), &Gauges::default()).names();
        let state = State { ticks: 0, names, series: Span::ALL.map(series) };
        History { started_ms: now_ms(), state: Mutex::new(state) }
    }

    /// Takes a look. The first only says from where the rows begin.
    pub(crate) fn look<E: Engine>(&self, engine: &E, meter: &Meter, gauges: Gauges) {
        self.add(Look::take(engine, meter, Instant::now()), &gauges, now_ms());
    }

    fn add(&self, look: Look, gauges: &Gauges, at_ms: u64) {
        let mut state = self.state.lock();
        let is_first = state.ticks == 0 && state.series[0].from.is_none();
        if !is_first {
            state.ticks += 1;
        }
        let ticks = state.ticks;
        for (span, series) in Span::ALL.into_iter().zip(&mut state.series) {
            series.peaks.raise_to(gauges);
            let Some(from) = &series.from else {
                series.from = Some(look.clone());
                continue;
            };
            if ticks.is_multiple_of(span.interval_ticks()) {
                let row = Row::between(from, &look, &series.peaks);
                series.rows.push(at_ms, row.values());
                series.from = Some(look.clone());
                series.peaks = Gauges::default();
            }
        }
    }

    /// The failure of background work that is being retried, as of the last look.
    pub(crate) fn background_error(&self) -> Option<String> {
        let state = self.state.lock();
        let last = state.series[Span::Minutes as usize].from.as_ref()?;
        last.stats.background_error.clone()
    }

    /// Gives `respond` the rows of `span` from number `since` on: those that are still held.
    pub(crate) fn excerpt<T>(
        &self,
        span: Span,
        since: u64,
        respond: impl FnOnce(&Excerpt<'_>) -> T,
    ) -> T {
        let state = self.state.lock();
        let rows = &state.series[span as usize].rows;
        let (times, columns) = rows.columns_since(since, state.names.len());
        respond(&Excerpt {
            run: self.started_ms,
            interval_s: span.interval_ticks() * TICK.as_secs(),
            next: rows.next(),
            times,
            names: &state.names,
            columns,
            latest: state.series[Span::Minutes as usize].rows.last().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Operation;

    /// A history of looks a second apart at a meter alone.
    struct Watched {
        history: History,
        meter: Meter,
        start: Instant,
        seconds: u64,
    }

    impl Watched {
        fn new() -> Watched {
            let start = Instant::now();
            let watched =
                Watched { history: History::new(), meter: Meter::default(), start, seconds: 0 };
            watched.add(Gauges::default());
            watched
        }

        fn add(&self, gauges: Gauges) {
            let at = self.start + Duration::from_secs(self.seconds);
            let look = Look { at: Some(at), traffic: self.meter.traffic(), ..Look::default() };
            self.history.add(look, &gauges, 1_000_000 + self.seconds * 1000);
        }

        fn second(&mut self, gauges: Gauges) {
            self.seconds += 1;
            self.add(gauges);
        }

        /// One column from a row on, as numbers; `NaN` where there is no value.
        fn column(&self, span: Span, since: u64, name: &str) -> Vec<f32> {
            self.history.excerpt(span, since, |excerpt| {
                let at = excerpt.names.iter().position(|known| known == name).unwrap();
                match &excerpt.columns[at] {
                    Column::Same(value) => vec![*value; excerpt.times.len()],
                    Column::Each(values) => values.clone(),
                }
            })
        }
    }

    #[test]
    fn a_second_shows_what_came_in_it() {
        let mut watched = Watched::new();
        for requests in [3, 0, 5] {
            for _ in 0..requests {
                watched.meter.note(Operation::Get, 200, Duration::from_micros(100), (0, 0));
            }
            watched.meter.note_bytes((10, 1000));
            watched.second(Gauges::default());
        }
        assert_eq!(watched.column(Span::Minutes, 0, "get.rate"), [3.0, 0.0, 5.0]);
        assert_eq!(watched.column(Span::Minutes, 0, "bytes.sent"), [1000.0; 3]);
        let p50 = watched.column(Span::Minutes, 0, "get.p50");
        assert!(p50[1].is_nan(), "a second without a GET has no latency: {p50:?}");
        assert!((99.0..=101.0).contains(&p50[2]), "{p50:?}");
        assert_eq!(watched.column(Span::Minutes, 2, "get.rate"), [5.0]);
        assert!(watched.column(Span::Minutes, 3, "get.rate").is_empty());
    }

    #[test]
    fn percentiles_of_ten_seconds_are_those_of_all_their_requests() {
        // Nine seconds of one fast request, one of 91 slow ones: the mean or median of ten medians
        // would be fast, the median of the requests is slow, and so is their 99th percentile.
        let mut watched = Watched::new();
        for second in 0..10 {
            let (requests, took) = if second == 4 { (91, 50_000) } else { (1, 100) };
            for _ in 0..requests {
                watched.meter.note(Operation::Get, 200, Duration::from_micros(took), (0, 0));
            }
            watched.second(Gauges::default());
        }
        assert_eq!(watched.column(Span::Hour, 0, "get.rate"), [10.0]);
        for (name, expected) in [("get.p50", 50_000.0), ("get.max", 50_000.0)] {
            let found = watched.column(Span::Hour, 0, name)[0];
            assert!((0.99..=1.01).contains(&(found / expected)), "{name}: {found}");
        }
        let fast = watched.column(Span::Minutes, 0, "get.p50");
        assert_eq!(fast.iter().filter(|&&p50| p50 < 102.0).count(), 9);
    }

    #[test]
    fn gauges_of_a_long_interval_are_its_largest() {
        let mut watched = Watched::new();
        for second in 0..20 {
            let connections = if second == 3 { 40 } else { 2 };
            watched.second(Gauges { connections, ..Gauges::default() });
        }
        assert_eq!(watched.column(Span::Hour, 0, "connections"), [40.0, 2.0]);
    }

    #[test]
    fn history_holds_its_spans_and_no_more() {
        let mut watched = Watched::new();
        for _ in 0..86_400 + 3600 {
            watched.second(Gauges::default());
        }
        for span in Span::ALL {
            watched.history.excerpt(span, 0, |excerpt| {
                assert_eq!(excerpt.times.len(), span.rows_max());
                let covered_ms = excerpt.times.last().unwrap() - excerpt.times[0];
                assert!(covered_ms >= [300, 3600, 86_400][span as usize] * 1000);
                let interval = excerpt.interval_s * 1000;
                assert!(excerpt.times.windows(2).all(|pair| pair[1] - pair[0] == interval));
            });
        }
        let columns = watched.history.excerpt(Span::Minutes, 0, |excerpt| excerpt.names.len());
        assert!(ROWS_MAX * columns * 4 < 900_000, "{columns} columns");
    }

    #[test]
    fn a_page_from_before_a_restart_gets_what_there_is() {
        let mut watched = Watched::new();
        watched.second(Gauges::default());
        watched.history.excerpt(Span::Minutes, 1_000_000, |excerpt| {
            assert_eq!((excerpt.times.len(), excerpt.next), (0, 1));
            assert_eq!(excerpt.latest.len(), excerpt.names.len());
        });
    }
}
