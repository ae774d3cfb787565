//! The forms of a profile: flame graph, pprof, folded stacks.

use std::fmt::Write;

use inferno::flamegraph::{self, Options};

use super::kind::{Format, Kind, Refusal};
use super::pprof;
use super::stacks::Profile;

/// Frames that take less than this share of the picture, in percent, are left out of it.
const WIDTH_MIN: f64 = 0.1;

/// The profile in this form.
pub(super) fn render(profile: &Profile, format: Format) -> Result<Vec<u8>, Refusal> {
    match format {
        Format::Svg => svg(profile),
        Format::Pprof => Ok(pprof::encode(profile)),
        Format::Folded => Ok(folded(profile).into_bytes()),
    }
}

fn folded(profile: &Profile) -> String {
    let mut text = String::new();
    for (stack, weight) in &profile.stacks {
        writeln!(text, "{stack} {weight}").expect("a String takes every write");
    }
    text
}

fn svg(profile: &Profile) -> Result<Vec<u8>, Refusal> {
    if profile.stacks.is_empty() {
        return Ok(empty_svg(profile).into_bytes());
    }
    let mut options = Options::default();
    options.title = title(profile);
    options.subtitle = Some(subtitle(profile));
    options.count_name = profile.kind.unit().to_owned();
    options.min_width = WIDTH_MIN;
    // The same function has the same colour in every picture.
    options.hash = true;
    let text = folded(profile);
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, text.lines(), &mut picture)
        .map_err(|error| Refusal::Failed(format!("the flame graph can't be drawn: {error}")))?;
    Ok(picture)
}

fn title(profile: &Profile) -> String {
    let what = match profile.kind {
        Kind::Cpu => "Processor time",
        Kind::Allocs => "Bytes allocated",
        Kind::Locks => "Waits for locks, syncs, flushes and stalls",
        Kind::OffCpu => "Time blocked",
    };
    format!("{what}, {:.1} s", profile.duration.as_secs_f64())
}

fn subtitle(profile: &Profile) -> String {
    let total = profile.total();
    let seconds = profile.duration.as_secs_f64().max(0.001);
    match profile.kind {
        Kind::Cpu => {
            let cores = total as f64 / f64::from(super::cpu::FREQUENCY) / seconds;
            format!("{total} samples: {cores:.2} processors busy on average")
        }
        Kind::Allocs => format!("{:.1} MiB/s", total as f64 / f64::from(1 << 20) / seconds),
        Kind::Locks | Kind::OffCpu => {
            format!("{:.3} s of threads' time in all", total as f64 / 1e9)
        }
    }
}

