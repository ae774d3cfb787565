//! A flame graph of the folded stacks on standard input, for a report.

use std::io::{self, Read};

use tallybook_lab::chart::flame_graph;

/// Draws the stacks on standard input, whose weights are counts of `unit`, on standard output.
pub(crate) fn run(title: &str, unit: &str) {
    let mut folded = String::new();
    io::stdin().read_to_string(&mut folded).expect("folded stacks on standard input");
    println!("{}", flame_graph(title, unit, &folded));
}
