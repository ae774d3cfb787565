//! Every run as a dot, in rows, with the median and its interval: what the summary figures hide.
//!
//! Within a row runs stand in their order from top to bottom, so that a drift shows as a slope.

use super::Chart;
use super::frame::slot_class;
use super::rows::Rows;
use super::scale::Scale;
use super::svg::Drawing;
use super::unit::Unit;
use crate::statistics::Interval;

const ROW: f64 = 26.0;

/// The runs of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct StripRow {
    /// The case.
    pub name: String,
    /// Its colour, from 0.
    pub slot: usize,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<f64>,
    /// Their median and its interval.
    pub median: Option<Interval>,
}

/// A chart of runs.
#[derive(Debug, Clone)]
pub struct StripChart {
    /// What is measured.
    pub title: String,
    /// In what.
    pub unit: Unit,
    /// Whether equal ratios are to be equally far apart.
    pub log: bool,
    /// The cases.
    pub rows: Vec<StripRow>,
}

impl Chart for StripChart {
    fn draw(&self, width: f64) -> Drawing {
        let values = self.rows.iter().flat_map(|row| row.runs.iter().copied());
        let mut rows = Rows::new(
            width,
            &[],
            self.rows.iter().map(|row| row.name.as_str()),
            self.rows.iter().filter_map(|row| Some(self.unit.format(row.median?.estimate))),
            if self.log { Scale::log(values) } else { Scale::around(values) },
            self.unit,
        );
        for row in &self.rows {
            rows.label(&row.name, ROW);
            self.draw_row(&mut rows, row);
            rows.y += ROW + 6.0;
        }
        let scale = if self.log { " (log scale)" } else { " (the axis does not start at 0)" };
        rows.finish(&format!("{}{scale}", self.title))
    }
}

impl StripChart {
    fn draw_row(&self, rows: &mut Rows, row: &StripRow) {
        let (class, middle) = (slot_class(row.slot), rows.y + ROW / 2.0);
        if let Some(median) = row.median {
            let at = [median.low, median.estimate, median.high].map(|value| rows.x(value));
            rows.canvas.line(&format!("interval {class}"), (at[0], middle), (at[2], middle));
            let (top, bottom) = (middle - 10.0, middle + 10.0);
            rows.canvas.line(&format!("median {class}"), (at[1], top), (at[1], bottom));
        }
        let step = (ROW - 8.0) / row.runs.len().saturating_sub(1).max(1) as f64;
        let mut end = rows.x(f64::NEG_INFINITY);
        for (at, value) in row.runs.iter().enumerate() {
            let x = rows.x(*value);
            let y = if row.runs.len() > 1 { rows.y + 4.0 + at as f64 * step } else { middle };
            let title = format!("{}, run {}: {}", row.name, at + 1, self.unit.format(*value));
            rows.canvas.circle(&format!("run {class}"), (x, y), 3.5, &title);
            end = f64::max(end, x);
        }
        if let Some(median) = row.median {
            rows.figure(end, ROW, &self.unit.format(median.estimate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::WIDE;
    use crate::statistics::Bootstrap;

    #[test]
    fn every_run_is_a_dot() {
        let runs = vec![10.0, 12.0, 11.0, 30.0];
        let median = Bootstrap::default().median(&runs);
        let row = StripRow { name: "get".into(), slot: 1, runs, median };
        let alone = StripRow { name: "put".into(), slot: 0, runs: vec![20.0], median: None };
        let unit = Unit::Microseconds;
        let chart = StripChart { title: "p99".into(), unit, log: false, rows: vec![row, alone] };
        let svg = chart.draw(WIDE).inline("wide", "t");
        assert_eq!(svg.matches("class=\"run s1\"").count(), 4, "{svg}");
        assert!(svg.contains("get, run 4: 30.0 us") && svg.contains(">11.5 us</text>"), "{svg}");
    }
}
