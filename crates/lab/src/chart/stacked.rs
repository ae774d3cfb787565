//! Wholes and their parts: as bars beside each other, or as areas over time.

use super::Chart;
use super::frame::{Axis, Frame, slot_class};
use super::rows::Rows;
use super::scale::Scale;
use super::svg::{Drawing, steps};
use super::unit::Unit;

const BAR: f64 = 20.0;

/// One whole.
#[derive(Debug, Clone, PartialEq)]
pub struct StackedBar {
    /// Its name.
    pub name: String,
    /// Its parts, in the order of the chart's; negative ones count as nothing.
    pub parts: Vec<f64>,
}

/// A chart of wholes beside each other.
#[derive(Debug, Clone)]
pub struct StackedBars {
    /// What is counted.
    pub title: String,
    /// In what.
    pub unit: Unit,
    /// The parts' names.
    pub parts: Vec<String>,
    /// The wholes.
    pub bars: Vec<StackedBar>,
}

impl Chart for StackedBars {
    fn draw(&self, width: f64) -> Drawing {
        let total = |bar: &StackedBar| bar.parts.iter().map(|part| counted(*part)).sum::<f64>();
        let mut rows = Rows::new(
            width,
            &legend(&self.parts),
            self.bars.iter().map(|bar| bar.name.as_str()),
            self.bars.iter().map(|bar| self.unit.format(total(bar))),
            Scale::up_to(self.bars.iter().map(total)),
            self.unit,
        );
        for bar in &self.bars {
            rows.label(&bar.name, BAR);
            let mut sum = 0.0;
            for (slot, part) in bar.parts.iter().enumerate() {
                let (from, to) = (rows.x(sum), rows.x(sum + counted(*part)));
                let name = self.parts.get(slot).map_or("", String::as_str);
                let title = format!("{}, {name}: {}", bar.name, self.unit.format(*part));
                let class = format!("part {}", slot_class(slot));
                rows.canvas.rect(&class, (from, rows.y), (to - from, BAR), &title);
                sum += counted(*part);
            }
            rows.figure(rows.x(sum), BAR, &self.unit.format(sum));
            rows.y += BAR + 10.0;
        }
        rows.finish(&self.title)
    }
}

/// A chart of one whole over time.
#[derive(Debug, Clone)]
pub struct StackedAreas {
    /// What is counted.
    pub title: String,
    /// In what.
    pub unit: Unit,
    /// The parts' names.
    pub parts: Vec<String>,
    /// Seconds, and the parts then, in the order of the names.
    pub moments: Vec<(f64, Vec<f64>)>,
}

impl Chart for StackedAreas {
    fn draw(&self, width: f64) -> Drawing {
        let up_to = |values: &[f64], count: usize| -> f64 {
            values.iter().take(count).map(|part| counted(*part)).sum()
        };
        let totals = self.moments.iter().map(|(_, values)| up_to(values, usize::MAX));
        let last = self.moments.iter().map(|(time, _)| *time).fold(0.0, f64::max);
        let time = Scale::Linear { low: 0.0, high: if last > 0.0 { last } else { 1.0 } };
        let x = Axis { title: "time", scale: time, unit: Unit::Seconds };
        let y = Axis { title: &self.title, scale: Scale::linear(totals), unit: self.unit };
        let height = if width < 500.0 { 200.0 } else { 250.0 };
        let mut frame = Frame::new(width, height, &x, &y, &legend(&self.parts));
        for (slot, name) in self.parts.iter().enumerate() {
            let edge = |count: usize| {
                self.moments.iter().map(move |(time, values)| (*time, up_to(values, count)))
            };
            let outline = edge(slot + 1).chain(edge(slot).rev());
            let steps = steps(outline.map(|(time, sum)| (frame.x(time), frame.y(sum)))) + "Z";
            if self.moments.len() > 1 {
                frame.canvas.path(&format!("area {}", slot_class(slot)), &steps, name);
            }
        }
        let height = frame.height();
        frame.canvas.finish(width, height, String::new())
    }
}

fn counted(part: f64) -> f64 {
    if part.is_finite() { part.max(0.0) } else { 0.0 }
}

fn legend(parts: &[String]) -> Vec<(String, usize)> {
    parts.iter().cloned().zip(0..).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::WIDE;

    #[test]
    fn parts_of_a_bar_follow_each_other_and_add_up() {
        let chart = StackedBars {
            title: "CPU per operation".into(),
            unit: Unit::Microseconds,
            parts: vec!["filter".into(), "block".into(), "body".into()],
            bars: vec![StackedBar { name: "get".into(), parts: vec![1.0, f64::NAN, 3.0] }],
        };
        let svg = chart.draw(WIDE).inline("wide", "t");
        assert!(svg.contains(">4.00 us</text>") && svg.contains("get, body: 3.00 us"), "{svg}");
        assert_eq!(svg.matches("class=\"part s").count(), 3);
    }

    #[test]
    fn areas_are_drawn_per_part() {
        let chart = StackedAreas {
            title: "disk".into(),
            unit: Unit::Bytes,
            parts: vec!["live".into(), "dead".into()],
            moments: (0..50).map(|at| (f64::from(at), vec![1e6, f64::from(at) * 1e4])).collect(),
        };
        let svg = chart.draw(WIDE).inline("wide", "t");
        assert_eq!(svg.matches("class=\"area s").count(), 2, "{svg}");
        let empty = StackedAreas { moments: vec![], ..chart };
        assert!(!empty.draw(WIDE).inline("wide", "t").contains("class=\"area"));
    }
}
