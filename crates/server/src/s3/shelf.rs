//! The buckets and objects as files: what every operation does with the file store, blocking.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::http::Extensions;
use parking_lot::{RwLock, RwLockReadGuard};
use s3s::{S3Result, s3_error};
use tallybook_files::{
    Condition, CopyOptions, Durability, Error, FileStore, ListEntry, ListOptions, Stat,
    UnlinkOptions,
};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::alone::Completing;
use super::failure::{failed, panicked};
use super::layout;
use super::meta::{BucketMeta, Object, ObjectMeta, decode, encode};
use crate::admission::Quota;

/// Entries of the file store's pages where all are wanted.
const PAGE_ENTRIES: usize = 1000;

/// What is unlinked of which nobody is told waits for no sync.
pub(super) const UNTOLD: UnlinkOptions =
    UnlinkOptions { condition: None, durability: Some(Durability::Os) };

/// What all operations share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shelf {
    pub(crate) files: FileStore,
    /// Held for reading by who puts something into a bucket or an upload, or goes by its rules, for writing by
    /// who takes the bucket or the upload away, or changes its rules: so nothing is put into what is gone. Held
    /// for no sync: one that waits to write keeps all from reading.
    pub(crate) gate: Arc<RwLock<()>>,
    /// Memory for bodies being received, and pages being sent: all there is, or what a client may have.
    pub(crate) memory: Arc<Quota>,
    /// Uploads that are being completed.
    pub(super) completing: Arc<Completing>,
    /// What moves many bytes inside the store takes a turn, or there would be no thread for the rest.
    turns: Arc<Semaphore>,
}

impl Shelf {
    /// Requires: `pool_threads` is what each pool has on which its work is done.
    pub(crate) fn new(files: FileStore, memory: Arc<Quota>, pool_threads: usize) -> Shelf {
        let turns = Arc::new(Semaphore::new((pool_threads / 2).max(1)));
        let (gate, completing) = (Arc::default(), Arc::default());
        Shelf { files, gate, memory, completing, turns }
    }

    /// The same, for a request that may have of the memory what its client may.
    pub(crate) fn for_client(&self, extensions: &Extensions) -> Shelf {
        let memory = extensions.get().unwrap_or(&self.memory).clone();
        Shelf { memory, ..self.clone() }
    }

