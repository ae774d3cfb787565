//! A store with faults between it and the server: errors, pressure, and reads that wait for a gate.

use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use tallybook::batch::WriteBatch;
use tallybook::error::{Error, Result};
use tallybook::head::Head;
use tallybook::key::SeqNo;
use tallybook::options::Durability;
use tallybook::stages::{StageSums, Stages};
use tallybook::store::{
    KeyHead, KeyValue, Range, ReadOptions, ScanOptions, Stats, Store, WriteOptions,
};
use tallybook_server::{Engine, KeyValues};

#[derive(Debug, Clone, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Every call fails so.
    Error(Error),
    /// A scan fails so after this many records.
    ErrorAfter(usize, Error),
    /// Reads that may not wait say that they would.
    WouldWait,
    /// The same, and those that may wait do so until the gate opens.
    Gate,
    Pressure(f64),
    ReadOnly,
}

#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) store: Store,
    state: Arc<(Mutex<(Fault, usize)>, Condvar)>,
}

impl FaultyStore {
    pub(crate) fn new(store: Store) -> FaultyStore {
        FaultyStore { store, state: Arc::default() }
    }

    /// Replaces the fault; whoever waits at the gate goes on.
    pub(crate) fn set(&self, fault: Fault) {
        self.state.0.lock().unwrap().0 = fault;
        self.state.1.notify_all();
    }

    /// Waits until this many calls have come to the gate.
    pub(crate) fn wait_for_arrivals(&self, count: usize) {
        let state = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(state, |state| state.1 < count).unwrap());
    }

    fn fault(&self) -> Fault {
        self.state.0.lock().unwrap().0.clone()
    }

    fn check(&self) -> Result<()> {
        match self.fault() {
            Fault::Error(error) => Err(error),
            Fault::Gate => {
                let mut state = self.state.0.lock().unwrap();
                state.1 += 1;
                self.state.1.notify_all();
                let open = |state: &mut (Fault, usize)| matches!(state.0, Fault::Gate);
                drop(self.state.1.wait_while(state, open).unwrap());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_nowait(&self) -> Result<()> {
        match self.fault() {
            Fault::WouldWait | Fault::Gate => Err(Error::WouldWait),
            Fault::Error(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn read(&self, wait: bool) -> Result<()> {
        if wait { self.check() } else { self.check_nowait() }
    }

    /// After how many records a scan fails, and how.
    fn cut(&self) -> Option<(usize, Error)> {
        match self.fault() {
            Fault::ErrorAfter(count, error) => Some((count, error)),
            _ => None,
        }
    }
}

pub(crate) struct FaultyRange {
    range: Range,
    passed: usize,
    cut: Option<(usize, Error)>,
}

impl KeyValues for FaultyRange {
    fn next_within(&mut self, value_bytes_max: u64) -> Option<Result<KeyValue>> {
        let next = self.range.next_within(value_bytes_max)?;
        if matches!(next, Err(Error::Longer { .. })) {
            return Some(next);
        }
        self.passed += 1;
        Some(match &self.cut {
            Some((count, error)) if self.passed > *count => Err(error.clone()),
            _ => next,
        })
    }
}

impl Engine for FaultyStore {
    type Range = FaultyRange;
    type RangeHeads = Box<dyn Iterator<Item = Result<KeyHead>> + Send>;

    fn get_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<Bytes>> {
        self.read(options.wait)?;
        self.store.get_with(key, options)
    }
    fn get_entry_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<(Head, Bytes)>> {
        self.read(options.wait)?;
        self.store.get_entry_with(key, options)
    }
    fn head(&self, key: &[u8]) -> Result<Option<Head>> {
        self.check()?;
        self.store.head(key)
    }
    fn head_nowait(&self, key: &[u8]) -> Result<Option<Head>> {
        self.check_nowait()?;
        self.store.head_nowait(key)
    }
    fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        self.check()?;
        self.store.put_with(key, value, options)
    }
    fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        self.check()?;
        self.store.delete_with(key, options)
    }
    fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<SeqNo> {
        self.check()?;
        self.store.write(batch, durability)
    }
    fn range(&self, options: ScanOptions) -> Result<Self::Range> {
        self.check()?;
        Ok(FaultyRange { range: self.store.range(options)?, passed: 0, cut: self.cut() })
    }
    fn range_heads(&self, options: ScanOptions) -> Result<Self::RangeHeads> {
        self.check()?;
        let cut = self.cut();
        let heads = self.store.range_heads(options)?.enumerate();
        Ok(Box::new(heads.map(move |(index, head)| match &cut {
            Some((count, error)) if index >= *count => Err(error.clone()),
            _ => head,
        })))
    }
    fn stats(&self) -> Stats {
        self.store.stats()
    }
    fn stages(&self) -> Stages {
        self.store.stages()
    }
    fn stage_sums(&self) -> StageSums {
        self.store.stage_sums()
    }
    fn set_sample_every(&self, sample_every: u32) {
        self.store.set_sample_every(sample_every);
    }
    fn read_only_cause(&self) -> Option<String> {
        match self.fault() {
            Fault::ReadOnly => Some("a sync failed".into()),
            _ => self.store.read_only_cause(),
        }
    }
    fn is_stalled(&self) -> bool {
        self.write_pressure() >= 1.0
    }
    fn write_pressure(&self) -> f64 {
        match self.fault() {
            Fault::Pressure(pressure) => pressure,
            _ => self.store.write_pressure(),
        }
    }
}
