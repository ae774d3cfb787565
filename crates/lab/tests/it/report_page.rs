//! A report as a reader sees it: opened in a browser, wide and on a phone, light, dark and on paper.

use std::path::Path;

use serde_json::Value;

use crate::sample_report::write;
use crate::synthetic::HOSTILE;
use tallybook_browser::Browser;

/// Keeps a picture of the page where `TALLYBOOK_SCREENSHOTS` names a directory, for people to judge.
fn keep_picture(browser: &mut Browser, name: &str) {
    if let Some(directory) = std::env::var_os("TALLYBOOK_SCREENSHOTS") {
        let png = browser.screenshot_of_page();
        std::fs::write(Path::new(&directory).join(name), png).unwrap();
    }
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

/// Lists what is wrong with the charts that are shown: none at all, empty ones, marks of no size, letters
/// too small to read, texts outside of their chart.
const CHART_FAULTS: &str = r#"(() => {
  const faults = [];
  const shown = [...document.querySelectorAll("svg.chart")].filter((svg) => svg.getBoundingClientRect().width);
  if (shown.length < 10) faults.push("only " + shown.length + " charts are shown");
  for (const svg of shown) {
    const name = svg.getAttribute("aria-label");
    const marks = [...svg.querySelectorAll(".bar,.line,.dot,.run,.part,.area,.b0,.b1,.b2,.b3,.w1,.w2,.w3")];
    const seen = marks.filter((mark) => {
      const box = mark.getBoundingClientRect();
      const style = getComputedStyle(mark);
      return box.width + box.height > 1 && (style.fill !== "none" || style.stroke !== "none");
    });
    if (seen.length < 2) faults.push(name + ": " + seen.length + " marks");
    const frame = svg.getBoundingClientRect();
    const scale = frame.width / svg.viewBox.baseVal.width;
    for (const text of svg.querySelectorAll("text")) {
      const size = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (size < 10) faults.push(name + ": letters of " + size + " px");
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 3 || box.right > frame.right + 3 || box.top < frame.top - 3 || box.bottom > frame.bottom + 3)
        faults.push(name + ": outside: " + text.textContent);
    }
  }
  return faults;
})()"#;

/// Lists texts whose contrast with what is behind them is below WCAG's 4.5.
const FAINT_TEXTS: &str = r#"(() => {
  const parse = (color) => { const n = color.match(/[\d.]+/g).map(Number); return n.length > 3 && n[3] === 0 ? null : n.slice(0, 3); };
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (element) => {
    if (element.ownerSVGElement) {
      const box = element.getBoundingClientRect();
      const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
      const rects = [...element.ownerSVGElement.querySelectorAll("rect.b0,rect.b1,rect.b2,rect.b3,rect.w1,rect.w2,rect.w3")];
      const under = rects.find((r) => { const b = r.getBoundingClientRect(); return b.left <= x && x <= b.right && b.top <= y && y <= b.bottom; });
      if (under) return parse(getComputedStyle(under).fill);
    }
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getBoundingClientRect().width || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(element.ownerSVGElement ? style.fill : style.color)), light(behind(element))];
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    seen += 1;
    if (contrast < 4.5) faint.push(contrast.toFixed(2) + ": " + element.textContent.slice(0, 40));
  }
  if (seen < 200) faint.push("only " + seen + " texts were seen");
  return faint;
})()"#;

#[test]
fn charts_are_drawn_and_legible_at_every_width_without_anything_from_outside() {
    let directory = tempfile::tempdir().unwrap();
    let address = write(directory.path(), false);
    let mut browser = Browser::start();
    for width in [360, 620, 800, 1200] {
        browser.resize(width, 900, false);
        browser.open(&address);
        let faults = browser.evaluate(CHART_FAULTS);
        let first = strings(&faults).into_iter().take(5).collect::<Vec<_>>();
        assert!(first.is_empty(), "at {width}: {first:?}");
        let scroll = browser.evaluate("document.documentElement.scrollWidth");
        assert!(scroll.as_u64() <= Some(u64::from(width)), "at {width}: {scroll} wide");
        assert_eq!(browser.take_complaints(), Vec::<String>::new());
        assert_eq!(browser.requests(), std::slice::from_ref(&address));
        keep_picture(&mut browser, &format!("light-{width}.png"));
    }
    let shown = browser.evaluate("document.body.innerText");
    let shown = shown.as_str().unwrap();
    assert!(shown.contains(HOSTILE), "names are shown as they are");
    assert!(shown.contains("One run doesn't count"), "{shown}");
    let runs = browser.evaluate("JSON.parse(document.getElementById('runs').textContent).length");
    assert_eq!(runs, 120);
}

