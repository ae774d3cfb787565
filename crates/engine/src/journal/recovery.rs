//! Replays the journal after a crash or a clean close.
//!
//! 1. Survey: read the header and the `Start` record of every segment file.
//! 2. Where no sync is known of up to where the tables end: see whether the segment is whole up to there.
//!    If it isn't, none was made since either; nobody needs it, and the journal begins anew there.
//! 3. Replay: follow the chain of `Start` records from where the tables end, giving each group on.
//! 4. Classify the place where the chain ends. If any later record proves that the journal was synced
//!    beyond it, it is damage and the store must not open. Else it is a torn tail.
//! 5. Settle (in [`super::settle`]): save and cut the torn tail, and rewrite what no sync was proven for.
//!
//! Invariant: what is given on is a prefix of the commit order, and holds all that was proven synced.

use std::collections::HashSet;
use std::sync::Arc;

use super::changes::Changes;
use super::reader::{SegmentReader, Step};
use super::record::{RecordHeader, RecordType, Start};
use super::segment::{JournalFiles, Segment};
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentType};
use super::settle::{Cut, Tail, rewrite, settle};
use super::survey::{Candidate, IMPOSSIBLE_PLACE, goes_on_at, successor, survey};
use super::writer::JournalPosition;
use crate::error::{Error, Result};
use crate::file_name;
use crate::key::{SEQNO_MAX, SeqNo};

/// No journal gets so far; what is added to a place below it doesn't overflow.
const LSN_MAX: u64 = 1 << 62;

/// A group that is replayed.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// The segment it is in; values are not to be read from it before recovery has returned.
    pub segment: &'a Arc<Segment>,
    /// Where the journal ends with it.
    pub end: JournalPosition,
    /// SeqNo of its first entry.
    pub first_seqno: SeqNo,
    /// What the memtable takes.
    pub changes: Changes<'a>,
}

/// What recovery found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Where replay started, and starts until tables end elsewhere: not where it was asked to if the
    /// journal begins anew.
    pub start: JournalPosition,
    /// Where the journal ends, and the writer goes on.
    pub end: JournalPosition,
    /// LSN below which a record proved that everything was synced. All of the journal is durable
    /// now; where this is below the end, a mark should be appended soon, to prove that as well.
    pub proven_lsn: u64,
    /// SeqNo of the last write in the journal; 0 when no record told.
    pub last_seqno: SeqNo,
    /// The segments that were replayed, oldest first, the one that replay started in included.
    pub segments: Vec<Arc<Segment>>,
    /// Spares: number and bytes of each.
    pub spares: Vec<(u64, u64)>,
    /// Segments that are older than where replay started, or collected: needed if the manifest says so.
    pub others: Vec<u64>,
    /// Bytes that were cut off, trailing zeros apart.
    pub torn_bytes: u64,
    /// Records that were cut off; at least 1 when anything but zeros was.
    pub torn_records: u64,
    /// Journal bytes replayed.
    pub replayed_bytes: u64,
    /// Groups replayed.
    pub replayed_groups: u64,
}

