//! Reading a file: chunk by chunk, each checked before a byte of it is answered.
//!
//! While a reader lives, its content stays, whatever becomes of the name. A file read from its first to
//! its last byte is hashed on the way, and the last chunk is only answered if the hash is right.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::core::Core;
use crate::digest::Hashing;
use crate::error::{Error, Result};
use crate::options::ReadOptions;
use crate::placement::check_name;
use crate::record::{Content, ContentId, FileRecord, Stat};

/// A file, or a part of one, that is being read: `std::io::Read`, or an iterator of its chunks.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    range: Range<u64>,
    /// Offset of the next byte that has not been fetched.
    position: u64,
    /// What was fetched and not answered by `read`.
    rest: Bytes,
    hashing: Option<Hashing>,
    has_failed: bool,
}

/// What is read. The content is pinned while this lives.
#[derive(Debug)]
struct Source {
    core: Arc<Core>,
    stat: Stat,
    id: ContentId,
    content: Content,
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.core.unpin(self.id) {
            self.core.note_reap_due();
        }
    }
}

impl Reader {
    /// A reader of the file with this name, if there is one.
    pub(crate) fn new(
        core: &Arc<Core>,
        name: &str,
        options: &ReadOptions,
    ) -> Result<Option<Reader>> {
        check_name(name)?;
        core.check_open()?;
        let Some((record, source)) = pinned(core, name)? else { return Ok(None) };
        if !options.salvage
            && let Some(known) = core.quarantine(name, record.version)?
        {
            let (name, offset, what) = (name.to_owned(), known.offset, known.what);
            return Err(Error::Damaged { name, offset, what });
        }
        let size = record.size;
        let range = options.range.clone().unwrap_or(0..size);
        let range = range.start.min(size)..range.end.min(size).max(range.start.min(size));
        let is_whole = range == (0..size) && size > 0;
        let threads = !core.resources.is_inline();
        Ok(Some(Reader {
            source: Arc::new(source),
            position: range.start,
            range,
            rest: Bytes::new(),
            hashing: is_whole.then(|| Hashing::new(false, threads)),
            has_failed: false,
        }))
    }

    /// What is known of the file.
    pub fn stat(&self) -> &Stat {
        &self.source.stat
    }

    /// The bytes that are read, as offsets in the file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The next bytes, a chunk or what the range needs of it; `None` at the end.
    ///
    /// `Damaged`: the bytes from there on are not answered; the reader is at its end.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        self.next_or_lost().map_err(|error| match error {
            lost @ Error::BucketLost { .. } => {
                let chunk_bytes = u64::from(self.source.content.chunk_bytes);
                let offset = self.position - self.position % chunk_bytes;
                let (name, what) = (self.source.stat.name.clone(), lost.to_string());
                Error::Damaged { name, offset, what }
            }
            other => other,
        })
    }

    /// The same, where a lost bucket is told from damage: it may come back.
    pub(crate) fn next_or_lost(&mut self) -> Result<Option<Bytes>> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        if self.position >= self.range.end || self.has_failed {
            return Ok(None);
        }
        let fetched = self.fetch();
        self.has_failed = fetched.is_err();
        fetched.map(Some)
    }

    fn fetch(&mut self) -> Result<Bytes> {
        let Source { core, stat, id, content } = &*self.source;
        let chunk_bytes = u64::from(content.chunk_bytes);
        let number = u32::try_from(self.position / chunk_bytes).expect("a content's chunk");
        let mut bytes = core.chunk(&stat.name, *id, content, number)?;
        let chunk_start = u64::from(number) * chunk_bytes;
        if let Some(hashing) = &mut self.hashing {
            hashing.update(&bytes);
            if chunk_start + bytes.len() as u64 == stat.size
                && self.hashing.take().is_some_and(|all| all.finish().blake3 != stat.blake3)
            {
                let what = "its chunks are sound, but together they don't have the file's hash";
                let (name, what) = (stat.name.clone(), what.to_owned());
                return Err(Error::Damaged { name, offset: chunk_start, what });
            }
        }
        bytes.truncate((self.range.end - chunk_start).min(chunk_bytes) as usize);
        bytes.advance((self.position - chunk_start) as usize);
        self.position += bytes.len() as u64;
        Ok(bytes)
    }
}

impl Iterator for Reader {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.next_chunk().transpose()
    }
}

impl std::io::Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            match self.next_chunk().map_err(std::io::Error::other)? {
                Some(bytes) => self.rest = bytes,
                None => return Ok(0),
            }
        }
        let len = buf.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buf[..len]);
        Ok(len)
    }
}

/// What a name stands for, with its content pinned.
fn pinned(core: &Arc<Core>, name: &str) -> Result<Option<(FileRecord, Source)>> {
    loop {
        let Some(record) = core.record(name)? else { return Ok(None) };
        core.pin(record.content);
        let stat = record.stat(name);
        let mut source = Source {
            core: core.clone(),
            stat,
            id: record.content,
            content: Content { refs: 0, size: 0, chunk_bytes: 1, extents: Vec::new() },
        };
        // Whoever frees looks at the pins after the name was changed: if it still stands for this
        // content, the pin came in time.
        let content = core.content(record.content)?;
        let is_current =
            core.record(name)?.is_some_and(|current| current.content == record.content);
        match content {
            Some(content) if is_current && content.size != record.size => {
                let what = format!("it has {} bytes, its content {}", record.size, content.size);
                return Err(Error::Damaged { name: name.to_owned(), offset: 0, what });
            }
            Some(content) if is_current => {
                source.content = content;
                return Ok(Some((record, source)));
            }
            None if is_current => {
                let what = "its content is not known to the catalogue".to_owned();
                return Err(Error::Damaged { name: name.to_owned(), offset: 0, what });
            }
            _ => {}
        }
    }
}

impl Core {
    fn pin(&self, id: ContentId) {
        *self.pins.lock().entry(id).or_insert(0) += 1;
    }

    /// Whether it was the last pin.
    fn unpin(&self, id: ContentId) -> bool {
        let mut pins = self.pins.lock();
        let Some(count) = pins.get_mut(&id) else { return false };
        *count -= 1;
        if *count == 0 {
            pins.remove(&id);
            return true;
        }
        false
    }
}
