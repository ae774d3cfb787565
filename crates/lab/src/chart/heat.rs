//! A table of ratios, coloured: rows workloads, columns engines, blue where better and orange where worse.
//! The figure always stands in the cell: colour only leads the eye.

use super::Chart;
use super::ratio::Tone;
use super::svg::{Anchor, Canvas, Drawing, text_width, wrap};

const ROW: f64 = 30.0;

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatCell {
    /// What stands in it.
    pub text: String,
    /// How many times as good, above 1 better; it chooses the colour.
    pub goodness: f64,
    /// What shows under the pointer.
    pub note: String,
}

/// A table of ratios.
#[derive(Debug, Clone)]
pub struct HeatTable {
    /// What the figures are.
    pub title: String,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows' names with their cells; `None` where there is no figure.
    pub rows: Vec<(String, Vec<Option<HeatCell>>)>,
}

impl Chart for HeatTable {
    fn draw(&self, width: f64) -> Drawing {
        let mut canvas = Canvas::default();
        let longest = self.rows.iter().map(|(name, _)| text_width(name)).fold(0.0, f64::max);
        let left = (longest + 10.0).min(width * 0.36);
        let column = ((width - left) / self.columns.len().max(1) as f64).min(120.0);
        let widest = self.columns.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        let slanted = widest > column - 6.0;
        // Slanted names rise by their length over the square root of two, and the last leans out to the
        // right, so columns give way to it.
        // The names are bold, which is a tenth wider.
        let lean = if slanted { widest * 0.78 + 2.0 } else { 0.0 };
        let column = column.min((width - left - lean * 0.8) / self.columns.len().max(1) as f64);
        let mut y = if slanted { lean + 14.0 } else { 20.0 };
        for (at, name) in self.columns.iter().enumerate() {
            let middle = left + (at as f64 + 0.5) * column;
            if slanted {
                canvas.text_slanted("strong", (middle, y - 6.0), name);
            } else {
                canvas.text("strong", Anchor::Middle, (middle, y - 7.0), name);
            }
        }
        for (name, cells) in &self.rows {
            let base = y + ROW / 2.0 + 4.0;
            canvas.text_within("", Anchor::Start, (0.0, base), name, left - 8.0);
            for (at, cell) in cells.iter().enumerate().take(self.columns.len()) {
                let corner = (left + at as f64 * column + 1.0, y + 1.0);
                let middle = (left + (at as f64 + 0.5) * column, base);
                let (class, text, note) = match cell {
                    Some(cell) => (class(cell.goodness), cell.text.as_str(), cell.note.as_str()),
                    None => ("b0", "-", "no figure"),
                };
                let title = format!("{name}, {}: {note}", self.columns[at]);
                canvas.rect(class, corner, (column - 2.0, ROW - 2.0), &title);
                canvas.text_within("", Anchor::Middle, middle, text, column - 2.0);
            }
            y += ROW;
        }
        for line in wrap(&self.title, width) {
            y += 16.0;
            canvas.text("muted", Anchor::Start, (0.0, y + 2.0), &line);
        }
        canvas.finish(width, y + 10.0, String::new())
    }
}

fn class(goodness: f64) -> &'static str {
    let (tone, far) = match goodness {
        better if better > 1.0 => (Tone::Better, better),
        worse if worse > 0.0 => (Tone::Worse, 1.0 / worse),
        _ => (Tone::Same, 1.0),
    };
    match (tone, far) {
        (_, far) if far < 1.05 => "b0",
        (Tone::Better, far) if far < 1.25 => "b1",
        (Tone::Better, far) if far < 2.0 => "b2",
        (Tone::Better, _) => "b3",
        (Tone::Worse, far) if far < 1.25 => "w1",
        (Tone::Worse, far) if far < 2.0 => "w2",
        (Tone::Worse, _) => "w3",
        (Tone::Same, _) => "b0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{NARROW, WIDE};

    #[test]
    fn colours_follow_the_ratio() {
        let expected = [(3.0, "b3"), (1.5, "b2"), (1.1, "b1"), (1.01, "b0"), (0.99, "b0")];
        for (goodness, name) in expected {
            assert_eq!(class(goodness), name, "{goodness}");
        }
        for (goodness, name) in [(0.9, "w1"), (0.6, "w2"), (0.2, "w3"), (f64::NAN, "b0")] {
            assert_eq!(class(goodness), name, "{goodness}");
        }
    }

    #[test]
    fn every_cell_has_its_figure() {
        let cell = |goodness: f64| {
            Some(HeatCell { text: format!("{goodness:.2}"), goodness, note: "of <best>".into() })
        };
        let columns =
            ["tallybook", "rocksdb-tuned", "rocksdb-blob", "leveldb", "lmdb", "redb", "sled"];
        let rows =
            vec![("readrandom".to_owned(), (1..=7).map(|at| cell(f64::from(at) / 4.0)).collect())];
        let chart =
            HeatTable { title: "t".into(), columns: columns.map(str::to_owned).to_vec(), rows };
        for width in [WIDE, NARROW] {
            let svg = chart.draw(width).inline("wide", "t");
            assert_eq!(svg.matches("<rect class=").count(), 7, "{svg}");
            assert!(svg.contains(">1.75</text>") && svg.contains("of &lt;best&gt;"), "{svg}");
        }
    }
}
