//! The names of what is timed and of where reads end.

macro_rules! named {
    (
        $(#[$type_doc:meta])*
        $type:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$type_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            /// Every one, in the order of the declaration.
            pub const ALL: &[$type] = &[$($type::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its name, as it appears everywhere.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<$type> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

named! {
    /// Something that is timed.
    ///
    /// `put.*`, `get.*`, `head.*`, `table.*` and `journal.*` are sampled; the parts of a `put` add up
    /// to its total but for what lies between them. The others are rare, and each one is timed.
    Stage {
        /// Checking and framing a group of writes (a put, a delete or a batch), before any lock.
        PutPrepare = "put.prepare",
        /// Being slowed because flushes lag.
        PutStall = "put.stall",
        /// In the write queue: waiting to be the one writer.
        PutWait = "put.wait",
        /// Appending to the journal.
        PutJournal = "put.journal",
        /// Inserting into the memtable and becoming visible.
        PutMemtable = "put.memtable",
        /// Waiting for the sync, of writes that asked for one.
        PutSync = "put.sync",
        /// A whole group of writes.
        PutTotal = "put.total",
        /// Finding the entry of a key whose value was asked for.
        GetHead = "get.head",
        /// Getting the value, from the entry or from the journal.
        GetBody = "get.body",
        /// A whole get, whether the key was there or not.
        GetTotal = "get.total",
        /// Finding an entry, when it was in a memtable.
        HeadMemory = "head.memory",
        /// The same, when it was in level 0.
        HeadL0 = "head.l0",
        /// The same, level 1.
        HeadL1 = "head.l1",
        /// The same, level 2.
        HeadL2 = "head.l2",
        /// The same, below level 2.
        HeadLower = "head.lower",
        /// Finding that there is none.
        HeadMissed = "head.missed",
        /// In several runs at once: finding the file of each that may hold the key.
        TableIndex = "table.index",
        /// Asking the point indexes of these files whether and where the key is, up to the next file that may have it.
        TableFilter = "table.filter",
        /// Getting an entry that was read lately, without its block.
        TableRecent = "table.recent",
        /// Getting a block that the block cache had.
        TableCache = "table.cache",
        /// Getting a block from the file: mapped, read, verified, unpacked.
        TableFetch = "table.fetch",
        /// Finding the entry in the block.
        TableSearch = "table.search",
        /// Finding where a value is in the journal now.
        JournalIndex = "journal.index",
        /// Reading a value from the journal and verifying it.
        JournalFetch = "journal.fetch",
        /// A full memtable waiting for its flush to begin.
        FlushWait = "flush.wait",
        /// Writing one memtable to tables and syncing them.
        FlushWrite = "flush.write",
        /// Syncing the journal that the tables point into.
        FlushSync = "flush.sync",
        /// Naming the tables in the manifest and showing them to readers.
        FlushInstall = "flush.install",
        /// One whole flush, the waiting apart.
        FlushTotal = "flush.total",
        /// Choosing what to compact.
        CompactionPick = "compaction.pick",
        /// Reading blocks, of one compaction.
        CompactionRead = "compaction.read",
        /// Merging and choosing what stays, of one compaction.
        CompactionMerge = "compaction.merge",
        /// Building blocks and indexes, of one compaction.
        CompactionBuild = "compaction.build",
        /// Writing and syncing files, of one compaction.
        CompactionWrite = "compaction.write",
        /// Naming the new tables in the manifest and showing them to readers.
        CompactionInstall = "compaction.install",
        /// One whole compaction.
        CompactionTotal = "compaction.total",
        /// Reading segments and copying what lives, of one collection.
        CollectCopy = "collect.copy",
        /// Finishing and syncing the new segment.
        CollectSync = "collect.sync",
        /// Naming it in the manifest and showing it to readers.
        CollectInstall = "collect.install",
        /// One whole collection.
        CollectTotal = "collect.total",
        /// One round of syncing the journal.
        SyncJournal = "sync.journal",
        /// Waiting for a round that another thread leads.
        SyncWait = "sync.wait",
        /// Appending an edit to the manifest and syncing it.
        SyncManifest = "sync.manifest",
        /// Waiting for the commit lock: one writer at a time.
        LockCommit = "lock.commit",
        /// Waiting for the lock of the tree: one edit at a time.
        LockTree = "lock.tree",
        /// Waiting to replace what readers see.
        LockInstall = "lock.install",
        /// Waiting for the list of memtables on their way out.
        LockFlushes = "lock.flushes",
        /// Waiting for the list of journal segments.
        LockLog = "lock.log",
        /// Waiting for the state of syncing.
        LockSync = "lock.sync",
        /// Waiting for the spare segments.
        LockSpares = "lock.spares",
        /// Waiting for the order of a memtable to be made, for a scan or a flush.
        LockMemtable = "lock.memtable",
    }
}

named! {
    /// Where a read, or a request to one file, ended. These are counted, not sampled.
    Exit {
        /// The entry was in a memtable, a deletion included.
        Memory = "head.memory",
        /// It was in level 0.
        L0 = "head.l0",
        /// It was in level 1.
        L1 = "head.l1",
        /// It was in level 2.
        L2 = "head.l2",
        /// It was below level 2.
        Lower = "head.lower",
        /// It was nowhere.
        Missed = "head.missed",
        /// No file of a run covers the key.
        FileIndex = "file.index",
        /// A file's point index excluded the key.
        FileFilter = "file.filter",
        /// A file's entry was among the recently read keys: no block was needed.
        FileRecent = "file.recent",
        /// A file's entry was in a block that the block cache had.
        FileCache = "file.cache",
        /// A file's entry was in a block that came from the file.
        FileBlock = "file.block",
        /// A file's block was looked into, but held no entry for the read: the point index was wrong, or
        /// every version is newer than the read's snapshot.
        FileInVain = "file.in_vain",
        /// Blocks that look-ups took from the block cache.
        BlockCached = "block.cached",
        /// Blocks that look-ups took from files.
        BlockFetched = "block.fetched",
        /// Values that were in the entry.
        ValueInline = "value.inline",
        /// Values read from the journal.
        ValueJournal = "value.journal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for &stage in Stage::ALL {
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
        }
        for &exit in Exit::ALL {
            assert_eq!(Exit::from_name(exit.name()), Some(exit));
        }
        assert_eq!(Stage::from_name("get"), None);
    }
}
