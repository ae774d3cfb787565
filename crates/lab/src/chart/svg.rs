//! Writes SVG: the few elements that charts need, with every text escaped.
//!
//! Invariant: what was drawn is well-formed XML, whatever was passed in.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::STYLE;

/// Text as it may stand in HTML, XML and their quoted attributes. Characters that XML can't hold at all
/// become U+FFFD.
pub fn escape(text: &str) -> Cow<'_, str> {
    let forbidden = |c: char| {
        (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if !text.chars().any(|c| matches!(c, '&' | '<' | '>' | '"' | '\'') || forbidden(c)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if forbidden(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// About how wide a text of the chart's size is: fonts differ, so the estimate follows a wide one
/// (DejaVu Sans).
pub(super) fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' => 4.0,
            'f' | 't' | 'r' | '(' | ')' | '/' | '-' => 5.0,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 11.6,
            'A'..='Z' => 8.8,
            c if c.is_ascii() => 7.5,
            _ => 12.0,
        })
        .sum()
}

/// The text, cut off with an ellipsis where it is wider than there is room.
pub(super) fn fit(text: &str, room: f64) -> Cow<'_, str> {
    if text_width(text) <= room {
        return Cow::Borrowed(text);
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if text_width(&kept) + 9.0 > room {
            kept.pop();
            break;
        }
    }
    Cow::Owned(kept.trim_end().to_owned() + "\u{2026}")
}

/// The text in lines no wider than the room, broken between words; one word alone may be wider.
pub(super) fn wrap(text: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + 4.0 + text_width(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Where a text's position is in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What is being drawn.
#[derive(Debug, Default)]
pub(super) struct Canvas(String);

impl Canvas {
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.0,
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1)
        );
    }

    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), title: &str) {
        let _ = write!(
            self.0,
            r#"<rect class="{class}" x="{}" y="{}" width="{}" height="{}">"#,
            number(at.0),
            number(at.1),
            number(size.0.max(0.0)),
            number(size.1.max(0.0))
        );
        self.close("rect", title);
    }

    pub(super) fn circle(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        let _ = write!(
            self.0,
            r#"<circle class="{class}" cx="{}" cy="{}" r="{}">"#,
            number(at.0),
            number(at.1),
            number(radius)
        );
        self.close("circle", title);
    }

    pub(super) fn path(&mut self, class: &str, steps: &str, title: &str) {
        let _ = write!(self.0, r#"<path class="{class}" d="{steps}">"#);
        self.close("path", title);
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, at: (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.0,
            r#"<text class="{class}" text-anchor="{anchor}" x="{}" y="{}">{}</text>"#,
            number(at.0),
            number(at.1),
            escape(text)
        );
    }

    /// As `text` in as much room as there is; what is cut off shows under the pointer.
    pub(super) fn text_within(
        &mut self,
        class: &str,
        anchor: Anchor,
        at: (f64, f64),
        text: &str,
        room: f64,
    ) {
        let shown = fit(text, room);
        let cut = shown != text;
        if cut {
            let _ = write!(self.0, "<g><title>{}</title>", escape(text));
        }
        self.text(class, anchor, at, &shown);
        if cut {
            self.0.push_str("</g>");
        }
    }

    /// Text that rises to the right, from its start.
    pub(super) fn text_slanted(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = (number(at.0), number(at.1));
        let _ = write!(
            self.0,
            r#"<text class="{class}" transform="translate({x} {y}) rotate(-45)">{}</text>"#,
            escape(text)
        );
    }

    fn close(&mut self, element: &str, title: &str) {
        if !title.is_empty() {
            let _ = write!(self.0, "<title>{}</title>", escape(title));
        }
        let _ = write!(self.0, "</{element}>");
    }

    /// Draws another canvas on top of this one.
    pub(super) fn append(&mut self, other: Canvas) {
        self.0.push_str(&other.0);
    }

    /// What was drawn, so large, and what the pointer's read-out needs (JSON, or nothing).
    pub(super) fn finish(self, width: f64, height: f64, readout: String) -> Drawing {
        Drawing { width, height, body: self.0, readout }
    }
}

