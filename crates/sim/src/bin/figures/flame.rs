//! A flame graph of folded stacks for a report: without a script, so that it is the same picture wherever
//! it is shown, and nothing in the repository but our own figures.

use std::io::{self, Read};

use inferno::flamegraph::{self, Options};

/// Frames that take less than this share of the picture, in percent, are left out of it.
const WIDTH_MIN: f64 = 0.1;

/// Width of the picture, in pixels.
const WIDTH: usize = 1200;

/// Draws the stacks on standard input, whose weights are counts of `unit`, on standard output.
pub(crate) fn run(title: &str, unit: &str) {
    let mut folded = String::new();
    io::stdin().read_to_string(&mut folded).expect("folded stacks on standard input");
    if folded.is_empty() {
        println!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"40\">\
             <text x=\"10\" y=\"25\" font-family=\"monospace\">{title}: nothing was sampled</text></svg>"
        );
        return;
    }
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    options.min_width = WIDTH_MIN;
    options.image_width = Some(WIDTH);
    options.no_javascript = true;
    // The same function has the same colour in every picture.
    options.hash = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
        .expect("stacks that can be drawn");
    println!("{}", without_script(&String::from_utf8(svg).expect("a picture is text")));
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
