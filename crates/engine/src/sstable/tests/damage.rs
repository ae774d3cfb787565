//! Damaged tables: the right answer or an error, never a wrong value, an absent key, or a panic.

use std::sync::atomic::AtomicBool;

use super::*;

/// A file of a few KiB with several blocks, versions, every kind of entry and a deleted range.
fn small(compression: Compression) -> (Model, Fixture) {
    let mut model = numbered("key", 30);
    for seqno in 100..110 {
        insert(&mut model, *b"key0000010", put(seqno, "a value that repeats, repeats, repeats"));
    }
    let pointer = ValuePointer { segment: 4, offset: 64, length: 5000, checksum: 77 };
    insert(&mut model, *b"pointer", Entry { body: Body::Ref(pointer), ..put(50, "") });
    insert(&mut model, *b"deleted", Entry { body: Body::Delete, ..put(51, "") });
    let range = RangeTombstone { start: "m".into(), end: "n".into(), seqno: 60 };
    let fixture = Fixture::new(&model, &[range], 256, compression);
    (model, fixture)
}

/// Whether everything could be read. What could be read must be right.
fn reads_whole(table: &Arc<Table>, model: &Model, context: &str) -> bool {
    let mut whole = true;
    let mut allow = |error: Error| {
        assert!(matches!(error, Error::Corruption { .. }), "{context}: {error}");
        whole = false;
    };
    for (key, seqno) in model.keys() {
        match get(table, key, seqno.0) {
            Ok(found) => assert_eq!(found, expected(model, key, seqno.0), "{context}"),
            Err(error) => allow(error),
        }
    }
    let all: Vec<_> = model.iter().map(|((k, _), e)| (k.clone(), e.clone())).collect();
    for fill_cache in [true, false] {
        match forward(&mut table.iter(fill_cache)) {
            Ok(found) => assert_eq!(found, all, "{context}"),
            Err(error) => allow(error),
        }
        match backward(&mut table.iter(fill_cache)) {
            Ok(found) => assert!(found.iter().rev().eq(&all), "{context}"),
            Err(error) => allow(error),
        }
    }
    assert_eq!(table.range_tombstones().cover(b"m", SEQNO_MAX), 60);
    whole
}

fn expect_corruption<T>(result: Result<T>, context: &str) {
    match result {
        Err(Error::Corruption { .. }) => {}
        Err(other) => panic!("{context}: {other}"),
        Ok(_) => panic!("{context}: the damage went unnoticed"),
    }
}

#[test]
fn no_flipped_byte_is_read_as_data() {
    for compression in COMPRESSIONS {
        let (model, fixture) = small(compression);
        let sound = fixture.fs.contents(path());
        let mut unnoticed = 0;
        for at in 0..sound.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = sound.clone();
                damaged[at] ^= mask;
                fixture.fs.set_contents(path(), &damaged);
                for reading in READINGS {
                    let context = format!("{compression:?} {reading:?} byte {at} mask {mask:#x}");
                    match fixture.try_open(reading) {
                        Ok(table) => {
                            let whole = reads_whole(&table, &model, &context);
                            let verified = table.verify(&mut |_| {}).is_empty();
                            assert_eq!(whole, verified, "{context}");
                            unnoticed += usize::from(whole);
                        }
                        Err(error) => {
                            assert!(
                                matches!(error, Error::Corruption { .. }),
                                "{context}: {error}"
                            );
                        }
                    }
                }
            }
        }
        // Only the zeros between blocks, and before the point index, may change without a word.
        fixture.fs.set_contents(path(), &sound);
        let padding = 7 * fixture.open(Reading::Pread).block_count() + 63;
        assert!(unnoticed <= padding * 6, "{unnoticed} changes went unnoticed");
    }
}

#[test]
fn damage_after_opening_is_noticed_when_a_block_is_read() {
    for compression in COMPRESSIONS {
        let (model, fixture) = small(compression);
        let table = fixture.open(Reading::Pread);
        let mut damaged = fixture.fs.contents(path());
        damaged[30] ^= 4;
        fixture.fs.set_contents(path(), &damaged);
        assert!(!reads_whole(&table, &model, "first block"));
        assert_eq!(table.verify(&mut |_| {})[0].offset, 0);
    }
}

#[test]
fn every_truncation_is_refused() {
    let (_, fixture) = small(Compression::None);
    let sound = fixture.fs.contents(path());
    for len in 0..sound.len() {
        fixture.fs.set_contents(path(), &sound[..len]);
        for reading in READINGS {
            let context = format!("{reading:?} cut to {len}");
            expect_corruption(fixture.try_open(reading), &context);
            expect_corruption(fixture.try_open_as(reading, NUMBER, len as u64), &context);
        }
    }
    fixture.fs.set_contents(path(), &[&sound[..], &[0]].concat());
    for reading in READINGS {
        expect_corruption(fixture.try_open(reading), "grown");
    }
}

