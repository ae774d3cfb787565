//! How much of the tree is hidden by newer entries, from a sample.
//!
//! 1. Of each run but the oldest some entries are taken, a few each from places evenly spaced.
//! 2. For each the next older version of its key is looked up. One that is there is hidden. The entry
//!    itself counts too if it is a deletion or has expired.
//! 3. What was found is scaled up from the sample to the run.
//! 4. Once that is enough for a merge, older runs aren't looked into.
//!
//! So an idle store knows without merging whether a merge would free anything.

use std::sync::Arc;

use super::inner::{Inner, KnownHidden};
use super::table_search::find_in_tables;
use crate::compaction::pick::Hidden;
use crate::error::Result;
use crate::head::BodyRef;
use crate::iter::InternalIterator;
use crate::key::{self, SEQNO_MAX};
use crate::version::{LiveTable, Run, Version};

/// Places in all runs, the least and the most in one, and entries from each on.
const PLACES: usize = 128;
const PLACES_MIN: usize = 8;
const PLACES_MAX: usize = 32;
const ENTRIES_PER_PLACE: usize = 8;

impl Inner {
    /// As `hidden`, looked into once for each version, and again when more of a table has expired. What can't be
    /// read is for a merge to tell of, so it counts as hidden. Requires: of one version always with the same
    /// `little`.
    pub(super) fn hidden_once(&self, version: &Arc<Version>, little: Hidden) -> Hidden {
        let now_ms = self.resources.clock.now_ms();
        let mut known = self.hidden_of.lock();
        match &*known {
            Some(known)
                if known.of.as_ptr() == Arc::as_ptr(version)
                    && !version.expires_within(known.at_ms, now_ms) =>
            {
                known.hidden
            }
            _ => {
                let hidden = self.hidden(version, little).unwrap_or(Hidden::ALL);
                *known = Some(KnownHidden { of: Arc::downgrade(version), at_ms: now_ms, hidden });
                hidden
            }
        }
    }

    /// What the upper runs of a version hide, about; of no more runs than it takes to exceed `little`.
    pub(super) fn hidden(&self, version: &Version, little: Hidden) -> Result<Hidden> {
        let mut hidden = Hidden::default();
        let oldest = version.runs().next_back().map(|(_, run)| run.id);
        let upper = || version.runs().filter(|(_, run)| Some(run.id) != oldest);
        let place_count = (PLACES / upper().count().max(1)).clamp(PLACES_MIN, PLACES_MAX);
        for (_, run) in upper() {
            let (found, sampled) = self.sample(version, run, place_count)?;
            let entries = run.entries();
            let scale = |part: u64| {
                let whole = u128::from(part) * u128::from(entries) / u128::from(sampled.max(1));
                u64::try_from(whole).unwrap_or(u64::MAX)
            };
            hidden.entries = hidden.entries.saturating_add(scale(found.entries));
            hidden.bytes = hidden.bytes.saturating_add(scale(found.bytes));
            if hidden.exceed(little) {
                break;
            }
        }
        Ok(hidden)
    }

    /// What a sample of a run's entries hides, and how many it has.
    fn sample(&self, version: &Version, run: &Run, place_count: usize) -> Result<(Hidden, u64)> {
        let (mut hidden, mut sampled) = (Hidden::default(), 0);
        let mut trace = self.recorder.begin_unrecorded();
        let now_ms = self.resources.clock.now_ms();
        for (table, start) in places(run, place_count) {
            let mut iter = table.table().iter(true);
            iter.seek(start, SEQNO_MAX)?;
            for _ in 0..ENTRIES_PER_PLACE {
                if !iter.valid() {
                    break;
                }
                let (user_key, entry) = (iter.user_key(), iter.entry()?);
                sampled += 1;
                let mut add = |body: &BodyRef<'_>| {
                    hidden.entries += 1;
                    hidden.bytes += body.weight(user_key);
                };
                if !entry.is_live(now_ms) {
                    add(&entry.body);
                }
                let (hash, before) = (key::hash(user_key), entry.seqno.saturating_sub(1));
                let older = find_in_tables(version, user_key, hash, before, true, &mut trace)?;
                if let Some(older) = older.entry {
                    add(&older.by_ref().body);
                }
                iter.next()?;
            }
        }
        Ok((hidden, sampled))
    }
}

/// Tables of a run and keys where blocks of theirs begin, evenly spaced over the run's blocks.
fn places(run: &Run, count: usize) -> impl Iterator<Item = (&LiveTable, &[u8])> {
    let blocks = |table: &LiveTable| table.table().boundary_keys().len();
    let all: usize = run.tables.iter().map(|table| blocks(table)).sum();
    (0..count).filter_map(move |place| {
        let mut block = place * all / count;
        let table = run.tables.iter().find(|table| {
            let is_here = block < blocks(table);
            block -= if is_here { 0 } else { blocks(table) };
            is_here
        })?;
        let start = table.table().boundary_keys().nth(block)?;
        Some((&**table, start.max(&table.smallest)))
    })
}
