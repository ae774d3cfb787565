//! Lines with bands over a time, a percentile or a varied parameter, with a read-out under the pointer.
//!
//! More points than pixels are merged: the line is the median of each group, the band reaches from its
//! smallest to its largest, so that no peak is lost by drawing.

use serde_json::json;

use super::Chart;
use super::frame::{Axis, Frame, slot_class};
use super::scale::{Scale, nines_of};
use super::svg::{Anchor, Drawing, number, steps};
use super::unit::Unit;
use crate::statistics::median;

/// Points of one line beyond which they are merged.
const POINTS_MAX: usize = 360;

/// One point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much; a value that isn't finite breaks the line.
    pub y: f64,
    /// From where to where it may be, or was.
    pub band: Option<(f64, f64)>,
}

impl Point {
    /// A point without a band.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, band: None }
    }
}

/// One line, with its name and colour.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its colour, from 0.
    pub slot: usize,
    /// Its points, in order of `x`.
    pub points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Across {
    Even,
    Log,
    Percentiles,
}

/// A chart of lines.
#[derive(Debug, Clone)]
pub struct LineChart {
    across: Across,
    x_title: String,
    x_unit: Unit,
    y_title: String,
    y_unit: Unit,
    log: bool,
    lines: Vec<Line>,
    marks: Vec<(f64, String)>,
}

impl LineChart {
    /// Latencies in nanoseconds over percentiles (`x` from 0.0 to 1.0), each nine as wide as the one before,
    /// as HdrHistogram draws them.
    pub fn percentiles(y_title: impl Into<String>) -> LineChart {
        let chart = LineChart::sweep("percentile", Unit::Share, y_title, Unit::Nanoseconds).log_y();
        LineChart { across: Across::Percentiles, ..chart }
    }

    /// Something over seconds.
    pub fn over_time(y_title: impl Into<String>, y_unit: Unit) -> LineChart {
        LineChart::sweep("time", Unit::Seconds, y_title, y_unit)
    }

    /// Something over a varied parameter.
    pub fn sweep(
        x_title: impl Into<String>,
        x_unit: Unit,
        y_title: impl Into<String>,
        y_unit: Unit,
    ) -> LineChart {
        LineChart {
            across: Across::Even,
            x_title: x_title.into(),
            x_unit,
            y_title: y_title.into(),
            y_unit,
            log: false,
            lines: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// With a logarithmic vertical axis.
    pub fn log_y(self) -> LineChart {
        LineChart { log: true, ..self }
    }

    /// With a logarithmic horizontal axis.
    pub fn log_x(self) -> LineChart {
        LineChart { across: Across::Log, ..self }
    }

    /// With one more line; its colour is the next.
    pub fn line(self, name: impl Into<String>, points: Vec<Point>) -> LineChart {
        let slot = self.lines.len();
        self.line_in(slot, name, points)
    }

    /// With one more line in a colour of choice.
    pub fn line_in(
        mut self,
        slot: usize,
        name: impl Into<String>,
        points: Vec<Point>,
    ) -> LineChart {
        self.lines.push(Line { name: name.into(), slot, points });
        self
    }

    /// With an upright mark, such as a flush or a restart.
    pub fn mark(mut self, x: f64, name: impl Into<String>) -> LineChart {
        self.marks.push((x, name.into()));
        self
    }

    fn x_scale(&self) -> Scale {
        let values = || self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.x));
        match self.across {
            Across::Log => Scale::log(values()),
            Across::Percentiles => {
                let nines = values().filter(|share| *share < 1.0).map(nines_of).fold(2.0, f64::max);
                // Half a nine more, so that the longest of all stands apart from the last percentile.
                Scale::Tail { nines: nines.min(9.0) + 0.5 }
            }
            // Ends where the data end: room after a run's last second would look like a pause.
            Across::Even => {
                let last = values().filter(|x| x.is_finite()).fold(0.0, f64::max);
                Scale::Linear { low: 0.0, high: if last > 0.0 { last } else { 1.0 } }
            }
        }
    }

    fn y_scale(&self) -> Scale {
        let of_point = |point: &Point| {
            let (low, high) = point.band.unwrap_or((point.y, point.y));
            [point.y, low, high]
        };
        let values = self.lines.iter().flat_map(|line| line.points.iter().flat_map(of_point));
        if self.log { Scale::log(values) } else { Scale::linear(values) }
    }
}

impl Chart for LineChart {
    fn draw(&self, width: f64) -> Drawing {
        let legend: Vec<_> = self.lines.iter().map(|line| (line.name.clone(), line.slot)).collect();
        let log = if self.log { " (log scale)" } else { "" };
        let y_title = format!("{}{log}", self.y_title);
        let x = Axis { title: &self.x_title, scale: self.x_scale(), unit: self.x_unit };
        let y = Axis { title: &y_title, scale: self.y_scale(), unit: self.y_unit };
        let mut frame =
            Frame::new(width, if width < 500.0 { 220.0 } else { 280.0 }, &x, &y, &legend);
        let (top, bottom) = (frame.top, frame.bottom);
        for (x, name) in &self.marks {
            let at = frame.x(*x);
            frame.canvas.line("mark", (at, top), (at, bottom));
            frame.canvas.text("muted", Anchor::Start, (at + 3.0, top + 10.0), name);
        }
        let merged: Vec<Line> = self.lines.iter().map(merge).collect();
        for line in &merged {
            draw_band(&mut frame, line);
        }
        let mut readout = Vec::new();
        for line in &merged {
            draw_line(&mut frame, line, |point| self.describe(point));
            let known = || line.points.iter().filter(|point| point.y.is_finite());
            readout.push(json!({
                "name": line.name,
                "slot": slot_class(line.slot),
                "x": known().map(|point| number(frame.x(point.x))).collect::<Vec<_>>(),
                "y": known().map(|point| number(frame.y(point.y))).collect::<Vec<_>>(),
                "at": known().map(|point| self.describe_x(point.x)).collect::<Vec<_>>(),
                "text": known().map(|point| self.y_unit.format(point.y)).collect::<Vec<_>>(),
            }));
        }
        let plot = [frame.left, frame.right, top, bottom].map(number);
        let readout = json!({ "plot": plot, "lines": readout }).to_string();
        let height = frame.height();
        frame.canvas.finish(width, height, readout)
    }
}

