//! The module list of `lib.rs` is the architecture: a module imports only what stands above it.

use std::fs;
use std::path::{Path, PathBuf};

fn source_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn modules(lib: &str) -> Vec<&str> {
    lib.lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or(line.strip_prefix("mod ")))
        .map(|rest| rest.trim_end_matches(';'))
        .collect()
}

/// Every `crate::NAME` that a file mentions, in code outside comments.
fn imports(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            &rest[..end]
        })
        .collect()
}

#[test]
fn no_module_imports_one_listed_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap();
    let modules = modules(&lib);
    assert!(modules.len() > 10, "the list was found: {modules:?}");
    let mut files = Vec::new();
    source_files(&src, &mut files);
    let mut upward = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("lib.rs") && !file.ends_with("main.rs"))
    {
        let relative = file.strip_prefix(&src).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        let own = modules
            .iter()
            .position(|&name| name == module)
            .unwrap_or_else(|| panic!("{} is in no module of the list", relative.display()));
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for import in imports(code) {
            match modules.iter().position(|&name| name == import) {
                Some(at) if at > own => upward.push(format!("{} -> {import}", relative.display())),
                Some(_) => {}
                None => upward.push(format!("{} -> unknown {import}", relative.display())),
            }
        }
    }
    assert!(upward.is_empty(), "imports against the order of lib.rs:\n{}", upward.join("\n"));
}
