//! Ratios with their intervals around 1: which cases got better, which worse, which can't be told.

use super::Chart;
use super::rows::Rows;
use super::scale::Scale;
use super::svg::{Anchor, Drawing};
use super::unit::Unit;
use crate::statistics::Interval;

const ROW: f64 = 20.0;

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// For the better.
    Better,
    /// For the worse.
    Worse,
    /// Nothing that chance couldn't.
    Same,
}

impl Tone {
    /// Its CSS class.
    pub fn class(self) -> &'static str {
        match self {
            Tone::Better => "better",
            Tone::Worse => "worse",
            Tone::Same => "same",
        }
    }
}

/// One ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioRow {
    /// What of.
    pub name: String,
    /// How much.
    pub ratio: Interval,
    /// What it says.
    pub tone: Tone,
}

/// A chart of ratios.
#[derive(Debug, Clone)]
pub struct RatioChart {
    /// What is divided by what.
    pub title: String,
    /// The ratios.
    pub rows: Vec<RatioRow>,
}

impl Chart for RatioChart {
    fn draw(&self, width: f64) -> Drawing {
        let ends =
            self.rows.iter().flat_map(|row| [row.ratio.low, row.ratio.high, row.ratio.estimate]);
        // As far to both sides of 1: half as much and twice as much look alike.
        let far = ends
            .filter(|ratio| *ratio > 0.0 && ratio.is_finite())
            .map(|ratio| ratio.max(1.0 / ratio))
            .fold(1.25, f64::max)
            * 1.05;
        let mut rows = Rows::new(
            width,
            &[],
            self.rows.iter().map(|row| row.name.as_str()),
            self.rows.iter().map(|row| figure(&row.ratio)),
            Scale::Log { low: 1.0 / far, high: far },
            Unit::Ratio,
        );
        draw_tones(&mut rows);
        let start = rows.y;
        for row in &self.rows {
            rows.label(&row.name, ROW);
            let (class, middle) = (row.tone.class(), rows.y + ROW / 2.0);
            let at = [row.ratio.low, row.ratio.estimate, row.ratio.high].map(|value| rows.x(value));
            rows.canvas.line(&format!("interval {class}"), (at[0], middle), (at[2], middle));
            let title = format!("{}: {}", row.name, figure(&row.ratio));
            rows.canvas.circle(&format!("dot {class}"), (at[1], middle), 5.0, &title);
            // To the right of the plot, in one column: figures that follow their dots are hard to compare.
            rows.figure(rows.x(f64::INFINITY) + 4.0, ROW, &figure(&row.ratio));
            rows.y += ROW + 6.0;
        }
        let (one, end) = (rows.x(1.0), rows.y);
        rows.canvas.line("axis", (one, start), (one, end));
        rows.finish(&self.title)
    }
}

fn draw_tones(rows: &mut Rows) {
    let tones = [(Tone::Better, "better"), (Tone::Worse, "worse"), (Tone::Same, "undecided")];
    for (at, (tone, name)) in tones.into_iter().enumerate() {
        let x = at as f64 * 74.0;
        rows.canvas.circle(&format!("dot {}", tone.class()), (x + 6.0, 8.0), 5.0, "");
        rows.canvas.text("", Anchor::Start, (x + 16.0, 12.0), name);
    }
    rows.leave(24.0);
}

fn figure(ratio: &Interval) -> String {
    format!("{:.2}x ({:.2}-{:.2})", ratio.estimate, ratio.low, ratio.high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{NARROW, WIDE};

    #[test]
    fn ratios_stand_on_their_side_of_one() {
        let row = |name: &str, estimate: f64, tone| RatioRow {
            name: name.into(),
            ratio: Interval { estimate, low: estimate * 0.9, high: estimate * 1.1 },
            tone,
        };
        let rows = vec![row("get", 2.0, Tone::Better), row("put", 0.5, Tone::Worse)];
        let chart = RatioChart { title: "new / old".into(), rows };
        for width in [WIDE, NARROW] {
            let svg = chart.draw(width).inline("wide", "t");
            let at = |class: &str| -> f64 {
                // The first is the legend's.
                let dot = svg.split(&format!("<circle class=\"dot {class}\" cx=\"")).nth(2);
                dot.and_then(|dot| dot.split('"').next()?.parse().ok()).expect(class)
            };
            assert!(at("worse") < at("better"), "{svg}");
            assert!(svg.contains("2.00x (1.80-2.20)"), "{svg}");
        }
    }
}
