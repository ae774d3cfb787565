//! Settings of `serve`: where they come from, which wins, and what is refused.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::binary::{Dir, SILENCE_MAX, Server, run, tallybook};

#[test]
fn unknown_setting_in_a_file_is_refused_by_name() {
    let dir = Dir::new();
    let file = dir.beside("tallybook.toml");
    for text in ["memtable_byte = 1", "[limits]\nno_such_limit = 1", "[no_such_table]\nx = 1"] {
        fs::write(&file, text).unwrap();
        let name = text.split_once(" =").unwrap().0;
        let name = if text.contains("no_such_table") { "no_such_table" } else { name };
        let name = name.rsplit('\n').next().unwrap();
        run(Server::command(&dir).arg("--config").arg(&file)).failure(2, name);
        assert!(!dir.data().exists(), "nothing is made before the settings are understood");
    }
}

#[test]
fn unknown_variable_is_refused_by_name() {
    let dir = Dir::new();
    run(Server::command(&dir).env("TALLYBOOK_MEMTABLE_BYTE", "1")).failure(2, "memtable_byte");
}

/// Beside a Service called `tallybook` no server started: what Kubernetes tells of it were unknown settings.
#[test]
fn what_kubernetes_tells_of_a_service_is_no_setting() {
    let dir = Dir::new();
    let command = || {
        let mut command = Server::command(&dir);
        command.envs([
            ("TALLYBOOK_SERVICE_HOST", "10.0.0.1"),
            ("TALLYBOOK_SERVICE_PORT", "8080"),
            ("TALLYBOOK_SERVICE_PORT_HTTP", "8080"),
            ("TALLYBOOK_PORT", "tcp://10.0.0.1:8080"),
            ("TALLYBOOK_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("TALLYBOOK_PORT_8080_TCP_PROTO", "tcp"),
            ("TALLYBOOK_PORT_8080_TCP_PORT", "8080"),
            ("TALLYBOOK_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("TALLYBOOK_S3_SERVICE_HOST", "10.0.0.2"),
            ("TALLYBOOK_S3_PORT", "tcp://10.0.0.2:9000"),
        ]);
        command
    };
    assert_eq!(Server::start(&mut command()).stop().0, Some(0));
    run(command().env("TALLYBOOK_PORT", "8080")).failure(2, "port");
    run(command().env("TALLYBOOK_MEMTABLE_BYTE", "1")).failure(2, "memtable_byte");
}

#[test]
fn setting_out_of_range_is_refused() {
    let dir = Dir::new();
    run(Server::command(&dir).args(["--block-bytes", "1"])).failure(2, "block_bytes");
    run(Server::command(&dir).args(["--log", "=="])).failure(2, "log");
    run(Server::command(&dir).args(["--flush-threads", "0"])).failure(2, "--flush-threads");
    run(Server::command(&dir).env("TALLYBOOK_COMPACTION_THREADS", "0")).failure(2, "zero");
    run(Server::command(&dir).args(["--config", "/no/such/file"])).failure(2, "/no/such/file");
}

#[test]
fn address_that_others_can_reach_is_refused_unless_asked_for() {
    let dir = Dir::new();
    let open = |arguments: &[&str]| {
        let mut command = tallybook();
        command.args(["serve", "--listen", "0.0.0.0:0", "--admin", "off", "--data"]);
        command.arg(dir.data()).args(arguments);
        command
    };
    run(&mut open(&[])).failure(2, "authentication");
    let server = Server::start(&mut open(&["--allow-insecure"]));
    assert!(server.data.starts_with("0.0.0.0:"), "{}", server.announcement);
    assert_eq!(server.stop().0, Some(0));
}

/// Starts a server whose settings name these data directories, answers which one it used.
fn directory_used(flag: Option<&str>, variable: Option<&str>, file: Option<&str>) -> String {
    let dir = Dir::new();
    let mut command = tallybook();
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    command.current_dir(dir.beside(""));
    if let Some(name) = flag {
        command.args(["--data", name]);
    }
    if let Some(name) = variable {
        command.env("TALLYBOOK_DATA", name);
    }
    if let Some(name) = file {
        fs::write(dir.beside("settings.toml"), format!("data = {name:?}")).unwrap();
        command.env("TALLYBOOK_CONFIG", "settings.toml");
    }
    let server = Server::start(&mut command);
    assert_eq!(server.stop().0, Some(0));
    let made = fs::read_dir(dir.beside("")).unwrap().map(|entry| entry.unwrap());
    let made = made.filter(|entry| entry.file_type().unwrap().is_dir());
    let names: Vec<String> = made.map(|dir| dir.file_name().into_string().unwrap()).collect();
    names.join(" ")
}

#[test]
fn flag_wins_over_variable_over_file_over_default() {
    assert_eq!(directory_used(Some("flag"), Some("variable"), Some("file")), "flag");
    assert_eq!(directory_used(None, Some("variable"), Some("file")), "variable");
    assert_eq!(directory_used(None, None, Some("file")), "file");
    assert_eq!(directory_used(None, None, None), "tallybook-data");
}

/// A token that everybody may read admits everybody, and nobody was told.
#[test]
fn token_file_that_others_may_read_is_refused() {
    let dir = Dir::new();
    let file = dir.beside("token");
    fs::write(&file, "0123456789abcdef\n").unwrap();
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let serve = || {
        let mut command = Server::command(&dir);
        command.arg("--admin-token-file").arg(&file);
        command
    };
    mode(0o400);
    let server = Server::start(&mut serve());
    let admin = server.admin.clone().unwrap();
    let profile = ["profile", "locks", "--seconds", "1"];
    for verb in [&["stages"][..], &profile[..]] {
        let ask = || run(tallybook().args(verb).arg(&admin).arg("--token-file").arg(&file));
        mode(0o644);
        ask().failure(2, "chmod 600");
        mode(0o600);
        ask().success();
        run(tallybook().args(verb).arg(&admin)).failure(1, "answers 401");
    }
    assert_eq!(server.stop().0, Some(0));
    mode(0o644);
    run(&mut serve()).failure(2, "chmod 600");
}

/// The status of a request that calls the server by this name.
fn status_by_name(server: &Server, host: &str) -> String {
    let mut stream = TcpStream::connect(&server.data).unwrap();
    stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].to_owned()
}

#[test]
fn names_of_hosts_are_a_flag_a_variable_and_a_list_in_a_file() {
    let dir = Dir::new();
    let file = dir.beside("tallybook.toml");
    fs::write(&file, "allowed_hosts = [\"a.example\", \"b.example\"]").unwrap();
    let flag = ["--allowed-hosts", "a.example,b.example"];
    for way in 0..4 {
        let mut command = Server::command(&dir);
        match way {
            0 => &mut command,
            1 => command.args(flag),
            2 => command.env("TALLYBOOK_ALLOWED_HOSTS", "a.example,b.example"),
            _ => command.arg("--config").arg(&file),
        };
        let server = Server::start(&mut command);
        let allowed = if way == 0 { "421" } else { "200" };
        assert_eq!(status_by_name(&server, "a.example"), allowed);
        assert_eq!(status_by_name(&server, "b.example:80"), allowed);
        assert_eq!(status_by_name(&server, "localhost"), "200");
        assert_eq!(status_by_name(&server, "c.example"), "421");
        assert_eq!(server.stop().0, Some(0));
    }
    let wrong = ["--allowed-hosts", "a.example,http://b.example"];
    run(Server::command(&dir).args(wrong)).failure(2, "allowed_hosts");
}

#[test]
fn every_setting_works_from_a_file() {
    let dir = Dir::new();
    let file = dir.beside("tallybook.toml");
    fs::write(
        &file,
        r#"
        threads = 2
        flush_threads = 2
        compaction_threads = 1
        durability = "interval:50"
        reading = "mapped"
        inline_max_bytes = 512
        memtable_bytes = "1MiB"
        memtable_journal_bytes = "8MiB"
        write_buffer_bytes = "8MiB"
        block_cache_bytes = "1MiB"
        segment_bytes_min = "256KiB"
        segment_bytes_max = "4MiB"
        block_bytes = "8KiB"
        table_bytes = "1MiB"
        compression = "lz4"
        collection_live_ratio = 0.25
        stall_deadline = "5s"
        file_handles_max = 64
        log = "debug"
        log_format = "json"
        log_interval_secs = 600
        allowed_hosts = ["books.example"]

        [limits]
        value_bytes_max = 1000

        [timeouts]
        drain_ms = 5000
        "#,
    )
    .unwrap();
    let server = Server::start(Server::command(&dir).arg("--config").arg(&file));
    assert_eq!(server.ask("PUT", "/v0/entity?id=key", &[b'x'; 600]).0, 201);
    assert_eq!(server.ask("PUT", "/v0/entity?id=key", &[b'x'; 1001]).0, 413);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.iter().any(|line| line["message"] == "started"), "{log}");
    // The figures of what was left of the interval, as the server ended.
    let puts = lines.iter().find(|line| line["message"] == "requests").expect("a line of figures");
    assert_eq!((&puts["operation"], &puts["requests"]), (&json!("put"), &json!(2)));
    assert_eq!(puts["target"], "tallybook::books");
}
