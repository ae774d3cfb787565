//! Takes over what could not be read when the catalogue was made anew.
//!
//! 1. Look through the entries of the bucket. Of each that is from before the catalogue was made and can be read
//!    now, have its name stand for what it says, unless the catalogue knows the name by a newer version, or
//!    that it was unlinked since: one change each, as a writer makes it.
//! 2. Forget that the bucket is not known, once all of it could be read, or what can't be is given up.
//!
//! The end of the process between any two leaves a sound store; taken over again, a name is known.

use tallybook::{Durability, WriteBatch};

use crate::change::Change;
use crate::core::{Core, decode_known_entry};
use crate::entries::each_entry;
use crate::error::{Error, Result};
use crate::key_layout::{self, key};
use crate::placement::check_name;
use crate::rebuild::open_twice;
use crate::record::{Content, FileRecord};

/// Takes over what can be read of a bucket. Whether that is all of it. Requires: nobody else uses the store.
pub(crate) fn take_over(core: &Core, bucket: u8) -> Result<bool> {
    let Some(known_from) = core.known_from(bucket) else { return Ok(true) };
    let store = match open_twice(&core.buckets, bucket) {
        Ok(Some(store)) => store,
        Ok(None) | Err(Error::BucketLost { .. }) => return Ok(false),
        Err(other) => return Err(other),
    };
    each_entry(&store, &mut |entry_key, value| {
        let Some((name, version)) = key_layout::parse_entry(entry_key) else { return Ok(()) };
        if version >= known_from.version || check_name(name).is_err() {
            return Ok(());
        }
        match value.and_then(|value| decode_known_entry(&core.superblock, &value)) {
            Some((record, content)) if record.version == version => {
                take_over_name(core, name, record, content)
            }
            _ => Ok(()),
        }
    })
}

fn take_over_name(core: &Core, name: &str, record: FileRecord, content: Content) -> Result<()> {
    let is_known = match core.record(name)? {
        Some(known) => known.version >= record.version,
        None => core.catalogue.head(&key(key_layout::UNLINKED, name.as_bytes()))?.is_some(),
    };
    if is_known {
        return Ok(());
    }
    for share in content.shares() {
        // One that wasn't found when the catalogue was made is made anew, as a lost one is.
        let is_made = core.figures.lock().buckets[usize::from(share.bucket)].exists;
        if !is_made {
            core.bucket_for_writing(share.bucket)?;
        }
    }
    let mut change = Change::begin(core)?;
    let old = core.record(name)?;
    change.adopt(record.content, content)?;
    change.set(name, record, old.as_ref())?;
    change.commit(Durability::Os)
}

/// Takes the catalogue for all there is of a bucket: its entries are swept from then on and, where no other is
/// left, chunks too.
pub(crate) fn forget_unknown(core: &Core, bucket: u8) -> Result<()> {
    let is_last = core.unknown.lock().keys().all(|&unknown| unknown == bucket);
    let mut batch = WriteBatch::new();
    batch.delete(key(key_layout::UNREAD, &[bucket]))?;
    if is_last {
        batch.delete_range(vec![key_layout::UNLINKED], vec![key_layout::UNLINKED + 1])?;
    }
    core.catalogue.write(batch, Some(Durability::Sync))?;
    // With the last, what kept the chunks of all buckets is gone.
    let unswept: Vec<u8> =
        if is_last { core.figures.lock().existing().collect() } else { vec![bucket] };
    core.unknown.lock().remove(&bucket);
    // Not to be called swept when the store is closed, should the verification that follows not come to it.
    unswept.into_iter().for_each(|bucket| core.unswept.lock().add(bucket));
    Ok(())
}