    /// Does blocking work on the pool.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shelf) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        let shelf = self.clone();
        spawn_blocking(move || work(&shelf)).await.map_err(panicked)?
    }

    /// Does work that takes long on the pool, as soon as less than half of a pool's threads are at such work. It
    /// goes on to its end though nobody waits for it any longer.
    pub(crate) async fn run_long<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shelf) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|_| s3_error!(ServiceUnavailable, "The server is stopping."))?;
        self.run(move |shelf| {
            let _turn = turn;
            work(shelf)
        })
        .await
    }

    pub(crate) fn bucket(&self, bucket: &str) -> S3Result<Option<(Stat, BucketMeta)>> {
        let Some(stat) = self.files.stat(&layout::bucket(bucket)).map_err(failed)? else {
            return Ok(None);
        };
        let meta = decode(&stat.attributes)?;
        Ok(Some((stat, meta)))
    }

    /// `NoSuchBucket` unless there is this bucket.
    pub(crate) fn need_bucket(&self, bucket: &str) -> S3Result<(Stat, BucketMeta)> {
        let absent = || s3_error!(NoSuchBucket, "The specified bucket does not exist");
        self.bucket(bucket)?.ok_or_else(absent)
    }

    /// Has this bucket stay, and things be put into it, until the gate is let go.
    pub(crate) fn hold_bucket(&self, bucket: &str) -> S3Result<RwLockReadGuard<'_, ()>> {
        let gate = self.gate.read();
        self.need_bucket(bucket)?;
        Ok(gate)
    }

    /// Has this upload stay, and parts be put into it, until the gate is let go.
    pub(crate) fn hold_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
    ) -> S3Result<RwLockReadGuard<'_, ()>> {
        let gate = self.gate.read();
        self.need_upload(bucket, key, upload)?;
        Ok(gate)
    }

    /// Changes the settings of a bucket: those that there are when none other has changed them meanwhile, and
    /// once nothing goes by them any longer.
    pub(crate) fn set_bucket(
        &self,
        bucket: &str,
        change: impl Fn(&mut BucketMeta),
    ) -> S3Result<()> {
        let name = layout::bucket(bucket);
        loop {
            let (stat, mut meta) = self.need_bucket(bucket)?;
            change(&mut meta);
            let options = CopyOptions {
                source_condition: Some(Condition::Version(stat.version)),
                attributes: Some(encode(&meta)),
                ..CopyOptions::default()
            };
            let hold = || Ok::<_, Infallible>(self.gate.write());
            match self.files.copy_holding(&name, &name, options, hold) {
                Ok(Ok(_)) => return Ok(()),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    pub(crate) fn object(&self, bucket: &str, key: &str) -> S3Result<Option<Object>> {
        let stat = self.files.stat(&layout::object(bucket, key)).map_err(failed)?;
        stat.map(Object::of).transpose()
    }

    /// `NoSuchBucket` or `NoSuchKey` unless there is this object.
    pub(crate) fn need_object(&self, bucket: &str, key: &str) -> S3Result<Object> {
        if let Some(object) = self.object(bucket, key)? {
            return Ok(object);
        }
        self.need_bucket(bucket)?;
        Err(s3_error!(NoSuchKey, "The specified key does not exist."))
    }

    /// `NoSuchUpload` unless there is this upload of this key.
    pub(crate) fn need_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
    ) -> S3Result<(Stat, ObjectMeta)> {
        let absent = || s3_error!(NoSuchUpload, "The specified upload does not exist.");
        let is_id = upload.len() == 32 && upload.bytes().all(|byte| byte.is_ascii_hexdigit());
        let name = layout::upload(bucket, upload);
        let stat = if is_id { self.files.stat(&name).map_err(failed)? } else { None };
        let stat = stat.ok_or_else(absent)?;
        let meta: ObjectMeta = decode(&stat.attributes)?;
        if meta.key == key { Ok((stat, meta)) } else { Err(absent()) }
    }

    /// Unlinks a part whose upload is gone. Nobody is told of it, so it waits for no sync: there may be 10,000,
    /// and those that a power loss brings back the sweeper takes.
    pub(crate) fn unlink_part(&self, name: &str) -> S3Result<bool> {
        self.files.unlink(name, UNTOLD).map_err(failed)
    }

    /// Every entry with this prefix, page by page.
    pub(crate) fn each(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
        mut visit: impl FnMut(ListEntry) -> S3Result<()>,
    ) -> S3Result<()> {
        let _ =
            self.each_until(prefix, delimiter, |entry| visit(entry).map(ControlFlow::Continue))?;
        Ok(())
    }

    /// Every entry with this prefix, page by page, until a visit breaks off.
    pub(crate) fn each_until(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
        mut visit: impl FnMut(ListEntry) -> S3Result<ControlFlow<()>>,
    ) -> S3Result<ControlFlow<()>> {
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            delimiter: delimiter.map(str::to_owned),
            after: None,
            limit: PAGE_ENTRIES,
        };
        loop {
            let page = self.files.list(options.clone()).map_err(failed)?;
            for entry in page.entries {
                if visit(entry)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            match page.next_after {
                Some(after) => options.after = Some(after),
                None => return Ok(ControlFlow::Continue(())),
            }
        }
    }

    /// Unlinks the parts of an upload that is gone.
    pub(crate) fn unlink_parts(&self, bucket: &str, upload: &str) -> S3Result<()> {
        let parts = layout::parts(bucket, upload);
        self.each(&parts, None, |entry| self.unlink_part(entry.name()).map(|_| ()))
    }
}

#[cfg(test)]
impl Shelf {
    /// One with a bucket, in a directory of its own.
    pub(super) fn with_bucket(bucket: &str) -> (tempfile::TempDir, Shelf) {
        use tallybook_files::{CreateOptions, OpenOptions};

        let dir = tempfile::tempdir().unwrap();
        let files = FileStore::create(dir.path(), CreateOptions::default(), OpenOptions::default())
            .unwrap();
        (dir, Shelf::over(files, bucket))
    }

    /// One with the bucket `b` on a disk that can fail, which syncs what it is told to acknowledge.
    pub(super) fn over_faulty() -> (tallybook::vfs::faulty::FaultyFileSystem, Shelf) {
        use tallybook::Resources;
        use tallybook::vfs::faulty::FaultyFileSystem;
        use tallybook::vfs::{ManualClock, MemoryFileSystem};
        use tallybook_files::{CreateOptions, OpenOptions, resource_options};

        let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let resources = Resources::inline(resource_options(), Arc::new(fs.clone()), clock);
        let durability = Durability::Sync;
        let options = OpenOptions { durability, background: false, ..OpenOptions::default() };
        let create = CreateOptions::default();
        let files = FileStore::create_with("/files", create, options, resources).unwrap();
        (fs, Shelf::over(files, "b"))
    }

    /// Writes a file that is nothing but its attributes.
    pub(super) fn note(
        &self,
        name: &str,
        options: tallybook_files::WriteOptions,
    ) -> S3Result<Stat> {
        let options = tallybook_files::WriteOptions { md5: true, ..options };
        self.files.write(name, b"", options).map_err(failed)
    }

    /// One over this file store, with a bucket.
    pub(super) fn over(files: FileStore, bucket: &str) -> Shelf {
        let shelf = Shelf::new(files, Quota::new(1 << 20), 2);
        let input = s3s::dto::CreateBucketInput { bucket: bucket.into(), ..Default::default() };
        shelf.create_bucket(&input).unwrap();
        shelf
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{OnceLock, mpsc};
    use std::time::Duration;

    use hyper::{HeaderMap, Method, Uri};
    use s3s::S3Request;
    use s3s::dto::*;
    use tallybook::vfs::faulty::{Fault, OperationClass};

    use super::super::completion::tests::{UPLOAD, begin, completion};
    use super::super::meta::Rule;
    use super::*;

    fn request<T>(input: T) -> S3Request<T> {
        S3Request {
            input,
            method: Method::PUT,
            uri: Uri::default(),
            headers: HeaderMap::new(),
            extensions: Default::default(),
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        }
    }

    /// A put held the gate while its chunks were synced, and a completion waited to write: from then on nothing
    /// was committed anywhere until a disk had done.
    #[test]
    fn gate_is_held_for_no_sync() {
        static GATE: OnceLock<Arc<RwLock<()>>> = OnceLock::new();
        let (fs, shelf) = Shelf::over_faulty();
        GATE.set(shelf.gate.clone()).unwrap();
        let is_held = |_: &str, _: &Path| GATE.get().is_some_and(|gate| gate.is_locked());
        let seen = Fault::delay(Duration::ZERO).class(OperationClass::Syncs);
        fs.fail_at(0, seen.only(is_held).sticky());

        let of = || ("b".to_owned(), "k".to_owned());
        let large = vec![7; 5 << 20];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (bucket, key) = of();
            let put = PutObjectInput { bucket, key, ..PutObjectInput::default() };
            shelf.put_object(request(put)).await.unwrap();
            let source =
                || CopySource::Bucket { bucket: "b".into(), key: "k".into(), version_id: None };
            let (bucket, key) = ("b".to_owned(), "copy".to_owned());
            let copy = CopyObjectInput::builder().bucket(bucket).key(key).copy_source(source());
            shelf.copy_object(request(copy.build().unwrap())).unwrap();
            let rule = Rule { expire_days: Some(1), ..Rule::default() };
            shelf.set_bucket("b", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();

            let (bucket, key) = of();
            let begun = CreateMultipartUploadInput { bucket, key, ..Default::default() };
            let begun = shelf.create_upload(request(begun)).unwrap();
            let upload = begun.upload_id.unwrap();
            let part = UploadPartInput::builder().bucket("b".into()).key("k".into());
            let part = part.upload_id(upload.clone()).part_number(1).build().unwrap();
            shelf.upload_part(request(part)).await.unwrap();
            let part = UploadPartCopyInput::builder().bucket("b".into()).key("k".into());
            let part = part.upload_id(upload.clone()).part_number(2).copy_source(source());
            shelf.upload_part_copy(part.build().unwrap()).await.unwrap();
            shelf.end_upload("b", &upload).unwrap();

            for parts in [&[&b"only"[..]][..], &[&large, b"last"]] {
                begin(&shelf, parts);
                shelf.complete_alone(completion(&shelf)).await.unwrap();
            }
            begin(&shelf, &[b"only"]);
        });
        for key in ["k", "copy"] {
            let unlinked = shelf.files.unlink(&layout::object("b", key), UnlinkOptions::default());
            assert!(unlinked.unwrap());
        }
        shelf.delete_bucket("b").unwrap();
        assert!(shelf.files.stat(&layout::upload("b", UPLOAD)).unwrap().is_none());
        assert_eq!(fs.fired(), 0, "{:?}", fs.last_fired());
        // It would have been seen.
        let _gate = shelf.gate.read();
        shelf.files.write("file", b"", tallybook_files::WriteOptions::default()).unwrap();
        assert!(fs.fired() > 0);
    }

    /// Joins of large uploads had all threads of the pool, and nothing of S3 was answered until they were done.
    #[test]
    fn work_that_takes_long_leaves_half_of_the_pool_to_the_rest() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut long = Vec::new();
            let mut gates = Vec::new();
            for number in 0..3 {
                let (gate, opened) = mpsc::channel::<()>();
                let shelf = shelf.clone();
                long.push(tokio::spawn(async move {
                    let work = move |_: &Shelf| {
                        let _ = opened.recv();
                        Ok(number)
                    };
                    shelf.run_long(work).await
                }));
                gates.push(gate);
            }
            // They run up to where they wait.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let short = shelf.run(|shelf| shelf.need_bucket("b").map(|_| ()));
            let answered = tokio::time::timeout(Duration::from_secs(20), short).await;
            assert!(matches!(answered, Ok(Ok(()))), "{answered:?}");
            drop(gates);
            for (number, done) in long.into_iter().enumerate() {
                assert_eq!(done.await.unwrap().unwrap(), number);
            }
        });
    }
}
