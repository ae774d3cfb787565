//! The hashes of a file, computed while it streams.
//!
//! From the second mebibyte on a thread does it, where one may be started, so that hashing and writing
//! go on at once. At most [`THREADS_MAX`] such threads run in a process; beyond, the caller hashes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use bytes::Bytes;
use md5::{Digest, Md5};

/// Most hashing threads of a process.
const THREADS_MAX: usize = 16;

/// Bytes that are handed to a thread at once, at least: to wake it takes 5 us, as long as to hash 40 KiB.
const BATCH_BYTES: usize = 512 << 10;

/// A file shorter than this is hashed by who writes it.
const THREAD_BYTES_MIN: u64 = 1 << 20;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The hashes of what was seen so far.
#[derive(Debug, Clone)]
pub(crate) struct Digests {
    blake3: blake3::Hasher,
    md5: Option<Md5>,
}

/// The hashes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashes {
    pub(crate) blake3: [u8; 32],
    pub(crate) md5: Option<[u8; 16]>,
}

impl Digests {
    pub(crate) fn new(md5: bool) -> Digests {
        Digests { blake3: blake3::Hasher::new(), md5: md5.then(Md5::new) }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.blake3.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> Hashes {
        Hashes {
            blake3: *self.blake3.finalize().as_bytes(),
            md5: self.md5.map(|md5| md5.finalize().into()),
        }
    }
}

/// Hashes here, or on a thread.
#[derive(Debug)]
pub(crate) struct Hashing {
    here: Option<Digests>,
    there: Option<(SyncSender<Vec<Bytes>>, Receiver<Digests>)>,
    /// Not yet handed to the thread.
    batch: Vec<Bytes>,
    bytes: u64,
    may_start: bool,
}

impl Hashing {
    /// With `threads` off, the caller always hashes.
    pub(crate) fn new(md5: bool, threads: bool) -> Hashing {
        let (here, batch) = (Some(Digests::new(md5)), Vec::new());
        Hashing { here, there: None, batch, bytes: 0, may_start: threads }
    }

    pub(crate) fn update(&mut self, bytes: &Bytes) {
        self.bytes += bytes.len() as u64;
        if self.may_start && self.bytes > THREAD_BYTES_MIN {
            self.may_start = false;
            self.start();
        }
        if let Some(here) = &mut self.here {
            here.update(bytes);
            return;
        }
        self.batch.push(bytes.clone());
        if self.batch.iter().map(Bytes::len).sum::<usize>() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if let Some((sender, _)) = &self.there {
            let batch = std::mem::take(&mut self.batch);
            sender.send(batch).expect("the hashing thread ends when the sender does");
        }
    }

    pub(crate) fn finish(mut self) -> Hashes {
        self.hand_over();
        let digests = match (self.here, self.there) {
            (Some(here), _) => here,
            (None, Some((sender, receiver))) => {
                drop(sender);
                receiver.recv().expect("the hashing thread answers before it ends")
            }
            (None, None) => unreachable!("somebody hashes"),
        };
        digests.finish()
    }

    fn start(&mut self) {
        if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            THREADS.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (sender, batches) = sync_channel::<Vec<Bytes>>(1);
        let (result, receiver) = channel();
        let begun = self.here.clone();
        let started = tallybook::vfs::spawn("tally-hash", false, move || {
            if let Some(mut digests) = begun {
                batches.iter().flatten().for_each(|chunk| digests.update(&chunk));
                // Nobody waits any more when the upload was given up.
                let _ = result.send(digests);
            }
            THREADS.fetch_sub(1, Ordering::Relaxed);
        });
        match started {
            Ok(_) => {
                self.here = None;
                self.there = Some((sender, receiver));
            }
            Err(_) => {
                THREADS.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_computes_the_same_hashes() {
        let chunk = Bytes::from(vec![7; 300_000]);
        let mut plain = Digests::new(true);
        let mut threaded = Hashing::new(true, true);
        for _ in 0..20 {
            plain.update(&chunk);
            threaded.update(&chunk);
        }
        assert!(threaded.there.is_some());
        assert_eq!(threaded.finish(), plain.finish());
    }
}
