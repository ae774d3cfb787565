//! Addresses to names of functions, short enough for a picture and the same in every build.
//!
//! A function is named by its module, which its source file tells, and its own name:
//! `tallybook::store::write::put`. Compilers keep no more of inlined functions than that, and with
//! type arguments names of asynchronous code run to thousands of bytes.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fs;
use std::ops::Range;

/// Crates of this workspace by the directories their sources are in.
const CRATES: [(&str, &str); 3] = [
    ("crates/engine", "tallybook"),
    ("crates/server", "tallybook_server"),
    ("crates/cli", "tallybook_cli"),
];

/// Names by address.
pub(super) struct Names {
    /// Outermost first: an address in inlined code has several.
    known: HashMap<usize, Vec<String>>,
    /// Where the code of which file is mapped.
    mapped: Vec<(Range<usize>, String)>,
}

impl Names {
    pub(super) fn new() -> Names {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Names { known: HashMap::new(), mapped: maps.lines().filter_map(mapping).collect() }
    }

    /// The functions that the code at this address belongs to, outermost first, at least one.
    pub(super) fn of(&mut self, address: usize) -> &[String] {
        self.known.entry(address).or_insert_with(|| {
            let mut names = Vec::new();
            // The library looks at the byte before what it is given, as befits a return address.
            backtrace::resolve((address + 1) as *mut c_void, |symbol| {
                let file = symbol.filename().and_then(|file| file.to_str());
                names.extend(symbol.name().map(|name| short(&format!("{name:#}"), file)));
            });
            if names.is_empty() {
                let mapped = self.mapped.iter().find(|(range, _)| range.contains(&address));
                names.push(mapped.map_or("[unknown]", |(_, file)| file.as_str()).to_owned());
            }
            names.reverse();
            names
        })
    }
}

/// A line of `/proc/PID/maps` that maps code: where, and `[NAME]` of what.
fn mapping(line: &str) -> Option<(Range<usize>, String)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let number = |text| usize::from_str_radix(text, 16).ok();
    let file = fields.nth(3)?.rsplit('/').next()?.trim_matches(['[', ']']);
    Some((number(start)?..number(end)?, format!("[{}]", tidy(file))))
}

/// The short form of a demangled name.
fn short(name: &str, file: Option<&str>) -> String {
    let plain = plain(name);
    let segments: Vec<&str> = plain.split("::").filter(|segment| !segment.is_empty()).collect();
    let short = match file.and_then(module) {
        Some(module) => {
            // A closure is named after the function it is in, where that is known.
            let is_named = |segment: &&str| !segment.starts_with('{');
            let at = segments.iter().rposition(is_named).unwrap_or(0);
            format!("{module}::{}", segments[at..].join("::"))
        }
        None => segments.join("::"),
    };
    tidy(&short)
}

/// The module that a source file is.
fn module(file: &str) -> Option<String> {
    let (directory, path) = file.rsplit_once("/src/")?;
    let known = CRATES.iter().find(|(end, _)| directory.ends_with(end));
    let name = match known {
        Some((_, name)) => (*name).to_owned(),
        None => crate_name(directory.rsplit('/').next()?),
    };
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    Some(match path {
        "lib" | "main" | "mod" => name,
        _ => format!("{name}::{}", path.replace('/', "::")),
    })
}

/// The crate in a directory such as `http-body-1.0.1`.
fn crate_name(directory: &str) -> String {
    let is_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let end = directory.match_indices('-').find(|(at, _)| is_version(&directory[at + 1..]));
    directory[..end.map_or(directory.len(), |(at, _)| at)].replace('-', "_")
}

