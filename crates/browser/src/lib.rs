//! A real browser: a headless Chromium of one's own, driven through its DevTools protocol.
//!
//! It is for tests: whatever goes wrong is a panic that says what was asked. Every request of the page
//! and every complaint (an error or a warning on the console, an exception, a refusal by the security
//! policy) is kept from the moment the page is opened. It never sleeps but to ask again.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Error, Message, WebSocket};

/// How long anything that the browser is asked for may take.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before asking again for what isn't there yet.
const PAUSE: Duration = Duration::from_millis(30);
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
];

/// A browser with one page open.
pub struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    page: String,
    last_id: u64,
    /// Events of all sessions that weren't looked at yet.
    events: Vec<Value>,
    requests: Vec<String>,
    complaints: Vec<String>,
    /// Sessions of frames that have a process of their own.
    frames: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser on an empty page.
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let process = Command::new("chromium")
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test needs Chromium (Debian: apt-get install chromium): {error}")
            });
        let socket = connect(profile.path());
        let mut browser = Browser {
            process,
            socket,
            page: String::new(),
            last_id: 0,
            events: Vec::new(),
            requests: Vec::new(),
            complaints: Vec::new(),
            frames: Vec::new(),
            _profile: profile,
        };
        let target = browser.command(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.command(None, "Target.attachToTarget", attach);
        browser.page = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            browser.call(domain, json!({}));
        }
        let follow =
            json!({ "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true });
        browser.call("Target.setAutoAttach", follow);
        browser
    }

    /// Opens an address and waits until it is loaded. What earlier pages asked for and complained of is
    /// forgotten.
    pub fn open(&mut self, url: &str) {
        self.requests.clear();
        self.complaints.clear();
        self.events.clear();
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for_event("Page.loadEventFired");
        self.settle();
    }

    /// Lets the page paint twice, so that what follows from a change has happened.
    pub fn settle(&mut self) {
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))");
    }

    /// Runs a script in every document from now on, before its own.
    pub fn run_first(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    /// A command to the page; its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let page = self.page.clone();
        self.command(Some(&page), method, params)
    }

    /// What an expression of the page comes to; a promise is waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let page = self.page.clone();
        self.try_evaluate_in(&page, expression)
            .unwrap_or_else(|refusal| panic!("{expression}: {refusal}"))
    }

    /// A refusal of the browser's is its own, not the script's: such as that the page went away meanwhile.
    fn try_evaluate_in(&mut self, session: &str, expression: &str) -> Result<Value, Value> {
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let mut reply = self.try_command(Some(session), "Runtime.evaluate", params)?;
        assert!(reply["exceptionDetails"].is_null(), "{expression}: {}", reply["exceptionDetails"]);
        Ok(reply["result"]["value"].take())
    }

    /// Asks until the expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let asked = format!("Boolean({expression})");
        let start = Instant::now();
        while self.evaluate(&asked) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never true: {expression}; {}", self.complained());
            thread::sleep(PAUSE);
        }
    }

    /// Asks the frames that have a process of their own until the expression is true in one. A frame that
    /// is asked while it goes from its empty document to its own refuses, and is asked again.
    pub fn wait_for_in_a_frame(&mut self, expression: &str) {
        let asked = format!("Boolean({expression})");
        let start = Instant::now();
        let mut refusal = Value::Null;
        loop {
            // Events come with replies.
            self.evaluate("0");
            for frame in self.frames.clone() {
                match self.try_evaluate_in(&frame, &asked) {
                    Ok(Value::Bool(true)) => return,
                    Ok(_) => {}
                    Err(refused) => refusal = refused,
                }
            }
            assert!(
                start.elapsed() < PATIENCE,
                "never true: {expression}; {}; last refusal: {refusal}",
                self.complained()
            );
            thread::sleep(PAUSE);
        }
    }

    /// Waits for an event of the page and gives its parameters.
    pub fn wait_for_event(&mut self, method: &str) -> Value {
        let start = Instant::now();
        loop {
            let at = self.events.iter().position(|event| event["method"] == method);
            if let Some(at) = at {
                return self.events.remove(at)["params"].take();
            }
            assert!(start.elapsed() < PATIENCE, "{method} never came");
            self.evaluate("0");
            thread::sleep(PAUSE);
        }
    }

    /// A click on the element that a selector finds.
    pub fn click(&mut self, selector: &str) {
        self.evaluate(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Moves the mouse to the right edge of an element, into the middle of its height.
    pub fn point_at_right(&mut self, selector: &str) {
        let place = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); \
             e.scrollIntoView({{ block: 'center' }}); const r = e.getBoundingClientRect(); \
             return [r.right - 3, r.y + r.height / 2]; }})()"
        ));
        let params = json!({ "type": "mouseMoved", "x": place[0], "y": place[1] });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Moves the mouse there, in CSS pixels of the window.
    pub fn point_at(&mut self, x: f64, y: f64) {
        let params = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.call("Input.dispatchMouseEvent", params);
        self.settle();
    }

    /// Presses and releases a key that makes no character.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "code": key });
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// The size of the window, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32, is_phone: bool) {
        let params = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", params);
        self.settle();
    }

    /// What the system asks pages for: `dark` or `light`.
    pub fn prefer(&mut self, scheme: &str) {
        self.show_as("", scheme);
    }

    /// Shows the page as for `screen` or `print` (empty: as it is), in a `light` or `dark` scheme.
    pub fn show_as(&mut self, medium: &str, scheme: &str) {
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": medium, "features": scheme }));
        self.settle();
    }

    /// The window as a PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        self.made_by("Page.captureScreenshot", json!({ "format": "png" }))
    }

    /// The whole page as a PNG.
    pub fn screenshot_of_page(&mut self) -> Vec<u8> {
        self.made_by("Page.captureScreenshot", json!({ "captureBeyondViewport": true }))
    }

    /// The page as a PDF.
    pub fn print(&mut self) -> Vec<u8> {
        self.made_by("Page.printToPDF", json!({ "preferCSSPageSize": true }))
    }

    fn made_by(&mut self, method: &str, params: Value) -> Vec<u8> {
        use base64::Engine as _;
        let made = self.call(method, params);
        let data = made["data"].as_str().expect("the browser made something");
        base64::engine::general_purpose::STANDARD.decode(data).expect("it is base 64")
    }

    /// Addresses that the page asked for since it was opened, itself included.
    pub fn requests(&mut self) -> &[String] {
        self.evaluate("0");
        &self.requests
    }

    /// What the page complained of since the last call.
    pub fn take_complaints(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.complaints)
    }

    /// The first complaint, for messages.
    fn complained(&self) -> &str {
        self.complaints.first().map_or("the page did not complain", String::as_str)
    }

    fn command(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.try_command(session, method, params)
            .unwrap_or_else(|refusal| panic!("{method}: {refusal}"))
    }

    fn try_command(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let mut message = self.receive();
            if message["id"] == json!(id) {
                return match message["error"].take() {
                    Value::Null => Ok(message["result"].take()),
                    refusal => Err(refusal),
                };
            }
            if message["method"].is_string() {
                self.note(message);
            }
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Ok(_) => {}
                // By the signal of a profiler, in a process that is profiled. What came before it is kept.
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the browser doesn't answer: {error}"),
            }
        }
    }

    fn note(&mut self, event: Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap() {
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap().to_owned());
            }
            "Runtime.exceptionThrown" => {
                let exception = &params["exceptionDetails"]["exception"];
                self.complaints.push(exception["description"].to_string());
            }
            "Log.entryAdded" if is_complaint(&params["entry"]["level"]) => {
                self.complaints.push(params["entry"].to_string());
            }
            "Runtime.consoleAPICalled" if is_complaint(&params["type"]) => {
                self.complaints.push(params["args"].to_string());
            }
            "Target.attachedToTarget" => {
                self.frames.push(params["sessionId"].as_str().unwrap().to_owned());
            }
            "Target.detachedFromTarget" => {
                self.frames.retain(|frame| params["sessionId"] != json!(frame));
            }
            _ => self.events.push(event),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end with it; a kill alone would leave them to notice.
        let close = json!({ "id": 0, "method": "Browser.close" });
        let closing = self.socket.send(Message::text(close.to_string())).is_ok();
        let start = Instant::now();
        while closing && start.elapsed() < PATIENCE {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(PAUSE);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether something on the console is one, by its kind.
fn is_complaint(kind: &Value) -> bool {
    ["error", "warning", "assert"].iter().any(|complaint| kind == complaint)
}

/// The socket that the browser names in a file of its profile once it listens.
fn connect(profile: &Path) -> WebSocket<TcpStream> {
    let file = profile.join("DevToolsActivePort");
    let start = Instant::now();
    let (port, path) = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some((port, path)) = text.split_once('\n')
            && path.starts_with('/')
        {
            break (port.parse::<u16>().unwrap(), path.trim().to_owned());
        }
        assert!(start.elapsed() < PATIENCE, "Chromium did not start");
        thread::sleep(PAUSE);
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("ws://127.0.0.1:{port}{path}");
    tungstenite::client(request, stream).expect("Chromium speaks its protocol").0
}
