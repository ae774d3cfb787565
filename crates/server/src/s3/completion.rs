//! Completing an upload in parts: what the client names is looked through, and becomes the object.
//!
//! The parts are written behind one another as the object, which shows in the step that the note goes in; then the
//! parts go (see `multipart`). A single part only changes its name, unless it has to be read for a checksum.
//! Requests to complete the same upload wait for one another (see `alone`), and then long joins take turns.
//!
//! Invariant: an object shows whole, of just the parts that were named, or not at all; and once it shows and is
//! as durable as any put, the client is told so, whatever becomes of the parts. At most one is made of an upload.

use md5::{Digest, Md5};
use parking_lot::RwLockWriteGuard;
use s3s::dto::{CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart};
use s3s::{S3Result, s3_error};
use tallybook_files::{Condition, CopyOptions, Error, ReadOptions, Stat, WriteOptions, hex};

use super::checks::{Algorithm, Hasher, given_checksum, show_checksum};
use super::conditions::for_write;
use super::failure::failed;
use super::layout;
use super::meta::{Object, ObjectMeta, SavedChecksum, encode};
use super::multipart::{WAIT_BYTES_MAX, part_number};
use super::objects::strong;
use super::receive::commit;
use super::shelf::Shelf;

/// Smallest part but the last.
const PART_BYTES_MIN: u64 = 5 << 20;

/// A part that an object is to be made of. There may be 10,000 of a completion that waits, which counts as what
/// its request had: no more is kept of each than is needed.
struct Chosen {
    number: u16,
    version: u64,
    size: u64,
    checksum: Option<SavedChecksum>,
}

/// What is asked to be completed.
struct Asked {
    bucket: String,
    key: String,
    upload: String,
    /// The entity tag of what is made of the parts that are named; empty if they are none that exist.
    etag: String,
    /// The checksum that the whole is expected to have.
    checksum_expected: Option<String>,
}

/// An upload that was looked through.
pub(crate) struct Completion {
    asked: Asked,
    work: Work,
}

/// What is left to do to complete an upload.
enum Work {
    /// All of it. The checksum of the object has no value where it is computed while the parts are written.
    Due { meta: Box<ObjectMeta>, condition: Option<Condition>, parts: Vec<Chosen> },
    /// Nothing: this was made of it before.
    Done(Box<Object>),
}

impl Completion {
    /// Whether the client should be answered before it is done.
    pub(crate) fn takes_long(&self) -> bool {
        let Work::Due { meta, parts, .. } = &self.work else { return false };
        let bytes: u64 = parts.iter().map(|part| part.size).sum();
        only_renamed(meta, parts).is_none() && bytes > WAIT_BYTES_MAX
    }
}

/// The part that the object is, if there is one and nothing else to do than to give it the name.
fn only_renamed<'a>(meta: &ObjectMeta, parts: &'a [Chosen]) -> Option<&'a Chosen> {
    match parts {
        [only] if !lacks_checksum(meta) => Some(only),
        _ => None,
    }
}

/// Whether there is to be a checksum that isn't known yet.
fn lacks_checksum(meta: &ObjectMeta) -> bool {
    meta.checksum.as_ref().is_some_and(|saved| saved.value.is_empty())
}

impl Shelf {
    /// Looks through what is to be made of an upload.
    pub(crate) fn prepare(&self, mut input: CompleteMultipartUploadInput) -> S3Result<Completion> {
        let named = input.multipart_upload.take().and_then(|upload| upload.parts);
        let named = named.unwrap_or_default();
        let asked = Asked {
            bucket: std::mem::take(&mut input.bucket),
            key: std::mem::take(&mut input.key),
            upload: std::mem::take(&mut input.upload_id),
            etag: tag_of_named(&named).unwrap_or_default(),
            checksum_expected: given_checksum!(input).map(|(_, value)| value),
        };
        let done = |object: Object| Work::Done(Box::new(object));
        // Before its conditions, which what was made of it changed.
        let work = match self.made_of(&asked)? {
            Some(object) => done(object),
            None => match self.look_through(&asked, &named, &input) {
                Ok(due) => due,
                // It may have been made since.
                Err(error) => done(self.made_of(&asked)?.ok_or(error)?),
            },
        };
        Ok(Completion { asked, work })
    }

