//! Segment files as recovery and salvage see them: what recovery refuses or cuts off, salvage tells of, and what
//! recovery replays, it tells first.

use std::collections::BTreeMap;

use tallybook::head::{Body, BodyRef, ValuePointer};
use tallybook::journal::{self, Change, KnownLog, Recovered, SalvagedJournal, Told};
use tallybook::key::SEQNO_USED_MAX;
use tallybook::range_tombstone::RangeTombstone;
use tallybook::vfs::{CrashMode, MemoryFileSystem};
use tallybook::{checksum, file_name};

use crate::disk;
use crate::input::{Input, part, u32_at};
use crate::journal::{Given, START_LSN_AT, files_of, numbers};
use crate::store;

/// No journal gets so far: recovery refuses it, and salvage has no reason to.
const LSN_MAX: u64 = 1 << 62;

/// What salvage tells of a log.
#[derive(Debug, Default)]
struct Log {
    /// Each write, with its value.
    writes: Vec<String>,
    /// Places where writes are missing, ends that are torn, and values that are damaged.
    losses: Vec<String>,
}

/// Up to three segment files, and what a manifest says of them.
pub(crate) fn journal(data: &[u8]) -> bool {
    let given = Given::of(data);
    let told = tell(&given);
    let before = given.fs.image().crash(CrashMode::KeepAll, 0);
    let (replayed, recovered) = match recover(&given, &before) {
        Ok(found) => found,
        Err(error) => {
            // Up to where replay starts nobody needs what no sync is known of; what is behind is still there.
            let is_front_known = given.from.offset <= 64 || given.synced_lsn >= given.from.lsn;
            let is_possible = given.from.lsn <= LSN_MAX;
            // A record that tells of a sync behind itself stands nowhere but where checksums were made right.
            let is_refused = is_front_known && is_possible && !given.is_corrected;
            assert!(!is_refused || !told.losses.is_empty(), "{error}, and nothing is told of it");
            return false;
        }
    };
    // A store refuses numbers that are too large; recovery leaves that to it.
    if recovered.start != given.from || recovered.last_seqno > SEQNO_USED_MAX {
        return false;
    }
    let read = |number| disk::read(&before, &file_name::segment(disk::dir(), number));
    let segments: BTreeMap<u64, Vec<u8>> =
        numbers(&before).into_iter().map(|number| (number, read(number))).collect();
    let is_log = |number| segments.get(&number).is_some_and(|bytes| u32_at(bytes, 12) == Some(1));
    let is_newest_gone = given.newest.is_some_and(|number| !is_log(number));
    assert!(
        told.writes.starts_with(&replayed),
        "{replayed:?} aren't the first of {:?}",
        told.writes
    );
    if recovered.torn_records == 0 {
        assert_eq!(told.writes.len(), replayed.len(), "{:?}", told.writes);
        // A file that was cut down to its header was a spare for recovery, and is in doubt for salvage.
        let is_doubtful = segments.iter().any(|(_, bytes)| disk::may_lack_start(bytes));
        let is_right = is_doubtful || is_newest_gone || told.losses.is_empty();
        assert!(is_right, "nothing is lost, and this is told: {:?}", told.losses);
    } else {
        // What was let go before the log began is cut off too, if it has lost its start: by its numbers, or by
        // where the segment behind it says that it ends.
        let begun = segments.get(&given.from.segment).and_then(|bytes| disk::first_seqno(bytes));
        let starts = || segments.values().filter_map(|bytes| disk::start(bytes));
        let ends_before = |number: u64| {
            starts().any(|next| next.predecessor == number && next.lsn <= given.from.lsn)
        };
        let was_let_go = |(number, bytes): (&u64, &Vec<u8>)| {
            let is_other = *number != given.from.segment && !given.kept.contains(number);
            let is_older = |first| first <= given.seqno_in_tables || Some(first) < begun;
            let is_older = disk::first_seqno(bytes).is_some_and(is_older) || ends_before(*number);
            is_other && disk::start(bytes).is_none() && is_older
        };
        let is_right = !told.losses.is_empty() || segments.iter().any(was_let_go);
        assert!(is_right, "records are cut off, and nothing is told of it");
    }
    assert!(!is_newest_gone || !told.losses.is_empty(), "a segment is gone, and nothing is told");
    !replayed.is_empty()
}

fn tell(given: &Given) -> Log {
    let files = files_of(&given.fs);
    let numbers = numbers(&given.fs);
    let journal = SalvagedJournal::survey(&files, &numbers);
    let mut log = Log::default();
    log.losses.extend(journal.damage().iter().map(ToString::to_string));
    let Given { from, synced_lsn, ref kept, newest, seqno_in_tables, .. } = *given;
    let known = KnownLog { from, synced_lsn, kept: kept.clone(), newest, seqno_in_tables };
    journal.log(&known, &mut |told| match told {
        Told::Entry(key, entry) => {
            let value = match &entry.body {
                Body::Delete => None,
                Body::Inline(_) => panic!("a value is where its pointer says"),
                Body::Ref(pointer) => Some(value(&given.fs, pointer)),
            };
            if value == Some(None) {
                log.losses.push(format!("a value of {key:?}"));
            }
            let head = (entry.written_at_ms, entry.expires_at_ms, &entry.attributes[..]);
            log.writes.push(written(&key, entry.seqno, head, value.flatten()));
        }
        Told::DeleteRange(RangeTombstone { start, end, seqno }) => {
            log.writes.push(deleted(&start, &end, seqno));
        }
        Told::Hole(error) | Told::Torn(error) => log.losses.push(error.to_string()),
    });
    // What is there beside the log only has to be read.
    for number in numbers {
        journal.segment(number, None, &mut |_| {});
    }
    log
}

