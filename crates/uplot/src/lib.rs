//! uPlot, the chart library of the dashboard and of reports, as constants to put in a page.
//!
//! The build takes it from its npm package, checked against the integrity in `package-lock.json`, or
//! from the directory named by `TALLYBOOK_UPLOT_DIR`. No copy of it is in the repository. Nothing
//! here changes it: whoever serves it serves [`LICENSE`] too.

/// The script. It defines one global, `uPlot`.
pub const JS: &str = include_str!(concat!(env!("OUT_DIR"), "/uPlot.iife.min.js"));

/// The style sheet that the script's elements need.
pub const CSS: &str = include_str!(concat!(env!("OUT_DIR"), "/uPlot.min.css"));

/// The terms of [`JS`] and [`CSS`] (MIT), which go with every copy of them.
pub const LICENSE: &str = include_str!(concat!(env!("OUT_DIR"), "/LICENSE"));

/// The version of the package.
pub const VERSION: &str = env!("TALLYBOOK_UPLOT_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_the_package_that_the_lock_names() {
        let lock = include_str!("../package-lock.json");
        assert!(lock.contains(&format!("\"version\": \"{VERSION}\"")), "{VERSION}");
        assert!(!lock.contains("://"), "the lock names no registry");
        assert!(JS.contains(&format!("(v{VERSION})")) && JS.contains("var uPlot="));
        assert!(CSS.contains(".u-wrap"));
        assert!(LICENSE.contains("Permission is hereby granted, free of charge"));
    }
}
