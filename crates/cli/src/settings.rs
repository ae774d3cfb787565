//! Settings of `serve`: defaults, then a TOML file, then `TALLYBOOK_*` variables, then flags.
//!
//! Invariant: a setting that isn't known is refused wherever it stands, so that a misspelled one
//! can't be silently without effect. Only what Kubernetes tells of a service is no setting.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Serialize};
use tallybook::options::{Durability, LEVEL_COUNT, Options, Reading};
use tallybook::resources::ResourceOptions;
use tallybook_files::OpenOptions;
use tallybook_server::{
    AdminToken, DurabilityLevel, Limits, S3Credentials, S3Options, ServerOptions, Timeouts,
};

use crate::admin::read_token;
use crate::exit::UsageError;
use crate::kubernetes::tells_of_a_service;
use crate::log::LogFormat;
use crate::secret::read_secret;
use crate::units::{
    AdminAddress, ByteCount, CompressionName, DurabilityName, HostNames, ReadingName, Span,
};

/// What every variable's name starts with.
const VARIABLE_PREFIX: &str = "TALLYBOOK_";

const SETTINGS_HELP: &str = "\
Settings:
  Every option but --config is also a setting of FILE (memtable_bytes = \"64MiB\") and a variable
  (TALLYBOOK_MEMTABLE_BYTES=64MiB). Flags win over variables, variables over FILE. A setting or a
  TALLYBOOK_ variable that is not known is refused, but for those that Kubernetes makes for a
  Service called tallybook (TALLYBOOK_SERVICE_HOST, TALLYBOOK_PORT=tcp://...). FILE may also have
  the tables [limits] and [timeouts], see docs/operations.md.";

/// Settings of `serve`. `None` is "not set here".
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
// A flag given twice counts as given last, so that a script can add to what it was told.
#[command(after_help = SETTINGS_HELP, args_override_self = true)]
pub(crate) struct Settings {
    /// TOML file with settings [env: TALLYBOOK_CONFIG]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Address of the data listener; port 0 picks one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<SocketAddr>,

    /// Address of the admin listener, or off [default: 127.0.0.1:9080]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<AdminAddress>,

    /// Directory of the store, made if it is missing [default: ./tallybook-data]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,

    /// Directory of a file store to serve at /files, made if it is missing [default: none; with
    /// --s3 ./tallybook-files]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<PathBuf>,

    /// Address at which S3 is served, from the file store [default: none]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    s3: Option<SocketAddr>,

    /// File with who may use S3: a line for each, access key and secret key with a space in between
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    s3_credentials_file: Option<PathBuf>,

    /// Serve S3 on loopback without credentials: whoever reaches it may read and delete everything
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    s3_anonymous: bool,

    /// Days after which an S3 upload in parts that was not completed is taken away [default: 7]
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    s3_upload_days_max: Option<u32>,

    /// Threads that serve requests [default: one for each core]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,

    /// Threads that flush memtables [default: 1]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_threads: Option<NonZeroUsize>,

    /// Threads that compact the tree and collect the journal [default: 1]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction_threads: Option<NonZeroUsize>,

    /// When a write that names no level is acknowledged: os, interval[:MS] or sync [default:
    /// interval:100]
    #[arg(long, value_name = "LEVEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<DurabilityName>,

    /// How files are read [default: pread]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reading: Option<ReadingName>,

    /// Values of at least this size stay in the journal [default: 1KiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_max_bytes: Option<ByteCount>,

    /// Size at which a memtable is flushed [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memtable_bytes: Option<ByteCount>,

    /// Journal bytes behind a memtable at which it is flushed [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    memtable_journal_bytes: Option<ByteCount>,

    /// Memory for all memtables; writers are slowed once half of what it leaves beside one of them waits to
    /// be flushed, and wait when it is used up [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_buffer_bytes: Option<ByteCount>,

    /// Memory for table blocks [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    block_cache_bytes: Option<ByteCount>,

    /// Smallest journal segment [default: 4MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_bytes_min: Option<ByteCount>,

    /// Largest journal segment [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    segment_bytes_max: Option<ByteCount>,

    /// Size at which a table block is closed [default: 4KiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    block_bytes: Option<ByteCount>,

    /// Size at which a table file is closed [default: 32MiB]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    table_bytes: Option<ByteCount>,

    /// Compression of every level [default: none]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<CompressionName>,

    /// Share of live bytes below which a segment is collected [default: 0.5]
    #[arg(long, value_name = "RATIO")]
    #[serde(skip_serializing_if = "Option::is_none")]
    collection_live_ratio: Option<f64>,

    /// Whether tables are compacted and the journal is collected. false is for measurements: tables pile
    /// up, reads slow down, and what is dead stays on disk [default: true]
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<bool>,

    /// How long a writer waits for a disk that makes no progress [default: 10s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_deadline: Option<Span>,

    /// Most files kept open for reading [default: 512]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    file_handles_max: Option<usize>,

    /// What to log: off, error, warn, info, debug, trace, or a filter by target [default: info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,

    /// How log lines are written [default: text]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_format: Option<LogFormat>,

    /// Seconds between log lines of figures, 0 for none [default: 30]
    #[arg(long, value_name = "SECS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_interval_secs: Option<u32>,

    /// File, of its owner alone, that holds the token which requests to the admin listener must bring; needed
    /// where other machines can reach it [default: none]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_token_file: Option<PathBuf>,

    /// Listen on addresses other than loopback although there is neither authentication nor TLS
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_insecure: bool,

    /// Names, with commas in between, that requests to a listener on loopback may call it by, beside
    /// localhost and addresses: those that a proxy on this machine passes on [default: none]
    #[arg(long, value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_hosts: Option<HostNames>,

    /// Limits of requests; only in FILE.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,

    /// Limits on time; only in FILE.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    timeouts: Option<Timeouts>,
}

impl Settings {
    /// These flags over the variables over the file.
    pub(crate) fn over_environment_and_file(self) -> Result<Settings, UsageError> {
        let mut layers = Figment::new();
        let variable = std::env::var_os(format!("{VARIABLE_PREFIX}CONFIG")).map(PathBuf::from);
        if let Some(file) = self.config.clone().or(variable) {
            if !file.is_file() {
                return Err(UsageError(format!("there is no settings file {}", file.display())));
            }
            layers = layers.merge(Toml::file_exact(file));
        }
        layers
            .merge(variables())
            .merge(Serialized::defaults(self))
            .extract()
            .map_err(|error| UsageError(describe(&error)))
    }

    /// The store's directory.
    pub(crate) fn data(&self) -> &Path {
        self.data.as_deref().unwrap_or(Path::new("./tallybook-data"))
    }

    /// The file store's directory, if there is to be one.
    pub(crate) fn files(&self) -> Option<&Path> {
        let with_s3 = self.s3.map(|_| Path::new("./tallybook-files"));
        self.files.as_deref().or(with_s3)
    }

    /// How the file store is opened. As with the store, a server reads with `pread` by default.
    pub(crate) fn file_store_options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        set(&mut options.durability, self.durability.map(|name| name.0));
        set(&mut options.reading, self.reading.map(Reading::from));
        options
    }

    /// What to log.
    pub(crate) fn log(&self) -> &str {
        self.log.as_deref().unwrap_or("info")
    }

    /// How to log it.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format.unwrap_or_default()
    }

    /// Settings of the listeners.
    pub(crate) fn server_options(&self) -> Result<ServerOptions, UsageError> {
        let mut options =
            ServerOptions { allow_insecure: self.allow_insecure, ..Default::default() };
        set(&mut options.listen, self.listen);
        set(&mut options.admin, self.admin.map(AdminAddress::address));
        if let Some(path) = &self.admin_token_file {
            options.admin_token = Some(AdminToken::new(&read_token(path)?).map_err(usage)?);
        }
        if let Some(listen) = self.s3 {
            let mut s3 = S3Options::new(listen);
            if let Some(path) = &self.s3_credentials_file {
                s3.credentials = read_credentials(path)?;
            }
            s3.allow_anonymous = self.s3_anonymous;
            set(&mut s3.upload_days_max, self.s3_upload_days_max);
            options.s3 = Some(s3);
        }
        set(&mut options.allowed_hosts, self.allowed_hosts.clone().map(|names| names.0));
        set(&mut options.threads, self.threads);
        set(&mut options.log_interval_secs, self.log_interval_secs);
        set(&mut options.limits, self.limits.clone());
        set(&mut options.timeouts, self.timeouts.clone());
        match self.durability.map(|name| name.0) {
            None => {}
            Some(Durability::Os) => options.durability = DurabilityLevel::Os,
            Some(Durability::Sync) => options.durability = DurabilityLevel::Sync,
            Some(Durability::Interval(ms)) => {
                options.durability = DurabilityLevel::Interval;
                options.interval_ms = ms;
            }
        }
        options.check().map_err(usage)?;
        Ok(options)
    }

    /// Settings of the store. A server reads with `pread`, so that an I/O error fails one read
    /// and not the process.
    pub(crate) fn store_options(&self) -> Result<Options, UsageError> {
        let mut options = Options { reading: Reading::Pread, ..Options::default() };
        set(&mut options.durability, self.durability.map(|name| name.0));
        set(&mut options.reading, self.reading.map(Reading::from));
        set(&mut options.inline_max_bytes, self.inline_max_bytes.map(ByteCount::as_usize));
        set(&mut options.memtable_bytes, self.memtable_bytes.map(ByteCount::as_usize));
        set(&mut options.memtable_journal_bytes, self.memtable_journal_bytes.map(|b| b.0));
        set(&mut options.write_buffer_bytes, self.write_buffer_bytes.map(ByteCount::as_usize));
        set(&mut options.segment_bytes_min, self.segment_bytes_min.map(|b| b.0));
        set(&mut options.segment_bytes_max, self.segment_bytes_max.map(|b| b.0));
        set(&mut options.block_bytes, self.block_bytes.map(ByteCount::as_usize));
        set(&mut options.table_bytes, self.table_bytes.map(|b| b.0));
        set(&mut options.compression, self.compression.map(|name| [name.into(); LEVEL_COUNT]));
        set(&mut options.collection_live_ratio, self.collection_live_ratio);
        set(&mut options.background, self.compaction);
        set(&mut options.stall_deadline, self.stall_deadline.map(|span| span.0));
        options.check().map_err(|error| UsageError(error.to_string()))?;
        Ok(options)
    }

    /// Settings of what stores share.
    pub(crate) fn resource_options(&self) -> ResourceOptions {
        let mut options = ResourceOptions::default();
        set(&mut options.flush_threads, self.flush_threads.map(NonZeroUsize::get));
        set(&mut options.compaction_threads, self.compaction_threads.map(NonZeroUsize::get));
        set(&mut options.block_cache_bytes, self.block_cache_bytes.map(ByteCount::as_usize));
        set(&mut options.file_handles_max, self.file_handles_max);
        if let Some(bytes) = self.write_buffer_bytes {
            // One store has the resources to itself, so its budget is theirs too.
            options.write_buffer_bytes = options.write_buffer_bytes.max(bytes.as_usize());
        }
        options
    }
}

