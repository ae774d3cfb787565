//! What the machine can do: the limits that the figures of an engine are read against.
//!
//! Each is a loop that does one thing and nothing else. Of the processor and of memory the least of three rounds
//! is told, as others on the machine can only add to it; of calls that wait for the disk, median and 99th
//! percentile. Nothing is a limit of the hardware alone: memory is a machine's inside a machine, and the disk is
//! what lies under the directory's file system.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memmap2::{Mmap, MmapMut};

use crate::error::{Error, Result};
use crate::keys::Permutation;
use crate::machine;
use crate::statistics::quantile;

/// Rounds, of which the least counts.
const ROUNDS: usize = 3;
/// A cache line.
const LINE_BYTES: usize = 64;
/// A page, and a value of the larger kind.
const PAGE_BYTES: usize = 4 << 10;
/// From one value of the mapped file to the next: as records of a journal, they don't begin at pages.
const STRIDE_BYTES: usize = PAGE_BYTES + LINE_BYTES;
/// What is written to the page cache when little is.
const SMALL_BYTES: usize = 128;
/// What an error calls a file without a name.
const SCRATCH: &str = "a file to measure the disk with";
/// The rate of the writer beside `readwhilewriting`.
const DUE_EACH: Duration = Duration::from_micros(50);
/// Written at once when much is.
const PIECE_BYTES: usize = 1 << 20;

/// How much each loop does.
#[derive(Debug, Clone)]
pub struct Size {
    /// Sizes of memory, in MiB, in which a line is looked for.
    pub memory_mib: Vec<usize>,
    /// Steps from line to line.
    pub steps: usize,
    /// Values of 4 KiB in the file that is mapped.
    pub values: usize,
    /// Bytes of fresh memory, and of the file that is written and synced.
    pub bytes: usize,
    /// Small writes.
    pub writes: usize,
    /// Writes that are synced.
    pub syncs: usize,
    /// How long threads look at the clock side by side.
    pub busy: Duration,
}

impl Default for Size {
    /// Half a minute of measuring, and a gigabyte and a half of memory.
    fn default() -> Size {
        Size {
            memory_mib: vec![1, 4, 16, 128, 1024],
            steps: 2_000_000,
            values: 36_000,
            bytes: 512 << 20,
            writes: 200_000,
            syncs: 2_000,
            busy: Duration::from_secs(4),
        }
    }
}

/// One limit.
#[derive(Debug, Clone)]
pub struct Limit {
    /// What was done.
    pub what: String,
    /// What came of it.
    pub figure: Figure,
}

/// What came of a loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// Nanoseconds that one took.
    Nanoseconds(f64),
    /// Bytes a second.
    BytesPerSecond(f64),
    /// How many there were in a second.
    PerSecond(f64),
}

/// Measures all limits, those of the disk in `directory`, and tells each as soon as it is known. A directory that isn't
/// there is made, and removed at the end.
///
/// `NoSpace` when the directory's disk is nearly full. No file is left there, however it ends.
pub fn measure(directory: &Path, size: &Size, tell: &mut dyn FnMut(Limit)) -> Result<()> {
    let _made = Made::below(directory)?;
    let needed_bytes = (size.bytes + size.values * STRIDE_BYTES + size.writes * SMALL_BYTES) as u64;
    let available_bytes = machine::available_bytes(directory)?;
    if available_bytes < needed_bytes {
        let what = "measuring the disk".to_owned();
        return Err(Error::NoSpace { what, needed_bytes, available_bytes });
    }
    let file = || scratch(directory);
    // What is wrong with the directory is said before anything is measured.
    drop(file()?);
    let mut time = |what: String, ns: f64| tell(Limit { what, figure: Figure::Nanoseconds(ns) });
    time("a look at the clock".into(), clock()?);
    for &mib in &size.memory_mib {
        let ns = random_line(mib << 20, size.steps)?;
        time(format!("a random cache line among {mib} MiB, found by the one before"), ns);
    }
    let what = "a page of memory, touched for the first time and given back";
    time(what.into(), first_touch(size.bytes)?);

    let [random, in_order] = values(&file()?, size.values)?;
    time("4 KiB of a mapped file, read at random, each after the one before".into(), random);
    time("the same in the order of the file".into(), in_order);
    let [cached, p50, p99] = writes(&file()?, size)?;
    time("128 bytes written to the page cache (pwrite)".into(), cached);
    time("140 bytes written and synced (pwrite, fdatasync), median".into(), p50);
    time("the same, 99th percentile".into(), p99);
    let [cached, synced] = stream(&file, size.bytes)?;
    for (what, figure) in [("written to the page cache", cached), ("and synced", synced)] {
        let what = format!("{} MB in pieces of a mebibyte, {what}", size.bytes / 1_000_000);
        tell(Limit { what, figure: Figure::BytesPerSecond(figure) });
    }

    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    for threads in [cores, cores + 1] {
        let Gaps { longest, per_second, late } = gaps(threads, size.busy);
        let who = format!("{threads} busy threads on {cores} cores");
        let ns = longest.as_nanos() as f64;
        tell(Limit { what: format!("longest wait of {who}"), figure: Figure::Nanoseconds(ns) });
        let what = format!("waits of more than a millisecond of {who}, all together");
        tell(Limit { what, figure: Figure::PerSecond(per_second) });
        let what = format!("what is due each 50 us to one of {who}: 99.9th percentile late by");
        tell(Limit { what, figure: Figure::Nanoseconds(late) });
    }
    Ok(())
}

