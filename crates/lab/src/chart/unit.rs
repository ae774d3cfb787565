//! Figures as people write them: three digits that matter, and the unit that makes them short.

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A time in nanoseconds.
    Nanoseconds,
    /// A time in microseconds.
    Microseconds,
    /// A time in seconds.
    Seconds,
    /// Bytes, in powers of 1,000.
    Bytes,
    /// Events per second.
    PerSecond,
    /// Things.
    Count,
    /// How many times as much.
    Ratio,
    /// A share, 0.0 to 1.0.
    Share,
}

const THOUSANDS: [(f64, &str); 4] = [(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];
const BYTES: [(f64, &str); 5] =
    [(1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")];
const TIMES: [(f64, &str); 4] = [(1e9, " s"), (1e6, " ms"), (1e3, " us"), (1.0, " ns")];

impl Unit {
    /// The figure with its unit: `1.25 ms`, `48.2 k/s`, `1.30x`.
    pub fn format(self, value: f64) -> String {
        self.write(value, digits)
    }

    /// As `format`, without zeros that say nothing: for axes, whose figures are round.
    pub fn format_round(self, value: f64) -> String {
        self.write(value, |value| {
            let text = format!("{value:.3}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            text.to_owned()
        })
    }

    fn write(self, value: f64, number: impl Fn(f64) -> String) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        match self {
            Unit::Nanoseconds => scaled(value, &TIMES, &number),
            Unit::Microseconds => scaled(value * 1e3, &TIMES, &number),
            Unit::Seconds if value.abs() >= 1000.0 => {
                format!("{} s", thousands(value.round() as i64))
            }
            Unit::Seconds => scaled(value * 1e9, &TIMES, &number),
            Unit::Bytes => scaled(value, &BYTES, &number),
            Unit::PerSecond if value == 0.0 => "0".to_owned(),
            Unit::PerSecond => scaled(value, &THOUSANDS, &number) + "/s",
            Unit::Count if value.fract() == 0.0 && value.abs() < 1e5 => thousands(value as i64),
            Unit::Count => scaled(value, &THOUSANDS, &number),
            Unit::Ratio => number(value) + "x",
            Unit::Share => number(value * 100.0) + " %",
        }
    }
}

fn scaled(value: f64, steps: &[(f64, &str)], number: &impl Fn(f64) -> String) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let last = steps.len() - 1;
    // 999.6 would be written as 1000: it belongs to the next step.
    let fits = |step: f64| value.abs() / step >= 0.9995;
    let (step, name) = steps.iter().find(|(step, _)| fits(*step)).unwrap_or(&steps[last]);
    number(value / step) + name
}

/// Three digits that matter.
fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 999.5 => thousands(value.round() as i64),
        large if large >= 99.95 => format!("{value:.0}"),
        large if large >= 9.995 => format!("{value:.1}"),
        large if large >= 0.0995 || large == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A whole number with commas: `1,234,567`.
pub fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_unit() {
        assert_eq!(Unit::Nanoseconds.format(1_250_000.0), "1.25 ms");
        assert_eq!(Unit::Nanoseconds.format(999_700.0), "1.00 ms");
        assert_eq!(Unit::Microseconds.format(3.456), "3.46 us");
        assert_eq!(Unit::Seconds.format(43_200.0), "43,200 s");
        assert_eq!(Unit::Bytes.format(2_243e6), "2.24 GB");
        assert_eq!(Unit::PerSecond.format(48_213.0), "48.2 k/s");
        assert_eq!(Unit::Ratio.format(1.3), "1.30x");
        assert_eq!(Unit::Share.format(0.341), "34.1 %");
        assert_eq!(Unit::Count.format(1234.0), "1,234");
        assert_eq!(Unit::Count.format(f64::NAN), "-");
    }

    #[test]
    fn axes_have_no_idle_zeros() {
        assert_eq!(Unit::PerSecond.format_round(50_000.0), "50 k/s");
        assert_eq!(Unit::Nanoseconds.format_round(0.0), "0");
        assert_eq!(Unit::Ratio.format_round(1.25), "1.25x");
        assert_eq!(thousands(-1_234_567), "-1,234,567");
    }
}
