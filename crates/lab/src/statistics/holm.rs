//! Holm's correction (1979): when many questions are asked at once, some answers look sure by chance.

/// The p-values of one family of tests, each raised so that one can be compared with the level as if it
/// had been the only test. Same order as given.
pub fn holm(family: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..family.len()).collect();
    order.sort_unstable_by(|&a, &b| family[a].total_cmp(&family[b]));
    let mut corrected = vec![0.0; family.len()];
    let mut floor = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        floor = floor.max(family[at] * (family.len() - rank) as f64).min(1.0);
        corrected[at] = floor;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(family: &[f64], expected: &[f64]) {
        let corrected = holm(family);
        assert_eq!(corrected.len(), expected.len());
        for (one, other) in corrected.iter().zip(expected) {
            assert!((one - other).abs() < 1e-12, "{corrected:?} {expected:?}");
        }
    }

    #[test]
    fn the_published_examples_come_out() {
        // Wikipedia's example of the method: 0.01 and 0.005 are rejected at 0.05, 0.03 and 0.04 are not.
        check(&[0.01, 0.04, 0.03, 0.005], &[0.03, 0.06, 0.06, 0.02]);
        // R: p.adjust(c(0.001, 0.5, 0.02, 0.02), "holm").
        check(&[0.001, 0.5, 0.02, 0.02], &[0.004, 0.5, 0.06, 0.06]);
        check(&[0.9, 0.8], &[1.0, 1.0]);
        check(&[], &[]);
    }
}
