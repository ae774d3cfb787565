//! The closed journal segments that a version keeps, and which of them answers for which.
//!
//! A collected segment answers for the old segments whose live values it copied: a forward says so.
//! Invariant: a forward leads from a smaller number to a larger one, and ends at a kept collected
//! segment; so following forwards ends. A segment that is forwarded is not kept. Handles of segments are the
//! store's.

use std::collections::BTreeMap;

/// What a journal segment holds. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Part of the log.
    Log = 1,
    /// Live values of other segments, with an index from their old places.
    Collected = 2,
}

impl SegmentKind {
    /// The kind with this number on disk.
    pub fn from_u64(number: u64) -> Option<SegmentKind> {
        match number {
            1 => Some(SegmentKind::Log),
            2 => Some(SegmentKind::Collected),
            _ => None,
        }
    }
}

/// What is known of a closed segment without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMeta {
    /// Number of the segment.
    pub number: u64,
    /// Offset where its records end.
    pub end_offset: u64,
    /// LSN of its first record.
    pub base_lsn: u64,
    /// What it holds.
    pub kind: SegmentKind,
    /// Bytes of its file.
    pub capacity: u64,
}

/// Values of a segment that tables point at. An upper bound: a table that was clipped still counts
/// with all it ever pointed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Referenced {
    /// Number of values.
    pub count: u64,
    /// Bytes of values.
    pub bytes: u64,
}

/// The kept segments, the forwards, and what the tables point at.
#[derive(Debug, Clone, Default)]
pub struct SegmentSet {
    pub(super) kept: BTreeMap<u64, SegmentMeta>,
    pub(super) forwards: BTreeMap<u64, u64>,
    named: BTreeMap<u64, Referenced>,
    live: BTreeMap<u64, Referenced>,
}

impl SegmentSet {
    /// The closed segments, by number.
    pub fn kept(&self) -> impl Iterator<Item = &SegmentMeta> {
        self.kept.values()
    }

    /// The closed segment with this number.
    pub fn get(&self, number: u64) -> Option<&SegmentMeta> {
        self.kept.get(&number)
    }

    /// Each forwarded segment and the collected one that the forward names.
    pub fn forwards(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.forwards.iter().map(|(&old, &new)| (old, new))
    }

    /// The segment that answers for `segment`: itself, or what forwards lead to.
    pub fn answering(&self, segment: u64) -> u64 {
        answering(&self.forwards, segment)
    }

    /// What tables point at by this segment's own number.
    pub fn named(&self, segment: u64) -> Referenced {
        self.named.get(&segment).copied().unwrap_or_default()
    }

    /// What tables point at that this segment answers for.
    pub fn live(&self, segment: u64) -> Referenced {
        self.live.get(&segment).copied().unwrap_or_default()
    }

    /// Every segment that some table names, with what is pointed at in it.
    pub fn all_named(&self) -> impl Iterator<Item = (u64, Referenced)> + '_ {
        self.named.iter().map(|(&segment, &referenced)| (segment, referenced))
    }

    /// Forwarded segments that no table names any more: their forwards may be dropped.
    pub fn unneeded_forwards(&self) -> Vec<u64> {
        self.forwards.keys().filter(|old| !self.named.contains_key(old)).copied().collect()
    }

    /// Takes the references of all tables.
    pub(super) fn count(&mut self, references: impl Iterator<Item = (u64, Referenced)>) {
        fn add(map: &mut BTreeMap<u64, Referenced>, segment: u64, referenced: Referenced) {
            let sum = map.entry(segment).or_default();
            sum.count = sum.count.saturating_add(referenced.count);
            sum.bytes = sum.bytes.saturating_add(referenced.bytes);
        }
        self.named.clear();
        self.live.clear();
        for (segment, referenced) in references {
            add(&mut self.named, segment, referenced);
        }
        for (&segment, &referenced) in &self.named {
            let answering = answering(&self.forwards, segment);
            add(&mut self.live, answering, referenced);
        }
    }

    /// Says what breaks the invariant.
    pub(super) fn check(&self) -> Result<(), String> {
        for (&old, &new) in &self.forwards {
            if new <= old {
                return Err(format!("segment {old} is forwarded back to {new}"));
            }
            if self.kept.contains_key(&old) {
                return Err(format!("segment {old} is kept and forwarded to {new}"));
            }
            let kept = self.kept.get(&new).is_some_and(|to| to.kind == SegmentKind::Collected);
            if !kept && !self.forwards.contains_key(&new) {
                return Err(format!(
                    "segment {old} is forwarded to {new}, which is not a kept collected segment"
                ));
            }
        }
        Ok(())
    }
}

fn answering(forwards: &BTreeMap<u64, u64>, segment: u64) -> u64 {
    let mut segment = segment;
    while let Some(&new) = forwards.get(&segment) {
        segment = new;
    }
    segment
}
