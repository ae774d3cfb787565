//! A thread that accepts and serves connections on a runtime of its own.
//!
//! Every thread accepts from the one listening socket; a connection goes to the thread that has the
//! fewest, so that a few busy connections don't share one core. Connections are served where they
//! stay: nothing of a request crosses threads unless it must wait for the disk.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc, watch};

use crate::admission::{Connections, Slot};
use crate::api::Api;
use crate::connection::{self, protocol};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::reply::{TOO_MANY_CONNECTIONS, last_words};
use crate::service::{Listener, Way};
use crate::watchdog::Watchdog;

/// Refusals being said at once, on each thread; beyond it connections are closed without a word.
const REFUSALS_MAX: usize = 64;
/// How long a refused connection has to take its refusal.
const REFUSAL: Duration = Duration::from_secs(1);
/// Pause after the system refuses to accept (out of descriptors, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long pool threads may take to end after the connections have.
const POOL_END: Duration = Duration::from_secs(1);

/// A connection on its way to another thread.
pub(crate) struct Arrival {
    stream: StdStream,
    slot: Slot,
}

/// What the threads of one listener know of one another.
pub(crate) struct Crew {
    members: Vec<(AtomicUsize, mpsc::UnboundedSender<Arrival>)>,
}

impl Crew {
    /// A crew of this many, and where each receives connections. Channels are bounded by the limit on
    /// connections, which is taken before one is sent.
    pub(crate) fn new(count: usize) -> (Arc<Crew>, Vec<mpsc::UnboundedReceiver<Arrival>>) {
        let (members, inboxes) = (0..count)
            .map(|_| {
                let (sender, inbox) = mpsc::unbounded_channel();
                ((AtomicUsize::new(0), sender), inbox)
            })
            .unzip();
        (Arc::new(Crew { members }), inboxes)
    }

    /// The member with the fewest connections; `me` when it is among them.
    fn least_busy(&self, me: usize) -> usize {
        let load = |member: usize| self.members[member].0.load(Relaxed);
        (0..self.members.len()).min_by_key(|&member| (load(member), member != me)).unwrap_or(me)
    }
}

/// Everything one thread needs.
pub(crate) struct Worker<E> {
    pub(crate) api: Arc<Api<E>>,
    pub(crate) way: Way,
    pub(crate) connections: Arc<Connections>,
    pub(crate) listener: StdListener,
    pub(crate) crew: Arc<Crew>,
    pub(crate) index: usize,
    pub(crate) inbox: mpsc::UnboundedReceiver<Arrival>,
    pub(crate) stop: watch::Receiver<bool>,
    /// Changes when the watchdogs are to look at their connections.
    pub(crate) look: watch::Receiver<()>,
    pub(crate) drain: Duration,
}

/// A connection and who watches it.
struct Watched {
    link: Rc<Link>,
    watchdog: Watchdog,
}

/// State of one thread, shared by its connections.
struct Local<E> {
    api: Arc<Api<E>>,
    way: Way,
    connections: Arc<Connections>,
    crew: Arc<Crew>,
    index: usize,
    protocol: http1::Builder,
    draining: Cell<bool>,
    next_id: Cell<u64>,
    served: RefCell<HashMap<u64, Watched>>,
    refusals: Cell<usize>,
    /// Told when the last connection ends.
    empty: Notify,
}

impl<E: Engine> Worker<E> {
    /// The runtime for this thread; it must be made and used on it.
    pub(crate) fn runtime(pool_threads: usize) -> Result<LocalRuntime> {
        Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(pool_threads)
            .thread_name("tallybook-pool")
            .build_local(LocalOptions::default())
            .map_err(|source| Error::Io { what: "an event queue", source })
    }

    /// Accepts and serves until told to stop, then lets requests under way finish, up to `drain`.
    pub(crate) fn run(self, runtime: LocalRuntime) -> Result<()> {
        let ran = runtime.block_on(self.accept());
        runtime.shutdown_timeout(POOL_END);
        ran
    }

