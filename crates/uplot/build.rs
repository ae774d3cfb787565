//! Brings uPlot's script, style sheet and licence into `OUT_DIR`.
//!
//! 1. From the directory named by `TALLYBOOK_UPLOT_DIR`, an unpacked npm package, if it is set.
//! 2. Else from an earlier run's install in `OUT_DIR`, if it is of the locked version.
//! 3. Else by `npm ci` there, which checks the package against the lock and runs none of its scripts.
//!
//! It writes nowhere but `OUT_DIR`, and runs again only when one of its inputs changes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const DIR_VARIABLE: &str = "TALLYBOOK_UPLOT_DIR";
/// What `npm` needs, copied to where it runs.
const NPM_INPUTS: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// What is taken from the package.
const FILES: [&str; 3] = ["dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={DIR_VARIABLE}");
    for input in NPM_INPUTS {
        println!("cargo::rerun-if-changed={input}");
    }
    if let Err(message) = run() {
        println!("cargo::error={message}");
    }
}

fn run() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let locked = version(Path::new("package.json"), "\"uplot\"")?;
    let package = match env::var_os(DIR_VARIABLE) {
        Some(dir) => PathBuf::from(dir),
        None => installed(&out.join("npm"), &locked)?,
    };
    let found = version(&package.join("package.json"), "\"version\"")?;
    if found != locked {
        return Err(format!("{} holds uPlot {found}, needed is {locked}", package.display()));
    }
    for file in FILES {
        let (from, name) = (package.join(file), file.rsplit('/').next().unwrap_or(file));
        fs::copy(&from, out.join(name)).map_err(|error| at(&from, &error))?;
    }
    println!("cargo::rustc-env=TALLYBOOK_UPLOT_VERSION={found}");
    Ok(())
}

/// The package in `dir`, installed there unless it is already.
fn installed(dir: &Path, locked: &str) -> Result<PathBuf, String> {
    let package = dir.join("node_modules/uplot");
    let is_there = version(&package.join("package.json"), "\"version\"").is_ok_and(|v| v == locked);
    if is_there && FILES.iter().all(|file| package.join(file).is_file()) {
        return Ok(package);
    }
    fs::create_dir_all(dir).map_err(|error| at(dir, &error))?;
    for input in NPM_INPUTS {
        fs::copy(input, dir.join(input)).map_err(|error| at(Path::new(input), &error))?;
    }
    npm_ci(dir)?;
    Ok(package)
}

fn npm_ci(dir: &Path) -> Result<(), String> {
    let by_hand = format!("set {DIR_VARIABLE} to a directory that holds the npm package uplot");
    let output = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"])
        .current_dir(dir)
        .output()
        .map_err(|error| {
            format!(
                "the dashboard's charts need npm to build, and it can't be run ({error}). Install \
                 it (Debian: apt-get install npm), or {by_hand}"
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    // A build error is one line; npm's first lines say what was wrong, the others where its log is.
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| line.contains("error")).take(4).collect();
    Err(format!(
        "`npm ci` failed: {}. The first build needs npm's registry; where there is none, {by_hand}",
        said.join("; ")
    ))
}

/// The version that follows `name` in a package.json. `build.rs` does without a JSON parser: both
/// files have one such line.
fn version(path: &Path, name: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| at(path, &error))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix(':'))
        .map(|value| value.trim().trim_matches(|c| c == '"' || c == ',').to_owned())
        .ok_or_else(|| format!("{} says no {name}", path.display()))
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