/// The least time that one of `count` takes, of several rounds.
fn least(count: usize, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        round()?;
        least = least.min(started.elapsed().as_nanos() as f64 / count as f64);
    }
    Ok(least)
}

fn clock() -> Result<f64> {
    let count = 1_000_000;
    least(count, || {
        for _ in 0..count {
            black_box(Instant::now());
        }
        Ok(())
    })
}

/// A cache line that says where the next one is.
#[derive(Clone)]
#[repr(align(64))]
struct Line(usize);

/// So many lines in one circle, in no order.
fn circle(count: usize) -> Vec<Line> {
    let order = Permutation::new(count as u64, 1);
    let at = |position: usize| order.at((position % count) as u64) as usize;
    let mut lines = vec![Line(0); count];
    for position in 0..count {
        lines[at(position)] = Line(at(position + 1));
    }
    lines
}

/// Steps from line to line of so much memory.
fn random_line(bytes: usize, steps: usize) -> Result<f64> {
    let lines = circle(bytes / LINE_BYTES);
    let mut at = 0;
    least(steps, || {
        for _ in 0..steps {
            at = lines[at].0;
        }
        black_box(at);
        Ok(())
    })
}

/// Touches each page of so much memory.
fn first_touch(bytes: usize) -> Result<f64> {
    least(bytes.div_ceil(PAGE_BYTES), || {
        let mut map = MmapMut::map_anon(bytes).map_err(Error::io("memory"))?;
        map.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 1);
        Ok(())
    })
}

/// Reads values of a mapped file: at random, where each place is known once the one before was read, and in the
/// order of the file.
fn values(file: &File, count: usize) -> Result<[f64; 2]> {
    let piece = vec![7; PIECE_BYTES];
    for offset in (0..count * STRIDE_BYTES).step_by(PIECE_BYTES) {
        file.write_all_at(&piece, offset as u64).map_err(Error::io(SCRATCH))?;
    }
    // SAFETY: the file has no name, so that nobody else can open it, and it stays as it is while the map lives.
    let map = unsafe { Mmap::map(file) }.map_err(Error::io(SCRATCH))?;
    let read = |position: usize| -> u64 {
        let words = map[position * STRIDE_BYTES..][..PAGE_BYTES].as_chunks::<8>().0;
        words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
    };
    let order = Permutation::new(count as u64, 2);
    // Zero, but only the program knows: what was read decides what is read next.
    let nothing = black_box(0);
    let walk = |place: &dyn Fn(u64) -> u64| {
        let mut sum = 0;
        least(count, || {
            for position in 0..count as u64 {
                sum = read((place(position) + (sum & nothing)) as usize);
            }
            black_box(sum);
            Ok(())
        })
    };
    Ok([walk(&|position| order.at(position))?, walk(&|position| position)?])
}

/// Small writes, and the median and 99th percentile of those that are synced.
fn writes(file: &File, size: &Size) -> Result<[f64; 3]> {
    let (small, synced) = ([1; SMALL_BYTES], [2; 140]);
    // The pages are there before anything is timed, and no larger than those that small writes make.
    let end = size.writes * SMALL_BYTES;
    for at in (0..end).step_by(PAGE_BYTES) {
        file.write_all_at(&[0; PAGE_BYTES], at as u64).map_err(Error::io(SCRATCH))?;
    }
    let cached = least(size.writes, || {
        (0..end)
            .step_by(SMALL_BYTES)
            .try_for_each(|at| file.write_all_at(&small, at as u64))
            .map_err(Error::io(SCRATCH))
    })?;
    file.sync_data().map_err(Error::io(SCRATCH))?;
    let mut times = Vec::with_capacity(size.syncs);
    for at in 0..size.syncs {
        let started = Instant::now();
        file.write_all_at(&synced, (at * synced.len() % end) as u64).map_err(Error::io(SCRATCH))?;
        file.sync_data().map_err(Error::io(SCRATCH))?;
        times.push(started.elapsed().as_nanos() as f64);
    }
    let share = |share| quantile(&times, share).unwrap_or(0.0);
    Ok([cached, share(0.5), share(0.99)])
}

