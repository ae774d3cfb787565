//! What can be profiled, in which forms it is given, and why a profile is refused.

/// What a profile counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Where processor time goes.
    Cpu,
    /// Where memory is asked for.
    Allocs,
    /// Who waits for locks, syncs, flushes and stalls.
    Locks,
    /// Where threads stand blocked, in wall-clock time.
    OffCpu,
}

impl Kind {
    /// Every one.
    pub(crate) const ALL: [Kind; 4] = [Kind::Cpu, Kind::Allocs, Kind::Locks, Kind::OffCpu];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Allocs => "allocs",
            Kind::Locks => "locks",
            Kind::OffCpu => "offcpu",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What is counted, as the pprof format calls it.
    pub(super) fn counted(self) -> &'static str {
        match self {
            Kind::Cpu => "samples",
            Kind::Allocs => "alloc_space",
            Kind::Locks | Kind::OffCpu => "delay",
        }
    }

    /// The unit of a weight.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Kind::Cpu => "samples",
            Kind::Allocs => "bytes",
            Kind::Locks | Kind::OffCpu => "ns",
        }
    }
}

/// The form a profile is given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A flame graph.
    Svg,
    /// What `go tool pprof` and many others read.
    Pprof,
    /// A line for each stack: its frames from the root, and its weight.
    Folded,
}

impl Format {
    /// Every one.
    pub(crate) const ALL: [Format; 3] = [Format::Svg, Format::Pprof, Format::Folded];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Svg => "svg",
            Format::Pprof => "pprof",
            Format::Folded => "folded",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another one of this kind is being taken.
    Busy,
    /// This program can't be profiled so.
    Unsupported(&'static str),
    /// Something failed.
    Failed(String),
}