/// Replays the journal from `from`, giving each group to `sink`. Up to `synced_lsn` it is known to have
/// been synced, so that even a segment that is missing with all it proved is found out. `numbers` are
/// those of the segment files in the directory, `kept` those of them that the manifest keeps for their
/// values, whatever their records say. `Requires:` nothing else uses them, and where `from` is beyond
/// `synced_lsn`, what lies between is in tables and no value there is pointed at.
///
/// `Corruption` when a record is missing that was synced, when a segment in the middle is missing, or
/// when a segment's header is damaged. Nothing on disk is changed then.
pub fn recover(
    files: &Arc<JournalFiles>,
    from: JournalPosition,
    synced_lsn: u64,
    numbers: &[u64],
    kept: &HashSet<u64>,
    sink: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
) -> Result<Recovered> {
    if from.lsn > LSN_MAX {
        let path = file_name::segment(&files.dir, from.segment);
        return Err(Error::corruption(&path, from.offset, IMPOSSIBLE_PLACE));
    }
    let candidates = survey(files, numbers)?;
    let mut replay = Replay {
        files,
        present: numbers.iter().copied().collect(),
        kept,
        from,
        end: from,
        broken: None,
        next_seqno: None,
        proven_lsn: synced_lsn,
        chain: Vec::new(),
        recovered: Recovered::default(),
    };
    replay.run(&candidates, sink)?;
    let tail = replay.classify(&candidates)?;
    // What is in tables is made durable too: a segment whose values are kept is read from its front.
    let first_lsn = replay.chain.first().map_or(from.lsn, |link| link.base_lsn);
    let durable_from = replay.proven_lsn.max(first_lsn);
    let mut recovered = replay.recovered;
    recovered.start = if replay.broken.is_some() { replay.end } else { from };
    (recovered.torn_bytes, recovered.torn_records) = settle(files, tail)?;
    for link in &replay.chain {
        let end = link.segment.end();
        let begin = SEGMENT_HEADER_BYTES + durable_from.saturating_sub(link.base_lsn);
        if begin < end {
            rewrite(files, &link.candidate.path, begin, end)?;
        }
    }
    if let Some(last) = replay.chain.last() {
        last.segment.mark_cut();
    }
    recovered.end = replay.end;
    recovered.proven_lsn = replay.proven_lsn;
    recovered.last_seqno = replay.next_seqno.map_or(0, |next| next.saturating_sub(1));
    recovered.segments = replay.chain.into_iter().map(|link| link.segment).collect();
    Ok(recovered)
}

/// A segment of the chain.
struct Link<'a> {
    candidate: &'a Candidate,
    segment: Arc<Segment>,
    /// LSN of the segment's first record.
    base_lsn: u64,
}

struct Replay<'a> {
    files: &'a Arc<JournalFiles>,
    present: HashSet<u64>,
    kept: &'a HashSet<u64>,
    from: JournalPosition,
    end: JournalPosition,
    /// The segment to replay from, if its front was lost.
    broken: Option<&'a Candidate>,
    next_seqno: Option<SeqNo>,
    proven_lsn: u64,
    chain: Vec<Link<'a>>,
    recovered: Recovered,
}

impl<'a> Replay<'a> {
    fn run(
        &mut self,
        candidates: &'a [Candidate],
        sink: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut next = self.first(candidates)?;
        if let Some(first) = next
            && !first.has_front(self.files, self.from, self.proven_lsn)?
        {
            self.broken = Some(first);
            self.end = JournalPosition { lsn: self.from.lsn, ..JournalPosition::default() };
            next = None;
        }
        while let Some(candidate) = next {
            let offset = if candidate.header.number == self.from.segment {
                self.from.offset
            } else {
                SEGMENT_HEADER_BYTES
            };
            let base_lsn = self.end.lsn - (offset - SEGMENT_HEADER_BYTES);
            let successor = self.successor(candidates, candidate.header.number);
            // What stands behind the end that the successor names is left of a failed write.
            let limit = successor
                .map_or(candidate.len, |(_, start)| start.predecessor_end.min(candidate.len));
            let segment =
                Segment::sealed(self.files.clone(), candidate.header, candidate.len, offset);
            let segment = Arc::new(segment);
            self.chain.push(Link { candidate, segment: segment.clone(), base_lsn });
            self.end = JournalPosition { segment: segment.number(), offset, lsn: self.end.lsn };
            self.replay_segment(candidate, &segment, limit, sink)?;
            let reached = successor.filter(|(_, start)| goes_on_at(start, self.end));
            next = reached.map(|(successor, _)| successor);
        }
        Ok(())
    }

