//! A full disk: writes are refused, reads and deletions go on, and space comes back by itself.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallybook::vfs::faulty::{Fault, FaultyFileSystem};
use tallybook::vfs::{FileSystem, ManualClock, MemoryFileSystem};
use tallybook::{Error, Options, ResourceOptions, Resources, Store, WriteBatch};

const CAPACITY: u64 = 4 << 20;

fn full_store() -> (Store, Arc<ManualClock>, u32) {
    let fs = MemoryFileSystem::new();
    let clock = Arc::new(ManualClock::at_ms(1));
    fs.set_capacity(Some(CAPACITY));
    let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs), clock.clone());
    let options = Options {
        memtable_bytes: 64 << 10,
        memtable_journal_bytes: 256 << 10,
        write_buffer_bytes: 1 << 20,
        segment_bytes_min: 128 << 10,
        segment_bytes_max: 128 << 10,
        ..Options::default()
    };
    let store = Store::open_with("/s", options, resources).unwrap();
    for at in 0.. {
        match store.put(&u32::to_be_bytes(at), &value(at)) {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => return (store, clock, at),
            Err(error) => panic!("a full disk is told as {error}"),
        }
    }
    unreachable!("the disk is full at last")
}

fn value(at: u32) -> Vec<u8> {
    vec![at as u8; 5000]
}

#[test]
fn reads_and_deletions_go_on_and_what_is_deleted_makes_room() {
    let (store, clock, count) = full_store();
    assert!(count > 300, "most of the disk was used: {count}");
    assert_eq!(store.get(&u32::to_be_bytes(count)).unwrap(), None, "what was refused was not made");
    for at in 0..count {
        assert!(store.get(&u32::to_be_bytes(at)).unwrap().unwrap() == value(at));
    }
    for at in 0..count / 2 {
        store.delete(&u32::to_be_bytes(at)).unwrap();
    }
    // What can't be done at first gives up a spare segment, and is tried again after a while.
    let mut compacted = Err(Error::Busy);
    for _ in 0..10 {
        clock.advance(Duration::from_secs(1));
        store.delete(b"nothing").unwrap();
        compacted = store.compact(None, None, &mut |_, _| {});
        if compacted.is_ok() {
            break;
        }
    }
    if let Err(error) = &compacted {
        panic!("{error}: {:?}", store.stats());
    }
    assert!(store.read_only_cause().is_none());
    for at in 0..count / 4 {
        store.put(&u32::to_be_bytes(at), &value(at + 1)).unwrap();
    }
    for at in 0..count {
        let found = store.get(&u32::to_be_bytes(at)).unwrap();
        let expected = match at {
            _ if at < count / 4 => Some(value(at + 1)),
            _ if at < count / 2 => None,
            _ => Some(value(at)),
        };
        assert!(found.map(|found| found.to_vec()) == expected, "key {at}");
    }
}

/// A change that frees space may have to put a note of it, and found no room for that.
#[test]
fn a_batch_that_frees_space_may_put_something() {
    let (store, ..) = full_store();
    let batch = |uses_reserve: bool| {
        let mut batch = WriteBatch::new();
        batch.delete(u32::to_be_bytes(0).to_vec()).unwrap();
        batch.put("note", vec![0; 5000]).unwrap();
        if uses_reserve {
            batch.use_reserve();
        }
        assert_eq!(batch.uses_reserve(), uses_reserve);
        store.write(batch, None)
    };
    let refused = batch(false);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    batch(true).unwrap();
    assert!(store.get(&u32::to_be_bytes(0)).unwrap().is_none());
    assert!(store.get(b"note").unwrap().is_some());
}

/// Each try left a file: a manifest has a number of its own.
#[test]
fn a_store_that_a_full_disk_keeps_from_being_opened_leaves_nothing() {
    let fs = MemoryFileSystem::new();
    let dir = Path::new("/s");
    let open = || {
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock);
        Store::open_with(dir, Options::default(), resources)
    };
    let store = open().unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    drop(store);
    fs.set_capacity(Some(1 << 30));
    let used = (1 << 30) - fs.available_bytes(dir).unwrap();
    let names = || {
        let mut names = fs.list(dir).unwrap();
        names.sort();
        names
    };
    let before = names();
    let mut refused = 0;
    for pages in 0.. {
        fs.set_capacity(Some(used + pages * 4096));
        match open() {
            Ok(store) => {
                assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
                break;
            }
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(names(), before, "with {pages} pages");
    }
    assert!(refused >= 3, "{refused}");
}

/// On a copy-on-write file system even the header of a file that is used again takes room, and is written and
/// synced at once: that it lacked the room ended writing.
#[test]
fn a_segment_that_finds_no_room_to_be_used_again_ends_no_writing() {
    let faulty = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let clock = Arc::new(ManualClock::at_ms(1));
    let fs = Arc::new(faulty.clone());
    let resources = Resources::inline(ResourceOptions::default(), fs, clock);
    let options = Options {
        memtable_bytes: 64 << 10,
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        ..Options::default()
    };
    let store = Store::open_with("/s", options, resources).unwrap();
    let is_header = |operation: &str, _: &Path| operation == "sync_range";
    faulty.fail_at(0, Fault::kind(ErrorKind::StorageFull).only(is_header).sticky());
    for at in 0..10_000u32 {
        match store.put(&at.to_be_bytes(), &[7; 100]) {
            Ok(_) | Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("a full disk is told as {error}"),
        }
    }
    assert!(faulty.fired() > 0);
    assert_eq!(store.read_only_cause(), None);
    let names = faulty.list(Path::new("/s")).unwrap();
    assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
    faulty.clear();
    store.put(b"key", b"value").unwrap();
}