/// A path without type arguments, and of `<A as B>::f` only `A::f`.
fn plain(name: &str) -> String {
    let Some(rest) = name.strip_prefix('<') else {
        return without_numbers(&without_arguments(name));
    };
    let end = closing(rest).unwrap_or(rest.len());
    let (of, rest) = rest.split_at(end);
    let of = without_arguments(of);
    let of = of.split(" as ").next().unwrap_or_default().trim_start_matches(['&', '*']);
    let rest = rest.strip_prefix('>').unwrap_or(rest);
    format!("{of}{}", without_numbers(&without_arguments(rest)))
}

/// Where the bracket closes that was opened just before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if !is_arrow(text, at) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The text without what stands between angle brackets.
fn without_arguments(text: &str) -> String {
    let mut depth = 0_usize;
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !is_arrow(text, at) => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

fn is_arrow(text: &str, at: usize) -> bool {
    at > 0 && text.as_bytes()[at - 1] == b'-'
}

/// `{closure#3}` without its number, which changes with the code around it.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_number = false;
    for c in text.chars() {
        is_number = c == '#' || (is_number && c.is_ascii_digit());
        if !is_number {
            out.push(c);
        }
    }
    out
}

/// The name on one line and without the separator of the folded form.
fn tidy(name: &str) -> String {
    name.replace(|c: char| c == ';' || c.is_control(), ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_is_named_by_its_file_and_itself() {
        for (name, file, expected) in [
            (
                "put_with<[u8]>",
                "crates/engine/src/store/write.rs",
                "tallybook::store::write::put_with",
            ),
            (
                "<tallybook_server::service::Requests<S> as hyper::Service<R>>::call",
                "/a/crates/server/src/service.rs",
                "tallybook_server::service::call",
            ),
            (
                "{closure#12}<A<B>, C>",
                "crates/engine/src/store/mod.rs",
                "tallybook::store::{closure}",
            ),
            (
                "tallybook_server::scan::list::<S>::{closure#0}",
                "crates/server/src/scan.rs",
                "tallybook_server::scan::list::{closure}",
            ),
            ("main", "crates/cli/src/main.rs", "tallybook_cli::main"),
            (
                "poll_loop<D>",
                "/x/registry/src/index/hyper-1.12.0/src/proto/h1/dispatch.rs",
                "hyper::proto::h1::dispatch::poll_loop",
            ),
            ("a", "/x/http-body-util-0.1.3/src/lib.rs", "http_body_util::a"),
            ("fmt", "/rustc/1234/library/core/src/fmt/mod.rs", "core::fmt::fmt"),
        ] {
            assert_eq!(short(name, Some(file)), expected);
        }
    }

    #[test]
    fn without_a_file_the_path_is_kept() {
        for (name, expected) in [
            ("clone3", "clone3"),
            ("<a::B<C> as d::E<F>>::f::<G>::{closure#0}", "a::B::f::{closure}"),
            ("<&a::B as d::E>::f", "a::B::f"),
            ("<alloc::Box<dyn Fn(u8) -> u8> as E>::f", "alloc::Box::f"),
            ("<unclosed", "unclosed"),
            ("[u8; 4]\n", "[u8: 4]:"),
            ("", ""),
        ] {
            assert_eq!(short(name, None), expected, "{name}");
            assert_eq!(short(name, Some("main.c")), expected, "{name}");
        }
    }

    #[test]
    fn code_without_names_is_named_by_its_file() {
        assert_eq!(Names::new().of(1), ["[unknown]"]);
        let line = "7f00-7f08 r-xp 00000000 fe:00 123   /usr/lib/libc.so.6";
        assert_eq!(mapping(line), Some((0x7f00..0x7f08, "[libc.so.6]".to_owned())));
        let line = "7f00-7f08 r-xp 00000000 00:00 0     [vdso]";
        assert_eq!(mapping(line), Some((0x7f00..0x7f08, "[vdso]".to_owned())));
        for line in ["", "7f00-7f08", "7f00-7f08 rw-p 0 fe:00 1 /x", "7f00-7f08 r-xp 0 00:00 0"] {
            assert_eq!(mapping(line), None);
        }
    }
}