    /// What there is to do to make an object of the parts that are named.
    fn look_through(
        &self,
        asked: &Asked,
        named: &[CompletedPart],
        input: &CompleteMultipartUploadInput,
    ) -> S3Result<Work> {
        let (_, mut meta) = self.need_upload(&asked.bucket, &asked.key, &asked.upload)?;
        if let Some((algorithm, value)) = &given_checksum!(input) {
            let saved = meta.checksum.get_or_insert_with(|| SavedChecksum {
                algorithm: algorithm.name().to_owned(),
                value: String::new(),
                is_composite: value.contains('-'),
            });
            if saved.algorithm != algorithm.name() {
                return Err(s3_error!(
                    InvalidRequest,
                    "The upload was begun with another checksum algorithm."
                ));
            }
        }
        let if_match = input.if_match.as_ref();
        let condition = for_write(if_match, input.if_none_match.as_ref(), || {
            self.object(&asked.bucket, &asked.key)
        })?;
        if named.is_empty() {
            return Err(s3_error!(MalformedXML, "You must specify at least one part"));
        }
        let mut parts: Vec<Chosen> = Vec::with_capacity(named.len());
        for part in named {
            let chosen = self.choose(&asked.bucket, &asked.upload, part)?;
            if parts.last().is_some_and(|last| last.number >= chosen.number) {
                return Err(s3_error!(
                    InvalidPartOrder,
                    "The list of parts was not in ascending order."
                ));
            }
            parts.push(chosen);
        }
        let (_, but_last) = parts.split_last().expect("there is a part");
        if but_last.iter().any(|part| part.size < PART_BYTES_MIN) {
            return Err(s3_error!(
                EntityTooSmall,
                "Your proposed upload is smaller than the minimum allowed size"
            ));
        }
        let size: u64 = parts.iter().map(|part| part.size).sum();
        let announced = input.mpu_object_size.and_then(|size| u64::try_from(size).ok());
        if announced.is_some_and(|announced| announced != size) {
            return Err(s3_error!(InvalidRequest, "The parts are not as long as was announced."));
        }
        let saved = meta.checksum.take();
        meta.checksum = saved.map(|saved| checksum_of(saved, &parts)).transpose()?;
        check_expected(&meta, asked.checksum_expected.as_deref())?;
        Ok(Work::Due { meta: Box::new(meta), condition, parts })
    }

    /// What is under the key, if it was made of this upload, of the parts that are named.
    fn made_of(&self, asked: &Asked) -> S3Result<Option<Object>> {
        let is_made_of = |object: &Object| {
            object.meta.upload.as_ref() == Some(&asked.upload)
                && object.etag() == asked.etag
                && check_expected(&object.meta, asked.checksum_expected.as_deref()).is_ok()
        };
        Ok(self.object(&asked.bucket, &asked.key)?.filter(is_made_of))
    }

    fn choose(&self, bucket: &str, upload: &str, named: &CompletedPart) -> S3Result<Chosen> {
        let invalid = || {
            s3_error!(
                InvalidPart,
                "One or more of the specified parts could not be found, or its entity tag or \
                 checksum is another."
            )
        };
        let number = part_number(named.part_number.unwrap_or(0))?;
        let stat = self.files.stat(&layout::part(bucket, upload, number)).map_err(failed)?;
        let object = Object::of(stat.ok_or_else(invalid)?)?;
        let is_tag_right = named.e_tag.as_ref().is_some_and(|tag| tag.value() == object.etag());
        let is_checksum_right = given_checksum!(named).is_none_or(|(algorithm, value)| {
            let saved = object.meta.checksum.as_ref();
            saved.is_some_and(|saved| saved.algorithm == algorithm.name() && saved.value == value)
        });
        if is_tag_right && is_checksum_right {
            let Object { stat, meta } = object;
            let (version, size) = (stat.version, stat.size);
            Ok(Chosen { number, version, size, checksum: meta.checksum })
        } else {
            Err(invalid())
        }
    }

    /// Completes an upload once no other request is about to, and once it has its turn if it takes long. What was
    /// begun on the pool goes on to its end though nobody waits for it any longer.
    pub(crate) async fn complete_alone(
        &self,
        completion: Completion,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let alone = self.completing.alone(&completion.asked.upload).await;
        let takes_long = completion.takes_long();
        let work = move |shelf: &Shelf| {
            let _alone = alone;
            shelf.complete(completion)
        };
        if takes_long { self.run_long(work).await } else { self.run(work).await }
    }

    /// Makes the object, if it isn't there yet; blocks. Requires: nobody else does so meanwhile.
    fn complete(&self, completion: Completion) -> S3Result<CompleteMultipartUploadOutput> {
        let Completion { asked, work } = completion;
        let object = match work {
            Work::Done(object) => self.settled(*object)?,
            Work::Due { meta, condition, parts } => match self.made_of(&asked)? {
                // While this waited for its turn.
                Some(object) => self.settled(object)?,
                None => {
                    // Or it was, and replaced: nothing is written anew in vain.
                    self.need_upload(&asked.bucket, &asked.key, &asked.upload)?;
                    let made = self.make(&asked, *meta, condition, &parts);
                    made.and_then(Object::of).or_else(|error| match self.made_of(&asked)? {
                        // It shows, though a sync after that failed.
                        Some(object) => self.settled(object).map_err(|_| error),
                        None => Err(error),
                    })?
                }
            },
        };
        let Asked { bucket, key, upload, .. } = asked;
        if let Err(error) = self.unlink_parts(&bucket, &upload) {
            // The object is there, which is what was asked for. The rest the sweeper takes.
            tracing::error!(%error, "an upload was completed, but its parts could not be taken away");
        }
        let checksum = &object.meta.checksum;
        let mut output = CompleteMultipartUploadOutput {
            location: Some(format!("/{bucket}/{key}")),
            bucket: Some(bucket),
            key: Some(key),
            e_tag: Some(strong(object.etag())),
            checksum_type: checksum.as_ref().map(|saved| saved.kind()),
            ..CompleteMultipartUploadOutput::default()
        };
        show_checksum!(output, checksum);
        Ok(output)
    }

