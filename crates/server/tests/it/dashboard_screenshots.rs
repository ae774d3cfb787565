//! The pictures of the dashboard in the README, made anew from a server under load:
//! `cargo test --release -p tallybook-server --test it -- --ignored dashboard_screenshots`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tallybook::options::Options;

use crate::harness::{Client, Running, options, start_over};
use tallybook_browser::Browser;

/// Long enough to fill the shorter range.
const LOAD: Duration = Duration::from_secs(310);
const WIDTH: u32 = 1280;
const HEIGHT: u32 = 1245;
const PNG_BYTES_MAX: usize = 300 << 10;
const KEYS: u64 = 40_000;

/// A store so small that its tree has levels after some minutes.
fn small_store() -> Options {
    Options {
        memtable_bytes: 1 << 20,
        table_bytes: 1 << 20,
        level_runs_max: 2,
        sample_every: 16,
        ..Options::default()
    }
}

/// One client whose rate rises and falls; each has its own period.
fn visit(running: &Running, number: u64, stopped: &AtomicBool) {
    let mut client = Client::connect(running.data);
    let start = Instant::now();
    // Numerical Recipes' generator: any spread of keys will do.
    let mut random = number;
    let mut next = || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    while !stopped.load(Ordering::Relaxed) {
        let phase = start.elapsed().as_secs_f64() / (25.0 + 20.0 * number as f64);
        let pause_us = 200.0 + 900.0 * (1.0 + (phase * std::f64::consts::TAU).sin());
        let key = format!("/kv/{:08}", next() % KEYS);
        match next() % 100 {
            0..30 => drop(client.put(&key, &vec![7; [120, 120, 2500][next() as usize % 3]])),
            30..75 => drop(client.get(&key)),
            75..90 => drop(client.request("HEAD", &key, &[], None)),
            90..96 => drop(client.request("DELETE", &key, &[], None)),
            96 => drop(client.get("/kv?prefix=0001&limit=50&heads=true")),
            _ => drop(client.get(&format!("/kv/absent{}", next()))),
        }
        thread::sleep(Duration::from_micros(pause_us as u64));
    }
}

#[test]
#[ignore = "takes five minutes and writes into docs/images"]
fn dashboard_screenshots() {
    let running = start_over(options(), small_store());
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3 {
            let (running, stopped) = (&running, &stopped);
            scope.spawn(move || visit(running, number, stopped));
        }
        // Open all the while: a browser that starts takes the processor from the load.
        let mut browser = Browser::start();
        browser.resize(WIDTH, HEIGHT, false);
        browser.open(&format!("http://{}/", running.admin));
        thread::sleep(LOAD);
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
        fs::create_dir_all(&dir).unwrap();
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            let page = if scheme == "dark" { "rgb(14, 17, 22)" } else { "rgb(245, 246, 248)" };
            browser.wait_for(&format!(
                "getComputedStyle(document.body).backgroundColor === '{page}' \
                 && document.querySelector('[data-chart=disk] canvas')"
            ));
            let png = browser.screenshot();
            assert!(png.len() <= PNG_BYTES_MAX, "{} bytes", png.len());
            fs::write(dir.join(format!("dashboard-{scheme}.png")), png).unwrap();
        }
        stopped.store(true, Ordering::Relaxed);
    });
}
