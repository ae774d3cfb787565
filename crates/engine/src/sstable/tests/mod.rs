//! Tables as a whole, against a sorted map: every reading, every compression.

mod damage;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::block_cache::BlockCache;
use crate::error::{Error, Result};
use crate::file_cache::FileCache;
use crate::head::{Body, Entry, ValuePointer};
use crate::iter::InternalIterator;
use crate::key::{self, INLINE_BYTES_MAX, SEQNO_MAX, SeqNo};
use crate::options::{Compression, Reading};
use crate::range_tombstone::RangeTombstone;
use crate::stages::{Exit, Recorder};
use crate::test_fs::TestFs;
use crate::vfs::FileSystem;

const READINGS: [Reading; 2] = [Reading::Mapped, Reading::Pread];
const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

type Model = BTreeMap<(Vec<u8>, Reverse<SeqNo>), Entry>;

/// One table file and what it takes to open it.
struct Fixture {
    fs: Arc<TestFs>,
    files: Arc<FileCache>,
    cache: Arc<BlockCache>,
    built: BuiltTable,
}

const NUMBER: u64 = 13;
const SALT: u64 = 0x5a17_5a17_5a17_5a17;

fn path() -> &'static Path {
    Path::new("000013.sst")
}

impl Fixture {
    fn new(
        model: &Model,
        ranges: &[RangeTombstone],
        block_bytes: usize,
        compression: Compression,
    ) -> Fixture {
        let fs = TestFs::new();
        let mut builder = builder(&fs, block_bytes, compression);
        for ((key, _), entry) in model {
            builder.add(key, &entry.by_ref()).unwrap();
        }
        ranges.iter().for_each(|range| builder.add_range_tombstone(range.clone()));
        Fixture::finish(fs, builder)
    }

    fn finish(fs: Arc<TestFs>, builder: TableBuilder) -> Fixture {
        let built = builder.finish().unwrap();
        assert_eq!(built.file_bytes, fs.contents(path()).len() as u64);
        let files = Arc::new(FileCache::new(fs.clone(), 4));
        Fixture { fs, files, cache: Arc::new(BlockCache::new(1 << 20, 64 << 10)), built }
    }

    fn try_open(&self, reading: Reading) -> Result<Arc<Table>> {
        self.try_open_as(reading, NUMBER, self.built.file_bytes)
    }

    fn try_open_as(&self, reading: Reading, number: u64, file_bytes: u64) -> Result<Arc<Table>> {
        let path = path().to_owned();
        Table::open(&self.files, path, number, file_bytes, reading, self.cache.clone())
            .map(Arc::new)
    }

    fn open(&self, reading: Reading) -> Arc<Table> {
        self.try_open(reading).unwrap()
    }
}

fn builder(fs: &Arc<TestFs>, block_bytes: usize, compression: Compression) -> TableBuilder {
    salted_builder(fs, TableBuilderOptions { block_bytes, compression, salt: SALT })
}

fn salted_builder(fs: &Arc<TestFs>, options: TableBuilderOptions) -> TableBuilder {
    TableBuilder::new(
        fs.create(path()).unwrap(),
        PathBuf::from(path()),
        NUMBER,
        options,
        Arc::default(),
    )
}

fn put(seqno: SeqNo, value: impl Into<Bytes>) -> Entry {
    Entry {
        seqno,
        written_at_ms: 1_700_000_000_000 + seqno,
        expires_at_ms: 0,
        attributes: Bytes::new(),
        body: Body::Inline(value.into()),
    }
}

fn insert(model: &mut Model, key: impl Into<Vec<u8>>, entry: Entry) {
    model.insert((key.into(), Reverse(entry.seqno)), entry);
}

/// Keys `prefix0000000`, ... with small values.
fn numbered(prefix: &str, count: u64) -> Model {
    let mut model = Model::new();
    for number in 0..count {
        insert(
            &mut model,
            format!("{prefix}{number:07}"),
            put(number + 1, format!("value {number}")),
        );
    }
    model
}

fn get(table: &Table, key: &[u8], max_seqno: SeqNo) -> Result<Option<Entry>> {
    table.get(key, key::hash(key), max_seqno, true, &mut Recorder::new(0).begin())
}

