//! Uploads in parts.
//!
//! 1. An upload is a note with the object's metadata; each part is a hidden file.
//! 2. Completing (`completion`) writes the parts behind one another as the object. In one step the object shows and
//!    the note is gone, so that nothing is made of the upload again; then the parts are taken away. A single part
//!    only changes its name, where its bytes need not be read.
//! 3. A kill before the object shows leaves the upload as it was, to be completed again; a kill after it
//!    leaves parts whose note is gone, which the sweeper takes.
//! 4. The object knows the upload that it was made of, so that a client whose answer was lost may ask
//!    again: as long as the object is there, the answer is the same.
//! 5. A catalogue that was made anew from the buckets may have the note of such an upload again, as an earlier
//!    release left one that was killed. It ends at the start, before anything else can come under the key, and its
//!    parts go with the first sweep.
//!
//! A file's chunks are all of one length but the last, so parts can't be joined without being written
//! anew.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::RangeInclusive;

use s3s::dto::{
    AbortMultipartUploadInput, CopyPartResult, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ListMultipartUploadsInput, ListMultipartUploadsOutput,
    ListPartsInput, ListPartsOutput, MultipartUpload, Part, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tallybook_files::{ListEntry, UnlinkOptions, WriteOptions, Writer, hex};

use super::buckets::owner;
use super::checks::{Algorithm, Check, Hasher, show_checksum};
use super::conditions::ReadConditions;
use super::failure::failed;
use super::layout;
use super::listing::{
    BYTES_OF_ONE_MAX, OBJECT_BYTES, PAGE_FRAME_BYTES, PageMemory, held, xml_bytes,
};
use super::meta::{Object, ObjectMeta, SavedChecksum, decode, encode, timestamp};
use super::objects::{
    check_key, content_encoding, refuse_unknown, seconds, source_of, user_metadata,
};
use super::receive::{Delivery, commit};
use super::shelf::{Shelf, UNTOLD};

/// Parts are numbered from 1 to this.
const PARTS_MAX: i32 = 10_000;
/// What is made of up to so many bytes is waited for; beyond, a client is kept waiting with blanks, or takes turns.
pub(super) const WAIT_BYTES_MAX: u64 = 64 << 20;
/// The number of a part, from what a client says.
pub(super) fn part_number(number: i32) -> S3Result<u16> {
    if !(1..=PARTS_MAX).contains(&number) {
        return Err(s3_error!(InvalidArgument, "Part numbers are 1 to 10,000."));
    }
    u16::try_from(number).map_err(|_| s3_error!(InvalidArgument, "Part numbers are 1 to 10,000."))
}

impl Shelf {
    pub(crate) fn create_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<CreateMultipartUploadOutput> {
        let S3Request { input, headers, .. } = request;
        refuse_unknown(&headers)?;
        check_key(&input.key)?;
        let algorithm = input.checksum_algorithm.as_ref().map(|name| name.as_str().to_owned());
        let checksum = match algorithm {
            None => None,
            Some(algorithm) => {
                if algorithm.parse::<Algorithm>().is_err() {
                    return Err(s3_error!(InvalidRequest, "The checksum algorithm is not known."));
                }
                let kind = input.checksum_type.as_ref().map(|kind| kind.as_str());
                let is_composite = match kind {
                    Some(kind) => kind == "COMPOSITE",
                    None => algorithm != "CRC64NVME",
                };
                Some(SavedChecksum { algorithm, value: String::new(), is_composite })
            }
        };
        let meta = ObjectMeta {
            key: input.key.clone(),
            content_type: input.content_type,
            content_encoding: content_encoding(input.content_encoding),
            content_disposition: input.content_disposition,
            content_language: input.content_language,
            cache_control: input.cache_control,
            expires: input.expires.as_ref().map(seconds),
            user: user_metadata(input.metadata)?,
            checksum,
            ..ObjectMeta::default()
        };
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|_| s3_error!(InternalError, "The system gave no random bytes."))?;
        let id = hex(&id);
        let options =
            WriteOptions { attributes: encode(&meta), md5: true, ..WriteOptions::default() };
        let note = self.files.writer(&layout::upload(&input.bucket, &id), options);
        commit(note.map_err(failed)?, || self.hold_bucket(&input.bucket))?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: meta.checksum.map(|saved| saved.kind()),
            ..CreateMultipartUploadOutput::default()
        })
    }

    pub(crate) async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<UploadPartOutput> {
        let S3Request { input, headers, trailing_headers, .. } = request;
        let number = part_number(input.part_number)?;
        let of = (input.bucket, input.key, input.upload_id);
        let name = layout::part(&of.0, &of.2, number);
        let look = of.clone();
        self.run(move |shelf| shelf.need_upload(&look.0, &look.1, &look.2).map(|_| ())).await?;
        let delivery = Delivery {
            name,
            body: input.body,
            length: input.content_length,
            content_md5: input.content_md5,
            check: Check::of(&headers, trailing_headers)?,
        };
        let finish = move |shelf: &Shelf, mut writer: Writer, checksum| {
            let meta = ObjectMeta { checksum, ..ObjectMeta::default() };
            writer.set_attributes(encode(&meta)).map_err(failed)?;
            commit(writer, || shelf.hold_upload(&of.0, &of.1, &of.2))
        };
        let (stat, checksum) = self.receive(delivery, WriteOptions::default(), finish).await?;
        let mut output = UploadPartOutput {
            e_tag: Some(Object::of(stat)?.tag()),
            ..UploadPartOutput::default()
        };
        show_checksum!(output, &checksum);
        Ok(output)
    }

    pub(crate) async fn upload_part_copy(
        &self,
        input: UploadPartCopyInput,
    ) -> S3Result<UploadPartCopyOutput> {
        let range = input.copy_source_range.as_deref().map(source_range).transpose()?;
        let is_short =
            range.as_ref().is_some_and(|range| range.end() - range.start() < WAIT_BYTES_MAX);
        let work = move |shelf: &Shelf| shelf.copy_part(&input, range);
        // How long a source is of which no range is named, isn't known yet.
        if is_short { self.run(work).await } else { self.run_long(work).await }
    }

    fn copy_part(
        &self,
        input: &UploadPartCopyInput,
        range: Option<RangeInclusive<u64>>,
    ) -> S3Result<UploadPartCopyOutput> {
        let number = part_number(input.part_number)?;
        let of = (&*input.bucket, &*input.key, &*input.upload_id);
        let (_, upload) = self.need_upload(of.0, of.1, of.2)?;
        let (bucket, key) = source_of(&input.copy_source)?;
        let conditions = ReadConditions {
            if_match: input.copy_source_if_match.clone(),
            if_none_match: input.copy_source_if_none_match.clone(),
            if_modified_since: input.copy_source_if_modified_since.clone(),
            if_unmodified_since: input.copy_source_if_unmodified_since.clone(),
        };
        let asked = range
            .as_ref()
            .map(|range| s3s::dto::Range::Int { first: *range.start(), last: Some(*range.end()) });
        let (_, _, reader) = self.open_checked(&bucket, &key, |source| {
            conditions.check_source(source)?;
            let size = source.stat.size;
            // A part that is shorter than was asked for would be missed only in the object.
            if range.as_ref().is_some_and(|range| *range.end() >= size) {
                return Err(s3_error!(
                    InvalidArgument,
                    "Range specified is not valid for source object of size: {size}"
                ));
            }
            Ok(asked.as_ref())
        })?;
        let options = WriteOptions { md5: true, ..WriteOptions::default() };
        let name = layout::part(of.0, of.2, number);
        let mut writer = self.files.writer(&name, options).map_err(failed)?;
        // No client sends the checksum of a part that it doesn't send: it is told what it is.
        let algorithm: Option<Algorithm> =
            upload.checksum.as_ref().and_then(|saved| saved.algorithm.parse().ok());
        let mut hasher = algorithm.map(Hasher::new);
        for chunk in reader {
            let chunk = chunk.map_err(failed)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&chunk);
            }
            writer.write(&chunk).map_err(failed)?;
        }
        let checksum = algorithm.zip(hasher).map(|(algorithm, hasher)| SavedChecksum {
            algorithm: algorithm.name().to_owned(),
            value: hasher.finish(),
            is_composite: false,
        });
        let meta = ObjectMeta { checksum, ..ObjectMeta::default() };
        writer.set_attributes(encode(&meta)).map_err(failed)?;
        let part = Object::of(commit(writer, || self.hold_upload(of.0, of.1, of.2))?)?;
        let mut result = CopyPartResult {
            e_tag: Some(part.tag()),
            last_modified: Some(part.last_modified()),
            ..CopyPartResult::default()
        };
        show_checksum!(result, &part.meta.checksum);
        Ok(UploadPartCopyOutput {
            copy_part_result: Some(result),
            ..UploadPartCopyOutput::default()
        })
    }

    pub(crate) fn list_parts(
        &self,
        input: &ListPartsInput,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let (_, meta) = self.need_upload(&input.bucket, &input.key, &input.upload_id)?;
        let memory = PageMemory::new(&self.memory);
        let max_parts = input.max_parts.unwrap_or(1000).clamp(0, 1000);
        let limit = usize::try_from(max_parts).unwrap_or(0);
        let limit = limit.min((memory.bytes_max() - PAGE_FRAME_BYTES) / OBJECT_BYTES);
        let after = input.part_number_marker.unwrap_or(0);
        let prefix = layout::parts(&input.bucket, &input.upload_id);
        let mut parts = Vec::new();
        self.each(&prefix, None, |entry| {
            let ListEntry::File(stat) = entry else { return Ok(()) };
            let number = stat.name[prefix.len()..].parse().unwrap_or(0);
            if number > after && parts.len() <= limit {
                let part = Object::of(stat)?;
                let mut shown = Part {
                    part_number: Some(number),
                    e_tag: Some(part.tag()),
                    last_modified: Some(part.last_modified()),
                    size: Some(part.size()),
                    ..Part::default()
                };
                show_checksum!(shown, &part.meta.checksum);
                parts.push(shown);
            }
            Ok(())
        })?;
        let is_truncated = parts.len() > limit;
        parts.truncate(limit);
        let memory = memory.keep(PAGE_FRAME_BYTES + parts.len() * OBJECT_BYTES)?;
        let output = ListPartsOutput {
            bucket: Some(input.bucket.clone()),
            key: Some(input.key.clone()),
            upload_id: Some(input.upload_id.clone()),
            part_number_marker: Some(after),
            next_part_number_marker: parts.last().and_then(|part| part.part_number),
            max_parts: Some(max_parts),
            is_truncated: Some(is_truncated),
            parts: Some(parts),
            owner: Some(owner()),
            checksum_algorithm: meta.checksum.map(|saved| saved.algorithm.into()),
            ..ListPartsOutput::default()
        };
        Ok(held(output, memory))
    }

    /// Uploads are few: all of a bucket's are looked at, and the first of them by key and identifier are kept.
    pub(crate) fn list_uploads(
        &self,
        input: &ListMultipartUploadsInput,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        self.need_bucket(&input.bucket)?;
        if input.delimiter.as_deref().is_some_and(|delimiter| !delimiter.is_empty()) {
            return Err(s3_error!(NotImplemented, "A delimiter for uploads is not implemented."));
        }
        let memory = PageMemory::new(&self.memory);
        let max_uploads = input.max_uploads.unwrap_or(1000).clamp(1, 1000);
        let limit = usize::try_from(max_uploads).unwrap_or(1);
        let prefix = layout::uploads(&input.bucket);
        let wanted = input.prefix.as_deref().unwrap_or("");
        let marker = (
            input.key_marker.as_deref().unwrap_or(""),
            input.upload_id_marker.as_deref().unwrap_or(""),
        );
        let echoed = wanted.len() + marker.0.len() + marker.1.len();
        let mut bytes = PAGE_FRAME_BYTES + BYTES_OF_ONE_MAX * echoed;
        let bytes_of = |key: &str| OBJECT_BYTES + xml_bytes(key);
        let mut found = BTreeMap::new();
        // The first of those that there is no room for.
        let mut beyond: Option<(String, String)> = None;
        self.each(&prefix, None, |entry| {
            let ListEntry::File(stat) = entry else { return Ok(()) };
            let meta: ObjectMeta = decode(&stat.attributes)?;
            let id = stat.name[prefix.len()..].to_owned();
            let is_past = match marker {
                ("", _) => false,
                (key, "") => &*meta.key <= key,
                marker => (&*meta.key, &*id) <= marker,
            };
            let at = (meta.key, id);
            if !at.0.starts_with(wanted) || is_past || beyond.as_ref().is_some_and(|end| at > *end)
            {
                return Ok(());
            }
            bytes += bytes_of(&at.0);
            found.insert(at, stat.written_at_ms);
            while found.len() > limit || bytes > memory.bytes_max() && found.len() > 1 {
                beyond = found.pop_last().map(|(at, _)| at);
                bytes -= beyond.as_ref().map_or(0, |at| bytes_of(&at.0));
            }
            Ok(())
        })?;
        let is_truncated = beyond.is_some();
        let last = found.keys().next_back().filter(|_| is_truncated).cloned();
        let memory = memory.keep(bytes)?;
        let uploads = found.into_iter().map(|((key, id), at_ms)| MultipartUpload {
            key: Some(key),
            upload_id: Some(id),
            initiated: Some(timestamp(at_ms)),
            owner: Some(owner()),
            ..MultipartUpload::default()
        });
        let output = ListMultipartUploadsOutput {
            bucket: Some(input.bucket.clone()),
            prefix: input.prefix.clone(),
            key_marker: input.key_marker.clone(),
            upload_id_marker: input.upload_id_marker.clone(),
            max_uploads: Some(max_uploads),
            is_truncated: Some(is_truncated),
            next_key_marker: last.as_ref().map(|(key, _)| key.clone()),
            next_upload_id_marker: last.map(|(_, id)| id),
            uploads: Some(uploads.collect()),
            ..ListMultipartUploadsOutput::default()
        };
        Ok(held(output, memory))
    }

    pub(crate) fn abort_upload(&self, input: &AbortMultipartUploadInput) -> S3Result<()> {
        self.need_upload(&input.bucket, &input.key, &input.upload_id)?;
        self.end_upload(&input.bucket, &input.upload_id)
    }

    /// Takes an upload away: the note first, under the gate, so that no part comes after it.
    pub(crate) fn end_upload(&self, bucket: &str, upload: &str) -> S3Result<()> {
        self.end_upload_note(bucket, upload, UnlinkOptions::default())?;
        self.unlink_parts(bucket, upload)
    }

    /// Ends the uploads whose object is there, so that nothing is made of them again; their parts the sweep takes. The
    /// error is the first of those that couldn't be ended. Requires: nothing was put under its key since the store was
    /// opened.
    pub(crate) fn end_made(&self) -> S3Result<()> {
        let mut failure = None;
        let listed = self.each(layout::UPLOADS, None, |entry| {
            let of = entry.name()[layout::UPLOADS.len()..].split_once('/');
            let (ListEntry::File(stat), Some((bucket, upload))) = (&entry, of) else {
                return Ok(());
            };
            // One that is damaged stands in no other's way; nothing can be made of it.
            let Ok(meta) = decode::<ObjectMeta>(&stat.attributes) else { return Ok(()) };
            // What comes under the key later is no sooner durable than this.
            if self.is_made(bucket, &meta.key, upload)
                && let Err(error) = self.end_upload_note(bucket, upload, UNTOLD)
            {
                failure.get_or_insert(error);
            }
            Ok(())
        });
        failure.map_or(listed, Err)
    }

    /// Whether what is under the key was made of this upload.
    pub(super) fn is_made(&self, bucket: &str, key: &str, upload: &str) -> bool {
        let is_of = |object: &Object| object.meta.upload.as_deref() == Some(upload);
        matches!(self.object(bucket, key), Ok(Some(object)) if is_of(&object))
    }

    /// Takes an upload's note away, so that it has ended; its parts are to be taken next.
    pub(crate) fn end_upload_note(
        &self,
        bucket: &str,
        upload: &str,
        options: UnlinkOptions,
    ) -> S3Result<()> {
        let note = layout::upload(bucket, upload);
        let hold = || Ok::<_, Infallible>(self.gate.write());
        let Ok(_) = self.files.unlink_holding(&note, options, hold).map_err(failed)?;
        Ok(())
    }
}

