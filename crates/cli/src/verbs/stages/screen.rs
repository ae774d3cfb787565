//! Draws text over itself on a terminal, without flicker and never longer than the window.

use rustix::termios::tcgetwinsize;

const CLEAR: &str = "\x1b[2J";
const HOME: &str = "\x1b[H";
const CLEAR_TO_LINE_END: &str = "\x1b[K";
const CLEAR_TO_SCREEN_END: &str = "\x1b[J";

/// A terminal on standard output.
#[derive(Debug, Default)]
pub(super) struct Screen {
    is_drawn: bool,
}

impl Screen {
    /// What to write so that the terminal shows `text` in place of what it showed.
    pub(super) fn frame(&mut self, text: &str) -> String {
        let rows = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        // A terminal that doesn't tell its size says 0.
        let rows = if rows == 0 { 24 } else { rows };
        let start = if std::mem::replace(&mut self.is_drawn, true) { "" } else { CLEAR };
        format!("{start}{}", frame(text, rows))
    }
}

/// `text` drawn from the top in at most `rows` rows, the last of which says what is missing.
fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The cursor stands on a row of its own behind the text.
    let room = rows.saturating_sub(1).max(1);
    let mut frame = String::from(HOME);
    let mut draw = |line: &str| {
        frame.push_str(line);
        frame.push_str(CLEAR_TO_LINE_END);
        frame.push('\n');
    };
    if lines.len() <= room {
        lines.iter().for_each(|line| draw(line));
    } else {
        let shown = room - 1;
        lines[..shown].iter().for_each(|line| draw(line));
        draw(&format!("({} more lines in a taller window)", lines.len() - shown));
    }
    frame.push_str(CLEAR_TO_SCREEN_END);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_drawn_whole_and_the_rest_is_counted() {
        assert_eq!(frame("a\nb\n", 24), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(
            frame("a\nb\nc\nd\n", 4),
            "\x1b[Ha\x1b[K\nb\x1b[K\n(2 more lines in a taller window)\x1b[K\n\x1b[J"
        );
        for rows in 0..6 {
            let drawn = frame("a\nb\nc\nd\n", rows).matches('\n').count();
            assert!(drawn <= rows.saturating_sub(1).max(1), "{drawn} in {rows}");
        }
    }

    #[test]
    fn the_screen_is_cleared_once() {
        let mut screen = Screen::default();
        assert!(screen.frame("a").starts_with(CLEAR));
        assert!(screen.frame("a").starts_with(HOME));
    }
}
