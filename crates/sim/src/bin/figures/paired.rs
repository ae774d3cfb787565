//! Comparing settings in turn: each round runs every setting once, in rotating order, so that what
//! drifts over minutes, or comes and goes with the neighbours, falls on all of them alike.

/// Rounds before the interval is first looked at.
const ROUNDS_MIN: usize = 20;
/// Resamples of the bootstrap (Efron 1979).
const RESAMPLES: usize = 4000;

/// The costs of each setting, a row per round.
pub(crate) struct Paired {
    names: Vec<String>,
    rounds: Vec<Vec<f64>>,
}

/// A median and the interval that holds it with 95 % confidence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Paired {
    /// Runs rounds of `measure` (the cost of the setting of that number) until the ratio of setting 1
    /// to setting 0 is known to within `within`, or `rounds_max` is reached.
    pub(crate) fn run(
        names: &[&str],
        within: f64,
        rounds_max: usize,
        mut measure: impl FnMut(usize) -> f64,
    ) -> Paired {
        let mut paired =
            Paired { names: names.iter().map(|name| name.to_string()).collect(), rounds: vec![] };
        for round in 0..rounds_max {
            let mut costs = vec![0.0; names.len()];
            for turn in 0..names.len() {
                let setting = (turn + round) % names.len();
                costs[setting] = measure(setting);
            }
            paired.rounds.push(costs);
            if round + 1 >= ROUNDS_MIN && round % 5 == 4 {
                let ratio = paired.ratio(1);
                if ratio.high - ratio.median <= within && ratio.median - ratio.low <= within {
                    break;
                }
            }
        }
        paired
    }

    /// What setting `of` costs as a multiple of setting 0, round by round.
    pub(crate) fn ratio(&self, of: usize) -> Interval {
        let ratios: Vec<f64> = self.rounds.iter().map(|costs| costs[of] / costs[0]).collect();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let sample = (0..ratios.len()).map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    ratios[(random % ratios.len() as u64) as usize]
                });
                median(sample.collect())
            })
            .collect();
        medians.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share) as usize];
        Interval { low: at(0.025), median: median(ratios), high: at(0.975) }
    }

    /// Prints a line for each setting.
    pub(crate) fn print(&self, what: &str, unit: &str) {
        for (at, name) in self.names.iter().enumerate() {
            let cost = median(self.rounds.iter().map(|costs| costs[at]).collect());
            let Interval { low, median, high } = self.ratio(at);
            let compared = match at {
                0 => format!("{} rounds", self.rounds.len()),
                _ => format!(
                    "{:+.2} % (95 %: {:+.2} to {:+.2})",
                    (median - 1.0) * 100.0,
                    (low - 1.0) * 100.0,
                    (high - 1.0) * 100.0
                ),
            };
            println!("{what:<12} {name:<14} {cost:>9.1} {unit}   {compared}");
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