#[test]
fn every_text_is_readable_in_light_dark_and_print() {
    let directory = tempfile::tempdir().unwrap();
    let address = write(directory.path(), false);
    let mut browser = Browser::start();
    browser.resize(1000, 900, false);
    browser.open(&address);
    for (medium, scheme) in [("screen", "light"), ("screen", "dark"), ("print", "dark")] {
        browser.show_as(medium, scheme);
        let faint = browser.evaluate(FAINT_TEXTS);
        assert!(strings(&faint).is_empty(), "{medium}, {scheme}: {faint}");
        keep_picture(&mut browser, &format!("{medium}-{scheme}.png"));
    }
    let dark = "getComputedStyle(document.documentElement).backgroundColor";
    assert_eq!(browser.evaluate(dark), "rgb(255, 255, 255)", "paper is white");
    let runs = "document.querySelector('details table').getBoundingClientRect().height";
    assert!(browser.evaluate(runs).as_f64() > Some(500.0), "raw runs are printed though folded");
    browser.show_as("screen", "dark");
    assert_eq!(browser.evaluate(dark), "rgb(22, 22, 23)");
    browser.show_as("", "light");
    let pdf = browser.print();
    assert!(pdf.starts_with(b"%PDF") && pdf.len() > 20_000);
    if let Some(directory) = std::env::var_os("TALLYBOOK_SCREENSHOTS") {
        std::fs::write(Path::new(&directory).join("report.pdf"), pdf).unwrap();
    }
}

#[test]
fn the_figures_under_the_pointer_are_read_out() {
    let directory = tempfile::tempdir().unwrap();
    let address = write(directory.path(), false);
    let mut browser = Browser::start();
    browser.resize(1000, 900, false);
    browser.open(&address);
    let place = browser.evaluate(
        "(() => { const chart = document.querySelector('svg.wide[data-readout]'); \
         chart.scrollIntoView({ block: 'center' }); const box = chart.getBoundingClientRect(); \
         return [box.left + box.width / 2, box.top + box.height / 2]; })()",
    );
    let read = "[...document.querySelectorAll('.readout')].filter(box => !box.hidden).map(box => box.innerText)";
    assert!(strings(&browser.evaluate(read)).is_empty());
    browser.point_at(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    let shown = browser.evaluate(read);
    let shown = strings(&shown).join("");
    assert!(
        shown.starts_with('p') && shown.contains("tallybook") && shown.contains(" us"),
        "{shown}"
    );
    browser.point_at(2.0, 2.0);
    assert!(strings(&browser.evaluate(read)).is_empty());
    assert_eq!(browser.take_complaints(), Vec::<String>::new());
}

#[test]
fn flame_graphs_run_their_script_in_a_frame_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let address = write(directory.path(), true);
    let mut browser = Browser::start();
    browser.run_first("window.told = []; addEventListener('message', e => told.push(e.data + ' from ' + e.origin))");
    browser.resize(1200, 900, false);
    browser.open(&address);
    let told = browser.evaluate("told");
    assert_eq!(strings(&told), ["flame graph drawn from null"; 2]);
    let frames = browser
        .evaluate("[...document.querySelectorAll('iframe')].map(f => String(f.clientHeight))");
    assert_eq!(strings(&frames), ["150", "150"]);
    assert_eq!(browser.take_complaints(), Vec::<String>::new());
    let outside = |url: &String| *url != address && url != "about:srcdoc";
    assert!(!browser.requests().iter().any(outside), "{:?}", browser.requests());
    keep_picture(&mut browser, "flames.png");
}

#[test]
fn pictures_are_whole_files_on_a_sheet_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), false);
    let summary = std::fs::read_to_string(directory.path().join("summary.md")).unwrap();
    let mut browser = Browser::start();
    browser.resize(800, 900, false);
    let mut seen = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".svg") {
            continue;
        }
        assert!(summary.contains(&format!("({name})")), "{name}: {summary}");
        for scheme in ["light", "dark"] {
            browser.show_as("screen", scheme);
            browser.open(&format!("file://{}", path.display()));
            let texts =
                browser.evaluate("document.documentElement.querySelectorAll('text').length");
            assert!(texts.as_u64() > Some(8), "{name}: {texts}");
            let error = browser.evaluate("document.querySelector('parsererror') === null");
            assert_eq!(error, true, "{name} is no XML");
            let paper = browser.evaluate("getComputedStyle(document.querySelector('.paper')).fill");
            let expected = if scheme == "dark" { "rgb(22, 22, 23)" } else { "rgb(255, 254, 251)" };
            assert_eq!(paper, expected, "{name}");
            assert_eq!(browser.take_complaints(), Vec::<String>::new());
            keep_picture(&mut browser, &format!("{name}-{scheme}.png"));
        }
        seen += 1;
    }
    assert_eq!(seen, 3);
}
