//! Points of curves from records: percentiles from histograms, figures over time from seconds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use crate::chart::Point;
use crate::record::{Latency, Record};
use crate::statistics::median;

/// A latency in nanoseconds over percentiles, of one kind of operation over repetitions: the line is the
/// median of the repetitions at each percentile, the band reaches from the lowest to the highest. Which runs
/// count is the caller's to say.
pub fn percentile_points<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    kind: &str,
) -> Vec<Point> {
    let latencies: Vec<&Latency> = records
        .into_iter()
        .filter_map(|record| record.outcome.kinds.get(kind))
        .filter(|outcome| outcome.count > 0)
        .map(|outcome| &outcome.latency)
        .collect();
    let histograms: Option<Vec<Histogram<u64>>> =
        latencies.iter().map(|latency| decode(&latency.histogram)).collect();
    match histograms {
        Some(histograms) if !histograms.is_empty() => {
            let count = histograms.iter().map(Histogram::len).min().unwrap_or(0);
            over_repetitions(&grid(count), histograms.len(), |at, share| {
                histograms[at].value_at_quantile(share) as f64
            })
        }
        // Without histograms the percentiles that everyone asks for still make a curve.
        _ => {
            over_repetitions(&[0.5, 0.9, 0.99, 0.999, 0.9999, 1.0], latencies.len(), |at, share| {
                let latency = latencies[at];
                let value = match share {
                    0.5 => latency.p50_ns,
                    0.9 => latency.p90_ns,
                    0.99 => latency.p99_ns,
                    0.999 => latency.p999_ns,
                    0.9999 => latency.p9999_ns,
                    _ => latency.max_ns,
                };
                value as f64
            })
        }
    }
}

/// The decoded histogram; `None` when there is none or its bytes are damaged.
fn decode(text: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// Ten shares a nine, each tenth as much left above as ten before, for as many nines as so many values
/// can tell apart; then the longest of all.
fn grid(count: u64) -> Vec<f64> {
    let nines = (count.max(10) as f64).log10().min(7.0);
    let steps = (nines * 10.0).floor() as i32;
    (0..=steps).map(|at| 1.0 - 10f64.powf(-f64::from(at) / 10.0)).chain([1.0]).collect()
}

fn over_repetitions(
    shares: &[f64],
    repetitions: usize,
    value: impl Fn(usize, f64) -> f64,
) -> Vec<Point> {
    let point = |share: &f64| {
        let values: Vec<f64> = (0..repetitions).map(|at| value(at, *share)).collect();
        merged(*share, &values)
    };
    shares.iter().filter_map(point).collect()
}

/// A figure over time over repetitions: `pick` gives a record's figure of each second. The line is the
/// median of the repetitions in each second, the band reaches from the lowest to the highest.
pub fn time_points<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    pick: impl Fn(&Record) -> Vec<f64>,
) -> Vec<Point> {
    let series: Vec<Vec<f64>> = records.into_iter().map(pick).collect();
    let seconds = series.iter().map(Vec::len).max().unwrap_or(0);
    let point = |second: usize| {
        let values: Vec<f64> = series.iter().filter_map(|one| one.get(second).copied()).collect();
        // Figures of a second are shown at its end, when they are known.
        merged((second + 1) as f64, &values)
    };
    (0..seconds).filter_map(point).collect()
}

fn merged(x: f64, values: &[f64]) -> Option<Point> {
    let y = median(values)?;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Point { x, y, band: (values.len() > 1).then_some((low, high)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::records::tests::record;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

    fn encode(histogram: &Histogram<u64>) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(histogram, &mut bytes).unwrap();
        STANDARD.encode(bytes)
    }

    #[test]
    fn curves_come_from_histograms_and_span_the_repetitions() {
        let mut records = [record("a", "1", 0, 1000.0), record("a", "1", 1, 1000.0)];
        for (at, record) in records.iter_mut().enumerate() {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            for value in 1..=10_000 {
                histogram.record(value * 100 * (at as u64 + 1)).unwrap();
            }
            record.outcome.kinds.get_mut("get").unwrap().latency.histogram = encode(&histogram);
        }
        let points = percentile_points(&records, "get");
        let half = points.iter().min_by(|a, b| (a.x - 0.9).abs().total_cmp(&(b.x - 0.9).abs()));
        let (low, high) = half.unwrap().band.unwrap();
        assert!((low / 900_000.0 - 1.0).abs() < 0.01, "{half:?}");
        assert!((high / 1_800_000.0 - 1.0).abs() < 0.01, "{half:?}");
        assert_eq!(points.last().unwrap().x, 1.0);
        assert!(points.iter().all(|point| point.x <= 0.9999 || point.x == 1.0));
        assert!(percentile_points(&records, "put").is_empty());
    }

    #[test]
    fn a_damaged_histogram_leaves_the_named_percentiles() {
        let mut one = record("a", "1", 0, 1000.0);
        one.outcome.kinds.get_mut("get").unwrap().latency.histogram = "AAAA!".into();
        let points = percentile_points([&one], "get");
        assert_eq!(points.len(), 6);
        assert_eq!(points[2], Point::new(0.99, 5e6));
    }

    #[test]
    fn seconds_of_repetitions_are_merged() {
        let mut records = [record("a", "1", 0, 1000.0), record("a", "1", 1, 1000.0)];
        records[0].outcome.per_second = vec![10, 20, 30];
        records[1].outcome.per_second = vec![20, 30];
        let points = time_points(&records, |record| {
            record.outcome.per_second.iter().map(|count| *count as f64).collect()
        });
        assert_eq!(points[0], Point { x: 1.0, y: 15.0, band: Some((10.0, 20.0)) });
        assert_eq!(points[2], Point::new(3.0, 30.0));
    }
}
