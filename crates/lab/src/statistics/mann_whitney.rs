//! Mann and Whitney's U: whether one of two samples tends to be larger, whatever their shape (1947).
//!
//! Up to 50 values in all the distribution is exact, ties included: subsets of the ranks at hand are
//! counted by their sum. Beyond, the normal approximation, corrected for ties and continuity.

use statrs::distribution::{ContinuousCDF, Normal};

use super::sample::doubled_ranks;

/// Most values in all for which subsets are counted. C(50, 25) is below 2^53, so the counts are exact.
const EXACT_MAX: usize = 50;

/// The outcome of Mann and Whitney's test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// In how many pairs the first sample's value is the larger, ties counting half.
    pub u: f64,
    /// How likely a U as far from the middle is when neither tends to be larger.
    pub p: f64,
    /// Whether p is exact.
    pub exact: bool,
}

/// Compares two samples. `None` when either is empty.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let ranks = doubled_ranks(&all);
    let sum: u64 = ranks[..a.len()].iter().sum();
    let u = (sum as f64 - (a.len() * (a.len() + 1)) as f64) / 2.0;
    let exact = all.len() <= EXACT_MAX;
    let p = if exact { exact_p(&ranks, a.len(), sum) } else { normal_p(&ranks, a.len(), u) };
    Some(MannWhitney { u, p, exact })
}

/// The smallest p that samples of these sizes can give: what so few runs could show at best.
pub fn smallest_p(a: usize, b: usize) -> f64 {
    let subsets = (1..=a.min(b)).fold(1.0, |count, at| count * (a + b + 1 - at) as f64 / at as f64);
    (2.0 / subsets).min(1.0)
}

/// The share of all subsets of `count` ranks whose sum is at least as far from the middle as `sum`.
fn exact_p(ranks: &[u64], count: usize, sum: u64) -> f64 {
    let total: u64 = ranks.iter().sum();
    let width = total as usize + 1;
    // `subsets[size * width + sum]`: how many subsets of the ranks seen so far have that size and sum.
    let mut subsets = vec![0.0_f64; (count + 1) * width];
    subsets[0] = 1.0;
    for &rank in ranks {
        let rank = rank as usize;
        for size in (1..=count).rev() {
            for sum in rank..width {
                subsets[size * width + sum] += subsets[(size - 1) * width + sum - rank];
            }
        }
    }
    // Compared in whole numbers, n times over: the middle is count * total / n.
    let far = |sum: u64| (sum * ranks.len() as u64).abs_diff(count as u64 * total);
    let counts = &subsets[count * width..];
    let as_far: f64 =
        (0..=total).filter(|&one| far(one) >= far(sum)).map(|one| counts[one as usize]).sum();
    as_far / counts.iter().sum::<f64>()
}

fn normal_p(ranks: &[u64], count: usize, u: f64) -> f64 {
    let (n, a) = (ranks.len() as f64, count as f64);
    let b = n - a;
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let ties: f64 = sorted
        .chunk_by(|a, b| a == b)
        .map(|group| (group.len() as f64).powi(3) - group.len() as f64)
        .sum();
    let deviation = (a * b / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)))).sqrt();
    if deviation <= 0.0 {
        return 1.0;
    }
    let distance = ((u - a * b / 2.0).abs() - 0.5).max(0.0);
    (2.0 * Normal::standard().cdf(-distance / deviation)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_examples_come_out() {
        // Wikipedia's tortoises and hares, by the order in which they finish: U is 25 and 11.
        let (tortoises, hares) =
            ([1.0, 7.0, 8.0, 9.0, 10.0, 11.0], [2.0, 3.0, 4.0, 5.0, 6.0, 12.0]);
        let outcome = mann_whitney(&tortoises, &hares).unwrap();
        assert_eq!(outcome.u, 25.0);
        assert_eq!(mann_whitney(&hares, &tortoises).unwrap().u, 11.0);
        // scipy 1.17.1, method='exact'.
        assert!((outcome.p - 0.309_523_809_523_81).abs() < 1e-12, "{outcome:?}");
        // The example of scipy's manual: U = 17, p = 0.1111.
        let outcome =
            mann_whitney(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]).unwrap();
        assert_eq!(outcome.u, 17.0);
        assert!((outcome.p - 1.0 / 9.0).abs() < 1e-12 && outcome.exact, "{outcome:?}");
    }

    #[test]
    fn ties_are_exact_in_small_samples() {
        // Counted by going over all 126 ways to choose four of the nine ranks, in Python.
        let outcome = mann_whitney(&[1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 4.0, 4.0, 5.0]).unwrap();
        assert_eq!(outcome.u, 2.5);
        assert!((outcome.p - 0.087_301_587_301_587).abs() < 1e-12, "{outcome:?}");
        assert_eq!(mann_whitney(&[5.0; 4], &[5.0; 6]).unwrap().p, 1.0);
    }

    #[test]
    fn large_samples_take_the_normal_approximation_with_ties() {
        let a: Vec<f64> =
            [1, 2, 2, 3, 3, 3, 4, 5, 5, 6].repeat(4).into_iter().map(f64::from).collect();
        let b: Vec<f64> =
            [2, 3, 3, 4, 4, 5, 5, 6, 6, 7].repeat(4).into_iter().map(f64::from).collect();
        // scipy 1.17.1, method='asymptotic'.
        let outcome = mann_whitney(&a, &b).unwrap();
        assert_eq!((outcome.u, outcome.exact), (496.0, false));
        assert!((outcome.p - 0.002_966_885_212_998).abs() < 1e-9, "{outcome:?}");
        assert_eq!(mann_whitney(&[1.0; 40], &[1.0; 40]).unwrap().p, 1.0);
    }

    #[test]
    fn no_sample_goes_below_the_smallest_p_of_its_size() {
        for count in 1..=6 {
            let low: Vec<f64> = (0..count).map(f64::from).collect();
            let high: Vec<f64> = low.iter().map(|value| value + 100.0).collect();
            let outcome = mann_whitney(&low, &high).unwrap();
            let least = smallest_p(low.len(), high.len());
            assert!((outcome.p - least).abs() < 1e-12, "{count}: {outcome:?} {least}");
        }
        assert!((smallest_p(3, 3) - 0.1).abs() < 1e-12);
        assert!((smallest_p(5, 5) - 2.0 / 252.0).abs() < 1e-12);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }
}