/// What recovery replays. Values are read where they were `before` it.
fn recover(
    given: &Given,
    before: &MemoryFileSystem,
) -> tallybook::Result<(Vec<String>, Recovered)> {
    let Given { fs, from, synced_lsn, kept, .. } = given;
    let (files, numbers) = (files_of(fs), numbers(fs));
    let mut replayed = Vec::new();
    let recovered = journal::recover(&files, *from, *synced_lsn, &numbers, kept, &mut |group| {
        replayed.extend(group.changes.map(|change| match change {
            Change::DeleteRange { start, end, seqno } => deleted(start, end, seqno),
            Change::Entry { key, entry } => {
                let value = match &entry.body {
                    BodyRef::Delete => None,
                    BodyRef::Inline(value) => Some(value.to_vec()),
                    BodyRef::Ref(pointer) => value(before, pointer),
                };
                let head = (entry.written_at_ms, entry.expires_at_ms, entry.attributes);
                written(key, entry.seqno, head, value)
            }
        }));
        Ok(())
    })?;
    Ok((replayed, recovered))
}

fn written(key: &[u8], seqno: u64, head: (u64, u64, &[u8]), value: Option<Vec<u8>>) -> String {
    format!("{seqno}: {key:?} = {value:?}, {head:?}")
}

fn deleted(start: &[u8], end: &[u8], seqno: u64) -> String {
    format!("{seqno}: {start:?} to {end:?} deleted")
}

/// The value at its place, if it is sound.
fn value(fs: &MemoryFileSystem, pointer: &ValuePointer) -> Option<Vec<u8>> {
    let bytes = disk::read(fs, &file_name::segment(disk::dir(), pointer.segment));
    let start = usize::try_from(pointer.offset).ok()?;
    let value = bytes.get(start..start.checked_add(pointer.length as usize)?)?;
    (checksum::crc32c(value) == pointer.checksum).then(|| value.to_vec())
}

/// Seeds of `journal`: two segments, the second of which goes on with the first.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let [one, two] = chain();
    let ends = disk::record_ends(&two);
    let seed = |head: &[u8], parts: [&[u8]; 2]| [head, &part(parts[0]), &part(parts[1])].concat();
    let mut seeds = vec![
        seed(&[1], [&one, &two]),
        seed(&[0], [&one, b""]),
        seed(&[1], [b"", &two]),
        // Known to be synced to far behind its end.
        seed(&[&[1 | 4][..], &(1u64 << 20).to_le_bytes()].concat(), [&one, &two]),
    ];
    // From the second on, the first being kept; whole, and without its start.
    let lsn = &two[START_LSN_AT..START_LSN_AT + 8];
    let from = [&[1 | 2 | 4 | 8, 2][..], &64u16.to_le_bytes(), lsn, lsn, &[1 << 1]].concat();
    let mut headless = one.clone();
    headless[70] ^= 1;
    seeds.push(seed(&from, [&one, &two]));
    seeds.push(seed(&from, [&headless, &two]));
    seeds.push(seed(&[1], [&headless, &two]));
    for at in [140, 200, one.len() - 20] {
        let mut damaged = one.clone();
        damaged[at] ^= 1;
        seeds.push(seed(&[1], [&damaged, &two]));
    }
    // Cut at the ends of records, and in the middle of one; and zeros instead.
    for &end in ends.iter().rev().take(4) {
        seeds.push(seed(&[1], [&one, &two[..end]]));
        let mut zeros = two.clone();
        zeros[end..].fill(0);
        seeds.push(seed(&[1], [&one, &zeros]));
    }
    seeds.push(seed(&[1], [&one, &two[..two.len() - 20]]));
    // The newest segment that is known is there, and is gone.
    seeds.push(seed(&[1 | 16, 2], [&one, &two]));
    seeds.push(seed(&[1 | 16, 3], [&one, &two]));
    // From the second on, the first being let go and without its start, and all in tables.
    let from =
        [&[1 | 2 | 4 | 32, 2][..], &64u16.to_le_bytes(), lsn, lsn, &[0xff; 7], &[0]].concat();
    seeds.push(seed(&from, [&headless, &two]));
    // From the last record of the first on, which has a number that no store has.
    let ends = disk::record_ends(&one);
    let last = ends[ends.len() - 2];
    let lsn = Input(&one[START_LSN_AT..]).u64() + last as u64 - 64;
    let mut far = one.clone();
    put(&mut far, last + 8, &[SEQNO_USED_MAX + 1]);
    let from = [&[2, 1][..], &(last as u16).to_le_bytes(), &lsn.to_le_bytes()].concat();
    seeds.push(seed(&from, [&far, b""]));
    seeds
}

/// Segments of a store, the first cut short, with numbers 1 and 2.
fn chain() -> [Vec<u8>; 2] {
    let mut segments = store::segments().into_iter();
    let mut segment = || segments.next().expect("a store has two segments");
    let (mut one, mut two) = (segment(), segment());
    one.truncate(disk::record_ends(&one)[8]);
    let end = one.len() as u64;
    put(&mut two, START_LSN_AT, &[end - 64, 1, end]);
    for (number, segment) in (1..).zip([&mut one, &mut two]) {
        // A file that is no shorter than it was made, and records of which none tells of a sync.
        let len = segment.len() as u64;
        put(segment, 48, &[len]);
        let mut at = 64;
        for end in disk::record_ends(segment) {
            put(segment, at + 16, &[0]);
            at = end;
        }
        disk::correct_segment(number, segment);
    }
    [one, two]
}

fn put(bytes: &mut [u8], at: usize, numbers: &[u64]) {
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes[at..at + numbers.len()].copy_from_slice(&numbers);
}