    /// An object that was found, once it is as durable as one that was just made: the sync of who made it may
    /// have failed.
    fn settled(&self, object: Object) -> S3Result<Object> {
        self.files.settle(&object.stat.name).map_err(failed)?;
        Ok(object)
    }

    fn make(
        &self,
        asked: &Asked,
        mut meta: ObjectMeta,
        condition: Option<Condition>,
        parts: &[Chosen],
    ) -> S3Result<Stat> {
        meta.key.clear();
        meta.etag = Some(asked.etag.clone());
        meta.upload = Some(asked.upload.clone());
        match only_renamed(&meta, parts) {
            Some(part) => self.rename_part(asked, part, condition, &meta),
            None => self.join_parts(asked, parts, condition, meta),
        }
    }

    /// Has the bucket stay, and no part come, until the gate is let go, if the upload is still there.
    fn hold_both(&self, asked: &Asked) -> S3Result<RwLockWriteGuard<'_, ()>> {
        let gate = self.gate.write();
        self.need_bucket(&asked.bucket)?;
        self.need_upload(&asked.bucket, &asked.key, &asked.upload)?;
        Ok(gate)
    }

    fn rename_part(
        &self,
        asked: &Asked,
        part: &Chosen,
        condition: Option<Condition>,
        meta: &ObjectMeta,
    ) -> S3Result<Stat> {
        let options = CopyOptions {
            condition,
            source_condition: Some(Condition::Version(part.version)),
            attributes: Some(encode(meta)),
            unlinks: Some(layout::upload(&asked.bucket, &asked.upload)),
            ..CopyOptions::default()
        };
        let from = layout::part(&asked.bucket, &asked.upload, part.number);
        let name = layout::object(&asked.bucket, &asked.key);
        let renamed = self.files.rename_holding(&from, &name, options, || self.hold_both(asked));
        renamed.map_err(|error| {
            // Which of the two conditions it was, the error doesn't say. After one of a sync the part has its
            // new name.
            let is_refused = matches!(error, Error::Conflict { .. } | Error::NotFound { .. });
            match self.files.stat(&from) {
                Ok(now)
                    if is_refused && now.as_ref().map(|now| now.version) != Some(part.version) =>
                {
                    part_changed()
                }
                _ => failed(error),
            }
        })?
    }

    fn join_parts(
        &self,
        asked: &Asked,
        parts: &[Chosen],
        condition: Option<Condition>,
        mut meta: ObjectMeta,
    ) -> S3Result<Stat> {
        // A checksum of the whole is computed on the way.
        let mut hasher = meta
            .checksum
            .as_ref()
            .filter(|saved| saved.value.is_empty())
            .and_then(|saved| saved.algorithm.parse().ok())
            .map(Hasher::new);
        let size = parts.iter().map(|part| part.size).sum();
        let options = WriteOptions {
            condition,
            size: Some(size),
            md5: true,
            unlinks: Some(layout::upload(&asked.bucket, &asked.upload)),
            ..WriteOptions::default()
        };
        let name = layout::object(&asked.bucket, &asked.key);
        let mut writer = self.files.writer(&name, options).map_err(failed)?;
        for part in parts {
            let name = layout::part(&asked.bucket, &asked.upload, part.number);
            let reader = self.files.reader(&name, ReadOptions::default()).map_err(failed)?;
            let reader = reader
                .filter(|reader| reader.stat().version == part.version)
                .ok_or_else(part_changed)?;
            for chunk in reader {
                let chunk = chunk.map_err(failed)?;
                if let Some(hasher) = &mut hasher {
                    hasher.update(&chunk);
                }
                writer.write(&chunk).map_err(failed)?;
            }
        }
        if let (Some(saved), Some(hasher)) = (&mut meta.checksum, hasher) {
            saved.value = hasher.finish();
        }
        check_expected(&meta, asked.checksum_expected.as_deref())?;
        writer.set_attributes(encode(&meta)).map_err(failed)?;
        commit(writer, || self.hold_both(asked))
    }
}

/// The entity tag of what is made of these parts, if their tags are of parts at all.
fn tag_of_named(named: &[CompletedPart]) -> Option<String> {
    let mut digest = Md5::new();
    for part in named {
        let tag = part.e_tag.as_ref()?.value();
        let md5 = u128::from_str_radix(tag, 16).ok().filter(|_| tag.len() == 32)?;
        digest.update(md5.to_be_bytes());
    }
    Some(format!("{}-{}", hex(&digest.finalize()), named.len()))
}

