//! Crashes at every file operation, and errors in their place.
//!
//! What a kill leaves is what was acknowledged, and perhaps the step that was under way. What a power
//! loss leaves is that of some moment since the last `Sync`: never a part of a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tallybook::vfs::faulty::{Fault, FaultError, OperationClass};
use tallybook::vfs::{CrashMode, FaultyFileSystem, MemoryFileSystem, MemoryImage};
use tallybook_files::{
    CopyOptions, CreateOptions, Durability, FileStore, ListOptions, OpenOptions, RepairOptions,
    Result, UnlinkOptions, VerifyOptions, WriteOptions,
};

use crate::support::{
    CHUNK, bytes, in_memory, inline, is_long, lose_catalogue, memory_dir, reopen, small,
};

type Files = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Write(&'static str, u64, usize),
    Drop(&'static str, usize),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Copy(&'static str, &'static str),
    Reap,
    Verify,
    Reopen,
}

use Step::{Copy, Drop, Reap, Rename, Reopen, Unlink, Verify, Write};

/// Buckets with room for three chunks, so that files spill.
fn tight() -> CreateOptions {
    CreateOptions { bucket_count: 2, bucket_cap_bytes: 3 * CHUNK as u64, ..small() }
}

fn steps() -> Vec<Step> {
    vec![
        Write("a", 1, 100),
        Write("b", 2, 2 * CHUNK + 5),
        Write("a", 3, CHUNK),
        Write("empty", 0, 0),
        Drop("b", CHUNK + 1),
        Copy("a", "c"),
        Reap,
        Rename("b", "a"),
        Unlink("c"),
        Reap,
        Reopen,
        Write("big", 5, 3 * CHUNK - 7),
        Write("big", 6, 10),
        Verify,
        Unlink("a"),
        Write("a", 7, 2 * CHUNK),
        Rename("empty", "big"),
        Reap,
    ]
}

fn apply(files: &mut Files, step: &Step) {
    match step {
        Write(name, seed, len) => drop(files.insert((*name).into(), bytes(*seed, *len))),
        Unlink(name) => drop(files.remove(*name)),
        Rename(from, to) => {
            if let Some(file) = files.remove(*from) {
                files.insert((*to).into(), file);
            }
        }
        Copy(from, to) => {
            if let Some(file) = files.get(*from).cloned() {
                files.insert((*to).into(), file);
            }
        }
        Drop(..) | Reap | Verify | Reopen => {}
    }
}

fn run(store: &FileStore, step: &Step, durability: Durability) -> Result<()> {
    let durability = Some(durability);
    match step {
        Write(name, seed, len) => {
            let mut writer =
                store.writer(name, WriteOptions { durability, ..Default::default() })?;
            for part in bytes(*seed, *len).chunks(CHUNK / 2 + 1) {
                writer.write(part)?;
            }
            writer.commit().map(drop)
        }
        Drop(name, len) => {
            let mut writer = store.writer(name, WriteOptions::default())?;
            writer.write(&bytes(99, *len))
        }
        Unlink(name) => {
            store.unlink(name, UnlinkOptions { durability, ..Default::default() }).map(drop)
        }
        Rename(from, to) => {
            store.rename(from, to, CopyOptions { durability, ..Default::default() }).map(drop)
        }
        Copy(from, to) => {
            store.copy(from, to, CopyOptions { durability, ..Default::default() }).map(drop)
        }
        Reap => store.reap().map(drop),
        Verify => store.verify(VerifyOptions::default(), &mut |_, _| {}).map(drop),
        Reopen => store.close(),
    }
}

/// All files of a store; every one must be readable.
fn contents(store: &FileStore) -> Result<Files> {
    let page = store.list(ListOptions::default())?;
    let mut files = Files::new();
    for entry in page.entries {
        let read = store.read(entry.name())?.expect("a listed file is there");
        files.insert(entry.name().to_owned(), read);
    }
    Ok(files)
}

fn names(files: &Files) -> Vec<(&str, usize)> {
    files.iter().map(|(name, bytes)| (name.as_str(), bytes.len())).collect()
}

/// Opens what a crash left and holds it against what may be there.
fn check(files: &MemoryFileSystem, allowed: &[Files], is_kill: bool, place: &str) {
    let store = reopen(files).unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = contents(&store).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(
        allowed.contains(&found),
        "{place}: {:?}, allowed are {:?}",
        names(&found),
        allowed.iter().map(names).collect::<Vec<_>>()
    );
    store.reap().unwrap_or_else(|error| panic!("{place}: reap: {error}"));
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {});
    let report = report.unwrap_or_else(|error| panic!("{place}: verify: {error}"));
    assert!(report.damage.is_empty() && report.lost_buckets.is_empty(), "{place}: {report:?}");
    // After a kill nothing is lost, so nothing is left over either.
    assert!(!is_kill || report.orphans + report.entries_restored == 0, "{place}: {report:?}");
    store.reap().unwrap_or_else(|error| panic!("{place}: reap: {error}"));
    let totals = store.totals();
    assert_eq!(totals.files, found.len() as u64, "{place}");
    assert_eq!(totals.file_bytes, found.values().map(|f| f.len() as u64).sum::<u64>(), "{place}");
    let distinct: std::collections::BTreeSet<&Vec<u8>> = found.values().collect();
    let live: u64 = distinct.iter().map(|file| file.len() as u64).sum();
    assert_eq!((totals.live_bytes, totals.dead_bytes), (live, 0), "{place}");
    assert!(contents(&store).unwrap() == found, "{place}: it flickers");
}

