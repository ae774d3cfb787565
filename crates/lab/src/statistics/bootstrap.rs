//! Bootstrap intervals of medians, and of the difference and ratio of two (Efron and Tibshirani 1993).
//!
//! Percentile intervals, not BCa: BCa takes its acceleration from the jackknife, which is inconsistent
//! for a median (there, section 10.6), and its end points are no better than these on small samples.
//! Paired resampling keeps pairs together, so that what both of a pair felt of a noisy machine cancels.
//! Of few runs no interval can be wider than the runs themselves: of three it covers about 75 %, of five
//! about 94 %.

use super::sample::{median, quantile_of_sorted};

/// An estimate, and the bounds between which it lies with some confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The figure of the sample itself.
    pub estimate: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether a value lies within the bounds.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// How intervals are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// How many samples are drawn.
    pub resamples: u32,
    /// The share of such intervals that is to contain the truth.
    pub confidence: f64,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Bootstrap { resamples: 4000, confidence: 0.95, seed: 1 }
    }
}

impl Bootstrap {
    /// Of the median of one sample; `None` of nothing.
    pub fn median(&self, sample: &[f64]) -> Option<Interval> {
        let mut drawn = vec![0.0; sample.len()];
        self.interval(median(sample)?, |random| {
            random.draw(sample, &mut drawn);
            middle(&mut drawn)
        })
    }

    /// Of `median(a) - median(b)`; `None` when either is empty.
    pub fn difference(&self, a: &[f64], b: &[f64]) -> Option<Interval> {
        self.unpaired(a, b, |a, b| Some(a - b))
    }

    /// Of `median(a) / median(b)`; `None` when either is empty or `b`'s median is 0.
    pub fn ratio(&self, a: &[f64], b: &[f64]) -> Option<Interval> {
        self.unpaired(a, b, ratio)
    }

    /// As `difference`, where `a[i]` and `b[i]` were measured side by side. Requires: equal lengths.
    pub fn paired_difference(&self, a: &[f64], b: &[f64]) -> Option<Interval> {
        self.paired(a, b, |a, b| Some(a - b))
    }

    /// As `ratio`, where `a[i]` and `b[i]` were measured side by side. Requires: equal lengths.
    pub fn paired_ratio(&self, a: &[f64], b: &[f64]) -> Option<Interval> {
        self.paired(a, b, ratio)
    }

    fn unpaired(
        &self,
        a: &[f64],
        b: &[f64],
        combine: impl Fn(f64, f64) -> Option<f64>,
    ) -> Option<Interval> {
        let (mut drawn_a, mut drawn_b) = (vec![0.0; a.len()], vec![0.0; b.len()]);
        self.interval(combine(median(a)?, median(b)?)?, |random| {
            random.draw(a, &mut drawn_a);
            random.draw(b, &mut drawn_b);
            combine(middle(&mut drawn_a)?, middle(&mut drawn_b)?)
        })
    }

    fn paired(
        &self,
        a: &[f64],
        b: &[f64],
        combine: impl Fn(f64, f64) -> Option<f64>,
    ) -> Option<Interval> {
        assert_eq!(a.len(), b.len(), "paired samples have equal lengths");
        let (mut drawn_a, mut drawn_b) = (vec![0.0; a.len()], vec![0.0; b.len()]);
        self.interval(combine(median(a)?, median(b)?)?, |random| {
            for (to_a, to_b) in drawn_a.iter_mut().zip(&mut drawn_b) {
                let at = random.below(a.len());
                (*to_a, *to_b) = (a[at], b[at]);
            }
            combine(middle(&mut drawn_a)?, middle(&mut drawn_b)?)
        })
    }

    /// The interval of what `redraw` makes, around the estimate. Draws that have no figure (a ratio to 0)
    /// don't count.
    fn interval(
        &self,
        estimate: f64,
        mut redraw: impl FnMut(&mut Random) -> Option<f64>,
    ) -> Option<Interval> {
        let mut random = Random(self.seed);
        let mut drawn: Vec<f64> = (0..self.resamples).filter_map(|_| redraw(&mut random)).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let tail = (1.0 - self.confidence) / 2.0;
        let low = quantile_of_sorted(&drawn, tail)?;
        let high = quantile_of_sorted(&drawn, 1.0 - tail)?;
        // With few runs the estimate may fall outside by the interpolation's rounding alone.
        Some(Interval { estimate, low: low.min(estimate), high: high.max(estimate) })
    }
}

