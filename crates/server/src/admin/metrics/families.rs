//! Writes metric families in the text form of Prometheus: counters, gauges, classic histograms.
//!
//! The library writes OpenMetrics, which ends the samples of a counter, but not its declaration, in
//! `_total`. Prometheus' own form wants one name in both. So a counter here is declared under its whole
//! name and its samples are written as a gauge's, which are left as they are.

use std::fmt::Error;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tallybook::stages::Distribution;

/// Writes families one after another.
pub(super) struct Families<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl<'e> Families<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Families<'e> {
        Families { encoder }
    }

    /// A count that only grows. Its name ends in `_total`.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeGaugeValue,
    ) -> Result<(), Error> {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?.encode_gauge(&value)
    }

    /// Counts that only grow, one for each value of a label.
    pub(super) fn counters<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'l str, V)>,
    ) -> Result<(), Error> {
        let sets = values.into_iter().map(|(word, value)| ([(label, word)], value));
        self.labelled(name, help, MetricType::Counter, sets)
    }

    /// Counts that only grow, one for each pair of values of two labels.
    pub(super) fn counters_by_two<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&'l str; 2],
        values: impl IntoIterator<Item = ([&'l str; 2], V)>,
    ) -> Result<(), Error> {
        let pair = |words: [&'l str; 2]| [(labels[0], words[0]), (labels[1], words[1])];
        let sets = values.into_iter().map(|(words, value)| (pair(words), value));
        self.labelled(name, help, MetricType::Counter, sets)
    }

    /// A value that goes up and down.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeGaugeValue,
    ) -> Result<(), Error> {
        self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Values that go up and down, one for each value of a label.
    pub(super) fn gauges<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'l str, V)>,
    ) -> Result<(), Error> {
        let sets = values.into_iter().map(|(word, value)| ([(label, word)], value));
        self.labelled(name, help, MetricType::Gauge, sets)
    }

    fn labelled<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        metric_type: MetricType,
        values: impl Iterator<Item = ([(&'l str, &'l str); N], V)>,
    ) -> Result<(), Error> {
        debug_assert_eq!(name.ends_with("_total"), metric_type.as_str() == "counter", "{name}");
        let mut family = self.encoder.encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Distributions as classic histograms in seconds, one for each value of a label.
    pub(super) fn histograms<'l, 'd>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[Duration],
        label: &str,
        distributions: impl IntoIterator<Item = (&'l str, &'d Distribution)>,
    ) -> Result<(), Error> {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (word, times) in distributions {
            let sum = times.total().as_secs_f64();
            let buckets = buckets(times, bounds);
            family.encode_family(&[(label, word)])?.encode_histogram::<NoLabelSet>(
                sum,
                times.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

/// Upper bounds in seconds, and how many times lie between each and the one before.
fn buckets(times: &Distribution, bounds: &[Duration]) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets = Vec::with_capacity(bounds.len() + 1);
    for &bound in bounds {
        let up_to = times.count_up_to(bound).max(below);
        buckets.push((bound.as_nanos() as f64 / 1e9, up_to - below));
        below = up_to;
    }
    buckets.push((f64::INFINITY, times.count().saturating_sub(below)));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::text::encode_registry;
    use prometheus_client::registry::Registry;

    #[derive(Debug)]
    struct Example;

    impl Collector for Example {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
            let mut times = Distribution::default();
            for us in [1, 5, 5, 2_000_000] {
                times.record(Duration::from_micros(us));
            }
            let bounds = [Duration::from_micros(1), Duration::from_micros(10)];
            let mut families = Families::new(encoder);
            families.counter("a_total", "A count", 3u64)?;
            families.gauge("b_ratio", "A share", 0.5)?;
            families.counters("c_total", "Counts", "kind", [("x", 1u64), ("y", 2)])?;
            families.counters_by_two("d_total", "Pairs", ["k", "l"], [(["x", "y"], 7u64)])?;
            families.histograms("e_seconds", "Times", &bounds, "of", [("x", &times)])
        }
    }

    #[test]
    fn the_text_is_that_of_prometheus() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Example));
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        let expected = "\
# HELP a_total A count
# TYPE a_total counter
a_total 3
# HELP b_ratio A share
# TYPE b_ratio gauge
b_ratio 0.5
# HELP c_total Counts
# TYPE c_total counter
c_total{kind=\"x\"} 1
c_total{kind=\"y\"} 2
# HELP d_total Pairs
# TYPE d_total counter
d_total{k=\"x\",l=\"y\"} 7
# HELP e_seconds Times
# TYPE e_seconds histogram
e_seconds_sum{of=\"x\"} 2.000011
e_seconds_count{of=\"x\"} 4
e_seconds_bucket{le=\"0.000001\",of=\"x\"} 1
e_seconds_bucket{le=\"0.00001\",of=\"x\"} 3
e_seconds_bucket{le=\"+Inf\",of=\"x\"} 4
";
        assert_eq!(text, expected);
    }
}