fn part_changed() -> s3s::S3Error {
    s3_error!(InvalidPart, "A part was changed meanwhile.")
}

/// The checksum of an object by those of its parts. Without a value where they don't tell it.
fn checksum_of(saved: SavedChecksum, parts: &[Chosen]) -> S3Result<SavedChecksum> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    if !saved.is_composite {
        return Ok(match parts {
            [Chosen { checksum: Some(own), .. }] if own.algorithm == saved.algorithm => own.clone(),
            _ => saved,
        });
    }
    let missing = || s3_error!(InvalidPart, "A part came without the checksum of the upload.");
    let algorithm: Algorithm = saved.algorithm.parse().map_err(|()| missing())?;
    let mut hasher = Hasher::new(algorithm);
    for part in parts {
        let own = part.checksum.as_ref();
        let own = own.filter(|own| own.algorithm == saved.algorithm).ok_or_else(missing)?;
        hasher.update(&STANDARD.decode(&own.value).map_err(|_| missing())?);
    }
    Ok(SavedChecksum { value: format!("{}-{}", hasher.finish(), parts.len()), ..saved })
}

/// Compares the checksum of the whole, once it is known, with what the client expects, if it does.
fn check_expected(meta: &ObjectMeta, expected: Option<&str>) -> S3Result<()> {
    let known = meta.checksum.as_ref().filter(|saved| !saved.value.is_empty());
    let (Some(saved), Some(expected)) = (known, expected) else { return Ok(()) };
    let plain = |value: &str| value.split('-').next().unwrap_or("").to_owned();
    if plain(&saved.value) == plain(expected) {
        return Ok(());
    }
    Err(s3_error!(BadDigest, "The checksum you specified did not match that of the parts."))
}

#[cfg(test)]
pub(super) mod tests {
    use s3s::dto::{CompletedMultipartUpload, ETag};
    use tallybook_files::ListEntry;

    use super::super::lifecycle::Swept;
    use super::super::meta::Rule;
    use super::*;

    pub(crate) const UPLOAD: &str = "0123456789abcdef0123456789abcdef";

    pub(crate) fn put(shelf: &Shelf, name: &str, bytes: &[u8]) -> Object {
        let options = WriteOptions { md5: true, ..WriteOptions::default() };
        Object::of(shelf.files.write(name, bytes, options).unwrap()).unwrap()
    }

    /// A shelf with an upload of these parts.
    pub(crate) fn begun(parts: &[&[u8]]) -> (tempfile::TempDir, Shelf) {
        let (dir, shelf) = Shelf::with_bucket("b");
        begin(&shelf, parts);
        (dir, shelf)
    }

    pub(crate) fn begin(shelf: &Shelf, parts: &[&[u8]]) {
        begin_with(shelf, ObjectMeta::default(), parts);
    }

    fn begin_with(shelf: &Shelf, meta: ObjectMeta, parts: &[&[u8]]) {
        let meta = ObjectMeta { key: "k".to_owned(), ..meta };
        let options = WriteOptions { attributes: encode(&meta), ..WriteOptions::default() };
        shelf.note(&layout::upload("b", UPLOAD), options).unwrap();
        for (number, part) in (1..).zip(parts) {
            put(shelf, &layout::part("b", UPLOAD, number), part);
        }
    }

    /// What a client asks for that has seen the parts that there are.
    fn asked(shelf: &Shelf) -> CompleteMultipartUploadInput {
        let mut parts = Vec::new();
        shelf
            .each(&layout::parts("b", UPLOAD), None, |entry| {
                let ListEntry::File(stat) = entry else { return Ok(()) };
                parts.push(CompletedPart {
                    part_number: stat.name[stat.name.len() - 5..].parse().ok(),
                    e_tag: Some(ETag::Strong(Object::of(stat)?.etag())),
                    ..CompletedPart::default()
                });
                Ok(())
            })
            .unwrap();
        let named = CompletedMultipartUpload { parts: Some(parts) };
        let mut input = CompleteMultipartUploadInput::default();
        (input.bucket, input.key) = ("b".to_owned(), "k".to_owned());
        (input.upload_id, input.multipart_upload) = (UPLOAD.to_owned(), Some(named));
        input
    }

    pub(crate) fn completion(shelf: &Shelf) -> Completion {
        shelf.prepare(asked(shelf)).unwrap()
    }

    #[test]
    fn upload_that_ended_meanwhile_does_not_become_an_object() {
        let large = vec![7; PART_BYTES_MIN as usize];
        for parts in [&[&b"only"[..]][..], &[&large, b"last"]] {
            let (_dir, shelf) = begun(parts);
            let late = completion(&shelf);
            shelf.end_upload_note("b", UPLOAD, Default::default()).unwrap();
            let refused = shelf.complete(late).unwrap_err();
            assert_eq!(refused.code().as_str(), "NoSuchUpload");
            assert!(shelf.object("b", "k").unwrap().is_none());
        }
    }

