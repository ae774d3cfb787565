//! Many connections in one epoll set, driven by one thread.
//!
//! A connection's answers are read, told, and followed by its next requests before the next
//! connection is looked at, so that a request leaves right after the moment that is noted for it.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::Server;
use super::connection::{Connection, State};
use crate::error::{Error, Result};
use crate::target::{Connections, Desk, TIME_OUT};

/// Connections looked at before due requests get their turn.
const EVENTS: usize = 16;
/// How often time-outs are looked for.
const TIMEOUT_CHECK: Duration = Duration::from_millis(100);

/// Many connections in one epoll set.
pub(super) struct Epoll {
    server: Server,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Whether a connection is also watched for room to write.
    is_blocked: Vec<bool>,
    /// Connections at which something happened, and what.
    ready: Vec<(usize, epoll::EventFlags)>,
    checked_at: Instant,
}

impl Epoll {
    pub(super) fn connect(server: Server, count: u32) -> Result<Epoll> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let connections = (0..count).map(|_| Connection::connect(&server));
        let connections = connections.collect::<Result<Vec<_>>>()?;
        let all = Epoll {
            is_blocked: vec![false; connections.len()],
            server,
            epoll,
            connections,
            ready: Vec::with_capacity(EVENTS),
            checked_at: Instant::now(),
        };
        (0..all.connections.len()).try_for_each(|at| all.watch(at))?;
        Ok(all)
    }

    fn watch(&self, at: usize) -> Result<()> {
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&self.epoll, &self.connections[at].socket, data, epoll::EventFlags::IN)
            .map_err(system("epoll"))
    }

    /// Lets the desk send, and writes what it queued.
    fn refill(&mut self, at: usize, desk: &mut dyn Desk) -> Result<()> {
        desk.refill(at, &mut self.connections[at].out());
        self.write(at, desk)
    }

    fn write(&mut self, at: usize, desk: &mut dyn Desk) -> Result<()> {
        let is_blocked = match self.connections[at].write() {
            Ok(State::Written) => false,
            Ok(State::Blocked) => true,
            // What was answered before it broke is still to be read, which finds the break too.
            Err(_) if self.is_readable(at) => false,
            Err(_) => return self.renew(at, desk),
        };
        if is_blocked != self.is_blocked[at] {
            self.is_blocked[at] = is_blocked;
            let flags = match is_blocked {
                true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(at as u64);
            epoll::modify(&self.epoll, &self.connections[at].socket, data, flags)
                .map_err(system("epoll"))?;
        }
        Ok(())
    }

    fn is_readable(&self, at: usize) -> bool {
        let mut byte = [0];
        self.connections[at].socket.peek(&mut byte).is_ok_and(|bytes| bytes > 0)
    }

    /// Connects one anew; closing the old socket took it out of the set.
    fn renew(&mut self, at: usize, desk: &mut dyn Desk) -> Result<()> {
        self.connections[at].renew(desk)?;
        self.is_blocked[at] = false;
        self.watch(at)?;
        self.refill(at, desk)
    }

    fn check_timeouts(&mut self, desk: &mut dyn Desk) -> Result<()> {
        let now = Instant::now();
        if now.saturating_duration_since(self.checked_at) < TIMEOUT_CHECK {
            return Ok(());
        }
        self.checked_at = now;
        for at in 0..self.connections.len() {
            if self.connections[at].has_timed_out(now) {
                // Those behind the oldest can't be answered before it.
                self.connections[at].fail_all(TIME_OUT, desk);
                self.renew(at, desk)?;
            }
        }
        Ok(())
    }

    /// Waits for events; `epoll_wait` counts in milliseconds, so shorter waits go through `ppoll`.
    fn wait(&mut self, wait: Duration) -> Result<()> {
        self.ready.clear();
        let mut timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
        if wait >= Duration::from_millis(5) {
            timeout.tv_nsec = i64::from(wait.as_millis().min(900) as u32) * 1_000_000;
        } else if !wait.is_zero() {
            let short = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
            let mut ready = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut ready, Some(&short)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(errno) => return Err(system("poll")(errno)),
            }
        }
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => {
                let ready = events.iter().map(|event| (event.data.u64() as usize, event.flags));
                self.ready.extend(ready);
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(system("epoll")(errno)),
        }
    }
}

impl Connections for Epoll {
    fn offer(&mut self, connection: usize, desk: &mut dyn Desk) -> Result<()> {
        self.refill(connection, desk)
    }

    fn turn(&mut self, wait: Duration, desk: &mut dyn Desk) -> Result<Duration> {
        let before = Instant::now();
        self.wait(wait)?;
        let waited = before.elapsed();
        for nth in 0..self.ready.len() {
            let (at, flags) = self.ready[nth];
            if flags.contains(epoll::EventFlags::OUT) {
                self.write(at, desk)?;
            }
            let ends = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if !flags.intersects(epoll::EventFlags::IN | ends) {
                continue;
            }
            if self.connections[at].read(desk)? {
                self.refill(at, desk)?;
            } else {
                self.renew(at, desk)?;
            }
        }
        self.check_timeouts(desk)?;
        Ok(waited)
    }
}

fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::io(what)(errno.into())
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoll").field("server", &self.server.name).finish_non_exhaustive()
    }
}