    /// The segment that replay starts in; `None` when the journal is empty.
    fn first(&mut self, candidates: &'a [Candidate]) -> Result<Option<&'a Candidate>> {
        let named = candidates.iter().find(|candidate| {
            candidate.header.number == self.from.segment
                && candidate.header.segment_type == SegmentType::Log
        });
        let Some(named) = named else {
            // A segment whose every record is flushed may be gone; its successor continues it.
            let successor = self.successor(candidates, self.from.segment);
            let successor = successor.filter(|(_, start)| goes_on_at(start, self.from));
            if successor.is_none() && self.from.segment != 0 {
                let path = file_name::segment(&self.files.dir, self.from.segment);
                return Err(Error::corruption(&path, 0, "the segment to replay from is missing"));
            }
            return Ok(successor.map(|(successor, _)| successor));
        };
        named.base_lsn(self.from)?;
        if self.from.offset > named.len && self.proven_lsn >= self.from.lsn {
            return Err(named.damage(named.len, "the segment ends before replay would start"));
        }
        Ok(Some(named))
    }

    /// The segment that continues `number`, and isn't replayed yet.
    fn successor(
        &self,
        candidates: &'a [Candidate],
        number: u64,
    ) -> Option<(&'a Candidate, Start)> {
        let is_replayed =
            |it: &Candidate| self.chain.iter().any(|link| std::ptr::eq(link.candidate, it));
        let others = candidates.iter().filter(|candidate| !is_replayed(candidate));
        successor(others, number, self.from.lsn)
    }

    fn replay_segment(
        &mut self,
        candidate: &Candidate,
        segment: &Arc<Segment>,
        limit: u64,
        sink: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut reader = candidate.reader(self.files, self.end.offset, limit)?;
        loop {
            let Step::Record(record) = reader.step()? else {
                return Ok(());
            };
            if !self.fits(&record.header, record.offset) {
                return Ok(());
            }
            let Ok(inline) = reader.check_values(&record)? else {
                return Ok(());
            };
            let bytes = record.header.record_bytes();
            self.end.offset += bytes;
            self.end.lsn += bytes;
            segment.set_end(self.end.offset);
            self.proven_lsn = self.proven_lsn.max(record.header.synced_upto);
            self.next_seqno = Some(record.header.first_seqno + u64::from(record.header.count));
            self.recovered.replayed_bytes += bytes;
            if record.header.record_type == RecordType::Group {
                self.recovered.replayed_groups += 1;
                sink(Replayed {
                    segment,
                    end: self.end,
                    first_seqno: record.header.first_seqno,
                    changes: record.changes(&inline, segment.number()),
                })?;
            }
        }
    }

    /// Whether a sound record may stand at the end of what was replayed.
    fn fits(&self, header: &RecordHeader, offset: u64) -> bool {
        let is_first = offset == SEGMENT_HEADER_BYTES;
        let type_fits = match header.record_type {
            RecordType::Start => is_first,
            RecordType::Group | RecordType::Mark => !is_first,
            RecordType::Index => false,
        };
        type_fits
            && header.synced_upto <= self.end.lsn
            && self.next_seqno.is_none_or(|next| match header.record_type {
                // An opening may leave numbers out; it starts a segment.
                RecordType::Start => next <= header.first_seqno,
                _ => next == header.first_seqno,
            })
            && header
                .first_seqno
                .checked_add(u64::from(header.count))
                .is_some_and(|next| next <= SEQNO_MAX + 1)
    }

    /// Tells a torn tail, which is returned, from damage.
    fn classify(&mut self, candidates: &'a [Candidate]) -> Result<Tail<'a>> {
        let mut tail = Tail::default();
        let mut proof = Proof { lsn: self.proven_lsn, candidate: None };
        if let Some(link) = self.chain.last() {
            let (candidate, end) = (link.candidate, self.end.offset);
            let mut reader = candidate.reader(self.files, end, candidate.len)?;
            let found = find_records(&mut reader, candidate, end, &mut proof)?;
            tail.records += found.records;
            let is_clean = found.records == 0 && candidate.is_ended_at(&mut reader, end)?;
            // In a recycled file old bytes follow; they are no part of the torn tail if its end is known.
            let torn_end = match (is_clean, candidate.header.is_recycled && found.records > 0) {
                (true, _) => end,
                (false, true) => found.end.min(candidate.len),
                (false, false) => reader.last_nonzero(end)?,
            };
            tail.is_short = candidate.is_short();
            tail.cut = Some(Cut { candidate, end, torn: end..torn_end });
        }
        if let Some(candidate) = self.broken {
            let begin = self.from.offset.min(candidate.len);
            let mut reader = candidate.reader(self.files, begin, candidate.len)?;
            let found = find_records(&mut reader, candidate, begin, &mut proof)?;
            tail.records += found.records;
            let torn = begin..torn_end(&mut reader, candidate, begin, &found)?;
            // Its header stays until the manifest names another start.
            tail.cut = Some(Cut { candidate, end: SEGMENT_HEADER_BYTES, torn });
        }
        for candidate in candidates {
            let is_replayed = self.chain.iter().any(|link| std::ptr::eq(link.candidate, candidate));
            if is_replayed || self.broken.is_some_and(|broken| std::ptr::eq(broken, candidate)) {
                continue;
            }
            let number = candidate.header.number;
            let is_older = candidate.start.is_some_and(|start| start.lsn < self.from.lsn);
            let is_collected = candidate.header.segment_type == SegmentType::Collected;
            if is_collected || is_older || self.kept.contains(&number) {
                self.recovered.others.push(number);
                continue;
            }
            self.check_predecessor(candidate)?;
            let begin = SEGMENT_HEADER_BYTES;
            let mut reader = candidate.reader(self.files, begin, candidate.len)?;
            let found = find_records(&mut reader, candidate, begin, &mut proof)?;
            if found.records == 0 {
                self.recovered.spares.push((candidate.header.number, candidate.len));
                continue;
            }
            tail.records += found.records;
            let torn = begin..torn_end(&mut reader, candidate, begin, &found)?;
            tail.discarded.push(Cut { candidate, end: begin, torn });
        }
        if proof.lsn > self.end.lsn {
            return Err(self.damage_before(&proof));
        }
        // The last goes first, so that a crash in between leaves a shorter tail of the same kind. One
        // whose start is lost may be what another names as its predecessor, so it goes at the end.
        tail.discarded
            .sort_by_key(|cut| std::cmp::Reverse(cut.candidate.start.map_or(0, |start| start.lsn)));
        Ok(tail)
    }

    fn check_predecessor(&self, candidate: &Candidate) -> Result<()> {
        match candidate.start {
            Some(start) if start.predecessor != 0 && !self.present.contains(&start.predecessor) => {
                let path = file_name::segment(&self.files.dir, start.predecessor);
                let what = format!("missing, though segment {} goes on", candidate.header.number);
                Err(Error::corruption(&path, 0, what))
            }
            _ => Ok(()),
        }
    }

    fn damage_before(&self, proof: &Proof<'_>) -> Error {
        let what = format!(
            "no valid record at LSN {}, though the journal was synced to LSN {}",
            self.end.lsn, proof.lsn
        );
        match (self.chain.last(), proof.candidate) {
            (Some(link), _) => link.candidate.damage(self.end.offset, what),
            (None, Some(candidate)) => candidate.damage(SEGMENT_HEADER_BYTES, what),
            (None, None) => Error::corruption(&self.files.dir, 0, what),
        }
    }
}

/// The highest LSN that any record behind the end of the log says was synced.
#[derive(Debug, Default)]
struct Proof<'a> {
    lsn: u64,
    candidate: Option<&'a Candidate>,
}

/// Records found behind the end of the log.
#[derive(Debug, Default)]
struct Found {
    records: u64,
    /// Offset behind the last of them, as its header has it.
    end: u64,
}

/// Where what is torn ends, in a segment that is given up from `begin` on. In a recycled file old bytes
/// follow, which are no part of it.
fn torn_end(
    reader: &mut SegmentReader,
    candidate: &Candidate,
    begin: u64,
    found: &Found,
) -> Result<u64> {
    match candidate.header.is_recycled {
        true => Ok(found.end.min(candidate.len).max(begin)),
        false => reader.last_nonzero(begin),
    }
}

fn find_records<'a>(
    reader: &mut SegmentReader,
    candidate: &'a Candidate,
    from: u64,
    proof: &mut Proof<'a>,
) -> Result<Found> {
    let mut found = Found::default();
    reader.scan_headers(from, |offset, header| {
        found.records += 1;
        found.end = found.end.max(offset + header.record_bytes());
        if header.synced_upto > proof.lsn {
            *proof = Proof { lsn: header.synced_upto, candidate: Some(candidate) };
        }
    })?;
    Ok(found)
}
