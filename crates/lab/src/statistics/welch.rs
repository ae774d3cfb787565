//! Welch's t-test: whether two means differ, without assuming that the spreads are alike (Welch 1947).

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::sample::{mean, variance};

/// The outcome of Welch's t-test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// The statistic; negative when the first mean is smaller.
    pub t: f64,
    /// Degrees of freedom, by Welch and Satterthwaite.
    pub freedom: f64,
    /// How likely a difference as large as this is when there is none, either way.
    pub p: f64,
}

/// Compares two means. `None` of fewer than two values on a side, and where neither side has any
/// spread: then the test has nothing to measure the difference by.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    let error_a = variance(a)? / a.len() as f64;
    let error_b = variance(b)? / b.len() as f64;
    let error = error_a + error_b;
    if !(error > 0.0 && error.is_finite()) {
        return None;
    }
    let t = (mean(a)? - mean(b)?) / error.sqrt();
    let freedom = error.powi(2)
        / (error_a.powi(2) / (a.len() - 1) as f64 + error_b.powi(2) / (b.len() - 1) as f64);
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(Welch { t, freedom, p: (2.0 * student.cdf(-t.abs())).clamp(0.0, 1.0) })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    // The examples of Wikipedia's article on Welch's t-test; p by scipy 1.17.1.
    pub(in crate::statistics) const WIKIPEDIA_1_A: [f64; 15] =
        [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4];
    pub(in crate::statistics) const WIKIPEDIA_1_B: [f64; 15] =
        [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4];

    #[test]
    fn the_published_examples_come_out() {
        let first = welch(&WIKIPEDIA_1_A, &WIKIPEDIA_1_B).unwrap();
        assert!((first.t + 2.455_356_398_286).abs() < 1e-9, "{first:?}");
        assert!((first.freedom - 24.988_529_290_231).abs() < 1e-9, "{first:?}");
        assert!((first.p - 0.021_378_001_462_867).abs() < 1e-9, "{first:?}");

        let a = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8];
        let b = [
            21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8, 20.7, 21.7, 21.5, 22.5,
            23.6, 21.5, 22.5, 23.5, 21.5, 21.8,
        ];
        let second = welch(&a, &b).unwrap();
        assert!((second.t + 1.565_433_523_599).abs() < 1e-9, "{second:?}");
        assert!((second.freedom - 9.904_741_248_651).abs() < 1e-9, "{second:?}");
        assert!((second.p - 0.148_841_696_605).abs() < 1e-9, "{second:?}");
    }

    #[test]
    fn too_few_values_or_no_spread_give_no_answer() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), None);
        assert!(welch(&[1.0, 1.0], &[2.0, 3.0]).is_some());
    }
}