    #[test]
    fn part_that_was_put_anew_meanwhile_is_not_taken_for_the_one_that_was_named() {
        let large = vec![7; PART_BYTES_MIN as usize];
        for parts in [&[&b"only"[..]][..], &[&large, b"last"]] {
            let (_dir, shelf) = begun(parts);
            let late = completion(&shelf);
            put(&shelf, &layout::part("b", UPLOAD, 1), b"another");
            let refused = shelf.complete(late).unwrap_err();
            assert_eq!(refused.code().as_str(), "InvalidPart");
            assert!(shelf.object("b", "k").unwrap().is_none());
        }
        let (_dir, shelf) = begun(&[b"only"]);
        shelf.complete(completion(&shelf)).unwrap();
        assert_eq!(shelf.files.read(&layout::object("b", "k")).unwrap().unwrap(), b"only");
    }

    /// Where the answer was lost the client asked again, and was told that there was no such upload.
    #[test]
    fn completing_again_is_answered_as_the_first_time_until_the_object_is_another() {
        let large = vec![7; PART_BYTES_MIN as usize];
        for parts in [&[&b"only"[..]][..], &[&large, b"last"]] {
            let (_dir, shelf) = begun(parts);
            let named = asked(&shelf);
            let mut others = asked(&shelf);
            let of_others = others.multipart_upload.as_mut().unwrap().parts.as_mut().unwrap();
            of_others[0].e_tag = Some(strong("0".repeat(32)));
            let (late, first) = (completion(&shelf), completion(&shelf));
            let first = shelf.complete(first).unwrap();
            let object = shelf.object("b", "k").unwrap().unwrap();
            assert_eq!(first.e_tag, Some(object.tag()));
            // Both were sent before the first was done.
            assert_eq!(shelf.complete(late).unwrap().e_tag, first.e_tag);
            let condition = Some(s3s::dto::ETagCondition::Any);
            let again = CompleteMultipartUploadInput { if_none_match: condition, ..named.clone() };
            let again = shelf.complete(shelf.prepare(again).unwrap()).unwrap();
            assert_eq!((again.e_tag, again.location), (first.e_tag, first.location));
            assert_eq!(shelf.object("b", "k").unwrap().unwrap().stat.version, object.stat.version);

            let refused = |input| shelf.prepare(input).err().unwrap().code().as_str().to_owned();
            assert_eq!(refused(others), "NoSuchUpload");
            let mut of_another = named.clone();
            of_another.upload_id = UPLOAD.replace('0', "f");
            assert_eq!(refused(of_another), "NoSuchUpload");
            put(&shelf, &layout::object("b", "k"), b"another");
            assert_eq!(refused(named), "NoSuchUpload");
        }
    }

    /// A client that reset its connection and asked again, and again, had as many copies of the object written
    /// at once as turns are given.
    #[test]
    fn upload_is_written_anew_once_at_a_time() {
        use std::sync::Arc;
        use std::time::Duration;
        use tallybook::Resources;
        use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
        use tallybook::vfs::{MemoryFileSystem, SystemClock};
        use tallybook_files::{CreateOptions, FileStore, OpenOptions, resource_options};

        let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let clock = Arc::new(SystemClock::default());
        let resources = Resources::with(resource_options(), Arc::new(fs.clone()), clock).unwrap();
        let (create, options) = (CreateOptions::default(), OpenOptions::default());
        let files = FileStore::create_with("/files", create, options, resources).unwrap();
        let shelf = Shelf::over(files.clone(), "b");
        let large = vec![7; PART_BYTES_MIN as usize];
        begin(&shelf, &[&large, b"last"]);
        let dues = [(); 3].map(|()| completion(&shelf));
        let of_bucket = |_: &str, path: &std::path::Path| path.starts_with("/files/buckets");
        let slow = Fault::delay(Duration::from_millis(2)).class(OperationClass::Reads);
        fs.fail_at(0, slow.only(of_bucket).sticky());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tasks = dues.map(|due| {
            let shelf = shelf.clone();
            runtime.spawn(async move { shelf.complete_alone(due).await })
        });
        let mut most = 0;
        runtime.block_on(async {
            while !tasks.iter().all(|task| task.is_finished()) {
                most = most.max(files.totals().uploading_bytes);
                tokio::task::yield_now().await;
            }
        });
        let size = PART_BYTES_MIN + 4;
        assert!(most > 0 && most <= size, "{most}");
        let object = shelf.object("b", "k").unwrap().unwrap();
        assert_eq!(object.stat.size, size);
        for task in tasks {
            let done = runtime.block_on(task).unwrap().unwrap();
            assert_eq!(done.e_tag, Some(object.tag()));
        }
        files.close().unwrap();
    }

