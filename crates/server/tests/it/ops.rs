//! `ops/`: every expression of the dashboard and of the alerts is one that Prometheus can parse, and
//! names only metrics, labels and label values that a running server exports.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Command;

use crate::exposition::Exposition;
use crate::harness::start;

const DASHBOARD: &str = include_str!("../../../../ops/grafana/tallybook.json");
const ALERTS: &str = include_str!("../../../../ops/alerts.yaml");

/// Labels that Prometheus itself adds when it scrapes.
const SCRAPE_LABELS: [&str; 2] = ["instance", "job"];
/// Words that stand before labels in parentheses.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const KEYWORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// What an expression names.
#[derive(Debug, Default, PartialEq)]
struct Named {
    metrics: BTreeSet<String>,
    /// Labels that are grouped by.
    labels: BTreeSet<String>,
    /// Metric, label, and the text that it is compared to.
    matchers: BTreeSet<(String, String, String)>,
}

fn word_end(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len())
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Finds the names in an expression. Brackets hold durations; what follows `$` is Grafana's.
fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let mut metric = String::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '[' => rest.find(']').unwrap() + 1,
            '{' => {
                let end = rest.find('}').unwrap();
                for matcher in words(&rest[1..end]) {
                    let (label, value) = matcher.split_once(['=', '!']).unwrap();
                    let value = value.trim_start_matches(['=', '~']).trim_matches('"');
                    named.matchers.insert((metric.clone(), label.to_owned(), value.to_owned()));
                }
                end + 1
            }
            '0'..='9' => {
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len())
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let (word, behind) = rest.split_at(word_end(rest));
                let behind = behind.trim_start();
                if GROUPING.contains(&word) {
                    let end = behind.find(')').unwrap();
                    named.labels.extend(words(&behind[1..end]).map(str::to_owned));
                    rest.len() - behind.len() + end + 1
                } else {
                    if !behind.starts_with('(')
                        && !KEYWORDS.contains(&word)
                        && !is_aggregation(word)
                    {
                        metric = word.to_owned();
                        named.metrics.insert(word.to_owned());
                    }
                    word.len()
                }
            }
            other => other.len_utf8(),
        };
        rest = &rest[skipped..];
    }
    named
}

/// Aggregations may have their labels before their parentheses.
fn is_aggregation(word: &str) -> bool {
    ["sum", "min", "max", "avg", "count", "topk", "bottomk"].contains(&word)
}

/// Every string under the key `key`, wherever in the document it is.
fn strings_under(value: &serde_json::Value, key: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                match value.as_str() {
                    Some(text) if name == key => found.push(text.to_owned()),
                    _ => strings_under(value, key, found),
                }
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| strings_under(value, key, found));
        }
        _ => {}
    }
}

fn dashboard_expressions() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    strings_under(&dashboard, "expr", &mut found);
    assert!(found.len() > 50, "{} expressions", found.len());
    found
}

fn alert_expressions() -> Vec<String> {
    let mut found = Vec::new();
    strings_under(&serde_norway::from_str(ALERTS).unwrap(), "expr", &mut found);
    assert!(!found.is_empty());
    found
}

/// Says what an expression names that isn't exported.
fn check(expression: &str, exported: &Exposition) -> Result<(), String> {
    let named = named(expression);
    if named.metrics.is_empty() {
        return Err(format!("no metric in {expression}"));
    }
    let is_exported = |metric: &str| exported.labels.contains_key(metric);
    if let Some(missing) = named.metrics.iter().find(|metric| !is_exported(metric)) {
        return Err(format!("{missing} is not exported: {expression}"));
    }
    for label in named.labels.iter().filter(|label| !SCRAPE_LABELS.contains(&label.as_str())) {
        if !named.metrics.iter().any(|metric| exported.labels[metric].contains_key(label)) {
            return Err(format!("there is no label {label}: {expression}"));
        }
    }
    for (metric, label, value) in &named.matchers {
        if SCRAPE_LABELS.contains(&label.as_str()) {
            continue;
        }
        let Some(values) = exported.labels.get(metric).and_then(|labels| labels.get(label)) else {
            return Err(format!("{metric} has no label {label}: {expression}"));
        };
        // Alternatives are words; a class, as of statuses, may match nothing yet.
        for word in
            value.split('|').filter(|word| !word.contains(['[', '*', '+']) && !word.ends_with(".."))
        {
            if !values.contains(word) {
                return Err(format!("{metric} has no {label} {word}: {expression}"));
            }
        }
    }
    Ok(())
}

#[test]
fn every_name_in_the_dashboard_and_the_alerts_is_exported() {
    let running = start();
    running.client().put("/kv/k", b"v");
    let exported = Exposition::parse(&running.metrics());
    for expression in dashboard_expressions().iter().chain(&alert_expressions()) {
        if let Err(problem) = check(expression, &exported) {
            panic!("{problem}");
        }
    }
    let variables = DASHBOARD.matches("label_values(tallybook_build_info, instance)").count();
    assert_eq!(variables, 2, "the variable of servers, as query and definition");
    assert!(exported.labels.contains_key("tallybook_build_info"));
}

#[test]
fn prometheus_parses_every_expression() {
    let rules = |expressions: Vec<String>| {
        let rules: Vec<_> = expressions
            .iter()
            .enumerate()
            .map(|(number, expression)| {
                let expression = expression.replace("$__rate_interval", "5m");
                serde_json::json!({ "record": format!("check:{number}"), "expr": expression })
            })
            .collect();
        // JSON is YAML.
        serde_json::json!({ "groups": [{ "name": "check", "rules": rules }] }).to_string()
    };
    for text in [rules(dashboard_expressions()), ALERTS.to_owned()] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let output = Command::new("promtool")
            .args(["check", "rules"])
            .arg(file.path())
            .output()
            .expect("promtool is missing: install Debian's package `prometheus`");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

#[test]
fn wrong_names_are_found() {
    let exported = Exposition::parse("a_total{kind=\"x\"} 1\nb_bucket{le=\"1\",of=\"y\"} 2\nc 3\n");
    for right in [
        "sum by (kind) (rate(a_total{kind=\"x\",instance=~\"$instance\"}[$__rate_interval]))",
        "histogram_quantile(0.99, sum by (of, le) (rate(b_bucket{of=~\"y\"}[5m]))) / on () group_left () c",
        "c > 1e6 and sum without (kind) (a_total{kind!=\"x\"}) > 0.5",
    ] {
        assert_eq!(check(right, &exported), Ok(()), "{right}");
    }
    for wrong in [
        "1 + 1",
        "d",
        "sum(rate(a_totals[5m]))",
        "a_total{sort=\"x\"}",
        "a_total{kind=\"z\"}",
        "a_total{kind=~\"x|z\"}",
        "sum by (sort) (a_total)",
        "c{kind=\"x\"} / a_total",
    ] {
        assert!(check(wrong, &exported).is_err(), "{wrong}");
    }
}
