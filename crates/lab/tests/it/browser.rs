//! A headless Chromium, spoken to over the DevTools protocol: opens a page, collects what goes wrong in
//! it and what it asks for, runs expressions in it. One browser with one page; it ends with its value.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// How long anything the browser is asked for may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    last_id: u64,
    events: Vec<Value>,
    // Removed last, when the process is gone.
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one.
    pub(crate) fn start() -> Browser {
        let profile = tempfile::tempdir().expect("a directory for the browser's profile");
        let process = launch(&program(), profile.path());
        let address = devtools_address(profile.path());
        let (host, path) = address.split_once('/').expect("an address with a path");
        let stream = TcpStream::connect(host).expect("a connection to the browser");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let (socket, _) = tungstenite::client(format!("ws://{host}/{path}"), stream)
            .unwrap_or_else(|error| panic!("the browser's DevTools refused: {error}"));
        let (session, events) = (String::new(), Vec::new());
        let mut browser =
            Browser { process, socket, session, last_id: 0, events, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens an address and waits until it has loaded. What earlier pages did is forgotten.
    pub(crate) fn open(&mut self, address: &str) {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({ "url": address }));
        assert!(answer["errorText"].is_null(), "{address}: {answer}");
        let loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(loaded) {
            let message = self.read();
            self.events.push(message);
        }
        self.settle();
    }

    /// Lets the page paint twice, so that what follows from a change has happened.
    pub(crate) fn settle(&mut self) {
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))");
    }

    /// Makes the window so large.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.settle();
    }

    /// Shows the page as for `screen` or `print`, in a `light` or `dark` scheme.
    pub(crate) fn show_as(&mut self, medium: &str, scheme: &str) {
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": medium, "features": scheme }));
        self.settle();
    }

    /// Moves the pointer there, in CSS pixels of the window.
    pub(crate) fn point_at(&mut self, x: f64, y: f64) {
        let at = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.call("Input.dispatchMouseEvent", at);
        self.settle();
    }

    /// The value of an expression in the page; a promise's is awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let question =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", question);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Runs a script in every document from now on, before its own.
    pub(crate) fn run_first(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    /// What went wrong in the page since it was opened: exceptions, errors and warnings.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.settle();
        let wrong = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                ["error", "warning", "assert"].iter().any(|kind| event["params"]["type"] == *kind)
            }
            Some("Log.entryAdded") => {
                let level = &event["params"]["entry"]["level"];
                *level == "error" || *level == "warning"
            }
            _ => false,
        };
        self.events.iter().filter(wrong).map(|event| event["params"].to_string()).collect()
    }

    /// The addresses that the page asked for since it was opened, itself included.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        self.settle();
        let asked = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let address = |event: &Value| event["params"]["request"]["url"].as_str().map(str::to_owned);
        self.events.iter().filter(asked).filter_map(address).collect()
    }

    /// The whole page as a PNG in base 64.
    pub(crate) fn screenshot(&mut self) -> String {
        let answer = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        answer["data"].as_str().expect("a picture").to_owned()
    }

    /// The page as a PDF in base 64.
    pub(crate) fn print(&mut self) -> String {
        let answer = self.call("Page.printToPDF", json!({ "preferCSSPageSize": true }));
        answer["data"].as_str().expect("a document").to_owned()
    }

    /// Calls a method and returns its result; events that come meanwhile are kept.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut question = json!({ "id": self.last_id, "method": method, "params": params });
        if !self.session.is_empty() {
            question["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(question.to_string())).expect("the browser listens");
        loop {
            let mut message = self.read();
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Value {
        loop {
            match self.socket.read().expect("the browser answers in time") {
                Message::Text(text) => {
                    return serde_json::from_str(&text).expect("the browser speaks JSON");
                }
                Message::Close(_) => panic!("the browser went away"),
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = json!({ "id": 0, "method": "Browser.close" }).to_string();
        let _ = self.socket.send(Message::text(close));
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.process.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories)
        .map(|directory| directory.join("chromium"))
        .find(|path| path.is_file());
    found.expect("no `chromium` in PATH: install Debian's package `chromium`")
}

fn launch(program: &Path, profile: &Path) -> Child {
    let mut argument = std::ffi::OsString::from("--user-data-dir=");
    argument.push(profile);
    let mut command = Command::new(program);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--remote-debugging-port=0", "--hide-scrollbars"])
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("starting {}: {error}", program.display()))
}

/// `127.0.0.1:port/path` of the browser's DevTools, which it writes into its profile.
fn devtools_address(profile: &Path) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        if let Some((port, path)) = text.trim().split_once('\n') {
            return format!("127.0.0.1:{port}{path}");
        }
        assert!(Instant::now() < deadline, "the browser did not start in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