fn expected(model: &Model, key: &[u8], max_seqno: SeqNo) -> Option<Entry> {
    let from = (key.to_vec(), Reverse(max_seqno));
    model.range(from..).next().filter(|((found, _), _)| found == key).map(|(_, e)| e.clone())
}

/// The entries from here on, checked to be consistent.
fn collect(
    iter: &mut TableIter,
    step: fn(&mut TableIter) -> Result<()>,
) -> Result<Vec<(Vec<u8>, Entry)>> {
    let mut entries = Vec::new();
    while iter.valid() {
        let entry = iter.owned_entry()?;
        assert_eq!(entry.seqno, iter.seqno());
        entries.push((iter.user_key().to_vec(), entry));
        step(iter)?;
    }
    Ok(entries)
}

fn forward(iter: &mut TableIter) -> Result<Vec<(Vec<u8>, Entry)>> {
    iter.seek_to_first()?;
    collect(iter, TableIter::next)
}

fn backward(iter: &mut TableIter) -> Result<Vec<(Vec<u8>, Entry)>> {
    iter.seek_to_last()?;
    collect(iter, TableIter::prev)
}

fn here(iter: &TableIter) -> Option<(Vec<u8>, SeqNo)> {
    iter.valid().then(|| (iter.user_key().to_vec(), iter.seqno()))
}

/// Checks a table against the model: whole, both ways, and at each of `probes`.
fn check(table: &Arc<Table>, model: &Model, probes: &[(Vec<u8>, SeqNo)]) {
    let mut all: Vec<_> = model.iter().map(|((k, _), e)| (k.clone(), e.clone())).collect();
    for fill_cache in [true, false] {
        let mut iter = table.iter(fill_cache);
        assert!(forward(&mut iter).unwrap() == all);
        all.reverse();
        assert!(backward(&mut iter).unwrap() == all);
        all.reverse();
        for (key, seqno) in probes {
            iter.seek(key, *seqno).unwrap();
            let mut rest = model.range((key.clone(), Reverse(*seqno))..);
            let at = rest.next().map(|((k, s), _)| (k.clone(), s.0));
            assert_eq!(here(&iter), at);
            if at.is_some() {
                iter.next().unwrap();
                assert_eq!(here(&iter), rest.next().map(|((k, s), _)| (k.clone(), s.0)));
            }
            iter.seek_before(key).unwrap();
            let before = model.range(..(key.clone(), Reverse(SeqNo::MAX))).next_back();
            assert_eq!(here(&iter), before.map(|((k, s), _)| (k.clone(), s.0)));
        }
    }
    for (key, seqno) in probes {
        assert_eq!(get(table, key, *seqno).unwrap(), expected(model, key, *seqno));
    }
    for (key, seqno) in model.keys() {
        assert_eq!(get(table, key, seqno.0).unwrap(), expected(model, key, seqno.0));
    }
    assert_eq!(table.verify(&mut |_| {}), []);
}

