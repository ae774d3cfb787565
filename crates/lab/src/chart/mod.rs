//! Charts that people read at a glance, as SVG: lines with bands, bars with intervals, stacks, raw runs,
//! ratios. Each draws itself for a given width, so that text keeps its size on a phone and on paper.
//!
//! The SVG is written by our own few lines rather than by `plotters` (0.3, whose source was read): that writes literal
//! colours and whole-pixel coordinates, and knows neither classes nor `<title>`, so its charts can't follow
//! dark mode or a style sheet, nor tell a figure under the pointer, and its text needs a font at build time.
//!
//! Invariant: whatever the names and values are, the result is well-formed XML and refers to nothing
//! outside itself. Colours come from CSS variables (`chart.css`).

mod unit;
mod svg;
mod scale;
mod frame;
mod lines;
mod rows;
mod bars;
mod stacked;
mod strip;
mod ratio;
mod heat;
mod flame;

pub use bars::{Bar, BarChart, BarGroup};
pub use flame::flame_graph;
pub use heat::{HeatCell, HeatTable};
pub use lines::{Line, LineChart, Point};
pub use ratio::{RatioChart, RatioRow, Tone};
pub use stacked::{StackedAreas, StackedBar, StackedBars};
pub use strip::{StripChart, StripRow};
pub use svg::{Drawing, escape};
pub use unit::{Unit, thousands};

/// Width at which charts are drawn for wide screens and paper, in units of about a CSS pixel.
pub const WIDE: f64 = 760.0;
/// Width at which charts are drawn for phones.
pub const NARROW: f64 = 348.0;

/// Variables and rules that charts are styled by; pages include it once, standalone files carry it.
pub const STYLE: &str = include_str!("chart.css");

/// Something that draws itself.
pub trait Chart {
    /// Draws it for a width.
    fn draw(&self, width: f64) -> Drawing;
}
