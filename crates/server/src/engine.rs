//! What the server asks of a store, as a trait, so that tests can put faults between the two.
//!
//! It deliberately adds nothing: each method is the store's own of the same name.

use bytes::Bytes;
use tallybook::batch::WriteBatch;
use tallybook::error::Result;
use tallybook::head::Head;
use tallybook::key::SeqNo;
use tallybook::options::Durability;
use tallybook::stages::{StageSums, Stages};
use tallybook::store::{
    KeyHead, KeyValue, Range, RangeHeads, ReadOptions, ScanOptions, Stats, Store, WriteOptions,
};

/// A key-value store as the server uses it. `tallybook::store::Store` is one.
pub trait Engine: Clone + Send + Sync + 'static {
    /// What steps over keys and values.
    type Range: KeyValues;
    /// Iterator over keys and heads.
    type RangeHeads: Iterator<Item = Result<KeyHead>> + Send + 'static;

    /// The value of a key.
    fn get_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<Bytes>>;
    /// Head and value of a key.
    fn get_entry_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<(Head, Bytes)>>;
    /// The head of a key.
    fn head(&self, key: &[u8]) -> Result<Option<Head>>;
    /// As `head`, but `Error::WouldWait` when the answer would wait for the disk.
    fn head_nowait(&self, key: &[u8]) -> Result<Option<Head>>;
    /// Sets a key.
    fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<SeqNo>;
    /// Deletes a key.
    fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<SeqNo>;
    /// Applies a batch atomically.
    fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<SeqNo>;
    /// Keys and values of a range.
    fn range(&self, options: ScanOptions) -> Result<Self::Range>;
    /// Keys and heads of a range.
    fn range_heads(&self, options: ScanOptions) -> Result<Self::RangeHeads>;
    /// Figures of the store.
    fn stats(&self) -> Stats;
    /// The books of the store.
    fn stages(&self) -> Stages;
    /// Counts and sums of the books.
    fn stage_sums(&self) -> StageSums;
    /// Times one operation in so many; 0: none.
    fn set_sample_every(&self, sample_every: u32);
    /// Why writing has ended, if it has.
    fn read_only_cause(&self) -> Option<String>;
    /// 0.0 (idle) to 1.0 (writers wait).
    fn write_pressure(&self) -> f64;
    /// Whether writers wait and nothing has made room for a while.
    fn is_stalled(&self) -> bool;
}

/// Keys and values of a range, one after the other.
pub trait KeyValues: Send + 'static {
    /// The next one; `Error::Longer`, and it is the next one still, where the value has more bytes.
    fn next_within(&mut self, value_bytes_max: u64) -> Option<Result<KeyValue>>;
}

impl KeyValues for Range {
    fn next_within(&mut self, value_bytes_max: u64) -> Option<Result<KeyValue>> {
        Range::next_within(self, value_bytes_max)
    }
}

impl Engine for Store {
    type Range = Range;
    type RangeHeads = RangeHeads;

    fn get_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<Bytes>> {
        Store::get_with(self, key, options)
    }
    fn get_entry_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<(Head, Bytes)>> {
        Store::get_entry_with(self, key, options)
    }
    fn head(&self, key: &[u8]) -> Result<Option<Head>> {
        Store::head(self, key)
    }
    fn head_nowait(&self, key: &[u8]) -> Result<Option<Head>> {
        Store::head_nowait(self, key)
    }
    fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        Store::put_with(self, key, value, options)
    }
    fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        Store::delete_with(self, key, options)
    }
    fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<SeqNo> {
        Store::write(self, batch, durability)
    }
    fn range(&self, options: ScanOptions) -> Result<Range> {
        Store::range(self, options)
    }
    fn range_heads(&self, options: ScanOptions) -> Result<RangeHeads> {
        Store::range_heads(self, options)
    }
    fn stats(&self) -> Stats {
        Store::stats(self)
    }
    fn stages(&self) -> Stages {
        Store::stages(self)
    }
    fn stage_sums(&self) -> StageSums {
        Store::stage_sums(self)
    }
    fn set_sample_every(&self, sample_every: u32) {
        Store::set_sample_every(self, sample_every);
    }
    fn read_only_cause(&self) -> Option<String> {
        Store::read_only_cause(self)
    }
    fn write_pressure(&self) -> f64 {
        Store::write_pressure(self)
    }
    fn is_stalled(&self) -> bool {
        Store::is_stalled(self)
    }
}