fn empty_svg(profile: &Profile) -> String {
    let nothing = match profile.kind {
        Kind::Cpu => "no thread was found running",
        Kind::Allocs => "too little memory was asked for to be sampled",
        Kind::Locks => "nobody waited",
        Kind::OffCpu => "no thread was found blocked in its work",
    };
    let title = title(profile);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"80\" \
         viewBox=\"0 0 1200 80\" font-family=\"monospace\" text-anchor=\"middle\">\
         <rect width=\"100%\" height=\"100%\" fill=\"#f8f8f8\"/>\
         <text x=\"600\" y=\"32\" font-size=\"17\">{title}</text>\
         <text x=\"600\" y=\"58\" font-size=\"12\">{nothing}</text></svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn profile(kind: Kind, stacks: &[(&str, u64)]) -> Profile {
        let stacks: BTreeMap<_, _> =
            stacks.iter().map(|&(stack, weight)| (stack.to_owned(), weight)).collect();
        Profile { kind, duration: Duration::from_secs(2), stacks }
    }

    fn text(profile: &Profile, format: Format) -> String {
        String::from_utf8(render(profile, format).unwrap()).unwrap()
    }

    const STACKS: [(&str, u64); 2] = [("root;<a::B as C<D: 4>>::f;leaf", 3), ("root;other", 1)];

    #[test]
    fn folded_has_a_line_for_each_stack() {
        let expected = "root;<a::B as C<D: 4>>::f;leaf 3\nroot;other 1\n";
        assert_eq!(text(&profile(Kind::Cpu, &STACKS), Format::Folded), expected);
    }

    #[test]
    fn flame_graph_names_frames_shares_and_unit() {
        let picture = text(&profile(Kind::Allocs, &STACKS), Format::Svg);
        assert!(picture.contains("<svg") && picture.trim_end().ends_with("</svg>"));
        for part in ["Bytes allocated, 2.0 s", "leaf (3 bytes, 75.00%)", "&lt;a::B as C"] {
            assert!(picture.contains(part), "{part}");
        }
    }

    #[test]
    fn empty_profile_is_a_picture_that_says_so() {
        for kind in Kind::ALL {
            let picture = text(&profile(kind, &[]), Format::Svg);
            assert!(picture.contains("<text") && picture.trim_end().ends_with("</svg>"));
            assert_eq!(text(&profile(kind, &[]), Format::Folded), "");
        }
    }

    /// The messages of `profile.proto`, as another implementation of the format decodes them.
    mod proto {
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct Profile {
            #[prost(message, repeated, tag = "1")]
            pub(crate) sample_type: Vec<ValueType>,
            #[prost(message, repeated, tag = "2")]
            pub(crate) sample: Vec<Sample>,
            #[prost(message, repeated, tag = "4")]
            pub(crate) location: Vec<Location>,
            #[prost(message, repeated, tag = "5")]
            pub(crate) function: Vec<Function>,
            #[prost(string, repeated, tag = "6")]
            pub(crate) string_table: Vec<String>,
            #[prost(int64, tag = "10")]
            pub(crate) duration_nanos: i64,
            #[prost(int64, tag = "12")]
            pub(crate) period: i64,
        }
        #[derive(Clone, Copy, PartialEq, prost::Message)]
        pub(crate) struct ValueType {
            #[prost(int64, tag = "1")]
            pub(crate) r#type: i64,
            #[prost(int64, tag = "2")]
            pub(crate) unit: i64,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct Sample {
            #[prost(uint64, repeated, tag = "1")]
            pub(crate) location_id: Vec<u64>,
            #[prost(int64, repeated, tag = "2")]
            pub(crate) value: Vec<i64>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct Location {
            #[prost(uint64, tag = "1")]
            pub(crate) id: u64,
            #[prost(message, repeated, tag = "4")]
            pub(crate) line: Vec<Line>,
        }
        #[derive(Clone, Copy, PartialEq, prost::Message)]
        pub(crate) struct Line {
            #[prost(uint64, tag = "1")]
            pub(crate) function_id: u64,
        }
        #[derive(Clone, Copy, PartialEq, prost::Message)]
        pub(crate) struct Function {
            #[prost(uint64, tag = "1")]
            pub(crate) id: u64,
            #[prost(int64, tag = "2")]
            pub(crate) name: i64,
        }
    }

    /// Decodes to what went in: stacks from the root, and their values.
    fn decode(bytes: &[u8]) -> (proto::Profile, Vec<(String, Vec<i64>)>) {
        let decoded: proto::Profile = prost::Message::decode(bytes).unwrap();
        let name = |location: u64| {
            let location = decoded.location.iter().find(|known| known.id == location).unwrap();
            let function = location.line[0].function_id;
            let function = decoded.function.iter().find(|known| known.id == function).unwrap();
            decoded.string_table[function.name as usize].as_str()
        };
        let stack = |sample: &proto::Sample| {
            sample.location_id.iter().rev().map(|&id| name(id)).collect::<Vec<_>>().join(";")
        };
        let stacks =
            decoded.sample.iter().map(|sample| (stack(sample), sample.value.clone())).collect();
        (decoded, stacks)
    }

    #[test]
    fn pprof_decodes_to_what_went_in() {
        for kind in Kind::ALL {
            let bytes = render(&profile(kind, &STACKS), Format::Pprof).unwrap();
            let (decoded, stacks) = decode(&bytes);
            assert_eq!(decoded.string_table[0], "");
            assert_eq!(decoded.duration_nanos, 2_000_000_000);
            let types: Vec<_> = decoded
                .sample_type
                .iter()
                .map(|of| {
                    let text = |number: i64| decoded.string_table[number as usize].as_str();
                    (text(of.r#type), text(of.unit))
                })
                .collect();
            for ((stack, values), (expected, weight)) in stacks.iter().zip(STACKS) {
                assert_eq!((stack.as_str(), values[0]), (expected, weight as i64));
                assert_eq!(values.len(), types.len());
            }
            let expected = match kind {
                Kind::Cpu => &[("samples", "count"), ("cpu", "nanoseconds")][..],
                Kind::Allocs => &[("alloc_space", "bytes")],
                Kind::Locks | Kind::OffCpu => &[("delay", "nanoseconds")],
            };
            assert_eq!((types.as_slice(), stacks.len()), (expected, 2));
        }
    }
}
