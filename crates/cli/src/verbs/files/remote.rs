//! `files --url`: the same commands on the file store of a running server, by `/files`.
//!
//! What a server answers is held against what was asked: a file that it took must have the hash of the
//! bytes that were sent.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use data_encoding::{BASE64, HEXLOWER};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tallybook_files::placement::check_name;
use tallybook_files::{
    BucketTotals, Destination, Durability, Error, FileDamage, ListEntry, ListOptions, Page,
    ReferenceId, Stat, TableFile, Totals, VerifyReport,
};
use ureq::http::{Request, Response};
use ureq::{AsSendBody, Body, SendBody};

use super::download::Download;
use super::report::Setup;
use super::{
    import, import_options, not_found, print_imported, print_list, print_stat, print_totals,
    print_verified, transfer,
};
use crate::exit::{Exit, Refused, UsageError};
use crate::file_arguments::{
    CopyArguments, FilesCommand, ReadFileArguments, StatArguments, UnlinkArguments,
    VerifyFilesArguments, WriteFileArguments,
};
use crate::http::{Peer, refusal};
use crate::partial::deliver;
use crate::progress::Progress;

/// How long a server may be silent while it is sent to or read from.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long it may take to sync a file whose last byte it has.
const COMMIT_MAX: Duration = Duration::from_secs(600);
/// Longest answer that isn't a file.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of attributes that fit in a header.
const ATTRIBUTES_BYTES_MAX: usize = 4 << 10;
/// What is said where an answer ends early.
const BROKEN_OFF: &str =
    "the verification ended before its report, and the server's log may say why";

/// Runs one command on the file store of the server at `url`.
pub(super) fn files(url: &str, is_json: bool, command: FilesCommand) -> anyhow::Result<Exit> {
    let server = FileServer::at(url)?;
    match command {
        FilesCommand::Write(command) => server.write(is_json, command),
        FilesCommand::Read(command) => server.read(&command),
        FilesCommand::Unlink(command) => server.unlink(&command),
        FilesCommand::Rename(command) => server.give_name(is_json, &command, true),
        FilesCommand::Copy(command) => server.give_name(is_json, &command, false),
        FilesCommand::List(command) => {
            print_list(is_json, &command, |options| server.page(&options))
        }
        FilesCommand::Stat(StatArguments { name }) => {
            let stat = server.stat(&name)?.ok_or_else(|| not_found(&name))?;
            print_stat(is_json, &stat)?;
            Ok(Exit::Success)
        }
        FilesCommand::Totals => {
            let (setup, totals) = server.totals()?;
            print_totals(is_json, setup, &totals)
        }
        FilesCommand::Verify(command) => server.verify(is_json, &command),
        FilesCommand::ImportKfs(command) => {
            let options = import_options(&command)?;
            print_imported(is_json, &import(&command, &options, &server)?)
        }
        FilesCommand::Create(_) => {
            let what = "the store of a server is there already: `tallybook serve --files DIR` makes \
                        one; for another, run the command on the directory with --data";
            Err(UsageError(what.to_owned()).into())
        }
        FilesCommand::Repair(_) => {
            let what = "a store that must be repaired can't be served: stop the server, and run the \
                        command on the directory with --data";
            Err(UsageError(what.to_owned()).into())
        }
    }
}

/// The data listener of a server that has a file store.
pub(super) struct FileServer {
    peer: Peer,
}

impl FileServer {
    fn at(url: &str) -> Result<FileServer, UsageError> {
        let hint = "`tallybook serve` says at its start where its data listener is";
        let peer = Peer::at(url, "http://127.0.0.1:8080", hint, |config| {
            config
                .timeout_per_read(Some(SILENCE_MAX))
                .timeout_per_write(Some(SILENCE_MAX))
                .allow_non_standard_methods(false)
        })?;
        Ok(FileServer { peer })
    }