impl LineChart {
    fn describe_x(&self, x: f64) -> String {
        match self.across {
            Across::Percentiles => {
                let text = format!("{:.6}", x * 100.0);
                format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => self.x_unit.format_round(x),
        }
    }

    fn describe(&self, point: &Point) -> String {
        let band = point.band.map(|(low, high)| {
            format!(" ({} to {})", self.y_unit.format(low), self.y_unit.format(high))
        });
        let figure = self.y_unit.format(point.y);
        format!("{}: {figure}{}", self.describe_x(point.x), band.unwrap_or_default())
    }
}

fn draw_band(frame: &mut Frame, line: &Line) {
    for part in line.points.split(|point| point.band.is_none() || !point.y.is_finite()) {
        let bands = || part.iter().filter_map(|point| point.band.map(|band| (point.x, band)));
        if part.len() > 1 {
            let above = bands().map(|(x, (_, high))| (frame.x(x), frame.y(high)));
            let below = bands().rev().map(|(x, (low, _))| (frame.x(x), frame.y(low)));
            let outline = steps(above.chain(below)) + "Z";
            frame.canvas.path(&format!("band {}", slot_class(line.slot)), &outline, "");
        }
    }
}

fn draw_line(frame: &mut Frame, line: &Line, describe: impl Fn(&Point) -> String) {
    let class = slot_class(line.slot);
    for part in line.points.split(|point| !point.y.is_finite()).filter(|part| part.len() > 1) {
        let steps = steps(part.iter().map(|point| (frame.x(point.x), frame.y(point.y))));
        frame.canvas.path(&format!("line {class}"), &steps, &line.name);
    }
    // Few points are measurements, not a course: each is shown.
    if line.points.len() <= 24 {
        for point in line.points.iter().filter(|point| point.y.is_finite()) {
            let title = format!("{}, {}", line.name, describe(point));
            let at = (frame.x(point.x), frame.y(point.y));
            frame.canvas.circle(&format!("dot {class}"), at, 3.5, &title);
        }
    }
}

fn merge(line: &Line) -> Line {
    if line.points.len() <= POINTS_MAX {
        return line.clone();
    }
    let size = line.points.len().div_ceil(POINTS_MAX);
    let points = line.points.chunks(size).map(|group| {
        let known: Vec<&Point> = group.iter().filter(|point| point.y.is_finite()).collect();
        let values: Vec<f64> = known.iter().map(|point| point.y).collect();
        let band = |point: &&Point| point.band.unwrap_or((point.y, point.y));
        let low = known.iter().map(|point| band(point).0).fold(f64::INFINITY, f64::min);
        let high = known.iter().map(|point| band(point).1).fold(f64::NEG_INFINITY, f64::max);
        let x = group[group.len() / 2].x;
        match median(&values) {
            Some(y) => Point { x, y, band: Some((low, high)) },
            None => Point::new(x, f64::NAN),
        }
    });
    Line { points: points.collect(), ..line.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{NARROW, WIDE};

    #[test]
    fn a_peak_survives_the_merging_of_points() {
        let mut points: Vec<Point> =
            (0..10_000).map(|at| Point::new(f64::from(at), 10.0)).collect();
        points[4321].y = 500.0;
        let line = merge(&Line { name: "get".into(), slot: 0, points });
        assert!(line.points.len() <= POINTS_MAX);
        let highest = line.points.iter().filter_map(|point| point.band).map(|band| band.1);
        assert_eq!(highest.fold(0.0, f64::max), 500.0);
        assert!(line.points.iter().all(|point| point.y == 10.0));
    }

    #[test]
    fn lines_break_where_nothing_is_known() {
        let points = [1.0, 2.0, f64::NAN, 3.0, 4.0];
        let points = points.iter().enumerate().map(|(x, y)| Point::new(x as f64, *y)).collect();
        let chart = LineChart::over_time("p99", Unit::Nanoseconds).line("a", points);
        let svg = chart.draw(WIDE).inline("wide", "t");
        assert_eq!(svg.matches("class=\"line s0\"").count(), 2, "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn percentile_curves_have_their_axis_and_a_read_out() {
        let curve =
            [0.0, 0.5, 0.9, 0.99, 0.999, 1.0].map(|share| Point::new(share, 1e3 + share * 1e6));
        let chart = LineChart::percentiles("latency").line("<a>", curve.to_vec()).line("b", vec![]);
        for width in [WIDE, NARROW] {
            let svg = chart.draw(width).inline("wide", "t");
            assert!(svg.contains(">99.9</text>") && svg.contains("p99.9: 1.00 ms"), "{svg}");
            assert!(svg.contains("data-readout") && svg.contains("&lt;a&gt;"), "{svg}");
        }
    }
}
