//! The hashes of a file, computed while it streams.
//!
//! From the second mebibyte on a thread does it, where one may be started, so that hashing and writing
//! go on at once. At most [`THREADS_MAX`] such threads run in a process; beyond, the caller hashes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use bytes::Bytes;
use md5::{Digest, Md5};
use tallybook::vfs::{self, Priority};

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

/// A thread that hashes.
#[derive(Debug)]
struct HashThread {
    batches: SyncSender<Vec<Bytes>>,
    /// Buffers of what is hashed. New memory costs a fault for each of its pages: a tenth of the time in
    /// which a file is written.
    emptied: Receiver<Vec<u8>>,
    digests: Receiver<Digests>,
}

/// Hashes here, or on a thread.
#[derive(Debug)]
pub(crate) struct Hashing {
    here: Option<Digests>,
    there: Option<HashThread>,
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
            self.start(bytes.len());
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

    /// An empty buffer to use again, of bytes that were hashed and that nobody else holds.
    pub(crate) fn emptied(&self) -> Option<Vec<u8>> {
        self.there.as_ref()?.emptied.try_recv().ok()
    }

    fn hand_over(&mut self) {
        if let Some(there) = &self.there {
            let batch = std::mem::take(&mut self.batch);
            there.batches.send(batch).expect("the hashing thread ends when the sender does");
        }
    }

    pub(crate) fn finish(mut self) -> Hashes {
        self.hand_over();
        let digests = match (self.here, self.there) {
            (Some(here), _) => here,
            (None, Some(there)) => {
                drop(there.batches);
                there.digests.recv().expect("the hashing thread answers before it ends")
            }
            (None, None) => unreachable!("somebody hashes"),
        };
        digests.finish()
    }

    /// Starts a thread for chunks of about so many bytes.
    fn start(&mut self, chunk_bytes: usize) {
        if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            THREADS.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (sender, batches) = sync_channel::<Vec<Bytes>>(1);
        // As many buffers as make a batch: who only reads doesn't ask for them.
        let (giver, emptied) = sync_channel((BATCH_BYTES / chunk_bytes.max(1)).max(1));
        let (result, digests) = channel();
        let begun = self.here.clone();
        let started = vfs::spawn("tally-hash", Priority::Normal, move || {
            if let Some(mut digests) = begun {
                for chunk in batches.iter().flatten() {
                    digests.update(&chunk);
                    if let Some(buffer) = emptied_of(chunk) {
                        let _ = giver.try_send(buffer);
                    }
                }
                // Nobody waits any more when the upload was given up.
                let _ = result.send(digests);
            }
            THREADS.fetch_sub(1, Ordering::Relaxed);
        });
        match started {
            Ok(_) => {
                self.here = None;
                self.there = Some(HashThread { batches: sender, emptied, digests });
            }
            Err(_) => {
                THREADS.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// The buffer that bytes were in, emptied, if nobody else holds them.
pub(crate) fn emptied_of(bytes: Bytes) -> Option<Vec<u8>> {
    let mut buffer = bytes.try_into_mut().map(Vec::from).ok()?;
    buffer.clear();
    Some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_what_is_hashed_come_back_and_few_are_kept() {
        let mut threaded = Hashing::new(false, true);
        for _ in 0..100 {
            threaded.update(&Bytes::from(vec![7; 200_000]));
        }
        let there = threaded.there.as_ref().unwrap();
        let kept: Vec<Vec<u8>> = (0..2).map(|_| there.emptied.recv().unwrap()).collect();
        assert!(kept.iter().all(|buffer| buffer.is_empty() && buffer.capacity() >= 200_000));
        assert!(there.emptied.try_iter().count() <= BATCH_BYTES / 200_000 + 1);
        threaded.finish();
    }

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
        assert_eq!(threaded.emptied(), None, "another holds the chunk");
        assert_eq!(threaded.finish(), plain.finish());
    }
}
