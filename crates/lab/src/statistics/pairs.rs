//! Tests of pairs: whether one of two that were measured side by side tends to be larger, by the ratio of the two.
//!
//! Where nothing differs, either of a pair could have been either: the logarithm of their ratio is as likely above 0 as
//! below, by as much, whatever both felt of a noisy machine and whatever the shape of the noise. Student's test takes
//! these logarithms for normal, and so needs few pairs; swapping sides takes nothing for granted, and needs more.
//! No value may be NaN.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::sample::{mean, variance};

/// Most pairs for which all ways to swap sides are counted.
const EXACT_MAX: usize = 16;

/// The logarithms of the ratios; `None` of nothing, of sides of different lengths, and where a ratio has none.
fn logs(a: &[f64], b: &[f64]) -> Option<Vec<f64>> {
    let have_logs = a.iter().chain(b).all(|one| *one > 0.0);
    (have_logs && a.len() == b.len() && !a.is_empty())
        .then(|| a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect())
}

/// Student's p of the mean logarithm (1908), either way. `None` of fewer than two pairs, of values that have no
/// logarithm, and of ratios that are all the same: then the test has nothing to measure them by.
pub fn student(a: &[f64], b: &[f64]) -> Option<f64> {
    let logs = logs(a, b)?;
    let error = (variance(&logs)? / logs.len() as f64).sqrt();
    // Less than that is what divisions leave.
    if error <= f64::EPSILON {
        return None;
    }
    let student = StudentsT::new(0.0, 1.0, (logs.len() - 1) as f64).ok()?;
    Some((2.0 * student.cdf(-(mean(&logs)? / error).abs())).clamp(0.0, 1.0))
}

/// Of all ways to swap the sides of pairs, the share that is as far from no difference as the one that was measured
/// (Fisher 1935): exact up to 16 pairs, Student's beyond. `None` of nothing, and of values that have no logarithm.
pub fn swapped(a: &[f64], b: &[f64]) -> Option<f64> {
    let logs = logs(a, b)?;
    if logs.len() > EXACT_MAX {
        return student(a, b);
    }
    // What rounding makes of the same sum in another order is as far.
    let seen = logs.iter().sum::<f64>().abs() * (1.0 - 1e-12);
    // The last pair stays as it is: with all sides swapped a sum is as far.
    let ways = 1_u32 << (logs.len() - 1);
    let sum = |way: u32| -> f64 {
        let signed = |(at, log): (usize, &f64)| if (way >> at) & 1 == 1 { -log } else { *log };
        logs.iter().enumerate().map(signed).sum()
    };
    let as_far = (0..ways).filter(|way| sum(*way).abs() >= seen).count();
    Some(as_far as f64 / f64::from(ways))
}

/// The smallest p that swapping the sides of so many pairs can give: all of them point one way.
pub fn smallest_of_pairs(pairs: usize) -> f64 {
    2.0_f64.powf(1.0 - pairs as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extra hours of sleep with two drugs, of the ten people of Student's paper, as ratios: their logarithms are the
    /// hours.
    const FIRST: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const SECOND: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    #[test]
    fn the_published_example_comes_out() {
        let (a, b) = (FIRST.map(f64::exp), SECOND.map(f64::exp));
        // R: t.test(extra ~ group, data = sleep, paired = TRUE), t = -4.0621, p = 0.002833.
        let p = student(&a, &b).unwrap();
        assert!((p - 0.002_833).abs() < 5e-7, "{p}");
        // Nine point one way and one is 0: of the 1,024 ways the sums of four are as far.
        let p = swapped(&a, &b).unwrap();
        assert!((p - 4.0 / 1024.0).abs() < 1e-12, "{p}");
    }

    #[test]
    fn swapping_sides_is_exact() {
        // The sum is 5; with the last as it is there are 7, 5, 5 and 3.
        let ratios = [1.0, -1.0, 5.0].map(f64::exp);
        assert_eq!(swapped(&ratios, &[1.0; 3]), Some(0.75));
        let ratios = [-1.0, 2.0, 4.0].map(f64::exp);
        assert_eq!(swapped(&ratios, &[1.0; 3]), Some(0.5));
        assert_eq!(swapped(&[1.0; 4], &[1.0; 4]), Some(1.0));
    }

    #[test]
    fn pairs_that_all_point_one_way_have_the_smallest_p() {
        for pairs in 1..=8 {
            let a: Vec<f64> = (0..pairs).map(|at| 1.1 + 0.1 * at as f64).collect();
            let p = swapped(&a, &vec![1.0; pairs]).unwrap();
            assert_eq!(p, smallest_of_pairs(pairs), "{pairs}");
        }
        assert_eq!(smallest_of_pairs(8), 1.0 / 128.0);
        let many: Vec<f64> = (0..17).map(|at| 1.1 + 0.1 * f64::from(at)).collect();
        assert_eq!(swapped(&many, &[1.0; 17]), student(&many, &[1.0; 17]));
    }

    /// What both of a pair felt is no spread.
    #[test]
    fn a_drift_of_the_machine_hides_nothing() {
        let b: Vec<f64> = (0..8).map(|at| 100.0 * 1.1_f64.powi(at)).collect();
        let a: Vec<f64> =
            b.iter().enumerate().map(|(at, b)| b * (1.01 + 0.001 * (at % 3) as f64)).collect();
        assert!(student(&a, &b).unwrap() < 1e-6);
        assert!(crate::statistics::welch(&a, &b).unwrap().p > 0.5);
    }

    #[test]
    fn what_has_no_spread_or_no_logarithm_gives_no_answer() {
        assert_eq!(student(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]), None);
        assert_eq!(swapped(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]), Some(0.25));
        assert_eq!(student(&[2.0], &[1.0]), None);
        let none: [(&[f64], &[f64]); 3] =
            [(&[], &[]), (&[1.0, 0.0], &[1.0, 1.0]), (&[1.0, 2.0], &[1.0])];
        for (a, b) in none {
            assert_eq!((student(a, b), swapped(a, b)), (None, None));
        }
    }
}