    /// A request that had waited for another found the upload gone only after it had read a part, and told that
    /// the part was changed.
    #[test]
    fn upload_whose_object_was_replaced_meanwhile_is_not_made_again() {
        let large = vec![7; PART_BYTES_MIN as usize];
        for parts in [&[&b"only"[..]][..], &[&large, b"last"]] {
            let (_dir, shelf) = begun(parts);
            let (late, first) = (completion(&shelf), completion(&shelf));
            shelf.complete(first).unwrap();
            put(&shelf, &layout::object("b", "k"), b"newer");
            let refused = shelf.complete(late).unwrap_err();
            assert_eq!(refused.code().as_str(), "NoSuchUpload");
            assert_eq!(shelf.files.read(&layout::object("b", "k")).unwrap().unwrap(), b"newer");
        }
    }

    /// A long completion was answered 200, and had the 412 in its body.
    #[test]
    fn condition_that_does_not_hold_is_told_before_anything_is_done() {
        let (_dir, shelf) = begun(&[b"only"]);
        put(&shelf, &layout::object("b", "k"), b"before");
        let condition = Some(s3s::dto::ETagCondition::Any);
        let conditional =
            CompleteMultipartUploadInput { if_none_match: condition, ..asked(&shelf) };
        let refused = shelf.prepare(conditional).err().unwrap();
        assert_eq!(refused.code().as_str(), "PreconditionFailed");
    }

    fn crc(value: &str) -> Option<SavedChecksum> {
        let (algorithm, value) = ("CRC64NVME".to_owned(), value.to_owned());
        Some(SavedChecksum { algorithm, value, is_composite: false })
    }

    /// One with a checksum of the whole, as the AWS CLI has uploads, was written anew, however large it was, and
    /// without a turn.
    #[test]
    fn single_part_whose_checksum_is_known_only_changes_its_name() {
        use tallybook_files::{CreateOptions, FileStore, OpenOptions};

        let dir = tempfile::tempdir().unwrap();
        // Nothing is freed by itself.
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let files = FileStore::create(dir.path(), CreateOptions::default(), options).unwrap();
        let shelf = Shelf::over(files, "b");
        let meta = ObjectMeta { checksum: crc(""), ..ObjectMeta::default() };
        begin_with(&shelf, meta, &[]);
        let known = ObjectMeta { checksum: crc("rosUhgp5mIg="), ..ObjectMeta::default() };
        let attributes = encode(&known);
        let options = WriteOptions { attributes, md5: true, ..WriteOptions::default() };
        let name = layout::part("b", UPLOAD, 1);
        let part = shelf.files.write(&name, b"123456789", options).unwrap();
        let wrong = Some("AAAAAAAAAAA=".to_owned());
        let wrong = CompleteMultipartUploadInput { checksum_crc64nvme: wrong, ..asked(&shelf) };
        assert_eq!(shelf.prepare(wrong).err().unwrap().code().as_str(), "BadDigest");
        let done = shelf.complete(completion(&shelf)).unwrap();
        assert_eq!(done.checksum_crc64nvme.as_deref(), Some("rosUhgp5mIg="));
        let object = shelf.object("b", "k").unwrap().unwrap();
        assert_eq!(object.meta.checksum, known.checksum);
        assert_eq!(object.stat.written_at_ms, part.written_at_ms);
        assert_eq!(shelf.files.totals().dead_bytes, 0);
    }

    #[test]
    fn large_part_that_has_to_be_read_for_its_checksum_takes_long() {
        let takes_long =
            |size, of_upload: Option<SavedChecksum>, of_part: Option<SavedChecksum>| {
                let parts = vec![Chosen { number: 1, version: 1, size, checksum: of_part }];
                let checksum = of_upload.map(|saved| checksum_of(saved, &parts).unwrap());
                let meta = Box::new(ObjectMeta { checksum, ..ObjectMeta::default() });
                let text = String::new;
                let asked = Asked {
                    bucket: text(),
                    key: text(),
                    upload: text(),
                    etag: text(),
                    checksum_expected: None,
                };
                Completion { asked, work: Work::Due { meta, condition: None, parts } }.takes_long()
            };
        let other = crc("AA==").map(|saved| SavedChecksum { algorithm: "CRC32".into(), ..saved });
        for (of_upload, of_part, is_read) in [
            (crc(""), None, true),
            (crc(""), other, true),
            (crc(""), crc("rosUhgp5mIg="), false),
            (None, None, false),
        ] {
            assert_eq!(takes_long(WAIT_BYTES_MAX + 1, of_upload.clone(), of_part.clone()), is_read);
            assert!(!takes_long(WAIT_BYTES_MAX, of_upload, of_part));
        }
    }

