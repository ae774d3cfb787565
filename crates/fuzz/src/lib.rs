//! What every decoder of bytes from outside must do with any bytes.
//!
//! A target takes a fuzzer's bytes, hands them to a decoder and holds it to what it promises: nothing
//! panics, what decodes is encoded and decodes to the same, a damaged store shows nothing that was never
//! written. Where a checksum would refuse everything, the target makes it right first. The workspace
//! `fuzz/` runs the targets under libFuzzer; the tests here replay its seeds.

mod input;
mod disk;
mod store;
mod journal;
mod table;
mod manifest;
mod salvage;
mod files;
mod http;

/// A decoder under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of the fuzz target and of the directory of its seeds.
    pub name: &'static str,
    /// Panics when a promise is broken; answers whether the bytes were accepted.
    pub run: fn(&[u8]) -> bool,
    /// Valid encodings, from which a fuzzer starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident: $run:path, $seeds:path;)*) => {
        $(
            #[doc = concat!("See [`", stringify!($run), "`].")]
            pub fn $name(data: &[u8]) -> bool {
                $run(data)
            }
        )*

        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name, seeds: $seeds }),*];
    };
}

targets! {
    journal_headers: journal::headers, journal::header_seeds;
    journal_group: journal::group, journal::group_seeds;
    journal_collected_index: journal::collected_index, journal::index_seeds;
    journal_recovery: journal::recovery, journal::recovery_seeds;
    table_block: table::block, table::block_seeds;
    table_frame: table::frame, table::frame_seeds;
    table_footer: table::footer, table::footer_seeds;
    table_fences: table::fences, table::fences_seeds;
    table_point_index: table::point_index, table::point_index_seeds;
    table_range_deletions: table::range_deletions, table::range_deletion_seeds;
    table_properties: table::properties, table::properties_seeds;
    table_file: table::file, table::file_seeds;
    manifest_edit: manifest::edit, manifest::edit_seeds;
    manifest_file: manifest::file, manifest::file_seeds;
    manifest_current: manifest::current, manifest::current_seeds;
    store_damage: store::damage, store::seeds;
    store_salvage: salvage::store, salvage::store_seeds;
    journal_salvage: salvage::journal, salvage::journal_seeds;
    table_salvage: salvage::table, salvage::table_seeds;
    files_record: files::record, files::record_seeds;
    files_superblock: files::superblock, files::superblock_seeds;
    files_kfs: files::kfs, files::kfs_seeds;
    http_framing: http::framing, http::framing_seeds;
    http_target: http::target, http::target_seeds;
    http_headers: http::headers, http::header_seeds;
    http_batch: http::batch, http::batch_seeds;
    http_listing: http::listing, http::listing_seeds;
    s3_object: http::s3_object, http::s3_object_seeds;
    s3_bucket: http::s3_bucket, http::s3_bucket_seeds;
    s3_values: http::s3_values, http::s3_value_seeds;
    s3_chunks: http::s3_chunks, http::s3_chunk_seeds;
    s3_query: http::s3_query, http::s3_query_seeds;
}
