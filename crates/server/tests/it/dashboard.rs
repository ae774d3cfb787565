//! The dashboard in a real browser: it draws, moves, explains itself, fits a phone, asks nobody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Running, options, start, start_with};
use tallybook_browser::Browser;

/// Writes, reads of keys that are there and that are not, and deletions, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn start(running: &Running) -> Load {
        // A chart of stages needs operations that are timed, and this load makes few.
        running.engine.store.set_sample_every(1);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (stop.clone(), running.data);
        let thread = thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut at = 0;
            while !stopped.load(Ordering::Relaxed) {
                round(&mut client, at);
                at += 1;
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking(), "the load failed");
    }
}

/// One of each request, the GET twice.
fn round(client: &mut Client, at: u64) {
    let key = format!("/kv/key{}", at % 1000);
    let value = vec![at as u8; if at.is_multiple_of(2) { 100 } else { 3000 }];
    assert!(client.put(&key, &value).status < 300);
    assert_eq!(client.get(&key).status, 200);
    assert_eq!(client.get(&format!("/kv/absent{at}")).status, 404);
    assert_eq!(client.request("HEAD", &key, &[], None).status, 200);
    if at.is_multiple_of(10) {
        assert_eq!(client.request("DELETE", &key, &[], None).status, 204);
    }
}

fn page_of(running: &Running) -> String {
    format!("http://{}/", running.admin)
}

fn open(running: &Running) -> Browser {
    let mut browser = Browser::start();
    browser.resize(1280, 900, false);
    browser.open(&page_of(running));
    browser.wait_for("document.getElementById('state').textContent === 'ready'");
    browser
}

/// An expression: how many pixels of a chart were drawn on.
fn drawn(chart: &str) -> String {
    format!(
        "(() => {{ const canvas = document.querySelector('[data-chart={chart}] canvas'); \
         if (!canvas || canvas.offsetParent === null) return 0; \
         const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); \
         let count = 0; for (let at = 3; at < pixels.data.length; at += 4) \
         if (pixels.data[at] > 0) count += 1; return count; }})()"
    )
}

/// An expression: whether a chart shows a series' colour, which axes and grid don't have.
fn shows_colour(chart: &str, colour: &str) -> String {
    format!(
        "(() => {{ const canvas = document.querySelector('[data-chart={chart}] canvas'); \
         if (!canvas || canvas.offsetParent === null) return false; \
         const hex = getComputedStyle(document.documentElement).getPropertyValue('{colour}').trim(); \
         const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); \
         const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
         for (let at = 0; at < data.length; at += 4) if (Math.abs(data[at] - r) < 6 \
         && Math.abs(data[at + 1] - g) < 6 && Math.abs(data[at + 2] - b) < 6 \
         && data[at + 3] > 150) return true; return false; }})()"
    )
}

/// An expression: what a chart's legend says of a series.
fn legend(chart: &str, label: &str) -> String {
    format!(
        "[...document.querySelectorAll('[data-chart={chart}] .key')] \
         .find((key) => key.querySelector('span').textContent === '{label}') \
         ?.querySelector('b').textContent"
    )
}

/// Fails if the page complained, or asked anyone but the listener.
fn check_quiet(browser: &mut Browser, listener: SocketAddr) {
    let mut complaints = browser.take_complaints();
    // That pixels are read back is the test's doing.
    complaints.retain(|complaint| !complaint.contains("willReadFrequently"));
    assert!(complaints.is_empty(), "{complaints:#?}");
    let own = format!("http://{listener}/");
    let requests = browser.requests();
    assert!(requests.len() > 10, "requests were seen: {requests:?}");
    for url in requests {
        assert!(url.starts_with(&own) || url.starts_with("blob:"), "asked {url}");
    }
}

#[test]
fn charts_explain_themselves_while_empty_and_draw_and_move_under_load() {
    let running = start();
    let mut browser = open(&running);
    for (chart, words) in [
        ("throughput", "No requests yet"),
        ("exits", "the share of each level appears with the first GET or HEAD"),
        ("levels", "The first flush writes L0"),
        ("put", "No write was timed yet"),
    ] {
        let empty = format!("document.querySelector('[data-chart={chart}] .empty')");
        let text = browser.evaluate(&format!("{empty}.textContent"));
        assert!(text.as_str().unwrap().contains(words), "{chart}: {text}");
        assert_eq!(browser.evaluate(&format!("{empty}.offsetParent !== null")), json!(true));
        assert_eq!(browser.evaluate(&drawn(chart)), json!(0), "{chart}");
    }

    let load = Load::start(&running);
    for (chart, colour) in [
        ("throughput", "--blue"),
        ("throughput", "--orange"),
        ("latency", "--sky"),
        ("spread", "--max"),
        ("bytes", "--blue"),
        ("work", "--orange"),
        ("connections", "--blue"),
        ("processor", "--blue"),
    ] {
        browser.wait_for(&shows_colour(chart, colour));
    }
    for chart in ["memory", "disk"] {
        browser.wait_for(&format!("{} > 5000", drawn(chart)));
    }
    running.engine.store.flush().unwrap();
    browser.wait_for(&format!("{} > 1000", drawn("levels")));
    browser.wait_for("document.querySelector('#levels tbody td:nth-child(3)').textContent === '1'");

    let first = browser.evaluate(&legend("throughput", "GET"));
    assert!(first.as_str().unwrap().ends_with("/s"), "{first}");
    browser.wait_for(&format!("{} !== {first}", legend("throughput", "GET")));
    browser.wait_for("parseFloat(document.querySelector('.tile b').textContent) > 0");
    drop(load);
    browser.wait_for(&format!("{} === '0/s'", legend("throughput", "GET")));
    check_quiet(&mut browser, running.admin);
}