struct Image {
    step: usize,
    ordinal: u64,
    operation: &'static str,
    image: MemoryImage,
}

/// Runs the steps with an image at every file operation, and the files after each step.
fn take_images(durability: Durability) -> (Vec<Image>, Vec<Files>) {
    let fs = MemoryFileSystem::new();
    let mut store = in_memory(&fs, tight());
    let images: Arc<Mutex<Vec<Image>>> = Arc::default();
    let step_now = Arc::new(Mutex::new(0));
    let (taken, step_of) = (images.clone(), step_now.clone());
    fs.set_observer(Some(Box::new(move |ordinal, operation, moment| {
        let step = *step_of.lock().unwrap();
        taken.lock().unwrap().push(Image { step, ordinal, operation, image: moment.image() });
    })));
    let mut states = vec![Files::new()];
    for (at, step) in steps().iter().enumerate() {
        *step_now.lock().unwrap() = at;
        run(&store, step, durability).unwrap();
        if matches!(step, Reopen) {
            drop(store);
            store = reopen(&fs).unwrap();
        }
        let mut files = states.last().unwrap().clone();
        apply(&mut files, step);
        assert!(contents(&store).unwrap() == files, "step {at}: {step:?}");
        states.push(files);
    }
    fs.set_observer(None);
    drop(store);
    let images = std::mem::take(&mut *images.lock().unwrap());
    (images, states)
}

fn stride() -> usize {
    if is_long() { 1 } else { 3 }
}

#[test]
fn a_kill_at_any_moment_leaves_whole_files_and_exact_totals() {
    for durability in [Durability::Os, Durability::Sync] {
        let (images, states) = take_images(durability);
        for Image { step, ordinal, operation, image } in images.iter().step_by(stride()) {
            let place = format!("killed after operation {ordinal} ({operation}) in step {step}");
            check(&image.crash(CrashMode::KeepAll, 0), &states[*step..=step + 1], true, &place);
        }
        assert!(images.len() > 200, "{} operations", images.len());
    }
}

#[test]
fn a_power_loss_after_sync_loses_nothing_that_was_acknowledged() {
    let (images, states) = take_images(Durability::Sync);
    for Image { step, ordinal, operation, image } in images.iter().step_by(stride()) {
        for (mode, seed) in [(CrashMode::LoseUnsynced, 0), (CrashMode::Random, *ordinal)] {
            let place = format!("{mode:?} after operation {ordinal} ({operation}) in step {step}");
            check(&image.crash(mode, seed), &states[*step..=step + 1], false, &place);
        }
    }
}

#[test]
fn a_power_loss_at_interval_leaves_whole_files_of_one_moment() {
    let (images, states) = take_images(Durability::Interval(100));
    for Image { step, ordinal, operation, image } in images.iter().step_by(stride()) {
        for (mode, seed) in [(CrashMode::LoseUnsynced, 0), (CrashMode::Random, *ordinal)] {
            let place = format!("{mode:?} after operation {ordinal} ({operation}) in step {step}");
            check(&image.crash(mode, seed), &states[..=step + 1], false, &place);
        }
    }
}

#[test]
fn what_was_written_at_os_survives_a_power_loss_after_sync_was_called() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, tight());
    let mut files = Files::new();
    for step in [Write("a", 1, 2 * CHUNK), Write("b", 2, 3 * CHUNK), Copy("a", "c"), Unlink("a")] {
        run(&store, &step, Durability::Os).unwrap();
        apply(&mut files, &step);
    }
    store.sync().unwrap();
    let image = fs.image();
    for (mode, seed) in [(CrashMode::LoseUnsynced, 0), (CrashMode::Random, 1)] {
        check(&image.crash(mode, seed), std::slice::from_ref(&files), false, "after sync");
    }
}