/// The steps of a path through points.
pub(super) fn steps(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (at, (x, y)) in points.into_iter().enumerate() {
        let _ = write!(text, "{}{} {}", if at == 0 { 'M' } else { 'L' }, number(x), number(y));
    }
    text
}

/// A coordinate with a tenth of a pixel, which no eye tells from more.
pub(super) fn number(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 };
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A chart as drawn for one width.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    /// Its width in user units.
    pub width: f64,
    /// Its height in user units.
    pub height: f64,
    body: String,
    readout: String,
}

impl Drawing {
    /// The element as it stands in a page that has [`STYLE`]. `class` tells widths apart; `title` is what
    /// a screen reader says.
    pub fn inline(&self, class: &str, title: &str) -> String {
        let mut svg = format!(
            r#"<svg class="chart {class}" viewBox="0 0 {} {}" role="img" aria-label="{}""#,
            number(self.width),
            number(self.height),
            escape(title)
        );
        if !self.readout.is_empty() {
            let _ = write!(svg, r#" data-readout="{}""#, escape(&self.readout));
        }
        svg + ">" + &self.body + "</svg>"
    }

    /// A file of its own, with its title on a sheet of its own colour: an image in a README can't see
    /// whether the page around it is light or dark, so it brings its background along.
    pub fn standalone(&self, title: &str) -> String {
        let (margin, heading) = (16.0, 30.0);
        let (width, height) = (self.width + 2.0 * margin, self.height + heading + 2.0 * margin);
        let mut canvas = Canvas::default();
        canvas.rect("paper", (0.5, 0.5), (width - 1.0, height - 1.0), "");
        canvas.text_within(
            "heading",
            Anchor::Start,
            (margin, margin + 14.0),
            title,
            // The heading's letters are larger than those that widths are estimated by.
            self.width / 1.3,
        );
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {w} {h}" "#,
                r#"width="{w}" height="{h}" role="img" aria-label="{title}"><style>{style}</style>"#,
                r#"{paper}<g transform="translate({x} {y})">{body}</g></svg>{end}"#
            ),
            w = number(width),
            h = number(height),
            title = escape(title),
            style = escape(STYLE),
            paper = canvas.0,
            x = number(margin),
            y = number(margin + heading),
            body = self.body,
            end = "\n",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        assert_eq!(escape("plain"), "plain");
        let hostile = "<script>\"'&\u{1}</script>";
        assert_eq!(escape(hostile), "&lt;script&gt;&quot;&#39;&amp;\u{fffd}&lt;/script&gt;");
        let mut canvas = Canvas::default();
        canvas.text("muted", Anchor::End, (1.0, 2.0), hostile);
        canvas.rect("bar", (0.0, 0.0), (f64::NAN, -3.0), hostile);
        let drawing = canvas.finish(10.0, 10.0, format!("{{\"name\":{hostile:?}}}"));
        for svg in [drawing.inline("wide", hostile), drawing.standalone(hostile)] {
            assert!(
                !svg.contains("<script") && !svg.contains("NaN") && !svg.contains('\u{1}'),
                "{svg}"
            );
        }
    }

    #[test]
    fn long_text_is_cut_to_the_room_and_keeps_its_whole_in_the_title() {
        assert_eq!(fit("short", 100.0), "short");
        assert_eq!(wrap("one two  three", 60.0), ["one two", "three"]);
        let cut = fit("a rather long name of a case", 60.0);
        assert!(cut.ends_with('\u{2026}') && text_width(&cut) <= 64.0, "{cut}");
        let mut canvas = Canvas::default();
        canvas.text_within("", Anchor::Start, (0.0, 0.0), "a rather long name of a case", 60.0);
        let svg = canvas.finish(1.0, 1.0, String::new()).inline("", "");
        assert!(svg.contains("<title>a rather long name of a case</title>"), "{svg}");
    }

    #[test]
    fn coordinates_are_finite_and_short() {
        assert_eq!(number(1.04), "1");
        assert_eq!(number(-0.01), "0");
        assert_eq!(number(f64::INFINITY), "0");
        assert_eq!(steps([(0.0, 1.0), (2.55, 3.0)]), "M0 1L2.5 3");
    }
}
