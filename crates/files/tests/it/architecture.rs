//! The module list of `lib.rs` is the architecture: a module imports only what stands above it.

use std::fs;
use std::path::{Path, PathBuf};

fn source_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(source_files(&path)) } else { files.push(path) }
    }
    files
}

/// The part of a file that ships.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

#[test]
fn no_module_imports_one_listed_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap();
    let modules: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
        .map(|rest| rest.trim_end_matches(';'))
        .collect();
    assert!(modules.len() > 10, "the list was found: {modules:?}");
    let place = |name: &str| modules.iter().position(|&module| module == name);
    for file in source_files(&src).iter().filter(|file| !file.ends_with("lib.rs")) {
        let relative = file.strip_prefix(&src).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let own = place(first.trim_end_matches(".rs"));
        let own = own.unwrap_or_else(|| panic!("{first} is in no module of the list"));
        for rest in code_of(file).split("crate::").skip(1) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let imported = place(&rest[..end]);
            assert!(imported.is_some_and(|at| at <= own), "{first} imports {}", &rest[..end]);
        }
    }
}

#[test]
fn only_the_reader_of_kfs_tables_touches_files_other_than_through_the_engine() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in source_files(&src) {
        if file.strip_prefix(&src).unwrap().starts_with("kfs") {
            continue;
        }
        for forbidden in ["std::fs", "Instant::now", "SystemTime::now", "thread::spawn"] {
            assert!(!code_of(&file).contains(forbidden), "{} uses {forbidden}", file.display());
        }
    }
}