#[test]
fn a_file_cut_after_it_was_opened_is_damaged() {
    let (model, fixture) = small(Compression::None);
    let table = fixture.open(Reading::Pread);
    fixture.fs.set_contents(path(), &fixture.fs.contents(path())[..100]);
    assert!(!reads_whole(&table, &model, "cut"));
    assert!(!table.verify(&mut |_| {}).is_empty());
}

#[test]
fn another_table_under_this_name_is_refused() {
    let (_, fixture) = small(Compression::None);
    for reading in READINGS {
        let opened = fixture.try_open_as(reading, NUMBER + 1, fixture.built.file_bytes);
        expect_corruption(opened, "another number");
    }
}

#[test]
fn blocks_that_changed_places_are_damage() {
    // Two blocks of equal length, each sound by itself.
    let mut model = Model::new();
    for key in [b"a", b"b"] {
        insert(&mut model, *key, put(1, vec![key[0]; 300]));
    }
    let fixture = Fixture::new(&model, &[], 256, Compression::None);
    let table = fixture.open(Reading::Pread);
    let handles = [0, 1].map(|block| table.fences.handle(block).unwrap());
    assert_eq!(handles[0].frame_bytes, handles[1].frame_bytes);
    let mut contents = fixture.fs.contents(path());
    let (first, second) = contents.split_at_mut(handles[1].offset as usize);
    let len = handles[0].frame_bytes;
    first[..len].swap_with_slice(&mut second[..len]);
    fixture.fs.set_contents(path(), &contents);
    for reading in READINGS {
        let table = fixture.open(reading);
        expect_corruption(get(&table, b"a", SEQNO_MAX), "moved block");
        expect_corruption(get(&table, b"b", SEQNO_MAX), "moved block");
    }
}

#[test]
fn a_fault_in_the_transfer_is_read_again_once() {
    for fill_cache in [true, false] {
        let (model, fixture) = small(Compression::None);
        let table = fixture.open(Reading::Pread);
        fixture.fs.damage_reads(path(), 1);
        assert_eq!(forward(&mut table.iter(fill_cache)).unwrap().len(), model.len());
    }
    let (model, fixture) = small(Compression::None);
    let table = fixture.open(Reading::Pread);
    fixture.fs.damage_reads(path(), 1);
    assert_eq!(get(&table, b"pointer", 99).unwrap(), expected(&model, b"pointer", 99));
    let table = fixture.open(Reading::Pread);
    fixture.fs.damage_reads(path(), 2);
    expect_corruption(get(&table, b"pointer", 99), "damaged twice");
    assert!(get(&table, b"pointer", 99).is_ok(), "damage is not remembered");
}

#[test]
fn a_missing_file_is_damage() {
    let (_, fixture) = small(Compression::None);
    let table = fixture.open(Reading::Pread);
    fixture.fs.remove(path()).unwrap();
    fixture.files.forget(path());
    expect_corruption(get(&table, b"pointer", 99), "removed since it was opened");
    for reading in READINGS {
        expect_corruption(fixture.try_open(reading), "missing");
    }
}

/// The same table with another salt.
fn salted(model: &Model, salt: u64) -> Fixture {
    let fs = TestFs::new();
    let options = TableBuilderOptions { block_bytes: 256, compression: Compression::None, salt };
    let mut builder = salted_builder(&fs, options);
    for ((key, _), entry) in model {
        builder.add(key, &entry.by_ref()).unwrap();
    }
    Fixture::finish(fs, builder)
}

#[test]
fn a_block_of_a_table_that_had_the_number_before_is_damage() {
    let mut model = numbered("key", 30);
    let old = salted(&model, SALT + 1).fs.contents(path());
    for entry in model.values_mut() {
        let Body::Inline(value) = &entry.body else { unreachable!("all are inline") };
        entry.body = Body::Inline(vec![b'x'; value.len()].into());
    }
    let fixture = salted(&model, SALT);
    let now = fixture.fs.contents(path());
    assert_eq!(old.len(), now.len(), "all lies where it lay in the table before");
    let data_bytes = fixture.open(Reading::Pread).footer.range_tombstones.offset as usize;

    fixture.fs.set_contents(path(), &[&old[..data_bytes], &now[data_bytes..]].concat());
    for reading in READINGS {
        let table = fixture.open(reading);
        for (key, seqno) in model.keys() {
            expect_corruption(get(&table, key, seqno.0), "a block of before");
        }
        assert!(!table.verify(&mut |_| {}).is_empty());
    }
}

