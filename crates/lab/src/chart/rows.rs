//! What charts of horizontal rows have in common: labels beside the rows or, where they are too long for
//! that, above them; one axis below.

use super::frame::draw_legend;
use super::scale::Scale;
use super::svg::{Anchor, Canvas, Drawing, text_width};
use super::unit::Unit;

/// The rows' place among labels and axis, on a canvas.
pub(super) struct Rows {
    pub(super) canvas: Canvas,
    width: f64,
    left: f64,
    right: f64,
    label_above: bool,
    scale: Scale,
    unit: Unit,
    top: f64,
    /// Where the next row begins.
    pub(super) y: f64,
}

impl Rows {
    /// Draws the legend and finds room: for the longest label on the left, for the longest figure on the
    /// right.
    pub(super) fn new<'a>(
        width: f64,
        legend: &[(String, usize)],
        labels: impl Iterator<Item = &'a str>,
        figures: impl Iterator<Item = String>,
        scale: Scale,
        unit: Unit,
    ) -> Rows {
        let mut canvas = Canvas::default();
        let top = draw_legend(&mut canvas, legend, width);
        let longest = labels.map(text_width).fold(0.0, f64::max);
        let label_above = longest > width * 0.36;
        let left = if label_above { 2.0 } else { longest + 12.0 };
        let figure = figures.map(|text| text_width(&text)).fold(0.0, f64::max);
        let right = (width - figure - 12.0).max(left + 60.0);
        Rows { canvas, width, left, right, label_above, scale, unit, top, y: top }
    }

    /// Leaves room above the rows, for what stands outside of the grid.
    pub(super) fn leave(&mut self, height: f64) {
        self.top += height;
        self.y += height;
    }

    /// Writes the label of a group `height` high, beside it or above it; moves `y` to the group's start.
    pub(super) fn label(&mut self, text: &str, height: f64) {
        if text.is_empty() {
            return;
        }
        if self.label_above {
            let room = self.width - 4.0;
            self.canvas.text_within("", Anchor::Start, (0.0, self.y + 12.0), text, room);
            self.y += 17.0;
        } else {
            let at = (self.left - 8.0, self.y + height / 2.0 + 4.0);
            self.canvas.text("", Anchor::End, at, text);
        }
    }

    /// Where a value is.
    pub(super) fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * self.scale.place(value)
    }

    /// Writes a figure to the right of what ends at `x`, level with a row `height` high.
    pub(super) fn figure(&mut self, x: f64, height: f64, text: &str) {
        self.canvas.text("", Anchor::Start, (x + 6.0, self.y + height / 2.0 + 4.0), text);
    }

    /// Draws the grid behind the rows and the axis below; `title` says what it counts.
    pub(super) fn finish(self, title: &str) -> Drawing {
        let bottom = self.y;
        // The grid must lie under the rows, and how far it reaches is known only now.
        let mut below = Canvas::default();
        let mut free_from = f64::NEG_INFINITY;
        for (value, text) in self.scale.ticks(self.unit, (self.right - self.left) / 64.0) {
            let at = self.x(value);
            below.line("grid", (at, self.top), (at, bottom));
            let half = text_width(&text) / 2.0;
            let middle = at.max(half).min(self.width - half);
            if middle - half >= free_from {
                below.text("muted", Anchor::Middle, (middle, bottom + 16.0), &text);
                free_from = middle + half + 6.0;
            }
        }
        below.text_within("muted", Anchor::End, (self.width, bottom + 33.0), title, self.width);
        let width = self.width;
        below.append(self.canvas);
        below.finish(width, bottom + 40.0, String::new())
    }
}