    /// Asks once.
    pub(super) fn ask(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, String)],
        body: impl AsSendBody,
    ) -> Result<Response<Body>, ureq::Error> {
        let mut request =
            Request::builder().method(method).uri(format!("{}{target}", self.peer.base));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.peer.agent.run(request.body(body)?)
    }

    /// Asks once, and demands an answer with this status.
    fn demand(
        &self,
        status: u16,
        method: &str,
        target: &str,
        headers: &[(&str, String)],
        body: impl AsSendBody,
        name: &str,
    ) -> anyhow::Result<Response<Body>> {
        let answer = self.ask(method, target, headers, body).map_err(|e| self.explain(e))?;
        if answer.status().as_u16() == status { Ok(answer) } else { Err(refused(answer, name)) }
    }

    pub(super) fn explain(&self, error: ureq::Error) -> anyhow::Error {
        self.peer.explain(error)
    }

    fn json<T: DeserializeOwned>(&self, target: &str) -> anyhow::Result<T> {
        let mut answer = self.demand(200, "GET", target, &[], (), "")?;
        let answer = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .with_context(|| format!("the answer of {} cannot be read", self.peer.base))?;
        serde_json::from_slice(&answer)
            .with_context(|| format!("{} does not answer as a file store does", self.peer.base))
    }

    fn page(&self, options: &ListOptions) -> anyhow::Result<Page> {
        let mut query =
            format!("/files?limit={}&prefix={}", options.limit, encode(&options.prefix));
        for (name, value) in [("delimiter", &options.delimiter), ("after", &options.after)] {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", encode(value)));
            }
        }
        self.json::<PageJson>(&query)?.page()
    }

    /// What is known of a file: by a listing, which has attributes of any size.
    pub(super) fn stat(&self, name: &str) -> anyhow::Result<Option<Stat>> {
        check_name(name)?;
        let options = ListOptions { prefix: name.to_owned(), limit: 1, ..ListOptions::default() };
        let first = self.page(&options)?.entries.into_iter().next();
        Ok(match first {
            Some(ListEntry::File(stat)) if stat.name == name => Some(stat),
            _ => None,
        })
    }

    fn totals(&self) -> anyhow::Result<(Setup, Totals)> {
        self.json::<TotalsJson>("/files?totals")?.totals()
    }

    fn write(&self, is_json: bool, command: WriteFileArguments) -> anyhow::Result<Exit> {
        check_name(&command.name)?;
        let durability = durability_name(command.durability.0)?;
        if command.attributes.len() > ATTRIBUTES_BYTES_MAX {
            let what = format!("a server takes at most {ATTRIBUTES_BYTES_MAX} bytes of attributes");
            return Err(UsageError(what).into());
        }
        let (source, size) = transfer::source(command.path)?;
        let mut headers = vec![("x-tallybook-durability", durability.to_owned())];
        match (command.if_absent, command.if_version) {
            (true, _) => headers.push(("if-none-match", "*".to_owned())),
            (false, Some(version)) => headers.push(("if-match", format!("\"{version}\""))),
            (false, None) => {}
        }
        if !command.attributes.is_empty() {
            let attributes = BASE64.encode(command.attributes.as_bytes());
            headers.push(("x-tallybook-attributes", attributes));
        }
        if command.md5 {
            headers.push(("x-tallybook-md5", "compute".to_owned()));
        }
        let mut upload = Upload::new(source, size, Some(Progress::new("write")));
        let mut stat = self.put(&command.name, &headers, &mut upload)?;
        drop(upload);
        stat.attributes = command.attributes.into();
        if is_json {
            print_stat(true, &stat)?;
        }
        Ok(Exit::Success)
    }

    /// Sends a file, and demands that the server has what was sent.
    fn put(
        &self,
        name: &str,
        headers: &[(&str, String)],
        upload: &mut Upload<'_>,
    ) -> anyhow::Result<Stat> {
        let target = format!("{}/files/{}", self.peer.base, encode(name));
        // So that a refusal comes before the bytes go.
        let mut request =
            Request::builder().method("PUT").uri(target).header("expect", "100-continue");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(size) = upload.size {
            request = request.header("content-length", size);
        }
        let request = request.body(SendBody::from_reader(upload))?;
        let request = self.peer.agent.configure_request(request);
        let answer = self.peer.agent.run(request.timeout_per_read(Some(COMMIT_MAX)).build());
        if let Some(error) = upload.failure.take() {
            return Err(error).context("cannot read what is to be written; nothing was written");
        }
        let answer = answer.map_err(|error| {
            self.explain(error).context("whether the file was written is not known")
        })?;
        if answer.status() != 201 {
            return Err(refused(answer, name));
        }
        let mut stat = stat_of_headers(&answer, name)
            .with_context(|| format!("{} does not answer as a file store does", self.peer.base))?;
        stat.size = upload.sent;
        if stat.blake3 != *upload.hasher.finalize().as_bytes() {
            let message = "the server has other bytes than were sent to it".to_owned();
            return Err(Refused { exit: Exit::Corruption, message }.into());
        }
        Ok(stat)
    }

    /// Has the server verify its store, and follows how far it has come.
    fn verify(&self, is_json: bool, command: &VerifyFilesArguments) -> anyhow::Result<Exit> {
        let target = match &command.bytes {
            Some(bytes) => format!("/files?verify&bytes={}", bytes.0),
            None => "/files?verify".to_owned(),
        };
        let answer = self.demand(200, "POST", &target, &[], b"".as_slice(), "")?;
        let progress = Progress::new("verify");
        for line in BufReader::new(answer.into_body().into_reader().take(ANSWER_BYTES_MAX)).lines()
        {
            let line = line.context(BROKEN_OFF)?;
            let line = serde_json::from_str(&line).with_context(|| {
                format!("{} does not answer as a file store does", self.peer.base)
            })?;
            match line {
                VerifyLine::Progress { done, total } => progress.update(done, total),
                VerifyLine::Report { report } => {
                    drop(progress);
                    return print_verified(is_json, &report.report());
                }
                VerifyLine::Refusal { error, message } => {
                    let is_damage = error == "corruption";
                    let exit = if is_damage { Exit::Corruption } else { Exit::Failure };
                    let message = format!("the server gave up: {message}");
                    return Err(Refused { exit, message }.into());
                }
            }
        }
        bail!(BROKEN_OFF)
    }

    fn read(&self, command: &ReadFileArguments) -> anyhow::Result<Exit> {
        if command.salvage {
            let what = "a server doesn't give parts of damaged files: stop it, and run the command \
                        on the directory with --data";
            return Err(UsageError(what.to_owned()).into());
        }
        let stat = self.stat(&command.name)?.ok_or_else(|| not_found(&command.name))?;
        let range = match &command.range {
            Some(text) => {
                let range = transfer::parse_range(text, stat.size)?;
                range.start.min(stat.size)..range.end.min(stat.size)
            }
            None => 0..stat.size,
        };
        let download = Download::new(self, stat, range);
        deliver(command.path.as_deref(), |out| download.copy_to(out))?;
        Ok(Exit::Success)
    }

    fn unlink(&self, command: &UnlinkArguments) -> anyhow::Result<Exit> {
        check_name(&command.name)?;
        let mut headers = vec![("x-tallybook-durability", "sync".to_owned())];
        if let Some(version) = command.if_version {
            headers.push(("if-match", format!("\"{version}\"")));
        }
        let target = format!("/files/{}", encode(&command.name));
        self.demand(204, "DELETE", &target, &headers, (), &command.name)?;
        Ok(Exit::Success)
    }

    fn give_name(
        &self,
        is_json: bool,
        command: &CopyArguments,
        moves: bool,
    ) -> anyhow::Result<Exit> {
        check_name(&command.from)?;
        check_name(&command.to)?;
        let from = if moves { "x-tallybook-rename-from" } else { "x-tallybook-copy-from" };
        let mut headers =
            vec![(from, encode(&command.from)), ("x-tallybook-durability", "sync".to_owned())];
        if command.if_absent {
            headers.push(("if-none-match", "*".to_owned()));
        }
        let target = format!("/files/{}", encode(&command.to));
        self.demand(201, "POST", &target, &headers, b"".as_slice(), &command.from)?;
        if is_json {
            let stat = self.stat(&command.to)?.ok_or_else(|| not_found(&command.to))?;
            print_stat(true, &stat)?;
        }
        Ok(Exit::Success)
    }
}