#[test]
fn a_table_of_the_format_before_is_read() {
    let model = numbered("key", 30);
    let fixture = salted(&model, NUMBER << 32);
    let mut contents = fixture.fs.contents(path());
    let footer = contents.last_chunk_mut().unwrap();
    *footer = footer::as_unsalted(footer);
    fixture.fs.set_contents(path(), &contents);
    for reading in READINGS {
        let table = fixture.open(reading);
        for ((key, seqno), entry) in &model {
            assert_eq!(get(&table, key, seqno.0).unwrap().as_ref(), Some(entry));
        }
        assert!(table.verify(&mut |_| {}).is_empty());
    }
}

/// Each block in front of it was read 256 KiB ahead, in vain: a disk may take seconds for each try.
#[test]
fn a_pass_reads_ahead_once_to_what_can_not_be_read() {
    let fixture = Fixture::new(&numbered("key", 20_000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Pread);
    let bad = 60;
    assert!(table.block_count() > 2 * bad);
    fixture.fs.fail_reads_of(path(), table.fences.handle(bad).unwrap().offset + 7);
    let mut iter = table.iter(false);
    iter.seek_to_first().unwrap();
    while iter.user_key() < table.fences.first_key(bad - 1) {
        iter.next().unwrap();
    }
    assert_eq!(fixture.fs.failed_reads(path()), 1);
    let error = std::iter::repeat_with(|| iter.next()).find_map(Result::err).unwrap();
    assert!(error.is_damage(), "{error}");
    assert_eq!(fixture.fs.failed_reads(path()), 2);
}

/// After one error that was passing, the rest of the table was read block by block.
#[test]
fn a_pass_reads_ahead_again_behind_what_could_not_be_read() {
    let fixture = Fixture::new(&numbered("key", 50_000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Pread);
    fixture.fs.fail_reads_of(path(), table.fences.handle(30).unwrap().offset);
    let mut iter = table.iter(false);
    iter.seek_to_first().unwrap();
    assert_eq!(fixture.fs.failed_reads(path()), 1);
    // No read comes to what is behind the end.
    fixture.fs.fail_reads_of(path(), fixture.built.file_bytes);
    let before = fixture.fs.reads(path());
    while iter.valid() {
        iter.next().unwrap();
    }
    let (reads, blocks) = (fixture.fs.reads(path()) - before, table.block_count() as u64);
    // One by one as far as one long read goes, a quarter of the table.
    assert!(reads < blocks / 2, "{reads} reads of {blocks} blocks");
}

#[test]
fn what_is_refused_of_an_entry_is_told_of_its_block() {
    let fixture = Fixture::new(&numbered("key", 2000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Pread);
    let mut iter = table.iter(false);
    iter.seek(table.fences.first_key(3), SEQNO_MAX).unwrap();
    match iter.corruption("what was found").unwrap() {
        Error::Corruption { file, offset, what } => {
            assert_eq!((&*file, &*what), (path(), "what was found"));
            assert_eq!(offset, table.fences.handle(3).unwrap().offset);
        }
        other => panic!("{other}"),
    }
}

/// Checksums are right, and no writer makes it: a merge refused it, and a table that was read again was called well.
#[test]
fn entries_out_of_order_are_damage_where_a_table_is_read_again() {
    let fixture = Fixture::new(&numbered("key", 2000), &[], 4096, Compression::None);
    let table = fixture.open(Reading::Pread);
    let read = || table.read_from(table.fences.first_key(2), &AtomicBool::new(false));
    read().unwrap();
    let mut contents = fixture.fs.contents(path());
    let handle = table.fences.handle(3).unwrap();
    let (start, end) = (table.fences.first_key(3), table.fences.first_key(4));
    let mut entries = forward(&mut table.iter(false)).unwrap();
    entries.retain(|(key, _)| (start..end).contains(&&key[..]));
    let mut swapped = entries.clone();
    swapped.swap(5, 6);
    let mut twice = entries;
    twice[5] = twice[4].clone();
    for forged in [swapped, twice] {
        let (mut block, mut frame) = (block_builder::BlockBuilder::default(), Vec::new());
        assert!(forged.iter().all(|(key, entry)| block.add(key, &entry.by_ref(), 4096)));
        block.finish(&mut frame);
        let mut frames = frame::FrameEncoder::new(Compression::None);
        frames.enclose(0, SALT, handle.offset, &mut frame);
        assert_eq!(frame.len(), handle.frame_bytes);
        contents[handle.offset as usize..][..frame.len()].copy_from_slice(&frame);
        fixture.fs.set_contents(path(), &contents);
        match read() {
            Err(Error::Corruption { offset, .. }) => assert_eq!(offset, handle.offset),
            other => panic!("{other:?}"),
        }
    }
}