/// The median of what was drawn, sorted where it lies: it is drawn anew anyway.
fn middle(drawn: &mut [f64]) -> Option<f64> {
    drawn.sort_unstable_by(f64::total_cmp);
    quantile_of_sorted(drawn, 0.5)
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    (b != 0.0).then(|| a / b)
}

/// SplitMix64 (Steele et al. 2014): our own, because a crate's generator may change between versions and
/// with it every interval that was ever printed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; the bias of taking the high half is below 2^-32 for samples of any size
    /// that runs can have.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    fn draw(&mut self, from: &[f64], to: &mut [f64]) {
        for place in to {
            *place = from[self.below(from.len())];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::welch::tests::{WIKIPEDIA_1_A, WIKIPEDIA_1_B};

    #[test]
    fn intervals_are_those_of_scipy() {
        // scipy 1.17.1, stats.bootstrap, method='percentile', 99,999 resamples: difference of medians
        // -4.40 .. -0.10, ratio 0.8120 .. 0.9955.
        let bootstrap = Bootstrap { resamples: 50_000, ..Bootstrap::default() };
        let difference = bootstrap.difference(&WIKIPEDIA_1_A, &WIKIPEDIA_1_B).unwrap();
        assert!((difference.estimate + 1.9).abs() < 1e-9, "{difference:?}");
        assert!((difference.low + 4.4).abs() < 0.11, "{difference:?}");
        assert!((difference.high + 0.1).abs() < 0.11, "{difference:?}");
        let ratio = bootstrap.ratio(&WIKIPEDIA_1_A, &WIKIPEDIA_1_B).unwrap();
        assert!((ratio.low - 0.8120).abs() < 0.005, "{ratio:?}");
        assert!((ratio.high - 0.9955).abs() < 0.005, "{ratio:?}");
    }

    #[test]
    fn pairs_that_share_their_noise_give_a_narrower_interval() {
        let a: Vec<f64> = (0..15).map(|at| 100.0 + f64::from(at * 37 % 15) * 10.0).collect();
        let b: Vec<f64> = a.iter().map(|value| value * 1.1).collect();
        let bootstrap = Bootstrap::default();
        let (apart, paired) =
            (bootstrap.ratio(&b, &a).unwrap(), bootstrap.paired_ratio(&b, &a).unwrap());
        assert!((paired.low - 1.1).abs() < 1e-9 && (paired.high - 1.1).abs() < 1e-9, "{paired:?}");
        assert!(apart.high - apart.low > 0.1, "{apart:?}");
        let difference = bootstrap.paired_difference(&b, &a).unwrap();
        assert!(difference.low > 0.0, "{difference:?}");
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_draws_otherwise() {
        let sample: Vec<f64> = (0..40).map(|at| f64::from(at * at % 41) * 1.37).collect();
        let other = Bootstrap { seed: 2, resamples: 50, ..Bootstrap::default() };
        let first = Bootstrap { seed: 1, ..other };
        assert_eq!(first.median(&sample), first.median(&sample));
        assert_ne!(first.median(&sample), other.median(&sample));
    }

    #[test]
    fn about_95_of_100_intervals_contain_the_truth() {
        // Skewed samples of 15 whose true median is 1: exp of a sum of twelve uniforms less six, which is
        // close to a lognormal.
        let mut random = Random(99);
        let mut covered = 0;
        for seed in 0..400 {
            let sample: Vec<f64> = (0..15)
                .map(|_| {
                    let sum: f64 = (0..12).map(|_| random.next() as f64 / 2f64.powi(64)).sum();
                    (sum - 6.0).exp()
                })
                .collect();
            let bootstrap = Bootstrap { resamples: 500, seed, ..Bootstrap::default() };
            covered += u32::from(bootstrap.median(&sample).unwrap().contains(1.0));
        }
        assert!((360..=396).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn nothing_and_a_ratio_to_zero_have_no_interval() {
        let bootstrap = Bootstrap::default();
        assert_eq!(bootstrap.median(&[]), None);
        assert_eq!(bootstrap.ratio(&[1.0], &[0.0]), None);
        let one = bootstrap.median(&[7.0]).unwrap();
        assert_eq!((one.low, one.estimate, one.high), (7.0, 7.0, 7.0));
    }
}