impl Destination for FileServer {
    type Error = anyhow::Error;

    fn has(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.stat(name)?.is_some())
    }

    fn write(&self, name: &str, file: &mut TableFile<'_>) -> anyhow::Result<bool> {
        let headers =
            [("x-tallybook-durability", "sync".to_owned()), ("if-none-match", "*".to_owned())];
        let size = file.size();
        match self.put(name, &headers, &mut Upload::new(Box::new(file), Some(size), None)) {
            Err(error) if matches!(error.downcast_ref(), Some(Error::Conflict { .. })) => Ok(false),
            put => put.map(|_| true),
        }
    }
}

/// What a server's refusal of something about `name` means.
pub(super) fn refused(mut answer: Response<Body>, name: &str) -> anyhow::Error {
    let status = answer.status().as_u16();
    let current = answer.headers().get("etag").and_then(|tag| tag.to_str().ok()).and_then(version);
    let said = answer.body_mut().with_config().limit(1 << 16).read_to_vec().ok();
    let Some((kind, message)) = said.as_deref().and_then(refusal) else {
        let message = format!("the server answers {status} without saying why");
        return Refused { exit: Exit::Failure, message }.into();
    };
    let exit = match (status, &*kind) {
        (404, "not_found") => return not_found(name),
        (412, _) => return Error::Conflict { current }.into(),
        (507, _) => Exit::Full,
        (_, "corruption") => Exit::Corruption,
        (400, _) => Exit::Usage,
        _ => Exit::Failure,
    };
    Refused { exit, message: format!("the server answers {status}: {message}") }.into()
}

