//! `profile`, and the allocator that only the binary has.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::binary::{Dir, Server, run, tallybook};

/// Runs `profile` with these arguments while writes come.
fn profile_under_writes(server: &Server, arguments: &[&str]) -> crate::binary::Outcome {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                let target = format!("/v0/entity?id={number}");
                assert_eq!(server.ask("PUT", &target, &[b'x'; 100_000]).0, 201);
                number += 1;
            }
        });
        let admin = server.admin.as_deref().expect("there is an admin listener");
        let url = format!("http://{admin}");
        let [kind, rest @ ..] = arguments else { panic!("no kind") };
        let outcome = run(tallybook().args(["profile", kind, &url, "--seconds", "1"]).args(rest));
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

#[test]
fn allocations_are_attributed_to_the_requests_that_make_them() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    let outcome = profile_under_writes(&server, &["allocs"]).success();
    let of_requests = outcome.text().lines().filter(|line| {
        line.starts_with("tallybook_server::service::") && line.contains("tallybook_server::upload")
    });
    let bytes: u64 =
        of_requests.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert!(bytes > 0, "{}", outcome.text());
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn every_kind_is_written_to_a_file_in_the_form_of_its_name() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    for (kind, file, begin) in
        [("cpu", "a.svg", "<?xml"), ("locks", "a.svg", "<?xml"), ("offcpu", "a.folded", "")]
    {
        let path = dir.beside(file);
        let outcome = profile_under_writes(&server, &[kind, "-o", path.to_str().unwrap()]);
        assert_eq!(outcome.success().stdout, b"");
        let profile = std::fs::read_to_string(path).unwrap();
        assert!(profile.starts_with(begin), "{kind}: {profile}");
    }
    let outcome = profile_under_writes(&server, &["cpu", "--format", "pprof", "--full"]);
    // The first field of the form, a message.
    assert_eq!(outcome.success().stdout[0], 0x0a);
}

#[test]
fn a_file_is_replaced_by_a_whole_profile_or_left_alone() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    let admin = server.admin.clone().unwrap();
    let profile = |path: &Path| {
        let path = path.to_str().unwrap();
        run(tallybook().args(["profile", "locks", &admin, "--seconds", "1", "-o", path]))
    };
    let (path, before) = (dir.beside("a.folded"), dir.beside("before.folded"));
    std::fs::write(&path, "before").unwrap();
    std::fs::hard_link(&path, &before).unwrap();
    assert_eq!(profile(&path).success().stdout, b"");
    assert_ne!(std::fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(std::fs::read_to_string(&before).unwrap(), "before");
    server.stop();
    profile(&before).failure(1, "nothing listens");
    assert_eq!(std::fs::read_to_string(&before).unwrap(), "before");
    // Said before anybody is asked.
    profile(&dir.beside("none/a.svg")).failure(1, "cannot write");
}

#[test]
fn what_the_server_refuses_is_said() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    let data = format!("http://{}", server.data);
    run(tallybook().args(["profile", "cpu", &data])).failure(1, "no such path");
    let admin = server.admin.clone().unwrap();
    std::thread::scope(|scope| {
        let long =
            scope.spawn(|| run(tallybook().args(["profile", "locks", &admin, "--seconds", "3"])));
        // The one that comes first runs; the other is told so.
        let short = run(tallybook().args(["profile", "locks", &admin, "--seconds", "3"]));
        let refused = if short.code == Some(0) { long.join().unwrap() } else { short };
        refused.failure(1, "a profile of this kind is being taken");
    });
    server.stop();
    run(tallybook().args(["profile", "cpu", &admin, "--seconds", "1"]))
        .failure(1, "nothing listens");
    run(tallybook().args(["profile", "cpu", "not a url"])).failure(2, "is not a URL");
    run(tallybook().args(["profile", "cpu", &admin, "-o", "x.png"])).failure(2, "--format");
    assert_eq!(run(tallybook().args(["profile", "heap", &admin])).code, Some(2));
    let zero = run(tallybook().args(["profile", "cpu", &admin, "--seconds", "0"]));
    assert_eq!(zero.code, Some(2));
}
