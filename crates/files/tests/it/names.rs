//! Names: what may be one, listings, rename, copy, attributes.

use tallybook::vfs::MemoryFileSystem;
use tallybook_files::placement::is_reserved;
use tallybook_files::{
    Condition, CopyOptions, Error, FileStore, ListEntry, ListOptions, UnlinkOptions, WriteOptions,
};

use crate::support::{CHUNK, assert_reads, bytes, in_memory, reopen, small, write};

#[test]
fn any_utf8_is_a_name() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, small());
    let long = "x".repeat(1024);
    let names = [
        "/",
        "a/b",
        "/a//b/",
        "..",
        "../../etc/passwd",
        ".",
        "%2F",
        "100%",
        "\u{1}",
        "\u{1}\n\t\u{7f}",
        "naïve",
        "日本語",
        "🙂",
        " ",
        "CON",
        "-",
        "--json",
        &long,
        "ADC83B19E793491B1C6EA0FD8B46CD9F32E592FC",
        "adc83b19e793491b1c6ea0fd8b46cd9f32e592fc",
    ];
    for (seed, name) in (0..).zip(names) {
        write(&store, name, &bytes(seed, 10));
    }
    drop(store);
    let store = reopen(&fs).unwrap();
    for (seed, name) in (0..).zip(names) {
        assert_reads(&store, name, &bytes(seed, 10));
    }
    let mut expected = names.map(str::to_owned);
    expected.sort();
    let page = store.list(ListOptions::default()).unwrap();
    assert!(page.entries.iter().map(ListEntry::name).eq(expected.iter()));
    for refused in ["".to_owned(), "x".repeat(1025)] {
        let written = store.write(&refused, b"", WriteOptions::default());
        assert!(matches!(written, Err(Error::InvalidArgument(_))));
    }
}

fn listed(store: &FileStore, options: &ListOptions) -> Vec<String> {
    let mut options = options.clone();
    let mut names = Vec::new();
    loop {
        let page = store.list(options.clone()).unwrap();
        assert!(page.entries.len() <= options.limit);
        names.extend(page.entries.iter().map(|entry| entry.name().to_owned()));
        match page.next_after {
            Some(after) => options.after = Some(after),
            None => return names,
        }
    }
}

#[test]
fn listings_have_prefix_delimiter_and_pages() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    for name in ["a", "a/1", "a/2/x", "a/2/y", "a/3", "b", "b/1", "c"] {
        write(&store, name, b"");
    }
    for limit in 1..9 {
        let check = |prefix: &str, delimiter: Option<&str>, expected: &[&str]| {
            let delimiter = delimiter.map(str::to_owned);
            let options = ListOptions { prefix: prefix.into(), delimiter, after: None, limit };
            assert_eq!(listed(&store, &options), expected, "{prefix:?}, pages of {limit}");
        };
        check("", None, &["a", "a/1", "a/2/x", "a/2/y", "a/3", "b", "b/1", "c"]);
        check("", Some("/"), &["a", "a/", "b", "b/", "c"]);
        check("a/", Some("/"), &["a/1", "a/2/", "a/3"]);
        check("a/2", None, &["a/2/x", "a/2/y"]);
        check("z", Some("/"), &[]);
    }
    let after = ListOptions { after: Some("a/2/x".into()), limit: 2, ..Default::default() };
    assert_eq!(store.list(after).unwrap().entries[0].name(), "a/2/y");
}