fn check_everywhere(model: &Model, block_bytes: usize, probes: &[(Vec<u8>, SeqNo)]) {
    for compression in COMPRESSIONS {
        let fixture = Fixture::new(model, &[], block_bytes, compression);
        for reading in READINGS {
            check(&fixture.open(reading), model, probes);
        }
    }
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..3, 1..6),
        prop::collection::vec(any::<u8>(), 1..40),
        "user/[a-c]{1,3}/[0-9]{1,4}".prop_map(String::into_bytes),
        (300usize..600, 0u8..4).prop_map(|(len, last)| [vec![b'l'; len], vec![last]].concat()),
    ]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let body = prop_oneof![
        prop::collection::vec(0u8..4, 0..80).prop_map(|value| Body::Inline(value.into())),
        (0u64..5, any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
            |(segment, offset, length, checksum)| {
                Body::Ref(ValuePointer { segment, offset, length, checksum })
            }
        ),
        Just(Body::Delete),
    ];
    let expiry = prop_oneof![Just(0), any::<u64>()];
    let attributes =
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 0..40)];
    let seqno = prop_oneof![3 => 1u64..20, 1 => 1..=SEQNO_MAX];
    (seqno, any::<u64>(), expiry, attributes, body).prop_map(
        |(seqno, written_at_ms, expires_at_ms, attributes, body)| Entry {
            seqno,
            written_at_ms,
            expires_at_ms,
            attributes: attributes.into(),
            body,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_table_answers_like_a_sorted_map(
        writes in prop::collection::vec((any_key(), any_entry()), 1..300),
        mut probes in prop::collection::vec((any_key(), 0u64..22), 0..40),
        block_bytes in 256usize..1500,
    ) {
        let mut model = Model::new();
        for (key, entry) in writes {
            insert(&mut model, key, entry);
        }
        probes.extend(model.keys().step_by(7).map(|(key, seqno)| (key.clone(), seqno.0 - 1)));
        check_everywhere(&model, block_bytes, &probes);
    }
}

#[test]
fn extreme_keys_and_values_round_trip() {
    let mut model = Model::new();
    for number in 0..40u64 {
        let mut key = vec![b'k'; key::KEY_BYTES_MAX - 8];
        key.extend_from_slice(&number.to_be_bytes());
        insert(&mut model, key, put(number + 1, vec![number as u8; 32_767]));
        insert(&mut model, [number as u8], put(SEQNO_MAX - number, Bytes::new()));
    }
    insert(&mut model, [0xff; key::KEY_BYTES_MAX], put(7, vec![1; INLINE_BYTES_MAX]));
    let probes = [(vec![b'k'; 4096], SEQNO_MAX), (vec![0xff], 1), (vec![0], 1)];
    check_everywhere(&model, 4096, &probes);
    check_everywhere(&model, 32 << 10, &probes);
}

#[test]
fn versions_of_one_key_may_fill_many_blocks() {
    let mut model = numbered("a", 20);
    for seqno in 1..1000u64 {
        insert(&mut model, *b"hot", put(seqno * 2, format!("version {seqno}")));
    }
    model.extend(numbered("z", 20));
    let probes: Vec<_> = (0..2002).step_by(13).map(|seqno| (b"hot".to_vec(), seqno)).collect();
    check_everywhere(&model, 512, &probes);
}

#[test]
fn a_table_may_hold_only_deleted_ranges() {
    let ranges = [("b", "d", 5), ("a", "c", 9)].map(|(start, end, seqno)| RangeTombstone {
        start: Bytes::from(start),
        end: Bytes::from(end),
        seqno,
    });
    let fixture = Fixture::new(&Model::new(), &ranges, 4096, Compression::None);
    for reading in READINGS {
        let table = fixture.open(reading);
        check(&table, &Model::new(), &[(b"b".to_vec(), 7), (b"z".to_vec(), 7)]);
        assert_eq!((table.block_count(), table.approximate_offset_of(b"b")), (0, 0));
        assert_eq!(table.range_tombstones().cover(b"b", 8), 5);
        assert_eq!(table.range_tombstones().cover(b"b", 9), 9);
        let properties = table.properties();
        assert_eq!((&properties.smallest[..], &properties.largest[..]), (&b"a"[..], &b"d"[..]));
        assert!(properties.largest_exclusive);
    }
}

#[test]
fn absent_keys_seldom_cost_a_block() {
    let model = numbered("key", 100_000);
    let fixture = Fixture::new(&model, &[], 4096, Compression::None);
    for reading in READINGS {
        let table = fixture.open(reading);
        let recorder = Recorder::new(0);
        for number in 0..100_000 {
            let key = format!("absent{number}");
            let (hash, mut trace) = (key::hash(key.as_bytes()), recorder.begin());
            assert_eq!(table.get(key.as_bytes(), hash, 9, true, &mut trace).unwrap(), None);
        }
        let stages = recorder.stages();
        assert_eq!((stages.exits(Exit::FileBlock), stages.exits(Exit::FileCache)), (0, 0));
        let in_vain = stages.exits(Exit::FileInVain);
        assert_eq!(stages.exits(Exit::FileFilter) + in_vain, 100_000);
        assert!(in_vain < 1000, "{in_vain}");
    }
}

#[test]
fn a_mapped_value_is_not_copied() {
    let fixture = Fixture::new(&numbered("key", 1000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Mapped);
    let value = || match get(&table, b"key0000500", SEQNO_MAX).unwrap().unwrap().body {
        Body::Inline(value) => value,
        other => panic!("not a value: {other:?}"),
    };
    assert_eq!(value().as_ptr(), value().as_ptr());
    assert_eq!((fixture.cache.bytes(), fixture.cache.misses()), (0, 0));
}

#[test]
fn a_look_up_that_must_not_wait_says_so() {
    let fixture = Fixture::new(&numbered("key", 1000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Pread);
    let recorder = Recorder::new(0);
    let hash = key::hash(b"key0000500");
    let get = |wait| table.get(b"key0000500", hash, SEQNO_MAX, wait, &mut recorder.begin());
    fixture.fs.set_cold(path(), true);
    assert!(matches!(get(false), Err(Error::WouldWait)));
    assert!(get(true).unwrap().is_some());
    assert!(get(false).unwrap().is_some(), "the block is in the cache now");
    let stages = recorder.stages();
    assert_eq!((stages.exits(Exit::FileCache), stages.exits(Exit::FileBlock)), (1, 1));
    assert_eq!((stages.exits(Exit::BlockCached), stages.exits(Exit::BlockFetched)), (1, 1));
}

#[test]
fn a_scan_fills_the_cache_and_a_pass_does_not() {
    let model = numbered("key", 20_000);
    let fixture = Fixture::new(&model, &[], 4096, Compression::Lz4);
    for reading in READINGS {
        let table = fixture.open(reading);
        let before = (fixture.cache.bytes(), fixture.cache.misses());
        assert_eq!(forward(&mut table.iter(false)).unwrap().len(), model.len());
        assert_eq!((fixture.cache.bytes(), fixture.cache.misses()), before);
        assert_eq!(forward(&mut table.iter(true)).unwrap().len(), model.len());
        assert!(fixture.cache.bytes() > before.0);
    }
}

#[test]
fn compression_makes_a_table_smaller() {
    let model = numbered("key", 5000);
    let sizes = COMPRESSIONS
        .map(|compression| Fixture::new(&model, &[], 4096, compression).built.file_bytes);
    assert!(sizes[1] < sizes[0] && sizes[2] < sizes[1], "{sizes:?}");
}

#[test]
fn a_table_is_full_at_its_size_or_at_the_most_blocks_the_index_can_name() {
    let fs = TestFs::new();
    let mut builder = builder(&fs, 256, Compression::None);
    let mut keys = 0u64;
    while !builder.is_full(64 << 20) {
        builder.add(&keys.to_be_bytes(), &put(1 << 40, vec![0; 240]).by_ref()).unwrap();
        keys += 1;
    }
    assert!((16_000..=16_384).contains(&keys));
    // Older versions of the last key still fit: only a key's newest version has an index entry.
    for seqno in (1..1000).rev() {
        builder.add(&(keys - 1).to_be_bytes(), &put(seqno, vec![0; 240]).by_ref()).unwrap();
    }
    let estimated = builder.estimated_bytes();
    let fixture = Fixture::finish(fs, builder);
    assert!(estimated.abs_diff(fixture.built.file_bytes) < fixture.built.file_bytes / 50);
    let table = fixture.open(Reading::Mapped);
    assert!(table.block_count() > 16_384);
    assert!(get(&table, &(keys - 1).to_be_bytes(), 5).unwrap().is_some());
    assert_eq!(table.verify(&mut |_| {}), []);

    let fs = TestFs::new();
    let mut builder = self::builder(&fs, 4096, Compression::None);
    for (key, entry) in numbered("key", 100_000).iter().map(|((key, _), entry)| (key, entry)) {
        if builder.is_full(256 << 10) {
            break;
        }
        builder.add(key, &entry.by_ref()).unwrap();
    }
    let bytes = Fixture::finish(fs, builder).built.file_bytes;
    assert!((256 << 10..280 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn boundary_keys_divide_the_file() {
    let fixture = Fixture::new(&numbered("key", 10_000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Pread);
    let keys: Vec<_> = table.boundary_keys().map(<[u8]>::to_vec).collect();
    assert_eq!((keys.len(), &keys[0][..]), (table.block_count(), &b"key0000000"[..]));
    assert!(keys.is_sorted());
    let offsets: Vec<_> = keys.iter().map(|key| table.approximate_offset_of(key)).collect();
    assert!(offsets.is_sorted() && offsets[0] == 0);
    assert!(table.approximate_offset_of(b"z") > *offsets.last().unwrap());
    assert!(table.index_bytes() > 10_000 * 4);
}

#[test]
fn inspect_prints_what_a_table_holds() {
    let mut model = Model::new();
    insert(&mut model, *b"a\x00\"", put(3, "value"));
    insert(&mut model, *b"b", Entry { body: Body::Delete, expires_at_ms: 9, ..put(2, "") });
    let range = RangeTombstone { start: "c".into(), end: "d".into(), seqno: 4 };
    let fixture = Fixture::new(&model, &[range], 4096, Compression::None);
    let mut out = Vec::new();
    assert_eq!(inspect(&fixture.open(Reading::Mapped), &mut out, true).unwrap(), 0);
    let text = String::from_utf8(out).unwrap();
    for line in [
        "entries 2 keys 2 tombstones 1 range_tombstones 1 expiring 1\n",
        "largest \"d\" (excluded)\n",
        "seqno 2 to 4\n",
        "deleted \"c\" to \"d\" before 4\n",
        " entries 2 prefix 0 from \"a\\x00\\\"\"\n",
        "  0: \"a\\x00\\\"\" seqno 3 written_at_ms 1700000000003 put bytes 5\n",
        "  1: \"b\" seqno 2 written_at_ms 1700000000002 expires_at_ms 9 delete\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

/// As are those below. Told as a wrong argument, they weren't damage to a merge, which was tried again and again.
#[test]
fn entries_of_impossible_lengths_are_refused() {
    let (key, value) = (vec![b'k'; key::KEY_BYTES_MAX], vec![0; key::INLINE_BYTES_MAX]);
    let add = |key: &[u8], value: &[u8]| {
        let mut builder = builder(&TestFs::new(), 4096, Compression::None);
        builder.add(key, &put(1, value.to_vec()).by_ref())
    };
    add(&key, &value).unwrap();
    let (long_key, long_value) = ([&key[..], b"k"].concat(), [&value[..], &[0]].concat());
    for refused in [add(b"", b""), add(&long_key, b""), add(b"k", &long_value)] {
        assert!(matches!(refused, Err(Error::Corruption { .. })), "{refused:?}");
    }
}

/// Only a table whose checksums are right and whose entries are out of order leads to it.
#[test]
fn entries_out_of_order_are_refused() {
    for (key, seqno) in [(b"a", 1), (b"a", 3), (b"b", 2), (b"b", 3)] {
        let mut builder = builder(&TestFs::new(), 4096, Compression::None);
        builder.add(b"b", &put(2, "").by_ref()).unwrap();
        let refused = builder.add(key, &put(seqno, "").by_ref());
        assert!(matches!(refused, Err(Error::Corruption { .. })), "{refused:?}");
    }
}

#[test]
fn values_ahead_are_told_from_the_front_of_a_block_on() {
    let mut model = numbered("inline", 3);
    let pointer =
        |number: u64| ValuePointer { segment: 2, offset: 64 * number, length: 5000, checksum: 7 };
    for number in 0..40 {
        let entry = Entry { body: Body::Ref(pointer(number)), ..put(number + 10, "") };
        insert(&mut model, format!("ref{number:07}"), entry);
    }
    let table = Fixture::new(&model, &[], 32 << 10, Compression::None).open(Reading::Mapped);
    assert_eq!(table.block_count(), 1);
    let mut iter = table.iter(true);
    iter.seek_to_first().unwrap();
    let told = |iter: &TableIter, steps| {
        let mut told = Vec::new();
        iter.values_ahead(steps, &mut |pointer| told.push(*pointer));
        told
    };
    assert_eq!(told(&iter, 2), []);
    assert_eq!(told(&iter, 5), [0, 1, 2].map(pointer));
    iter.next().unwrap();
    assert_eq!(told(&iter, 5), [pointer(3)]);
    iter.seek_to_last().unwrap();
    assert_eq!(told(&iter, 1), []);
}
