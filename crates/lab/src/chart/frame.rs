//! What a chart of two axes has in common: the legend, the grid, the axes with their figures.

use super::scale::Scale;
use super::svg::{Anchor, Canvas, text_width};
use super::unit::Unit;

const ROW: f64 = 18.0;
const SWATCH: f64 = 20.0;
const LEGEND_GAP: f64 = 14.0;

/// Slots of colour that there are; names beyond them begin anew.
pub(super) const SLOTS: usize = 8;

/// The class of a colour.
pub(super) fn slot_class(slot: usize) -> String {
    format!("s{}", slot % SLOTS)
}

/// One axis.
pub(super) struct Axis<'a> {
    pub(super) title: &'a str,
    pub(super) scale: Scale,
    pub(super) unit: Unit,
}

/// The plot's place among its axes, on a canvas that has them.
pub(super) struct Frame {
    pub(super) canvas: Canvas,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    x: Scale,
    y: Scale,
}

impl Frame {
    /// Draws legend, grid and axes around a plot that fills the width.
    pub(super) fn new(
        width: f64,
        plot_height: f64,
        x: &Axis<'_>,
        y: &Axis<'_>,
        legend: &[(String, usize)],
    ) -> Frame {
        let mut canvas = Canvas::default();
        let top = draw_legend(&mut canvas, legend, width) + ROW + 6.0;
        let y_ticks = y.scale.ticks(y.unit, plot_height / 45.0);
        let left = y_ticks.iter().map(|(_, text)| text_width(text)).fold(20.0, f64::max) + 8.0;
        let frame = Frame {
            left,
            right: width - 12.0,
            top,
            bottom: top + plot_height,
            x: x.scale,
            y: y.scale,
            canvas,
        };
        frame.with_axes(x, y, &y_ticks)
    }

    fn with_axes(mut self, x: &Axis<'_>, y: &Axis<'_>, y_ticks: &[(f64, String)]) -> Frame {
        let (left, right, bottom) = (self.left, self.right, self.bottom);
        for (value, text) in y_ticks {
            let at = self.y(*value);
            self.canvas.line("grid", (left, at), (right, at));
            self.canvas.text("muted", Anchor::End, (left - 6.0, at + 4.0), text);
        }
        let mut free_from = f64::NEG_INFINITY;
        for (value, text) in x.scale.ticks(x.unit, (right - left) / 64.0) {
            let at = self.x(value);
            self.canvas.line("axis", (at, bottom), (at, bottom + 4.0));
            let half = text_width(&text) / 2.0;
            let middle = at.min(right + 10.0 - half);
            if middle - half >= free_from {
                self.canvas.text("muted", Anchor::Middle, (middle, bottom + 17.0), &text);
                free_from = middle + half + 6.0;
            }
        }
        self.canvas.line("axis", (left, bottom), (right, bottom));
        self.canvas.text("muted", Anchor::Start, (0.0, self.top - 14.0), y.title);
        self.canvas.text("muted", Anchor::End, (right, bottom + 34.0), x.title);
        self
    }

    /// The height of everything, axes and titles included.
    pub(super) fn height(&self) -> f64 {
        self.bottom + 42.0
    }

    /// Where a value of the horizontal axis is.
    pub(super) fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * self.x.place(value)
    }

    /// Where a value of the vertical axis is.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * self.y.place(value)
    }
}

/// Draws names with their colours, in as many rows as they take; returns the height. One name alone needs
/// no colour told.
pub(super) fn draw_legend(canvas: &mut Canvas, legend: &[(String, usize)], width: f64) -> f64 {
    if legend.len() < 2 {
        return 0.0;
    }
    let (mut x, mut y) = (0.0, 0.0);
    for (name, slot) in legend {
        let room = width - SWATCH;
        let wide = SWATCH + text_width(name).min(room);
        if x > 0.0 && x + wide > width {
            (x, y) = (0.0, y + ROW);
        }
        canvas.rect(&format!("bar {}", slot_class(*slot)), (x, y + 3.0), (12.0, 10.0), "");
        canvas.text_within("", Anchor::Start, (x + SWATCH - 3.0, y + 12.0), name, room);
        x += wide + LEGEND_GAP;
    }
    y + ROW + 6.0
}