    /// A sync failed after the object showed: the answer was 200, and so was that to asking again, but a power
    /// loss took the object. Or the note could not be taken away: what came under the key later was replaced by an
    /// old request, after a restart.
    #[test]
    fn object_is_told_when_it_is_durable_and_its_upload_has_ended_with_it() {
        use std::sync::Arc;
        use tallybook::Resources;
        use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
        use tallybook::vfs::{CrashMode, FileSystem, MemoryFileSystem, SystemClock};
        use tallybook_files::{
            CreateOptions, Durability, FileStore, OpenOptions, resource_options,
        };

        let resources = |fs: Arc<dyn FileSystem>| {
            Resources::inline(resource_options(), fs, Arc::new(SystemClock::default()))
        };
        let options = || {
            let durability = Durability::Sync;
            OpenOptions { durability, background: false, ..OpenOptions::default() }
        };
        let is_there = |files: &FileStore| {
            let object = files.read(&layout::object("b", "k")).unwrap();
            let note = files.stat(&layout::upload("b", UPLOAD)).unwrap();
            assert!(object.is_some() != note.is_some());
            object.is_some_and(|bytes| bytes == b"only")
        };
        let survives = |memory: &MemoryFileSystem| {
            let left = Arc::new(memory.image().crash(CrashMode::LoseUnsynced, 0));
            is_there(&FileStore::open_with("/files", options(), resources(left)).unwrap())
        };
        // Only its name is changed, or it is written anew for a checksum.
        let cases = [None, crc("")].map(|checksum| {
            [OperationClass::Syncs, OperationClass::Writes].map(|class| (checksum.clone(), class))
        });
        for (checksum, class) in cases.into_iter().flatten() {
            let mut untold = 0;
            for ordinal in 1.. {
                let memory = MemoryFileSystem::new();
                let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
                let create = CreateOptions::default();
                let resources = resources(Arc::new(fs.clone()));
                let files = FileStore::create_with("/files", create, options(), resources).unwrap();
                let shelf = Shelf::over(files, "b");
                let meta = ObjectMeta { checksum: checksum.clone(), ..ObjectMeta::default() };
                begin_with(&shelf, meta, &[b"only"]);
                let (named, due) = (asked(&shelf), completion(&shelf));
                let fault = Fault::errno(28).class(class).sticky();
                fs.fail_at(fs.operation_count() + ordinal, fault);
                let answered = shelf.complete(due);
                if fs.fired() == 0 {
                    assert!(answered.is_ok() && survives(&memory));
                    break;
                }
                if let Err(error) = &answered {
                    assert_ne!(error.code().as_str(), "InvalidPart", "{ordinal}");
                }
                assert!(answered.is_err() || survives(&memory), "{ordinal}");
                untold += u32::from(is_there(&shelf.files) && answered.is_err());
                let again = shelf.prepare(named).and_then(|due| shelf.complete(due));
                assert!(again.is_err() || survives(&memory), "{ordinal}: again");
            }
            assert!(untold > 0 || class == OperationClass::Writes);
        }
    }

    /// A kill left the note, and an old request to complete the upload put its parts in the place of what came
    /// after it.
    #[test]
    fn upload_that_was_completed_before_a_kill_does_not_replace_what_came_after_it() {
        let large = vec![7; PART_BYTES_MIN as usize];
        let (_dir, shelf) = begun(&[&large, b"last"]);
        let named = asked(&shelf);
        let due = completion(&shelf);
        let Work::Due { meta, condition, parts } = due.work else { panic!("nothing was made") };
        // Up to where it is killed.
        shelf.make(&due.asked, *meta, condition, &parts).unwrap();
        put(&shelf, &layout::object("b", "k"), b"newer");
        let refused = shelf.prepare(named).err().unwrap();
        assert_eq!(refused.code().as_str(), "NoSuchUpload");
        assert_eq!(shelf.sweep(0, 7, &|| false).unwrap().parts, 2);
        assert_eq!(shelf.files.stat(&layout::part("b", UPLOAD, 1)).unwrap(), None);
        assert_eq!(shelf.files.read(&layout::object("b", "k")).unwrap().unwrap(), b"newer");
    }

    /// Completes an upload, and puts its note and a part back, as a catalogue has them that was made anew.
    fn complete_but_for_the_note(shelf: &Shelf) {
        let note = layout::upload("b", UPLOAD);
        let attributes = shelf.files.stat(&note).unwrap().unwrap().attributes;
        shelf.complete(completion(shelf)).unwrap();
        shelf.note(&note, WriteOptions { attributes, ..WriteOptions::default() }).unwrap();
        put(shelf, &layout::part("b", UPLOAD, 1), b"only");
    }

    /// What there is of an upload: whether its note is there, and its part.
    fn left(shelf: &Shelf) -> (bool, bool) {
        let is_there = |name: &str| shelf.files.stat(name).unwrap().is_some();
        (is_there(&layout::upload("b", UPLOAD)), is_there(&layout::part("b", UPLOAD, 1)))
    }

