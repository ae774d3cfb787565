//! Bars in groups, with intervals: what differs between cases, and how surely.

use super::Chart;
use super::frame::slot_class;
use super::rows::Rows;
use super::scale::Scale;
use super::svg::Drawing;
use super::unit::Unit;
use crate::statistics::Interval;

const BAR: f64 = 16.0;
const GAP: f64 = 4.0;

/// One bar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// How long.
    pub value: f64,
    /// From where to where it may be.
    pub interval: Option<(f64, f64)>,
}

impl From<Interval> for Bar {
    fn from(interval: Interval) -> Bar {
        Bar { value: interval.estimate, interval: Some((interval.low, interval.high)) }
    }
}

/// The bars of one case, one per series; `None` where there is no figure.
#[derive(Debug, Clone, PartialEq)]
pub struct BarGroup {
    /// The case.
    pub name: String,
    /// Its bars, in the order of the series.
    pub bars: Vec<Option<Bar>>,
}

/// A chart of bars.
#[derive(Debug, Clone)]
pub struct BarChart {
    title: String,
    unit: Unit,
    series: Vec<(String, usize)>,
    groups: Vec<BarGroup>,
}

impl BarChart {
    /// An empty one; `title` says what bars count, such as `operations per second, more is better`.
    pub fn new(title: impl Into<String>, unit: Unit) -> BarChart {
        BarChart { title: title.into(), unit, series: Vec::new(), groups: Vec::new() }
    }

    /// With one more series; its colour is the next.
    pub fn series(self, name: impl Into<String>) -> BarChart {
        let slot = self.series.len();
        self.series_in(slot, name)
    }

    /// With one more series in a colour of choice.
    pub fn series_in(mut self, slot: usize, name: impl Into<String>) -> BarChart {
        self.series.push((name.into(), slot));
        self
    }

    /// With one more case.
    pub fn group(mut self, name: impl Into<String>, bars: Vec<Option<Bar>>) -> BarChart {
        self.groups.push(BarGroup { name: name.into(), bars });
        self
    }
}

impl Chart for BarChart {
    fn draw(&self, width: f64) -> Drawing {
        let bars = || self.groups.iter().flat_map(|group| group.bars.iter().flatten());
        let ends =
            bars().flat_map(|bar| [bar.value, bar.interval.map_or(bar.value, |ends| ends.1)]);
        let mut rows = Rows::new(
            width,
            &self.series,
            self.groups.iter().map(|group| group.name.as_str()),
            bars().map(|bar| self.unit.format(bar.value)),
            Scale::up_to(ends),
            self.unit,
        );
        for group in &self.groups {
            let height = group.bars.len() as f64 * (BAR + GAP) - GAP;
            rows.label(&group.name, height);
            for (at, bar) in group.bars.iter().enumerate() {
                let (series, slot) = self.series.get(at).cloned().unwrap_or((String::new(), at));
                match bar {
                    Some(bar) => self.draw_bar(&mut rows, &group.name, &series, slot, bar),
                    None => rows.figure(rows.x(0.0), BAR, "no figure"),
                }
                rows.y += BAR + GAP;
            }
            rows.y += 8.0;
        }
        rows.finish(&self.title)
    }
}

impl BarChart {
    fn draw_bar(&self, rows: &mut Rows, group: &str, series: &str, slot: usize, bar: &Bar) {
        let (from, to) = (rows.x(0.0), rows.x(bar.value));
        let mut title = format!("{series}, {group}: {}", self.unit.format(bar.value));
        if let Some((low, high)) = bar.interval {
            title += &format!(" ({} to {})", self.unit.format(low), self.unit.format(high));
        }
        let class = format!("bar {}", slot_class(slot));
        // A bar of next to nothing is still to be seen.
        rows.canvas.rect(&class, (from, rows.y), ((to - from).max(1.0), BAR), &title);
        let mut end = to;
        if let Some((low, high)) = bar.interval {
            let (low, high, middle) = (rows.x(low), rows.x(high), rows.y + BAR / 2.0);
            rows.canvas.line("whisker", (low, middle), (high, middle));
            for at in [low, high] {
                rows.canvas.line("whisker", (at, middle - 3.5), (at, middle + 3.5));
            }
            end = to.max(high);
        }
        rows.figure(end, BAR, &self.unit.format(bar.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{NARROW, WIDE};

    #[test]
    fn bars_are_as_long_as_their_values_and_a_missing_one_is_said() {
        let bar = |value| Some(Bar { value, interval: Some((value * 0.9, value * 1.1)) });
        let chart = BarChart::new("operations per second", Unit::PerSecond)
            .series("tallybook")
            .series("rocks & co")
            .group("readrandom", vec![bar(400e3), bar(200e3)])
            .group("fillseq", vec![bar(100e3), None]);
        for width in [WIDE, NARROW] {
            let svg = chart.draw(width).inline("wide", "t");
            let widths: Vec<f64> = svg
                .split("<rect class=\"bar s")
                .filter(|part| part.contains("<title>"))
                .filter_map(|part| part.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
                .collect();
            assert_eq!(widths.len(), 3, "{svg}");
            assert!((widths[0] / widths[1] - 2.0).abs() < 0.02, "{widths:?}");
            assert!(svg.contains("no figure") && svg.contains("rocks &amp; co"), "{svg}");
        }
    }
}
