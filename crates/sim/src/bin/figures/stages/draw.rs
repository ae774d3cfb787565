//! Pictures of a run: each a few lines over time, as SVG.

use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::interval::Interval;

/// One picture: its file, its title, the unit of what it shows, and its lines.
pub(super) struct Picture {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    unit: &'static str,
    is_log: bool,
    lines: Vec<(&'static str, Value)>,
}

/// What a line shows of an interval; `None` where there is nothing to show.
type Value = Box<dyn Fn(&Interval) -> Option<f64>>;

/// Every picture's file.
#[cfg(test)]
pub(super) const NAMES: [&str; 9] = [
    "get.svg",
    "put.svg",
    "head.svg",
    "table.svg",
    "journal.svg",
    "exits.svg",
    "files.svg",
    "head-p50.svg",
    "data.svg",
];

/// Distinct in light and dark surroundings, and to those who don't tell red from green (Okabe, Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

const SIZE: (u32, u32) = (880, 400);

/// The mean time of a stage, in microseconds.
fn mean_us(stage: &'static str) -> (&'static str, Value) {
    let value = move |interval: &Interval| {
        let times = interval.times(stage);
        (times.count > 0).then_some(times.mean_ns as f64 / 1e3)
    };
    (stage, Box::new(value))
}

/// The share of an exit among some, in per cent.
fn share(exit: &'static str, among: &'static [&'static str]) -> (&'static str, Value) {
    let value = move |interval: &Interval| {
        let all: u64 = among.iter().map(|exit| interval.exits(exit)).sum();
        (all > 0).then(|| 100.0 * interval.exits(exit) as f64 / all as f64)
    };
    (exit, Box::new(value))
}

/// Where reads end.
pub(super) const READ_EXITS: [&str; 6] =
    ["head.memory", "head.l0", "head.l1", "head.l2", "head.lower", "head.missed"];

/// Where requests to files end.
pub(super) const FILE_EXITS: [&str; 6] =
    ["file.index", "file.filter", "file.recent", "file.cache", "file.block", "file.in_vain"];

/// All pictures of a run.
pub(super) fn pictures() -> Vec<Picture> {
    let times = |name, title, stages: &[&'static str]| Picture {
        name,
        title,
        unit: "us, mean",
        is_log: true,
        lines: stages.iter().map(|&stage| mean_us(stage)).collect(),
    };
    let shares = |name, title, among: &'static [&'static str]| Picture {
        name,
        title,
        unit: "%",
        is_log: false,
        lines: among.iter().map(|&exit| share(exit, among)).collect(),
    };
    let p50 = |stage: &'static str| -> (&'static str, Value) {
        let value = move |interval: &Interval| {
            let times = interval.times(stage);
            (times.count > 0).then_some(times.p50_ns as f64 / 1e3)
        };
        (stage, Box::new(value))
    };
    let data: Vec<(&'static str, Value)> = vec![
        ("journal", Box::new(|one| Some(one.held.journal_bytes as f64 / 1e6))),
        ("tree", Box::new(|one| Some(one.held.level_bytes.iter().sum::<u64>() as f64 / 1e6))),
        ("page cache", Box::new(|one| megabytes(one.memory.cache_bytes))),
        ("memory limit", Box::new(|one| megabytes(one.memory.limit_bytes))),
    ];
    vec![
        times("get.svg", "GET: head against body", &["get.head", "get.body"]),
        times("put.svg", "PUT: journal against memtable", &["put.journal", "put.memtable"]),
        times("head.svg", "HEAD by level of the hit, and missed", &READ_EXITS),
        times(
            "table.svg",
            "Inside a table",
            &[
                "table.index",
                "table.filter",
                "table.recent",
                "table.cache",
                "table.fetch",
                "table.search",
            ],
        ),
        times("journal.svg", "Inside the journal", &["journal.index", "journal.fetch"]),
        shares("exits.svg", "Where reads end", &READ_EXITS),
        shares("files.svg", "Where requests to files end", &FILE_EXITS),
        Picture {
            name: "head-p50.svg",
            title: "HEAD and GET as the caller sees them: half were faster",
            unit: "us, p50",
            is_log: true,
            lines: ["client.head", "client.head.absent", "client.get"].map(p50).into(),
        },
        Picture {
            name: "data.svg",
            title: "Data and memory",
            unit: "MB",
            is_log: false,
            lines: data,
        },
    ]
}

fn megabytes(bytes: u64) -> Option<f64> {
    (bytes > 0).then_some(bytes as f64 / 1e6)
}

impl Picture {
    /// Draws it into its file in `dir`.
    pub(super) fn draw(
        &self,
        dir: &Path,
        intervals: &[Interval],
    ) -> Result<(), Box<dyn std::error::Error>> {
        let points: Vec<Vec<(f64, f64)>> = self
            .lines
            .iter()
            .map(|(_, value)| {
                let of = |one: &Interval| Some((one.ended_s / 60.0, value(one)?));
                intervals.iter().filter_map(of).collect()
            })
            .collect();
        let values = || points.iter().flatten().map(|point| point.1);
        let most = values().fold(0.0, f64::max).max(1e-3) * 1.1;
        let end = intervals.last().map_or(1.0, |last| last.ended_s / 60.0);
        let path = dir.join(self.name);
        match self.is_log {
            // A time of nothing has no logarithm: 10 ns is below any that is measured.
            true => {
                let least = values().filter(|&value| value > 0.0).fold(most / 10.0, f64::min);
                let y = (least.max(0.01) * 0.8..most * 1.5).log_scale();
                self.draw_on(&path, end, y, &points)
            }
            false => self.draw_on(&path, end, 0.0..most, &points),
        }
    }

    fn draw_on<Y>(
        &self,
        path: &Path,
        end: f64,
        y: Y,
        points: &[Vec<(f64, f64)>],
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 18))
            .margin(10)
            .margin_right(160)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..end, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("minutes")
            .y_desc(self.unit)
            .draw()?;
        let shown = self.lines.iter().zip(points).filter(|(_, points)| !points.is_empty());
        for (at, ((label, _), points)) in shown.enumerate() {
            let color = COLORS[at % COLORS.len()];
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            chart.draw_series(line)?;
            // Beside the picture, so that it hides no line.
            let top = 40 + 20 * at as i32;
            let left = SIZE.0 as i32 - 150;
            let mark = vec![(left, top), (left + 16, top)];
            root.draw(&PathElement::new(mark, color.stroke_width(3)))?;
            root.draw(&Text::new(*label, (left + 22, top - 6), ("sans-serif", 13)))?;
        }
        root.present()?;
        Ok(())
    }
}
