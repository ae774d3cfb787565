//! The arguments of `files` and its commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::{ByteCount, DurabilityName};

const FILES_HELP: &str = "\
Names are UTF-8 of 1 to 1,024 bytes; put `--` before one that starts with a dash. `-` as a PATH, or
none, is standard input or output. `write` makes the store if there is none, with the settings that
`create` has by default.

With --url the same is done on the file store of a running server, which has its directory locked
(`tallybook serve --files DIR`). A read goes on where a connection broke, an import when it is run again.
Only create, repair and read --salvage need the directory, and no server on it.

A file is there whole or not at all. Space of unlinked files comes back by itself.

Exit codes of `files`: 3 if there is no file of the name, 5 if something is damaged or lost, 6 if a
condition did not hold, 7 if the store or the disk is full; `tallybook --help` has them all.

Examples:
  tallybook files write backup/monday.tar monday.tar
  tallybook files read backup/monday.tar --range 0-99
  tallybook files list backup/ --delimiter /
  tallybook files read backup/monday.tar monday.tar --url http://127.0.0.1:8080";

/// Arguments of `files`.
#[derive(Debug, Args)]
#[command(after_help = FILES_HELP)]
pub(crate) struct FilesArguments {
    #[command(flatten)]
    pub(crate) store: FileStoreArguments,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: FilesCommand,
}

/// Which file store, and how things are printed.
#[derive(Debug, Args)]
pub(crate) struct FileStoreArguments {
    /// Directory of the file store
    #[arg(
        long,
        value_name = "DIR",
        env = "TALLYBOOK_FILES",
        default_value = "./tallybook-files",
        global = true
    )]
    pub(crate) data: PathBuf,
    /// The data listener of a running server, such as http://127.0.0.1:8080, instead of a directory
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) url: Option<String>,
    /// Print JSON: an object, or one a line for `list`
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What is to be done with files.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// Make an empty file store
    Create(CreateArguments),
    /// Write a file, whole or not at all, replacing what has the name
    Write(WriteFileArguments),
    /// Read a file, or a part of it; a damaged byte is an error, never output
    Read(ReadFileArguments),
    /// Unlink a file, at once whatever its size
    Unlink(UnlinkArguments),
    /// Give a file another name, replacing what has it
    Rename(CopyArguments),
    /// Give a file's bytes another name besides; they are not copied
    Copy(CopyArguments),
    /// Print names, sizes and times, in byte order
    List(ListArguments),
    /// Print what is known of a file without reading it
    Stat(StatArguments),
    /// Print what the store and its buckets hold
    Totals,
    /// Read everything, or a share of it, and check it; exits 5 if anything is damaged
    Verify(VerifyFilesArguments),
    /// Save what is whole of a store that lost its catalogue or buckets; exits 5 if files are damaged
    Repair(RepairArguments),
    /// Take over the files of a KFS table (NAME.kfs), which is not written to; exits 5 if some are not whole
    ImportKfs(ImportKfsArguments),
}

/// Arguments of `files import-kfs`.
#[derive(Debug, Args)]
pub(crate) struct ImportKfsArguments {
    /// The table's directory
    pub(crate) path: PathBuf,
    /// A file with a name a line: a key that is the hash of one (RIPEMD-160 or SHA-1) gets that name,
    /// all others keep their 40 hex digits
    #[arg(long, value_name = "FILE")]
    pub(crate) names: Option<PathBuf>,
}

/// Arguments of `files create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The 160 bits that decide where names fall, as 40 hex digits [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) reference_id: Option<String>,
    /// Size of a chunk: a power of two, 64KiB to 4MiB
    #[arg(long, value_name = "SIZE", default_value = "128KiB")]
    pub(crate) chunk: ByteCount,
    /// Number of buckets: a power of two, 1 to 256
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub(crate) buckets: usize,
    /// Most bytes of files in one bucket
    #[arg(long, value_name = "SIZE", default_value = "128GiB")]
    pub(crate) bucket_cap: ByteCount,
    /// Directories that buckets are placed in, in turn [default: the store's own]
    #[arg(long, value_name = "DIR")]
    pub(crate) bucket_dir: Vec<PathBuf>,
}

/// Arguments of `files write`.
#[derive(Debug, Args)]
pub(crate) struct WriteFileArguments {
    /// The file's name
    pub(crate) name: String,
    /// Where its bytes come from
    pub(crate) path: Option<PathBuf>,
    /// Write only if there is no file of the name
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) if_absent: bool,
    /// Write only if the file is at this version
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    /// Up to 64 KiB of your own that is kept with the file
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) attributes: String,
    /// Compute the MD5 too
    #[arg(long)]
    pub(crate) md5: bool,
    /// What the write has survived when the command returns: os, interval[:MS] or sync
    #[arg(long, value_name = "LEVEL", default_value = "sync")]
    pub(crate) durability: DurabilityName,
}

/// Arguments of `files read`.
#[derive(Debug, Args)]
pub(crate) struct ReadFileArguments {
    /// The file's name
    pub(crate) name: String,
    /// Where its bytes go; a file there is replaced once all are read
    pub(crate) path: Option<PathBuf>,
    /// Only these bytes, the last one included: 0-99, 100- or, for the last 100, -100
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    pub(crate) range: Option<String>,
    /// Read what is whole of a file that is known to be damaged
    #[arg(long)]
    pub(crate) salvage: bool,
}

/// Arguments of `files unlink`.
#[derive(Debug, Args)]
pub(crate) struct UnlinkArguments {
    /// The file's name
    pub(crate) name: String,
    /// Unlink only if the file is at this version
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
}

/// Arguments of `files rename` and `files copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// The name it has
    pub(crate) from: String,
    /// The name it gets
    pub(crate) to: String,
    /// Only if no file has that name
    #[arg(long)]
    pub(crate) if_absent: bool,
}

/// Arguments of `files list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only names with this prefix
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Roll names up at this, after the prefix, as a directory listing does with /
    #[arg(long, value_name = "TEXT")]
    pub(crate) delimiter: Option<String>,
    /// Only names after this one
    #[arg(long, value_name = "NAME")]
    pub(crate) after: Option<String>,
    /// Most entries to print
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
}

/// Arguments of `files stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArguments {
    /// The file's name
    pub(crate) name: String,
}

/// Arguments of `files verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyFilesArguments {
    /// Stop after about this much; the next such run goes on there
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<ByteCount>,
}

/// Arguments of `files repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    /// Unlink damaged files, which otherwise stay and refuse to be read
    #[arg(long)]
    pub(crate) unlink_damaged: bool,
}