#[test]
fn values_are_read_by_mouse_and_keys_and_series_are_chosen() {
    let running = start();
    let _load = Load::start(&running);
    let mut browser = open(&running);
    browser.wait_for(&shows_colour("throughput", "--blue"));
    // The newest values are at the right edge; the arrow keys start there.
    browser.evaluate("document.querySelector('[data-chart=throughput] .plot').focus()");
    browser.press("ArrowLeft");
    let tooltip = "document.querySelector('[data-chart=throughput] .tooltip')";
    browser.wait_for(&format!("!{tooltip}.hidden && {tooltip}.textContent.includes('GET')"));
    let text = browser.evaluate(&format!("{tooltip}.textContent"));
    assert!(text.as_str().unwrap().contains("/s"), "{text}");
    browser.press("Escape");
    browser.wait_for(&format!("{tooltip}.hidden"));
    browser.wait_for("document.querySelector('[data-chart=latency] canvas')");
    browser.point_at_right("[data-chart=latency] .u-over");
    browser.wait_for("!document.querySelector('[data-chart=latency] .tooltip').hidden");

    browser.wait_for(&shows_colour("throughput", "--orange"));
    browser.evaluate(
        "[...document.querySelectorAll('[data-chart=throughput] .key')] \
         .find((key) => key.textContent.startsWith('PUT')).click()",
    );
    browser.wait_for(&format!("!({})", shows_colour("throughput", "--orange")));
    browser.evaluate(
        "[...document.querySelectorAll('[data-chart=latency] .choice button')] \
         .find((button) => button.textContent === 'p50').click()",
    );
    browser.wait_for(&shows_colour("latency", "--orange"));
    check_quiet(&mut browser, running.admin);
}

/// The number that the server's next second will have.
fn next_second(client: &mut Client) -> u64 {
    client.send("GET /dashboard.json HTTP/1.1\r\nHost: t\r\n\r\n");
    let figures: Value = serde_json::from_slice(&client.reply("GET").body).unwrap();
    figures["next"].as_u64().unwrap()
}

