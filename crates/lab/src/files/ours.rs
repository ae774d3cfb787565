//! Tallybook's file store in this process, at its defaults.

use std::collections::BTreeMap;

use tallybook_files::{
    CreateOptions, Durability as Level, FileStore, OpenOptions, ReadOptions, ReferenceId,
    UnlinkOptions, WriteOptions, resource_options,
};

use super::content::Content;
use super::message::FilesOpening;
use super::target::FileTarget;
use crate::error::{Error, Result};
use crate::spec::Durability;

/// The store's name.
pub const NAME: &str = "tallybook";

/// Most memory that the store's own budget lets it take, without the process and its threads.
pub fn memory_bytes_max() -> u64 {
    let budget = resource_options();
    (budget.block_cache_bytes + budget.recent_keys_bytes + budget.write_buffer_bytes) as u64
}

/// An open store.
pub(super) struct TallybookFiles {
    store: FileStore,
    level: Level,
    settings: BTreeMap<String, String>,
}

impl TallybookFiles {
    /// Opens the store, or makes it.
    pub(super) fn open(opening: &FilesOpening) -> Result<TallybookFiles> {
        let defaults = CreateOptions::default();
        let create = CreateOptions {
            reference_id: ReferenceId::from_hex(&opening.reference_id),
            bucket_count: opening.buckets.map_or(defaults.bucket_count, |count| count as usize),
            ..defaults
        };
        // Unsynced is so throughout: by default the store begins a sync within 100 ms.
        let (level, open) = match opening.durability {
            Durability::Os => {
                (Level::Os, OpenOptions { durability: Level::Os, ..OpenOptions::default() })
            }
            Durability::Sync => (Level::Sync, OpenOptions::default()),
        };
        let settings = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            (
                "durability",
                match level {
                    Level::Sync => {
                        "each write and unlink is synced when it is acknowledged".to_owned()
                    }
                    _ => "nothing is synced".to_owned(),
                },
            ),
            ("buckets", create.bucket_count.to_string()),
            ("open_buckets_max", open.open_buckets_max.to_string()),
            ("chunk_bytes", create.chunk_bytes.to_string()),
            ("memory_bytes_max", memory_bytes_max().to_string()),
            ("verified", "CRC-32C of each chunk and BLAKE3 of the file".to_owned()),
        ];
        let resources = tallybook::Resources::new(resource_options())
            .map_err(Error::io("threads for the file store"))?;
        let store = FileStore::open_or_create(&opening.directory, create, open, resources);
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        Ok(TallybookFiles { store: store.map_err(failed)?, level, settings: settings.into() })
    }
}

fn failed(error: tallybook_files::Error) -> Error {
    Error::Target { target: NAME.to_owned(), what: error.to_string() }
}

impl FileTarget for TallybookFiles {
    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn write(&mut self, name: &str, content: &mut Content) -> Result<()> {
        let options = WriteOptions { durability: Some(self.level), ..WriteOptions::default() };
        let mut writer = self.store.writer(name, options).map_err(failed)?;
        for at in 0..content.chunks() {
            writer.write(content.chunk(at)).map_err(failed)?;
        }
        writer.commit().map_err(failed)?;
        Ok(())
    }

    fn read(&mut self, name: &str, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let reader = self.store.reader(name, ReadOptions::default()).map_err(failed)?;
        let Some(reader) = reader else { return Ok(false) };
        for chunk in reader {
            show(&chunk.map_err(failed)?);
        }
        Ok(true)
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        let options = UnlinkOptions { durability: Some(self.level), ..UnlinkOptions::default() };
        self.store.unlink(name, options).map_err(failed)?;
        Ok(())
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let totals = self.store.totals();
        let made = totals.buckets.iter().filter(|bucket| bucket.exists).count();
        let figures = [
            ("live_bytes", totals.live_bytes as f64),
            ("dead_bytes", totals.dead_bytes as f64),
            ("buckets", made as f64),
            ("open_buckets", self.store.open_buckets() as f64),
        ];
        figures.map(|(name, figure)| (name.to_owned(), figure)).into()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().map_err(failed)
    }
}
