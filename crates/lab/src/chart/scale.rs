//! Where a value stands on an axis, and which round values are written beside it.

use super::unit::Unit;

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// Evenly.
    Linear { low: f64, high: f64 },
    /// By their logarithm. Invariant: 0 < low < high.
    Log { low: f64, high: f64 },
    /// Shares below one, by how little is left above: 0.9, 0.99 and 0.999 are equally far apart. `nines`
    /// is where the axis ends.
    Tail { nines: f64 },
}

impl Scale {
    /// From 0, or from the smallest value if it is below, to a round value above the largest.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), if high > 0.0 { high } else { 1.0 });
        let step = round_step(high - low, 5.0);
        Scale::Linear { low: (low / step).floor() * step, high: (high / step - 1e-9).ceil() * step }
    }

    /// From 0 to just the largest value: for rows, whose figures stand at their ends.
    pub(super) fn up_to(values: impl IntoIterator<Item = f64>) -> Scale {
        let high = bounds(values).map_or(1.0, |(_, high)| high);
        Scale::Linear { low: 0.0, high: if high > 0.0 { high } else { 1.0 } }
    }

    /// Around the values, with some room; not from 0, so that small differences are seen.
    pub(super) fn around(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        let room = ((high - low) * 0.08).max(high.abs() * 1e-3).max(1e-9);
        Scale::Linear { low: low - room, high: high + room }
    }

    /// Logarithmic, between 1, 2 or 5 times powers of ten around the values that have a logarithm.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Scale {
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let (low, high) = bounds(positive).unwrap_or((1.0, 10.0));
        let (low, high) = (round_below(low * 1.000_001), round_above(high * 0.999_999));
        if low < high { Scale::Log { low, high } } else { Scale::Log { low, high: low * 10.0 } }
    }

    /// Where a value stands, 0.0 to 1.0; beyond the ends it stays at them.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match *self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, high } => {
                (value.max(low).log10() - low.log10()) / (high.log10() - low.log10())
            }
            Scale::Tail { nines } => nines_of(value) / nines,
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// About `count` round values with their text.
    pub(super) fn ticks(&self, unit: Unit, count: f64) -> Vec<(f64, String)> {
        let with_text = |value: f64| (value, unit.format_round(value));
        match *self {
            Scale::Linear { low, high } => {
                let step = round_step(high - low, count);
                let first = (low / step - 1e-9).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                // Times of minutes and hours are read in the axis' one unit.
                (first..=last).map(|at| with_text(at as f64 * step)).collect()
            }
            Scale::Log { low, high } => {
                let decades = (high / low).log10();
                let factors: &[f64] = match decades / count {
                    few if few < 0.4 => &[1.0, 2.0, 5.0],
                    few if few < 0.7 => &[1.0, 3.0],
                    _ => &[1.0],
                };
                let every = (decades / count).ceil().max(1.0) as i32;
                let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                (first..=last)
                    .filter(|power| power.rem_euclid(every) == 0)
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
                    .filter(|value| *value >= low * 0.999 && *value <= high * 1.001)
                    .map(with_text)
                    .collect()
            }
            Scale::Tail { nines } => {
                let mut ticks = vec![(0.0, "0".to_owned()), (0.5, "50".to_owned())];
                for power in 1..=(nines + 1e-6).floor() as i32 {
                    let share = 1.0 - 10f64.powi(-power);
                    ticks.push((
                        share,
                        format!("{:.*}", (power - 2).max(0) as usize, share * 100.0),
                    ));
                }
                ticks
            }
        }
    }
}

/// How many nines a share has: 1 for 0.9, 3 for 0.999.
pub(super) fn nines_of(share: f64) -> f64 {
    -(1.0 - share.clamp(0.0, 1.0)).max(1e-12).log10()
}

fn bounds(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// 1, 2 or 5 times a power of ten, of which about `count` make up the span.
fn round_step(span: f64, count: f64) -> f64 {
    let rough = if span > 0.0 && span.is_finite() { span / count.max(1.0) } else { 1.0 };
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

fn round_below(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0].into_iter().find(|factor| factor * power <= value).unwrap_or(1.0) * power
}

fn round_above(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value).unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, unit: Unit, count: f64) -> Vec<String> {
        scale.ticks(unit, count).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_axes_start_at_zero_and_end_round() {
        let scale = Scale::linear([12_000.0, 47_000.0]);
        assert_eq!(scale, Scale::Linear { low: 0.0, high: 50_000.0 });
        let expected = ["0", "10 k/s", "20 k/s", "30 k/s", "40 k/s", "50 k/s"];
        assert_eq!(texts(scale, Unit::PerSecond, 5.0), expected);
        assert_eq!(scale.place(25_000.0), 0.5);
        assert_eq!(scale.place(1e9), 1.0);
    }

    #[test]
    fn log_axes_space_decades_evenly_and_bear_any_value() {
        let scale = Scale::log([120.0, 90_000.0]);
        assert_eq!(scale, Scale::Log { low: 100.0, high: 100_000.0 });
        assert!((scale.place(1000.0) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(texts(scale, Unit::Nanoseconds, 3.0), ["100 ns", "1 us", "10 us", "100 us"]);
        for value in [0.0, -5.0, f64::NAN] {
            assert_eq!(scale.place(value), 0.0);
        }
        assert!(matches!(Scale::log([7.0]), Scale::Log { low, high } if low < high));
    }

    #[test]
    fn percentiles_are_spaced_by_their_nines() {
        let scale = Scale::Tail { nines: 4.0 };
        assert!((scale.place(0.99) - 0.5).abs() < 1e-9);
        assert_eq!(scale.place(1.0), 1.0);
        assert_eq!(texts(scale, Unit::Share, 9.0), ["0", "50", "90", "99", "99.9", "99.99"]);
    }

    #[test]
    fn no_values_still_make_an_axis() {
        for scale in [Scale::linear([]), Scale::log([]), Scale::around([f64::NAN])] {
            assert!(!scale.ticks(Unit::Count, 5.0).is_empty(), "{scale:?}");
            assert!(scale.ticks(Unit::Count, 5.0).len() < 20, "{scale:?}");
        }
    }
}
