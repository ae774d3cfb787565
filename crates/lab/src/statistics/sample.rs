//! Figures of one sample. Requires of all: no value is NaN.

/// The arithmetic mean; `None` of nothing.
pub fn mean(sample: &[f64]) -> Option<f64> {
    (!sample.is_empty()).then(|| sample.iter().sum::<f64>() / sample.len() as f64)
}

/// The unbiased variance (divided by n - 1); `None` of fewer than two values.
pub fn variance(sample: &[f64]) -> Option<f64> {
    if sample.len() < 2 {
        return None;
    }
    let mean = mean(sample)?;
    let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
    Some(squares / (sample.len() - 1) as f64)
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(sample: &[f64]) -> Option<f64> {
    quantile(sample, 0.5)
}

/// The value below which a share of the sample lies, interpolated between neighbours (Hyndman and Fan's
/// type 7, what R and NumPy do by default); `None` of nothing.
pub fn quantile(sample: &[f64], share: f64) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_of_sorted(&sorted, share)
}

/// As [`quantile`], of a sample in ascending order.
pub(super) fn quantile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// Ranks from 1, ties sharing the mean of theirs, doubled so that they are whole numbers.
pub(super) fn doubled_ranks(values: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let first = order.partition_point(|&at| values[at] < values[group[0]]) as u64 + 1;
        let last = first + group.len() as u64 - 1;
        for &at in group {
            ranks[at] = first + last;
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_those_of_numpy() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        // numpy.quantile([15, 20, 35, 40, 50], 0.4) is 29.
        let sample = [15.0, 20.0, 35.0, 40.0, 50.0];
        assert!((quantile(&sample, 0.4).unwrap() - 29.0).abs() < 1e-12);
        assert_eq!(quantile(&sample, 1.0), Some(50.0));
    }

    #[test]
    fn variance_needs_two_values() {
        assert_eq!(variance(&[1.0]), None);
        assert_eq!(variance(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some(32.0 / 7.0));
        assert_eq!(mean(&[1.0, 2.0]), Some(1.5));
    }

    #[test]
    fn ties_share_the_mean_of_their_ranks() {
        assert_eq!(doubled_ranks(&[10.0, 20.0, 10.0, 5.0]), [5, 8, 5, 2]);
    }
}