    /// A note was left beside its object: once another object had come under the key, an old request to complete the
    /// upload put its parts in the place of that.
    #[test]
    fn upload_whose_note_was_left_does_not_replace_what_comes_after_a_start() {
        let (_dir, shelf) = begun(&[b"only"]);
        let named = asked(&shelf);
        complete_but_for_the_note(&shelf);
        let open = shelf.files.stat(&layout::upload("b", UPLOAD)).unwrap().unwrap().attributes;
        let other = layout::upload("b", &UPLOAD.replace('0', "f"));
        shelf.note(&other, WriteOptions { attributes: open, ..WriteOptions::default() }).unwrap();
        let shelf = Shelf::new(shelf.files.clone(), shelf.memory.clone(), 2);
        shelf.end_made().unwrap();
        assert_eq!(left(&shelf), (false, true));
        assert!(shelf.files.stat(&other).unwrap().is_some());
        shelf.sweep(0, 7, &|| false).unwrap();
        assert_eq!(left(&shelf), (false, false));
        put(&shelf, &layout::object("b", "k"), b"newer");
        let late = shelf.prepare(named).and_then(|due| shelf.complete(due));
        assert_eq!(late.unwrap_err().code().as_str(), "NoSuchUpload");
        assert_eq!(shelf.files.read(&layout::object("b", "k")).unwrap().unwrap(), b"newer");
    }

    /// What was left of it stayed for as long as an upload that nobody completes.
    #[test]
    fn sweep_takes_an_upload_that_its_object_was_made_of() {
        let (_dir, shelf) = begun(&[b"only"]);
        let now_ms = shelf.files.stat(&layout::upload("b", UPLOAD)).unwrap().unwrap().written_at_ms;
        assert_eq!(shelf.sweep(now_ms, 7, &|| false).unwrap(), Swept::default());
        complete_but_for_the_note(&shelf);
        assert_eq!(shelf.sweep(now_ms, 7, &|| false).unwrap().uploads, 1);
        assert_eq!(left(&shelf), (false, false));
        assert!(shelf.object("b", "k").unwrap().is_some());
    }

    /// What could not be taken away, asking again takes.
    #[test]
    fn completing_again_takes_the_parts_that_were_left() {
        let (_dir, shelf) = begun(&[b"only"]);
        let named = asked(&shelf);
        shelf.complete(completion(&shelf)).unwrap();
        put(&shelf, &layout::part("b", UPLOAD, 2), b"left");
        shelf.complete(shelf.prepare(named).unwrap()).unwrap();
        assert_eq!(shelf.files.stat(&layout::part("b", UPLOAD, 2)).unwrap(), None);
    }

    /// The sweep went by the age of an upload alone, and took the parts that were being joined.
    #[test]
    fn upload_that_is_being_completed_is_not_swept() {
        let (_dir, shelf) = begun(&[b"only"]);
        let note = shelf.files.stat(&layout::upload("b", UPLOAD)).unwrap().unwrap();
        let late_ms = note.written_at_ms + 8 * 24 * 3600 * 1000;
        let due = completion(&shelf);
        let alone = shelf.completing.try_alone(UPLOAD).unwrap();
        assert_eq!(shelf.sweep(late_ms, 7, &|| false).unwrap(), Swept::default());
        shelf.complete(due).unwrap();
        drop(alone);
        begin(&shelf, &[b"only"]);
        assert_eq!(shelf.sweep(late_ms, 7, &|| false).unwrap().uploads, 1);
    }

    /// Each part was taken away by a change that was synced, of which 10,000 took a disk a minute, and so was each
    /// object that expired.
    #[test]
    fn parts_and_what_is_swept_are_taken_away_without_a_sync_for_each() {
        use std::time::Duration;
        use tallybook::vfs::faulty::{Fault, OperationClass};

        let (fs, shelf) = Shelf::over_faulty();
        let rule = Rule { is_enabled: true, expire_days: Some(1), ..Rule::default() };
        shelf.set_bucket("b", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();
        let take_away: [fn(&Shelf); 2] = [
            |shelf| shelf.end_upload("b", UPLOAD).unwrap(),
            |shelf| {
                let swept = shelf.sweep(u64::MAX, 7, &|| false).unwrap();
                assert_eq!(swept, Swept { objects: 100, uploads: 1, parts: 0 });
            },
        ];
        // Who ends an upload is told so.
        for (take_away, least) in take_away.into_iter().zip([1, 0]) {
            begin(&shelf, &[&b"part"[..]; 100]);
            for key in 0..100 {
                put(&shelf, &layout::object("b", &key.to_string()), b"object");
            }
            fs.fail_at(0, Fault::delay(Duration::ZERO).class(OperationClass::Syncs).sticky());
            let before = fs.fired();
            take_away(&shelf);
            let syncs = fs.fired() - before;
            fs.clear();
            assert!((least..10).contains(&syncs), "{syncs}");
            assert_eq!(shelf.files.stat(&layout::part("b", UPLOAD, 100)).unwrap(), None);
        }
    }
}