    async fn accept(mut self) -> Result<()> {
        let listener = TcpListener::from_std(self.listener)
            .map_err(|source| Error::Io { what: "a listener", source })?;
        let local = Rc::new(Local {
            protocol: protocol(self.api.options.limits.header_count_max),
            api: self.api,
            way: self.way,
            connections: self.connections,
            crew: self.crew,
            index: self.index,
            draining: Cell::new(false),
            next_id: Cell::new(0),
            served: RefCell::new(HashMap::new()),
            refusals: Cell::new(0),
            empty: Notify::new(),
        });
        loop {
            tokio::select! {
                biased;
                // An error means that whoever could ask for a stop is gone.
                _ = self.stop.wait_for(|stop| *stop) => break,
                Ok(()) = self.look.changed() => local.look(),
                Some(arrival) = self.inbox.recv() => match TcpStream::from_std(arrival.stream) {
                    Ok(stream) => local.spawn(stream, arrival.slot),
                    Err(error) => {
                        local.count(local.index).fetch_sub(1, Relaxed);
                        tracing::warn!(%error, "a connection could not be taken over");
                    }
                },
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => local.place(stream, peer),
                    Err(error) if is_of_the_peer(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "connections are not accepted for a moment");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        drop(self.inbox);
        local.drain(self.drain, self.look).await;
        Ok(())
    }
}

/// Whether accepting failed because the peer was gone already.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

impl<E: Engine> Local<E> {
    fn count(&self, member: usize) -> &AtomicUsize {
        &self.crew.members[member].0
    }

    /// Gives a new connection to the thread with the fewest.
    fn place(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr) {
        let Some(slot) = self.connections.try_admit(peer.ip()) else {
            return self.refuse(stream);
        };
        // Replies go out as they are written. Where the option fails the connection still works.
        let _ = stream.set_nodelay(true);
        let member = self.crew.least_busy(self.index);
        self.count(member).fetch_add(1, Relaxed);
        if member == self.index {
            return self.spawn(stream, slot);
        }
        let sent = stream
            .into_std()
            .map(|stream| self.crew.members[member].1.send(Arrival { stream, slot }));
        if !matches!(sent, Ok(Ok(()))) {
            self.count(member).fetch_sub(1, Relaxed);
            tracing::debug!("a connection came while its thread was stopping");
        }
    }

    /// Serves a connection here. Requires: it is counted for this thread.
    fn spawn(self: &Rc<Self>, stream: TcpStream, slot: Slot) {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let link = Rc::new(Link { part: slot.part(), ..Link::default() });
        let watchdog = Watchdog::new(Instant::now());
        self.served.borrow_mut().insert(id, Watched { link: link.clone(), watchdog });
        let guard = Served { local: self.clone(), id, _slot: slot };
        tokio::task::spawn_local(async move {
            let local = &guard.local;
            let api = local.api.clone();
            let way = local.way.clone();
            connection::serve(stream, api, link, way, &local.protocol, &local.draining).await;
        });
    }

    /// Tells a connection beyond the limit to come back later.
    fn refuse(self: &Rc<Self>, mut stream: TcpStream) {
        if self.way.listener != Listener::Admin {
            self.api.meter.note_refusal(TOO_MANY_CONNECTIONS.status.as_u16());
        }
        if self.refusals.get() >= REFUSALS_MAX {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        let local = self.clone();
        tokio::task::spawn_local(async move {
            let retry_after = Some(local.api.retry_after());
            let reply = last_words(TOO_MANY_CONNECTIONS, local.way.listener.form(), retry_after);
            let said = async {
                stream.write_all(reply.as_bytes()).await?;
                stream.shutdown().await?;
                // Closing with the request unread would reset the connection under the reply.
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
            };
            let _ = tokio::time::timeout(REFUSAL, said).await;
            local.refusals.set(local.refusals.get() - 1);
        });
    }

    /// Has the watchdogs look at the connections, and ends those that have stopped. What they moved is noted,
    /// or a long transfer would be in the figures only at its end.
    fn look(&self) {
        let now = Instant::now();
        let timeouts = &self.api.options.timeouts;
        let mut moved = (0, 0);
        for Watched { link, watchdog } in self.served.borrow_mut().values_mut() {
            let (received, sent) = link.take_unmetered();
            moved = (moved.0 + received, moved.1 + sent);
            if let Some(expired) = watchdog.look(link, timeouts, now) {
                link.expired.set(Some(expired));
                link.wake();
            }
        }
        if self.way.listener != Listener::Admin && moved != (0, 0) {
            self.api.meter.note_bytes(moved);
        }
    }

    /// Lets every connection end after the request it is at.
    async fn drain(&self, limit: Duration, mut look: watch::Receiver<()>) {
        if self.way.listener == Listener::Data {
            // Before any connection is told, so that whoever sees one close finds the server unready.
            self.api.draining.store(true, Relaxed);
        }
        self.draining.set(true);
        self.served.borrow().values().for_each(|watched| watched.link.wake());
        let emptied = async {
            while !self.served.borrow().is_empty() {
                tokio::select! {
                    () = self.empty.notified() => {}
                    Ok(()) = look.changed() => self.look(),
                }
            }
        };
        if tokio::time::timeout(limit, emptied).await.is_err() {
            let count = self.served.borrow().len();
            tracing::warn!(count, "connections were cut: their requests did not finish in time");
        }
    }
}

/// Counts a connection out when it ends, however it ends.
struct Served<E: Engine> {
    local: Rc<Local<E>>,
    id: u64,
    _slot: Slot,
}

impl<E: Engine> Drop for Served<E> {
    fn drop(&mut self) {
        self.local.count(self.local.index).fetch_sub(1, Relaxed);
        let mut served = self.local.served.borrow_mut();
        let watched = served.remove(&self.id);
        if self.local.way.listener != Listener::Admin
            && let Some(bytes) = watched.map(|watched| watched.link.take_unmetered())
        {
            self.local.api.meter.note_bytes(bytes);
        }
        if served.is_empty() {
            self.local.empty.notify_one();
        }
    }
}
