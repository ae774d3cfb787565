//! How large a difference is, whatever its p: p falls with more runs, an effect doesn't.

use statrs::function::gamma::ln_gamma;

use super::mann_whitney::mann_whitney;
use super::sample::{mean, variance};

/// Cliff's delta (1993): how much more often a value of `a` is above one of `b` than below, from -1
/// (never above) to 1 (always). `None` when either is empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    let u = mann_whitney(a, b)?.u;
    Some(2.0 * u / (a.len() as f64 * b.len() as f64) - 1.0)
}

/// Hedges' g (1981): the difference of the means in pooled standard deviations, corrected for small
/// samples. `None` of fewer than two values on a side, or without any spread.
pub fn hedges_g(a: &[f64], b: &[f64]) -> Option<f64> {
    let (spread_a, spread_b) = (variance(a)?, variance(b)?);
    let freedom = (a.len() + b.len() - 2) as f64;
    let pooled = (spread_a * (a.len() - 1) as f64 + spread_b * (b.len() - 1) as f64) / freedom;
    if !(pooled > 0.0 && pooled.is_finite()) {
        return None;
    }
    let correction =
        (ln_gamma(freedom / 2.0) - ln_gamma((freedom - 1.0) / 2.0)).exp() / (freedom / 2.0).sqrt();
    Some((mean(a)? - mean(b)?) / pooled.sqrt() * correction)
}

/// The word for a Cliff's delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Magnitude {
    /// Below 0.147.
    Negligible,
    /// Below 0.33.
    Small,
    /// Below 0.474.
    Medium,
    /// From there on.
    Large,
}

impl Magnitude {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Magnitude::Negligible => "negligible",
            Magnitude::Small => "small",
            Magnitude::Medium => "medium",
            Magnitude::Large => "large",
        }
    }
}

/// The word for a Cliff's delta, by Romano et al. (2006).
pub fn magnitude(delta: f64) -> Magnitude {
    match delta.abs() {
        below if below < 0.147 => Magnitude::Negligible,
        below if below < 0.33 => Magnitude::Small,
        below if below < 0.474 => Magnitude::Medium,
        _ => Magnitude::Large,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::welch::tests::{WIKIPEDIA_1_A, WIKIPEDIA_1_B};

    #[test]
    fn cliffs_delta_counts_pairs() {
        // Of the nine pairs 1 is above, 6 are below and 2 are ties.
        let delta = cliffs_delta(&[1.0, 2.0, 3.0], &[2.0, 3.0, 4.0]).unwrap();
        assert!((delta + 5.0 / 9.0).abs() < 1e-12, "{delta}");
        assert_eq!(cliffs_delta(&[2.0, 3.0], &[0.0, 1.0]), Some(1.0));
        assert_eq!(magnitude(delta), Magnitude::Large);
        assert_eq!(magnitude(-0.2).name(), "small");
    }

    #[test]
    fn hedges_g_is_that_of_numpy() {
        // numpy 2, by the formula with the exact correction: d is -0.89657 and 1.50219.
        let g = hedges_g(&WIKIPEDIA_1_A, &WIKIPEDIA_1_B).unwrap();
        assert!((g + 0.872_301_153_592_073).abs() < 1e-9, "{g}");
        let g = hedges_g(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]).unwrap();
        assert!((g - 1.334_250_753_140_787).abs() < 1e-9, "{g}");
        assert_eq!(hedges_g(&[1.0, 1.0], &[2.0, 2.0]), None);
    }
}