/// The bytes of a file on their way, counted and hashed.
struct Upload<'a> {
    source: Box<dyn Read + 'a>,
    size: Option<u64>,
    sent: u64,
    hasher: blake3::Hasher,
    progress: Option<Progress>,
    /// Why the bytes ended before their end.
    failure: Option<io::Error>,
}

impl<'a> Upload<'a> {
    fn new(
        source: Box<dyn Read + 'a>,
        size: Option<u64>,
        progress: Option<Progress>,
    ) -> Upload<'a> {
        Upload { source, size, sent: 0, hasher: blake3::Hasher::new(), progress, failure: None }
    }

    fn fetch(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.sent += len as u64;
        let changed = self.size.is_some_and(|size| match len {
            0 => self.sent < size && !buffer.is_empty(),
            _ => self.sent > size,
        });
        if changed {
            return Err(io::Error::other("it changed its size meanwhile"));
        }
        self.hasher.update(&buffer[..len]);
        if let Some(progress) = &self.progress {
            progress.update(self.sent, self.size.unwrap_or(self.sent));
        }
        Ok(len)
    }
}

impl Read for Upload<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fetch(buffer).inspect_err(|error| {
            // The connection is given up, so the server has less than it was told of.
            self.failure = Some(io::Error::new(error.kind(), error.to_string()));
        })
    }
}

fn durability_name(durability: Durability) -> Result<&'static str, UsageError> {
    match durability {
        Durability::Os => Ok("os"),
        Durability::Interval(100) => Ok("interval"),
        Durability::Interval(_) => {
            Err(UsageError("a server has an interval of its own; ask for `interval`".to_owned()))
        }
        Durability::Sync => Ok("sync"),
    }
}