#[test]
fn reserved_names_are_listed_only_where_the_prefix_asks_for_them() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    for name in ["\0space/a", "\0space/b", "\u{1}", "plain"] {
        write(&store, name, b"");
    }
    let list = |prefix: &str, delimiter: Option<&str>, after: Option<&str>| {
        let (prefix, delimiter) = (prefix.to_owned(), delimiter.map(str::to_owned));
        let after = after.map(str::to_owned);
        listed(&store, &ListOptions { prefix, delimiter, after, limit: 1 })
    };
    for after in [None, Some(""), Some("\0space/a")] {
        assert_eq!(list("", None, after), ["\u{1}", "plain"], "{after:?}");
    }
    // A page may go on after what was rolled up, and that may be reserved as it is asked for.
    let afters = ["", "\0", "\0\u{1}", "\0/", "\0s", "\0space", "\0space/", "\0space/a"];
    for delimiter in ["\0", "\u{1}", "/", "s", "space", "space/", "a", "\0space/"] {
        for after in afters {
            let names = list("", Some(delimiter), Some(after));
            let place = format!("delimiter {delimiter:?}, after {after:?}: {names:?}");
            assert!(!names.iter().any(|name| is_reserved(name)), "{place}");
            assert_eq!(names, list("", Some(delimiter), None), "{place}");
        }
    }
    assert_eq!(list("\0", None, None), ["\0space/a", "\0space/b"]);
    assert_eq!(list("\0", None, Some("\0space/a")), ["\0space/b"]);
    assert_eq!(list("\0", Some("/"), None), ["\0space/"]);
}

#[test]
fn rename_and_copy_move_no_bytes() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, small());
    let file = bytes(1, 3 * CHUNK);
    write(&store, "a", &file);
    store.copy("a", "b", CopyOptions::default()).unwrap();
    store.rename("a", "c", CopyOptions::default()).unwrap();
    assert_eq!(store.totals().live_bytes, file.len() as u64);
    assert_eq!((store.totals().files, store.totals().file_bytes), (2, 2 * file.len() as u64));
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    let store = reopen(&fs).unwrap();
    assert!(store.stat("a").unwrap().is_none());
    assert!(store.unlink("b", UnlinkOptions::default()).unwrap());
    store.reap().unwrap();
    assert_reads(&store, "c", &file);
    assert!(store.unlink("c", UnlinkOptions::default()).unwrap());
    assert_eq!(store.reap().unwrap().bytes, file.len() as u64);
    assert_eq!(store.totals().live_bytes + store.totals().dead_bytes, 0);
}

#[test]
fn rename_and_copy_replace_in_one_step() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    let (a, b) = (bytes(1, 2 * CHUNK), bytes(2, CHUNK));
    write(&store, "a", &a);
    write(&store, "b", &b);
    let absent = CopyOptions { condition: Some(Condition::Absent), ..Default::default() };
    assert!(matches!(store.rename("a", "b", absent), Err(Error::Conflict { .. })));
    store.rename("a", "b", CopyOptions::default()).unwrap();
    assert_reads(&store, "b", &a);
    assert_eq!(store.totals().files, 1);
    // A copy onto a copy: the content's count of names goes up and down in one change.
    store.copy("b", "a", CopyOptions::default()).unwrap();
    store.copy("b", "a", CopyOptions::default()).unwrap();
    store.rename("a", "b", CopyOptions::default()).unwrap();
    store.reap().unwrap();
    assert_reads(&store, "b", &a);
    assert_eq!(store.totals().live_bytes, a.len() as u64);
    assert!(matches!(store.rename("x", "y", CopyOptions::default()), Err(Error::NotFound { .. })));
}

#[test]
fn attributes_are_kept_and_changed_without_the_bytes() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    let attributes = bytes(9, 64 << 10);
    let options = WriteOptions { attributes: attributes.clone().into(), ..Default::default() };
    let stat = store.write("file", b"bytes", options).unwrap();
    assert!(store.stat("file").unwrap().unwrap().attributes == attributes);
    let options = CopyOptions { attributes: Some("new".into()), ..Default::default() };
    let changed = store.copy("file", "file", options).unwrap();
    assert_eq!((changed.attributes.as_ref(), changed.blake3), (&b"new"[..], stat.blake3));
    assert!(changed.version > stat.version);
    assert_reads(&store, "file", b"bytes");
    let too_many =
        WriteOptions { attributes: vec![0; (64 << 10) + 1].into(), ..Default::default() };
    assert!(matches!(store.write("x", b"", too_many), Err(Error::InvalidArgument(_))));
}