#[test]
fn a_power_loss_is_noticed_when_syncs_do_nothing() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, tight());
    fs.sync_disabled(true);
    run(&store, &Write("a", 1, 2 * CHUNK), Durability::Sync).unwrap();
    let left = fs.image().crash(CrashMode::LoseUnsynced, 0);
    assert!(reopen(&left).and_then(|store| store.read("a")).is_ok_and(|file| file.is_none()));
}

#[test]
fn an_error_of_any_file_operation_is_told_and_leaves_whole_files() {
    let errors = [FaultError::Errno(5), FaultError::Kind(std::io::ErrorKind::StorageFull)];
    for error in errors {
        let mut ordinal = 1;
        loop {
            let memory = MemoryFileSystem::new();
            drop(in_memory(&memory, tight()));
            let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
            let class = OperationClass::Any;
            let (sticky, short_write) = (ordinal % 2 == 0, ordinal % 3 == 0);
            let fault = Fault { error, sticky, short_write, class, delay: None, only: None };
            fs.fail_at(ordinal, fault);
            let place = format!("{error:?} at operation {ordinal}, sticky: {sticky}");
            let possible = run_with_faults(&fs);
            let is_over = fs.fired() == 0;
            fs.clear();
            let store = reopen(&memory).unwrap_or_else(|error| panic!("{place}: {error}"));
            let found = contents(&store).unwrap_or_else(|error| panic!("{place}: {error}"));
            for (name, files) in &possible {
                let file = found.get(*name).cloned();
                assert!(files.contains(&file), "{place}: {name} is {:?}", file.map(|f| f.len()));
            }
            store.reap().unwrap_or_else(|error| panic!("{place}: reap: {error}"));
            assert_eq!(store.totals().dead_bytes, 0, "{place}");
            if is_over {
                break;
            }
            ordinal += if is_long() { 1 } else { 5 };
        }
        assert!(ordinal > 100, "{ordinal} operations");
    }
}

/// Runs the steps though some fail; answers what each name may stand for afterwards.
fn run_with_faults(fs: &FaultyFileSystem) -> BTreeMap<&'static str, Vec<Option<Vec<u8>>>> {
    let mut possible: BTreeMap<_, _> =
        ["a", "b", "c", "big", "empty"].map(|name| (name, vec![None])).into();
    let open = || FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs.clone()));
    let Ok(store) = open() else { return possible };
    for step in steps().iter().filter(|step| !matches!(step, Reopen)) {
        let outcome = run(&store, step, Durability::Sync);
        let (name, outcomes) = match step {
            Write(name, seed, len) => (*name, vec![Some(bytes(*seed, *len))]),
            Unlink(name) => (*name, vec![None]),
            Rename(from, to) | Copy(from, to) => (*to, possible[from].clone()),
            Drop(..) | Reap | Verify | Reopen => continue,
        };
        if let Rename(from, _) = step {
            possible.get_mut(from).unwrap().push(None);
        }
        match outcome {
            Ok(()) if !matches!(step, Rename(..) | Copy(..)) => {
                possible.insert(name, outcomes);
            }
            _ => possible.get_mut(name).unwrap().extend(outcomes),
        }
    }
    possible
}

#[test]
fn a_lost_catalogue_is_made_anew_from_the_buckets_whenever_the_crash_came() {
    let (images, states) = take_images(Durability::Sync);
    for Image { step, ordinal, operation, image } in images.iter().step_by(stride() * 5) {
        let place = format!("operation {ordinal} ({operation}) in step {step}");
        let fs = image.crash(CrashMode::KeepAll, 0);
        // What is still to be freed may come back with the catalogue lost; so it is freed first.
        let store = reopen(&fs).unwrap();
        let before = contents(&store).unwrap();
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        let ordinals: Arc<Mutex<Vec<MemoryImage>>> = Arc::default();
        lose_catalogue(&fs);
        let taken = ordinals.clone();
        fs.set_observer(Some(Box::new(move |ordinal, _, moment| {
            if ordinal % 17 == 0 {
                taken.lock().unwrap().push(moment.image());
            }
        })));
        let repaired =
            FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
        let report = repaired.unwrap_or_else(|error| panic!("{place}: {error}"));
        fs.set_observer(None);
        assert!(report.old_catalogue.is_some() && report.verified.damage.is_empty(), "{place}");
        check(&fs, std::slice::from_ref(&before), true, &place);
        assert!(states[*step..=step + 1].contains(&before), "{place}");
        // A crash during the repair: another one goes through.
        for image in ordinals.lock().unwrap().iter().step_by(2) {
            let fs = image.crash(CrashMode::LoseUnsynced, 0);
            let again =
                FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
            again.unwrap_or_else(|error| panic!("{place}: the second repair: {error}"));
            check(&fs, std::slice::from_ref(&before), false, &place);
        }
    }
}
