//! Values of a damaged store: read where their pointers say, or where they were collected to.
//!
//! A value's own checksum stands in its pointer, so that neither the header of a segment nor its records have to
//! be sound. Where the index of a collected segment isn't, its values are found by the number of their write.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::errors::Errors;
use crate::checksum;
use crate::error::{Error, Result};
use crate::file_name;
use crate::head::{Body, ValuePointer};
use crate::journal::{
    CollectedIndex, JournalFiles, MovedValues, SalvagedJournal, Segment, Told, ValuePlace,
};
use crate::key::{SeqNo, VALUE_BYTES_MAX};

/// Where values may be.
pub(super) struct Values {
    files: Arc<JournalFiles>,
    /// By the number of an old segment: the collected ones that have values of it.
    moved: BTreeMap<u64, Vec<(u64, Arc<MovedValues>)>>,
    /// Of collected segments without a sound index.
    by_seqno: HashMap<SeqNo, Vec<ValuePlace>>,
}

impl Values {
    /// Reads the indexes of all collected segments. `end` tells where a segment's records end, if that is known.
    pub(super) fn new(
        files: &Arc<JournalFiles>,
        journal: &SalvagedJournal<'_>,
        end: &dyn Fn(u64) -> Option<u64>,
        damage: &mut Errors,
    ) -> Values {
        let mut values =
            Values { files: files.clone(), moved: BTreeMap::new(), by_seqno: HashMap::new() };
        for (number, file_bytes) in journal.collected() {
            let bytes = end(number).unwrap_or(file_bytes).min(file_bytes);
            let segment = Segment::open(files.clone(), number, bytes);
            match segment.and_then(|segment| CollectedIndex::read(&segment)) {
                Ok(index) => {
                    for (old, moved) in index {
                        values.moved.entry(old).or_default().push((number, moved));
                    }
                }
                Err(error) => {
                    damage.add(error);
                    journal.segment(number, end(number), &mut |told| match told {
                        Told::Hole(error) => damage.add(error),
                        told => values.note(told),
                    });
                }
            }
        }
        values
    }

    fn note(&mut self, told: Told) {
        if let Told::Entry(_, entry) = told
            && let Body::Ref(pointer) = entry.body
        {
            let place = (pointer.segment, pointer.offset);
            self.by_seqno.entry(entry.seqno).or_default().push(place);
        }
    }

    /// The value that a pointer of write `seqno` names.
    pub(super) fn read(&self, pointer: &ValuePointer, seqno: SeqNo) -> Result<Vec<u8>> {
        let direct = [(pointer.segment, pointer.offset)];
        let moved = self.moved.get(&pointer.segment).into_iter().flatten();
        let moved =
            moved.filter_map(|(number, moved)| Some((*number, moved.lookup(pointer.offset)?)));
        let others = self.by_seqno.get(&seqno).into_iter().flatten().copied();
        let mut first = None;
        for (segment, offset) in direct.into_iter().chain(moved).chain(others) {
            match self.read_at(segment, offset, pointer) {
                Ok(value) => return Ok(value),
                // Where it was collected to, it may be whole.
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(first.expect("one place was tried"))
    }

    fn read_at(&self, segment: u64, offset: u64, pointer: &ValuePointer) -> Result<Vec<u8>> {
        let path = &file_name::segment(&self.files.dir, segment);
        if pointer.length as usize > VALUE_BYTES_MAX {
            return Err(Error::corruption(path, offset, "no value is so long"));
        }
        let io_error = |op| move |source| Error::io(op, path, source);
        let file = self.files.file_cache.open(path).map_err(io_error("open"))?;
        let len = file.len().map_err(io_error("read"))?;
        let end = offset.checked_add(u64::from(pointer.length));
        if end.is_none_or(|end| end > len) {
            return Err(Error::corruption(path, offset, "the file ends before the value"));
        }
        let mut value = vec![0; pointer.length as usize];
        for _ in 0..2 {
            file.read_exact_at(&mut value, offset).map_err(io_error("read"))?;
            if checksum::crc32c(&value) == pointer.checksum {
                return Ok(value);
            }
        }
        Err(Error::corruption(path, offset, "a value's checksum is wrong"))
    }
}