/// Writes much to a new file, and syncs it: bytes a second of the one, and of both.
fn stream(new_file: &dyn Fn() -> Result<File>, bytes: usize) -> Result<[f64; 2]> {
    let piece = vec![3; PIECE_BYTES];
    let mut best = [0.0f64; 2];
    for _ in 0..ROUNDS {
        let file = new_file()?;
        let started = Instant::now();
        for offset in (0..bytes).step_by(PIECE_BYTES) {
            file.write_all_at(&piece, offset as u64).map_err(Error::io(SCRATCH))?;
        }
        let cached = started.elapsed();
        file.sync_data().map_err(Error::io(SCRATCH))?;
        let both = [cached, started.elapsed()];
        for (best, time) in best.iter_mut().zip(both) {
            *best = best.max(bytes as f64 / time.as_secs_f64());
        }
    }
    Ok(best)
}

/// When threads that only look at the clock didn't get to.
struct Gaps {
    longest: Duration,
    per_second: f64,
    /// By how many nanoseconds one in a thousand things that are due regularly is late, on the thread that was
    /// held up least.
    late: f64,
}

fn gaps(threads: usize, busy: Duration) -> Gaps {
    let looked: Vec<Gaps> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| gaps_of_one(busy))).collect();
        running.into_iter().map(|one| one.join().expect("who looks at the clock ends")).collect()
    });
    let both = |a: Gaps, b: Gaps| Gaps {
        longest: a.longest.max(b.longest),
        per_second: a.per_second + b.per_second,
        late: a.late.min(b.late),
    };
    looked.into_iter().reduce(both).expect("one thread at least")
}

fn gaps_of_one(busy: Duration) -> Gaps {
    let started = Instant::now();
    let (mut last, mut longest, mut count) = (started, Duration::ZERO, 0u64);
    let (mut due, mut late) = (started + DUE_EACH, Vec::new());
    while last - started < busy {
        let now = Instant::now();
        longest = longest.max(now - last);
        count += u64::from(now - last > Duration::from_millis(1));
        last = now;
        while due <= now {
            late.push((now - due).as_nanos() as f64);
            due += DUE_EACH;
        }
    }
    let late = quantile(&late, 0.999).expect("something was due");
    Gaps { longest, per_second: count as f64 / busy.as_secs_f64(), late }
}

/// Directories that weren't there, the deepest first: they go with this.
struct Made(Vec<PathBuf>);

impl Made {
    fn below(directory: &Path) -> Result<Made> {
        let is_missing = |at: &&Path| !at.as_os_str().is_empty() && !at.exists();
        let missing = directory.ancestors().take_while(is_missing).map(Path::to_owned);
        let made = Made(missing.collect());
        fs::create_dir_all(directory).map_err(Error::io(directory.display().to_string()))?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // One that others have put something in stays.
        self.0.iter().for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// A file without a name: it goes when it is closed, however that comes.
fn scratch(directory: &Path) -> Result<File> {
    let path = directory.join(format!("tallybook-limits-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let failed = || Error::io(path.display().to_string());
    let file = file.map_err(failed())?;
    fs::remove_file(&path).map_err(failed())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_told_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let size = Size {
            memory_mib: vec![1, 64],
            steps: 100_000,
            values: 2_000,
            bytes: 4 << 20,
            writes: 1_000,
            syncs: 3,
            busy: Duration::from_millis(20),
        };
        let mut told = Vec::new();
        let missing = directory.path().join("one/two");
        measure(&missing, &size, &mut |limit| told.push(limit)).unwrap();
        assert_eq!(told.len(), 17);
        let ns = |what: &str| {
            let limit = told.iter().find(|limit| limit.what.contains(what)).unwrap();
            let Figure::Nanoseconds(ns) = limit.figure else { panic!("{what} is a time") };
            ns
        };
        // No clock, cache line or write takes nothing, and none is faster than light allows.
        for what in ["look at the clock", "among 1 MiB", "touched", "pwrite)", "fdatasync"] {
            assert!((0.2..1e9).contains(&ns(what)), "{what}: {}", ns(what));
        }
        assert!(ns("99th percentile") >= ns("median"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_circle_goes_through_all_lines() {
        let lines = circle(1_000);
        let (mut at, mut seen) = (0, vec![false; lines.len()]);
        for _ in 0..lines.len() {
            assert!(!seen[at], "line {at} comes twice");
            seen[at] = true;
            at = lines[at].0;
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_said_before_anything_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("file/below");
        fs::write(directory.path().join("file"), "").unwrap();
        let mut told = 0;
        let error = measure(&below, &Size::default(), &mut |_| told += 1).unwrap_err();
        assert!(error.to_string().starts_with(&*below.to_string_lossy()), "{error}");
        assert_eq!(told, 0);
    }
}
