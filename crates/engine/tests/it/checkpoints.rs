//! Checkpoints while the store goes on.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallybook::vfs::{File, FileSystem, MemoryFileSystem, SystemClock};
use tallybook::{Durability, Options, ResourceOptions, Resources, Store, WriteOptions};

const COPY: &str = "/copy";

/// Files in memory. A journal segment is made below `/copy` once somebody lets it.
#[derive(Debug)]
struct SlowCopy {
    fs: MemoryFileSystem,
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl FileSystem for SlowCopy {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.fs.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        if path.starts_with(COPY) && path.extension().is_some_and(|end| end == "journal") {
            self.begun.lock().unwrap().send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
        self.fs.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.fs.open(path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.fs.open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.fs.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.fs.lock(path)
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.fs.available_bytes(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.fs.exists(path)
    }
}

/// A checkpoint copied the segment in which replay starts, and synced it, under the lock by which writers go
/// on in another segment: they, the clock's syncs and the figures stood still for as long.
#[test]
fn writes_syncs_and_figures_do_not_wait_for_the_copy_of_a_checkpoint() {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let fs = MemoryFileSystem::new();
    let slow = SlowCopy { fs: fs.clone(), begun: Mutex::new(begun), go_on: Mutex::new(may_go_on) };
    let clock = Arc::new(SystemClock::default());
    let resources =
        Resources::with(ResourceOptions::default(), Arc::new(slow), clock.clone()).unwrap();
    let options = Options {
        segment_bytes_min: 256 << 10,
        segment_bytes_max: 256 << 10,
        ..Options::default()
    };
    let store = Store::open_with("/s", options.clone(), resources).unwrap();
    store.put(b"before", b"value").unwrap();
    let writes = || {
        for at in 0..200u32 {
            store.put(&at.to_be_bytes(), &[7; 4000]).unwrap();
        }
        let durability = Some(Durability::Sync);
        let synced = WriteOptions { durability, ..WriteOptions::default() };
        store.put_with(b"synced", b"value", &synced).unwrap();
        assert!(store.stats().segments >= 2, "the writes went on in other segments");
    };
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint(COPY));
        has_begun.recv().unwrap();
        let (done, is_done) = mpsc::channel();
        let writer = scope.spawn(move || {
            writes();
            done.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(Duration::from_secs(20));
        go_on.send(()).unwrap();
        writer.join().unwrap();
        checkpoint.join().unwrap().unwrap();
        assert!(waited.is_ok(), "they waited for the copy");
    });
    store.close().unwrap();
    let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs), clock);
    let copy = Store::open_with(COPY, options, resources).unwrap();
    assert_eq!(copy.get(b"before").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(copy.get(b"synced").unwrap(), None);
}