/// The bytes of a source that are copied, of which both ends are named, as S3 has it.
fn source_range(text: &str) -> S3Result<RangeInclusive<u64>> {
    match s3s::dto::Range::parse(text) {
        Ok(s3s::dto::Range::Int { first, last: Some(last) }) => Ok(first..=last),
        _ => Err(s3_error!(InvalidArgument, "The range is not bytes=first-last.")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::completion::tests::{UPLOAD, begun, put};
    use super::*;
    use crate::value_memory::SMALL_VALUE_BYTES_MAX;

    /// 1,000 uploads of keys of a kibibyte were 6 MB of which nothing was counted.
    #[test]
    fn pages_of_uploads_end_by_their_bytes_and_are_counted_until_they_are_gone() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let mut all = Vec::new();
        for number in 0..400 {
            // Their identifiers aren't in the order of their keys.
            let key = format!("{:03}{}", number * 7 % 400, "&".repeat(1000));
            let meta = ObjectMeta { key: key.clone(), ..ObjectMeta::default() };
            let options = WriteOptions { attributes: encode(&meta), ..WriteOptions::default() };
            shelf.note(&layout::upload("b", &format!("{number:032x}")), options).unwrap();
            all.push(key);
        }
        all.sort();
        let page = |marker: Option<(String, String)>, max_uploads| {
            let (key_marker, upload_id_marker) = marker.unzip();
            let input = ListMultipartUploadsInput {
                bucket: "b".to_owned(),
                key_marker,
                upload_id_marker,
                max_uploads,
                ..ListMultipartUploadsInput::default()
            };
            shelf.list_uploads(&input).unwrap()
        };
        for held in [0, (1 << 20) - 100] {
            let held = shelf.memory.try_take(held).unwrap();
            let (mut found, mut marker, mut most) = (Vec::new(), None, 0);
            loop {
                let before = shelf.memory.used();
                let answer = page(marker, None);
                let output = &answer.output;
                let keys = output.uploads.iter().flatten().map(|one| one.key.clone().unwrap());
                let keys: Vec<String> = keys.collect();
                let bytes: usize = keys.iter().map(|key| xml_bytes(key)).sum();
                let is_short = bytes <= SMALL_VALUE_BYTES_MAX;
                assert!(bytes <= 1 << 20 && (is_short || shelf.memory.used() - before >= bytes));
                most = most.max(keys.len());
                found.extend(keys);
                if output.is_truncated == Some(false) {
                    break;
                }
                marker = output.next_key_marker.clone().zip(output.next_upload_id_marker.clone());
            }
            drop(held);
            assert!(found == all && (5..200).contains(&most), "{most}");
            assert_eq!(shelf.memory.used(), 0);
        }
        let two = page(None, Some(2)).output;
        assert_eq!((two.uploads.unwrap().len(), two.max_uploads), (2, Some(2)));
    }

    #[test]
    fn pages_of_parts_are_counted_and_short_where_memory_is() {
        let (_dir, shelf) = begun(&[&b"part"[..]; 200]);
        let input = ListPartsInput {
            bucket: "b".to_owned(),
            key: "k".to_owned(),
            upload_id: UPLOAD.to_owned(),
            ..ListPartsInput::default()
        };
        let whole = shelf.list_parts(&input).unwrap();
        assert_eq!(whole.output.parts.as_ref().unwrap().len(), 200);
        assert!(shelf.memory.used() >= 200 * OBJECT_BYTES);
        let short = shelf.list_parts(&input).unwrap().output;
        assert_eq!(short.is_truncated, Some(true));
        let count = short.parts.unwrap().len();
        assert!((50..200).contains(&count) && short.next_part_number_marker == Some(count as i32));
        drop(whole);
        assert_eq!(shelf.memory.used(), 0);
    }

    /// The first note that couldn't be taken away at the start kept all behind it: old requests to complete those
    /// uploads put their parts in the place of what came later.
    #[test]
    fn upload_that_cannot_be_ended_at_the_start_keeps_no_other_from_it() {
        use tallybook::vfs::faulty::{Fault, OperationClass};

        let (fs, shelf) = Shelf::over_faulty();
        for id in ["1", "2", "3"] {
            let upload = ObjectMeta { key: id.to_owned(), ..ObjectMeta::default() };
            let object = ObjectMeta { upload: Some(id.to_owned()), ..ObjectMeta::default() };
            for (name, meta) in
                [(layout::upload("b", id), upload), (layout::object("b", id), object)]
            {
                let attributes = encode(&meta);
                shelf.note(&name, WriteOptions { attributes, ..WriteOptions::default() }).unwrap();
            }
        }
        let left = || {
            let mut left = 0;
            let count = |_| {
                left += 1;
                Ok(())
            };
            shelf.each(layout::UPLOADS, None, count).unwrap();
            left
        };
        fs.fail_at(0, Fault::errno(28).class(OperationClass::Writes));
        assert!(shelf.end_made().is_err());
        assert_eq!((fs.fired(), left()), (1, 1));
        shelf.end_made().unwrap();
        assert_eq!(left(), 0);
    }

    #[test]
    fn what_is_opened_is_what_was_checked() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let name = layout::object("b", "k");
        put(&shelf, &name, b"first and longer");
        let seen = std::cell::RefCell::new(Vec::new());
        let (object, _, mut reader) = shelf
            .open_checked("b", "k", |object| {
                if seen.borrow().is_empty() {
                    put(&shelf, &name, b"second");
                }
                seen.borrow_mut().push(object.stat.size);
                Ok(None)
            })
            .unwrap();
        assert_eq!((seen.into_inner(), object.stat.size), (vec![16, 6], 6));
        assert_eq!(reader.next().unwrap().unwrap(), &b"second"[..]);
    }
}