fn wait_for_seconds(client: &mut Client, count: u64) {
    let until = next_second(client) + count;
    let start = Instant::now();
    while next_second(client) < until {
        assert!(start.elapsed() < PATIENCE, "no second is added");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn pause_stops_asking_and_afterwards_what_was_missed_is_asked_for() {
    let running = start();
    let _load = Load::start(&running);
    let mut admin = running.admin_client();
    let mut browser = open(&running);
    browser.wait_for(&shows_colour("throughput", "--blue"));
    browser.click("#pause");
    browser.wait_for("document.getElementById('pause').textContent === 'Resume'");
    // An answer may have been under way; nothing follows it.
    wait_for_seconds(&mut admin, 1);
    let asked = browser.requests().len();
    wait_for_seconds(&mut admin, 3);
    assert_eq!(browser.requests().len(), asked, "a paused page asks nothing");
    let missed_until = next_second(&mut admin);
    browser.click("#pause");
    browser.wait_for("document.getElementById('pause').textContent === 'Pause'");
    let resumed = browser.requests()[asked].clone();
    let since: u64 = resumed.split_once("span=5m&since=").unwrap().1.parse().unwrap();
    assert!(since > 0 && since + 3 <= missed_until, "{resumed}, server at {missed_until}");

    browser.click("[data-span='1h']");
    browser.wait_for("document.querySelector('[data-span=\"1h\"]').ariaPressed === 'true'");
    browser.wait_for("performance.getEntriesByType('resource').some((e) => e.name.includes('1h'))");
    assert!(browser.requests().iter().any(|url| url.ends_with("span=1h&since=0")));
    // The table shows the last second whatever the range.
    browser.wait_for("document.querySelectorAll('#levels tbody tr').length === 3");
    check_quiet(&mut browser, running.admin);
}

#[test]
fn page_is_dark_or_light_and_fits_a_phone() {
    let running = start();
    let _load = Load::start(&running);
    let mut browser = open(&running);
    let back = "getComputedStyle(document.body).backgroundColor";
    let mut seen = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        seen.push(browser.evaluate(back));
        browser.wait_for(&shows_colour("throughput", "--blue"));
    }
    assert_ne!(seen[0], seen[1]);
    // The button's order is light, dark, and again what the system asks for.
    for expected in [0, 1, 1] {
        browser.click("#theme");
        assert_eq!(browser.evaluate(back), seen[expected]);
        browser.wait_for(&shows_colour("throughput", "--blue"));
    }
    browser.resize(360, 740, true);
    browser.wait_for("innerWidth === 360");
    browser.wait_for(&shows_colour("throughput", "--blue"));
    browser.wait_for("document.querySelector('[data-chart=throughput] canvas').width <= 360");
    let widest = browser.evaluate(
        "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth, \
         ...[...document.querySelectorAll('main *')].filter((e) => !e.closest('.u-wrap')) \
         .map((e) => e.getBoundingClientRect().right))",
    );
    assert!(widest.as_f64().unwrap() <= 360.0, "{widest}");
    check_quiet(&mut browser, running.admin);
}

#[test]
fn lost_server_is_said_and_found_again() {
    let mut running = start();
    let mut browser = open(&running);
    check_quiet(&mut browser, running.admin);
    running.stop();
    browser.wait_for("!document.getElementById('lost').hidden");
    let words = browser.evaluate("document.getElementById('lost').textContent");
    assert!(words.as_str().unwrap().contains("can't be reached since"), "{words}");
    let mut again = options();
    again.admin = Some(running.admin);
    let second = start_with(again);
    browser.wait_for("document.getElementById('lost').hidden");
    browser.wait_for("document.getElementById('state').textContent === 'ready'");
    // The second server's history is its own: what the page held of the first is gone.
    let _load = Load::start(&second);
    browser.wait_for(&shows_colour("throughput", "--blue"));
}

/// A flame graph with a script that works on it, as the profiler's have.
const FLAME: &str = r##"<?xml version="1.0" standalone="no"?>
<svg version="1.1" width="100%" height="200" onload="init(evt)" xmlns="http://www.w3.org/2000/svg">
<script type="text/ecmascript"><![CDATA[
function init(evt) { document.getElementById("frame").setAttribute("data-drawn", 1 < 2); }
]]></script><g id="frame"><title>all</title><rect width="100" height="16" fill="rgb(1,2,3)"/></g></svg>
"##;

#[test]
fn flame_graph_is_shown_with_its_script_and_refusals_are_said_in_words() {
    use base64::Engine as _;
    let running = start();
    let mut browser = open(&running);
    let pattern = json!({ "urlPattern": "*/debug/profile/*" });
    browser.call("Fetch.enable", json!({ "patterns": [pattern] }));
    let answer = |browser: &mut Browser, status: u16, content_type: &str, body: &str| {
        let asked = browser.wait_for_event("Fetch.requestPaused");
        let url = asked["request"]["url"].as_str().unwrap().to_owned();
        let body = base64::engine::general_purpose::STANDARD.encode(body);
        let headers = json!([{ "name": "Content-Type", "value": content_type }]);
        let params = json!({
            "requestId": asked["requestId"], "responseCode": status,
            "responseHeaders": headers, "body": body,
        });
        browser.call("Fetch.fulfillRequest", params);
        url
    };
    browser.click("[data-kind=cpu]");
    browser.wait_for("document.querySelector('.profile-state').textContent.includes('s left')");
    let url = answer(&mut browser, 200, "image/svg+xml", FLAME);
    assert!(url.ends_with("/debug/profile/cpu?seconds=10&format=svg"), "{url}");
    browser.wait_for("document.querySelector('.flame iframe')?.clientHeight > 150");
    browser.wait_for_in_a_frame("document.getElementById('frame')?.dataset.drawn === 'true'");
    browser.wait_for("document.querySelector('.profile-state a')?.download.endsWith('cpu.svg')");
    check_quiet(&mut browser, running.admin);

    browser.click("[data-kind=locks]");
    let refusal = r#"{"error":"conflict","message":"a profile is being taken"}"#;
    answer(&mut browser, 409, "application/json", refusal);
    let words = "document.querySelector('.profile-state').textContent";
    browser.wait_for(&format!("{words}.includes('Another recording is under way')"));
    let said = browser.evaluate(words);
    assert!(said.as_str().unwrap().contains("a profile is being taken"), "{said}");
    browser.wait_for("!document.querySelector('[data-kind=cpu]').disabled");
}

#[test]
fn profile_of_the_running_server_opens() {
    let running = start();
    let _load = Load::start(&running);
    let mut browser = open(&running);
    browser.evaluate("document.querySelector('#profiler select').value = '5'");
    browser.click("[data-kind=cpu]");
    browser.wait_for_in_a_frame("document.querySelectorAll('svg rect').length > 3");
    check_quiet(&mut browser, running.admin);
}