/// The variables that are settings, or misspelled ones.
fn variables() -> Env {
    // The other is the laboratory's.
    let own = Env::prefixed(VARIABLE_PREFIX).ignore(&["config", "rivals"]);
    own.filter(|name| {
        let value = std::env::var_os(format!("{VARIABLE_PREFIX}{name}")).unwrap_or_default();
        !tells_of_a_service(name.as_str(), &value.to_string_lossy())
    })
}

/// The credentials in a file.
fn read_credentials(path: &Path) -> Result<Vec<S3Credentials>, UsageError> {
    const WHAT: &str = "S3 credentials";
    let refuse = |why: &str| UsageError(format!("{WHAT} in {}: {why}", path.display()));
    let text = read_secret(path, WHAT)?;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let keys: Vec<&str> = line.split_whitespace().collect();
        let [access_key, secret_key] = keys[..] else {
            return Err(refuse(&format!("line {number} is not an access key and a secret key")));
        };
        let credentials = S3Credentials::new(access_key, secret_key)
            .map_err(|error| refuse(&format!("line {number}: {error}")))?;
        found.push(credentials);
    }
    if found.is_empty() {
        return Err(refuse("there are none"));
    }
    Ok(found)
}

fn usage(error: tallybook_server::Error) -> UsageError {
    UsageError(error.to_string())
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// Each problem with the name and the source of the setting.
fn describe(error: &figment::Error) -> String {
    let problems: Vec<String> = error.clone().into_iter().map(|error| error.to_string()).collect();
    format!("settings: {}", problems.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(toml: &str) -> Result<Settings, String> {
        Figment::from(Toml::string(toml)).extract().map_err(|error| describe(&error))
    }

    #[test]
    fn a_file_sets_what_flags_set() {
        let settings = settings(
            "memtable_bytes = \"1MiB\"\ndurability = \"sync\"\nadmin = \"off\"\ncompaction = false",
        )
        .unwrap();
        let options = settings.store_options().unwrap();
        assert!(!options.background);
        assert_eq!(options.memtable_bytes, 1 << 20);
        assert_eq!(options.durability, Durability::Sync);
        assert_eq!(settings.server_options().unwrap().admin, None);
    }

    #[test]
    fn an_unknown_setting_is_refused_by_name() {
        let error = settings("memtable_byte = 1").unwrap_err();
        assert!(error.contains("memtable_byte"), "{error}");
        assert!(settings("config = \"other.toml\"").is_err());
        assert!(settings("[limits]\nno_such_limit = 1").is_err());
    }

    /// A setting of such a name would be without effect as a variable.
    #[test]
    fn no_setting_is_taken_for_what_kubernetes_makes() {
        let serve = Settings::augment_args(clap::Command::new("serve"));
        for name in serve.get_arguments().map(|flag| flag.get_id().as_str().to_uppercase()) {
            assert!(!tells_of_a_service(&name, "tcp://10.0.0.1:8080"), "{name}");
        }
    }

    #[test]
    fn store_and_server_agree_on_the_durability_of_writes() {
        let settings = settings("durability = \"interval:250\"").unwrap();
        let server = settings.server_options().unwrap();
        let level = server.durability.durability(server.interval_ms);
        assert_eq!(level, settings.store_options().unwrap().durability);
    }

    #[test]
    fn a_setting_out_of_range_is_refused() {
        assert!(settings("block_bytes = 1").unwrap().store_options().is_err());
        assert!(settings("block_bytes = -1").is_err());
        assert!(settings("log_interval_secs = 86401").unwrap().server_options().is_err());
        assert!(settings("allowed_hosts = [\"http://kv\"]").unwrap().server_options().is_err());
        assert!(settings("[limits]\nheader_count_max = 0").unwrap().server_options().is_err());
    }
}
