//! The child's side: answers the lab's questions until its standard input ends.
//!
//! Standard output belongs to the protocol: what a target prints there goes to standard error.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::message::{Ask, How, Opening, Problem, Tell};
use crate::error::{Error, Result};
use crate::load::{Collected, Loaded, Progress};
use crate::run::{self, RunOptions};
use crate::spec::{Durability, Spec};
use crate::target::Target;
use crate::target::engine::{self, EngineTarget};
use crate::target::floor::{self, Floor};

/// How often all that was measured so far goes along, for the case that this process dies.
const SO_FAR: Duration = Duration::from_secs(1);

/// Answers the lab's questions until there are no more. `open` opens targets by name; an unknown one
/// is an `Error::Unknown` of a `target`, a refused setting one of a `setting`.
///
/// For the `main` of a child's program: whatever it prints itself must go to standard error.
pub fn serve(open: &dyn Fn(&Opening) -> Result<Box<dyn Target>>) -> Result<()> {
    let out = take_standard_output().map_err(Error::io("standard output"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, questions) = mpsc::channel();
    let reading_stop = stop.clone();
    let read = move || read_questions(&sender, &reading_stop);
    std::thread::Builder::new()
        .name("lab-questions".into())
        .spawn(read)
        .map_err(Error::io("thread"))?;
    let mut served = Served { out, stop, target: None, opening: None };
    while let Ok(question) = questions.recv() {
        let answer = match question.and_then(|ask| served.answer(ask, open)) {
            Ok(answer) => answer,
            Err(error) => Tell::Refused { problem: Problem::new(&error, served.name()) },
        };
        served.tell(&answer)?;
    }
    // The lab is gone; what it opened is closed in order.
    served.close()
}

/// As [`serve`], with Tallybook and the floor as targets.
pub fn serve_engine() -> Result<()> {
    serve(&|opening| match &*opening.name {
        engine::NAME => {
            let Opening { directory, budget, settings, .. } = opening;
            Ok(Box::new(EngineTarget::open(directory, budget, settings)?))
        }
        floor::NAME => Ok(Box::new(Floor::create(&opening.directory, &opening.budget)?)),
        other => Err(Error::Unknown {
            what: "target",
            name: other.to_owned(),
            known: [engine::NAME, floor::NAME].map(str::to_owned).into(),
        }),
    })
}

/// Standard output for the protocol alone; what is printed goes to standard error from now on.
pub(crate) fn take_standard_output() -> io::Result<std::fs::File> {
    let own: OwnedFd = rustix::io::dup(rustix::stdio::stdout())?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(own.into())
}

/// Passes questions on as they come; a `stop` takes effect at once. Ends with standard input, and
/// stops what is under way then.
fn read_questions(questions: &mpsc::Sender<Result<Ask>>, stop: &AtomicBool) {
    for line in BufReader::new(io::stdin()).lines() {
        let Ok(line) = line else { break };
        let question = match serde_json::from_str(&line) {
            Ok(Ask::Stop) => {
                stop.store(true, Ordering::Relaxed);
                continue;
            }
            Ok(ask) => {
                // Cleared where lines are read, so that a stop said right behind a run isn't lost.
                stop.store(false, Ordering::Relaxed);
                Ok(ask)
            }
            Err(error) => Err(Error::Invalid(format!("not a question: {error}"))),
        };
        if questions.send(question).is_err() {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
}

struct Served {
    out: std::fs::File,
    stop: Arc<AtomicBool>,
    target: Option<Box<dyn Target>>,
    opening: Option<Opening>,
}

impl Served {
    fn name(&self) -> &str {
        self.opening.as_ref().map_or("", |opening| &opening.name)
    }

    fn tell(&mut self, answer: &Tell) -> Result<()> {
        tell(&mut self.out, answer)
    }

    fn answer(
        &mut self,
        ask: Ask,
        open: &dyn Fn(&Opening) -> Result<Box<dyn Target>>,
    ) -> Result<Tell> {
        match ask {
            Ask::Open { opening } => {
                self.close()?;
                self.opening = Some(opening.clone());
                let target = open(&opening)?;
                let answer =
                    Tell::Opened { name: target.name().to_owned(), settings: target.settings() };
                self.target = Some(target);
                Ok(answer)
            }
            Ask::Prefill { spec, how } => {
                let options = self.begin(&spec, &how)?;
                let target = self.target.as_deref().ok_or_else(not_open)?;
                let mut watch = watcher(&mut self.out);
                run::prefill(target, &spec, &options, &mut watch)?;
                Ok(Tell::Done)
            }
            Ask::Run { spec, how } => {
                let options = self.begin(&spec, &how)?;
                self.check_durability(&spec)?;
                let target = self.target.as_deref().ok_or_else(not_open)?;
                let mut watch = watcher(&mut self.out);
                let Loaded { outcome, error } = run::run(target, &spec, &options, &mut watch)?;
                let name = target.name();
                let problem = error.map(|error| Problem::new(&error, name));
                Ok(Tell::Ran { outcome: Box::new(outcome), problem })
            }
            Ask::Settle => {
                self.target.as_deref().ok_or_else(not_open)?.settle()?;
                Ok(Tell::Done)
            }
            Ask::Figures => {
                let figures = self.target.as_deref().ok_or_else(not_open)?.figures();
                Ok(Tell::Figures { figures })
            }
            Ask::Close => self.close().map(|()| Tell::Done),
            // Taken care of where lines are read.
            Ask::Stop => Ok(Tell::Done),
        }
    }

    /// Options of a run that this process's own stop ends.
    fn begin(&self, spec: &Spec, how: &How) -> Result<RunOptions> {
        spec.check()?;
        let mut options = how.options();
        options.load.stop = self.stop.clone();
        Ok(options)
    }

    /// A run that asks for more than the store was opened with would measure something else.
    fn check_durability(&self, spec: &Spec) -> Result<()> {
        let opened = self.opening.as_ref().map(|opening| opening.budget.durability);
        if opened.is_some_and(|opened| opened != spec.durability) {
            let other = if spec.durability == Durability::Sync { "os" } else { "sync" };
            return Err(Error::Invalid(format!(
                "the store was opened with durability {other}, which isn't what the spec asks"
            )));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.opening = None;
        self.target.take().map_or(Ok(()), Target::close)
    }
}

fn not_open() -> Error {
    Error::Invalid("no target is open".into())
}

fn tell(out: &mut impl Write, answer: &Tell) -> Result<()> {
    let mut line = serde_json::to_vec(answer)
        .map_err(|error| Error::Invalid(format!("an answer that JSON can't hold: {error}")))?;
    line.push(b'\n');
    out.write_all(&line).map_err(Error::io("the lab is gone"))
}

fn watcher(out: &mut std::fs::File) -> impl FnMut(&Progress, &Collected) {
    let mut last = Instant::now();
    move |progress, collected| {
        let so_far = (last.elapsed() >= SO_FAR).then(|| {
            last = Instant::now();
            Box::new(collected.outcome())
        });
        // When the lab is gone, standard input ends too, and that stops the run.
        let _ = tell(out, &Tell::Progress { progress: *progress, so_far });
    }
}