/// A name in a path or a query.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The version that an entity tag is.
fn version(tag: &str) -> Option<u64> {
    tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

/// What the answer to a PUT says; size and attributes are known to who sent them.
fn stat_of_headers(answer: &Response<Body>, name: &str) -> Option<Stat> {
    let text = |name: &str| answer.headers().get(name)?.to_str().ok();
    let number = |name: &str| text(name)?.parse().ok();
    Some(Stat {
        name: name.to_owned(),
        version: number("x-tallybook-version")?,
        size: 0,
        blake3: digits(text("x-tallybook-blake3")?)?,
        md5: match text("x-tallybook-md5") {
            Some(md5) => Some(digits(md5)?),
            None => None,
        },
        written_at_ms: number("x-tallybook-written-at")?,
        changed_at_ms: number("x-tallybook-changed-at")?,
        attributes: bytes::Bytes::new(),
    })
}

fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// A line of the answer to a verification.
#[derive(Deserialize)]
#[serde(untagged)]
enum VerifyLine {
    Progress { done: u64, total: u64 },
    Report { report: VerifiedJson },
    Refusal { error: String, message: String },
}

/// What a verification found, as the server writes it.
#[derive(Deserialize)]
struct VerifiedJson {
    files: u64,
    bytes: u64,
    damage: Vec<DamageJson>,
    lost_buckets: Vec<u8>,
    #[serde(default)]
    unread_buckets: Vec<u8>,
    #[serde(default)]
    unknown_buckets: Vec<u8>,
    entries_restored: u64,
    #[serde(default)]
    unwritten: u64,
    orphans: u64,
    is_complete: bool,
}

#[derive(Deserialize)]
struct DamageJson {
    name: String,
    size: u64,
    offset: u64,
    what: String,
    #[serde(default)]
    is_unread: bool,
}

impl VerifiedJson {
    fn report(self) -> VerifyReport {
        let damage = self.damage.into_iter().map(|damage| FileDamage {
            name: damage.name,
            size: damage.size,
            offset: damage.offset,
            what: damage.what,
            is_unread: damage.is_unread,
        });
        VerifyReport {
            files: self.files,
            bytes: self.bytes,
            damage: damage.collect(),
            lost_buckets: self.lost_buckets,
            unread_buckets: self.unread_buckets,
            unknown_buckets: self.unknown_buckets,
            entries_restored: self.entries_restored,
            unwritten: self.unwritten,
            orphans: self.orphans,
            is_complete: self.is_complete,
        }
    }
}

/// A page of a listing as the server writes it.
#[derive(Deserialize)]
struct PageJson {
    files: Vec<FileJson>,
    prefixes: Vec<String>,
    next_after: Option<String>,
}

#[derive(Deserialize)]
struct FileJson {
    name: String,
    size: u64,
    version: u64,
    blake3: String,
    md5: Option<String>,
    written_at_ms: u64,
    changed_at_ms: u64,
    attributes: String,
}

impl PageJson {
    fn page(self) -> anyhow::Result<Page> {
        let files = self.files.into_iter().map(|file| file.stat().map(ListEntry::File));
        let mut entries = files.collect::<anyhow::Result<Vec<_>>>()?;
        entries.extend(self.prefixes.into_iter().map(ListEntry::Prefix));
        // Files and what is rolled up come apart.
        entries.sort_by(|one, other| one.name().cmp(other.name()));
        Ok(Page { entries, next_after: self.next_after })
    }
}

impl FileJson {
    fn stat(self) -> anyhow::Result<Stat> {
        Ok(Stat {
            blake3: digits(&self.blake3).context("a hash isn't one")?,
            md5: match &self.md5 {
                Some(md5) => Some(digits(md5).context("an MD5 isn't one")?),
                None => None,
            },
            attributes: BASE64.decode(self.attributes.as_bytes())?.into(),
            name: self.name,
            size: self.size,
            version: self.version,
            written_at_ms: self.written_at_ms,
            changed_at_ms: self.changed_at_ms,
        })
    }
}

/// Totals as the server writes them.
#[derive(Deserialize)]
struct TotalsJson {
    reference_id: String,
    chunk_bytes: u32,
    files: u64,
    file_bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    uploading_bytes: u64,
    free_bytes: u64,
    cap_bytes: u64,
    buckets: Vec<BucketJson>,
}

#[derive(Deserialize)]
struct BucketJson {
    bucket: u8,
    live_bytes: u64,
    dead_bytes: u64,
    uploading_bytes: u64,
    free_bytes: u64,
    cap_bytes: u64,
}

impl TotalsJson {
    fn totals(self) -> anyhow::Result<(Setup, Totals)> {
        let Some(reference_id) = ReferenceId::from_hex(&self.reference_id) else {
            bail!("{:?} is no reference id", self.reference_id);
        };
        ensure!(self.chunk_bytes > 0, "no chunk has 0 bytes");
        let buckets = self.buckets.into_iter().map(|bucket| BucketTotals {
            bucket: bucket.bucket,
            exists: true,
            live_bytes: bucket.live_bytes,
            dead_bytes: bucket.dead_bytes,
            uploading_bytes: bucket.uploading_bytes,
            free_bytes: bucket.free_bytes,
            cap_bytes: bucket.cap_bytes,
        });
        let totals = Totals {
            files: self.files,
            file_bytes: self.file_bytes,
            live_bytes: self.live_bytes,
            dead_bytes: self.dead_bytes,
            uploading_bytes: self.uploading_bytes,
            free_bytes: self.free_bytes,
            cap_bytes: self.cap_bytes,
            buckets: buckets.collect(),
        };
        Ok((Setup { reference_id, chunk_bytes: self.chunk_bytes }, totals))
    }
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn names_keep_their_slashes_and_nothing_else_that_means_something() {
        assert_eq!(encode("a/b-c.d_e~f"), "a/b-c.d_e~f");
        assert_eq!(encode("a b?c#%&+\n"), "a%20b%3Fc%23%25%26%2B%0A");
        assert_eq!(encode("é"), "%C3%A9");
    }
}
