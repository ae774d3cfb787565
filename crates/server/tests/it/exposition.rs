//! What `/metrics` exports, parsed: every series by its name and labels.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed text of metrics.
pub(crate) struct Exposition {
    /// By name, labels included, as written.
    pub(crate) values: BTreeMap<String, f64>,
    /// Of each name without labels: its labels, each with its values.
    pub(crate) labels: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Exposition {
    pub(crate) fn parse(text: &str) -> Exposition {
        let mut parsed = Exposition { values: BTreeMap::new(), labels: BTreeMap::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let twice = parsed.values.insert(series.to_owned(), value.parse().unwrap());
            assert_eq!(twice, None, "{series} is exported twice");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let of_name = parsed.labels.entry(name.to_owned()).or_default();
            for pair in labels.strip_suffix('}').unwrap().split(',').filter(|pair| !pair.is_empty())
            {
                let (label, value) = pair.split_once('=').unwrap();
                let values: &mut BTreeSet<String> = of_name.entry(label.to_owned()).or_default();
                values.insert(value.trim_matches('"').to_owned());
            }
        }
        parsed
    }

    /// The value of a series.
    pub(crate) fn value(&self, series: &str) -> f64 {
        *self.values.get(series).unwrap_or_else(|| panic!("{series} is not exported"))
    }

    /// The sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        assert!(self.labels.contains_key(name), "{name} is not exported");
        let of_name = |series: &str| series.split('{').next() == Some(name);
        self.values.iter().filter(|(series, _)| of_name(series)).map(|(_, value)| value).sum()
    }
}
