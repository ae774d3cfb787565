//! Flame graphs of folded stacks (Gregg 2016): without a script, so that they are the same picture
//! wherever they are shown, and a page that holds them runs nothing of others.

use inferno::flamegraph::{self, Options};

use super::svg::escape;

/// Frames that take less than this share of the picture, in percent, are left out of it.
const WIDTH_MIN: f64 = 0.4;

/// Width of the picture, in pixels.
const WIDTH: usize = 1200;

/// The picture of stacks, one a line: frames with semicolons in between, a space, how many of `unit`.
/// Lines that are none are left out; of nothing, a picture says so.
pub fn flame_graph(title: &str, unit: &str, folded: &str) -> String {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    options.min_width = WIDTH_MIN;
    options.image_width = Some(WIDTH);
    options.no_javascript = true;
    // The same function has the same colour in every picture.
    options.hash = true;
    let mut svg = Vec::new();
    match flamegraph::from_lines(&mut options, folded.lines(), &mut svg) {
        Ok(()) if !folded.is_empty() => without_script(&String::from_utf8_lossy(&svg)),
        _ => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"40\">\
             <text x=\"10\" y=\"25\" font-family=\"monospace\">{}: nothing was sampled</text></svg>",
            escape(title)
        ),
    }
}

/// The picture without what its script, which the options already leave out, would have begun with.
fn without_script(svg: &str) -> String {
    const END: &str = "</script>";
    let svg = svg.replacen(" onload=\"init(evt)\"", "", 1);
    match (svg.find("<script"), svg.find(END)) {
        (Some(from), Some(end)) => [&svg[..from], &svg[end + END.len()..]].concat(),
        _ => svg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_drawn_without_a_script() {
        let svg = flame_graph("Processor time", "samples", "main;put;append 30\nmain;get 10\n");
        assert!(svg.contains("append (30 samples, 75.00%)"), "{svg}");
        assert!(!svg.contains("<script") && !svg.contains("onload"), "{svg}");
    }

    #[test]
    fn of_nothing_a_picture_says_so() {
        for folded in ["", "no stack at all"] {
            let svg = flame_graph("Waits <1>", "ns", folded);
            assert!(svg.contains("Waits &lt;1&gt;: nothing was sampled"), "{svg}");
        }
    }
}
