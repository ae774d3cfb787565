//! The server: its listeners, its threads, and how it stops.
//!
//! 1. `bind` takes the addresses; a second server on one of them fails here.
//! 2. `run` serves until its `ShutdownHandle` is used, then stops accepting and lets requests under
//!    way finish, up to `drain_ms`; health answers on the admin listener until the last is done. A thread
//!    that fails stops it, too: connections would still be placed with it, and nobody would serve them.
//!
//! It never closes the stores: whoever opened them does.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tallybook_files::FileStore;
use tokio::sync::watch;

use crate::admission::Connections;
use crate::api::Api;
use crate::books::Books;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::INTAKE_BYTES;
use crate::history;
use crate::options::{S3Options, ServerOptions};
use crate::s3::Door;
use crate::service::{Listener, Way};
use crate::strict::OriginRules;
use crate::ticker::Ticker;
use crate::watchdog;
use crate::worker::{Crew, Worker};

/// Connections the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Connections to the admin listener, which are counted apart: health answers when data is full.
const ADMIN_CONNECTIONS_MAX: usize = 64;
/// How long the admin listener's own connections have to end.
const ADMIN_DRAIN: Duration = Duration::from_millis(500);

/// A server that has its addresses.
pub struct Server<E> {
    api: Arc<Api<E>>,
    data: StdListener,
    data_address: SocketAddr,
    admin: Option<(StdListener, SocketAddr)>,
    s3: Option<(StdListener, SocketAddr, Arc<Door>)>,
    stop: Arc<watch::Sender<bool>>,
}

/// Stops a server, from any thread. Clones stop the same one.
#[derive(Debug, Clone)]
pub struct ShutdownHandle {
    stop: Arc<watch::Sender<bool>>,
}

impl ShutdownHandle {
    /// Asks the server to stop. Returns at once; `Server::run` returns when it has.
    pub fn shutdown(&self) {
        self.stop.send_replace(true);
    }
}

impl<E: Engine> Server<E> {
    /// Takes the addresses. Connections wait from now on, and are served by `run`.
    pub fn bind(options: ServerOptions, engine: E) -> Result<Server<E>> {
        Self::bind_with_files(options, engine, None)
    }

    /// As `bind`, with a file store that is served at `/files`.
    pub fn bind_with_files(
        options: ServerOptions,
        engine: E,
        files: Option<FileStore>,
    ) -> Result<Server<E>> {
        options.check()?;
        let s3 = options.s3.as_ref();
        for address in
            [Some(options.listen), options.admin, s3.map(|s3| s3.listen)].into_iter().flatten()
        {
            if !address.ip().to_canonical().is_loopback() && !options.allow_insecure {
                return Err(Error::Insecure { address });
            }
        }
        if let Some(address) = options.admin
            && !address.ip().to_canonical().is_loopback()
            && options.admin_token.is_none()
        {
            return Err(Error::NoAdminToken { address });
        }
        if let Some(s3) = s3 {
            check_s3(s3, files.is_some())?;
        }
        let memory = options.limits.body_memory_bytes_max;
        if files.is_some() && memory < INTAKE_BYTES {
            // Each write of a file would be answered 503, for ever.
            return Err(Error::InvalidOption(format!(
                "body_memory_bytes_max is {memory}, must be {INTAKE_BYTES} at least where files are served"
            )));
        }
        let (data, data_address) = listen(options.listen)?;
        let admin = options.admin.map(listen).transpose()?;
        let stop = Arc::new(watch::Sender::new(false));
        let s3_listener = s3.map(|s3| listen(s3.listen)).transpose()?;
        let api = Api::new(engine, files, options);
        let door = |(listener, address)| {
            let (s3, files) = (api.options.s3.as_ref()?, api.files.clone()?);
            let quotas = (api.quotas.in_flight.clone(), api.quotas.body_memory.clone());
            let (threads, retry_after) = (api.options.pool_threads, api.retry_after().clone());
            let door = Door::new(s3, files, quotas.0, quotas.1, threads, retry_after);
            Some((listener, address, door))
        };
        let s3 = s3_listener.and_then(door);
        Ok(Server { api, data, data_address, admin, s3, stop })
    }

    /// Where S3 is served.
    pub fn s3_addr(&self) -> Option<SocketAddr> {
        self.s3.as_ref().map(|(_, address, _)| *address)
    }

    /// Where data is served.
    pub fn data_addr(&self) -> SocketAddr {
        self.data_address
    }

    /// Where health and figures are served.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// What stops this server.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { stop: self.stop.clone() }
    }

    /// Serves until the shutdown handle is used. Blocks; needs no runtime around it.
    pub fn run(self) -> Result<()> {
        let Server { api, data, data_address, admin, s3, stop } = self;
        // Dropped last: its last lines count the requests that draining let finish.
        let _books = Books::open(&api)?;
        let (_watch, look) = keep_watch(&api)?;
        let stop_admin = watch::Sender::new(false);
        let rules = |address| Arc::new(OriginRules::new(address, &api.options.allowed_hosts));
        let _history = admin.is_some().then(|| keep_history(&api)).transpose()?;
        let admin_thread = admin
            .map(|(listener, address)| {
                tracing::info!(%address, "serving health and figures");
                let receiver = stop_admin.subscribe();
                let way =
                    Way { listener: Listener::Admin, door: None, rules: Some(rules(address)) };
                spawn_crew(&api, way, &listener, 1, (&receiver, &stop), &look, ADMIN_DRAIN)
            })
            .transpose()?;
        let threads = match api.options.threads {
            0 => thread::available_parallelism().map_or(1, |cores| cores.get()),
            threads => threads,
        };
        tracing::info!(address = %data_address, threads, "serving data");
        let drain = Duration::from_millis(api.options.timeouts.drain_ms);
        let mut stopping = stop.subscribe();
        let receiver = stop.subscribe();
        let _sweeper = s3.as_ref().map(|(.., door)| door.keep_swept()).transpose()?;
        let s3_crew = match s3 {
            None => Vec::new(),
            Some((listener, address, door)) => {
                tracing::info!(%address, "serving S3");
                // A page has nothing to sign with: where signatures are asked for, they are enough.
                let rules = door.is_anonymous().then(|| rules(address));
                let way = Way { listener: Listener::S3, door: Some(door), rules };
                spawn_crew(&api, way, &listener, threads, (&receiver, &stop), &look, drain)?
            }
        };
        let way = Way { listener: Listener::Data, door: None, rules: Some(rules(data_address)) };
        let stops = (&receiver, &stop);
        let served =
            spawn_crew(&api, way, &data, threads, stops, &look, drain).and_then(|mut crew| {
                crew.extend(s3_crew);
                drop(data);
                wait_for_stop(&mut stopping)?;
                tracing::info!("stopping: no new connections, requests under way finish");
                join(crew)
            });
        stop_admin.send_replace(true);
        let admin_served = admin_thread.map_or(Ok(()), join);
        served.and(admin_served)
    }
}

/// Refuses S3 for everybody, unless that is meant and they are on this machine.
fn check_s3(s3: &S3Options, has_files: bool) -> Result<()> {
    if !has_files {
        return Err(Error::InvalidOption("S3 needs a file store".to_owned()));
    }
    let is_loopback = s3.listen.ip().to_canonical().is_loopback();
    if s3.credentials.is_empty() && !(s3.allow_anonymous && is_loopback) {
        return Err(Error::NoS3Credentials { address: s3.listen });
    }
    Ok(())
}

/// Has the dashboard's history kept until the ticker is dropped.
fn keep_history<E: Engine>(api: &Arc<Api<E>>) -> Result<Ticker> {
    let api = api.clone();
    Ticker::start("tallybook-history", history::TICK, move || api.look())
        .map_err(|source| Error::Io { what: "a thread", source })
}

/// Tells the threads of every listener when to look for connections that have stopped, until the ticker
/// is dropped. A timer of their own would have to be set and taken back around every wait for a request.
fn keep_watch<E: Engine>(api: &Api<E>) -> Result<(Ticker, watch::Receiver<()>)> {
    let (tell, look) = watch::channel(());
    let period = watchdog::period(&api.options.timeouts);
    let ticker = Ticker::start("tallybook-watch", period, move || {
        tell.send_replace(());
    });
    ticker.map(|ticker| (ticker, look)).map_err(|source| Error::Io { what: "a thread", source })
}

fn wait_for_stop(stopping: &mut watch::Receiver<bool>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|source| Error::Io { what: "an event queue", source })?;
    // An error means that whoever could ask for a stop is gone.
    let _ = runtime.block_on(stopping.wait_for(|stop| *stop));
    Ok(())
}

/// Starts the threads of a listener. They end when `stop` says so; one that fails stops the server.
fn spawn_crew<E: Engine>(
    api: &Arc<Api<E>>,
    way: Way,
    listener: &StdListener,
    count: usize,
    (stop, stop_server): (&watch::Receiver<bool>, &Arc<watch::Sender<bool>>),
    look: &watch::Receiver<()>,
    drain: Duration,
) -> Result<Vec<JoinHandle<Result<()>>>> {
    let (crew, inboxes) = Crew::new(count);
    let kind = way.listener;
    let connections = match kind {
        Listener::Data | Listener::S3 => api.connections.clone(),
        Listener::Admin => {
            Connections::new(ADMIN_CONNECTIONS_MAX, ADMIN_CONNECTIONS_MAX, api.quotas.clone())
        }
    };
    let spawn = |(index, inbox)| {
        let worker = Worker {
            api: api.clone(),
            way: way.clone(),
            connections: connections.clone(),
            listener: listener
                .try_clone()
                .map_err(|source| Error::Io { what: "a listener", source })?,
            crew: crew.clone(),
            index,
            inbox,
            stop: stop.clone(),
            look: look.clone(),
            drain,
        };
        let pool_threads = api.options.pool_threads;
        let name = match kind {
            Listener::Data => format!("tallybook-http-{index}"),
            Listener::Admin => "tallybook-admin".to_owned(),
            Listener::S3 => format!("tallybook-s3-{index}"),
        };
        let stop_server = stop_server.clone();
        let serve = move || worker.run(Worker::<E>::runtime(pool_threads)?);
        thread::Builder::new()
            .name(name)
            .spawn(move || stop_on_failure(&stop_server, serve))
            .map_err(|source| Error::Io { what: "a thread", source })
    };
    inboxes.into_iter().enumerate().map(spawn).collect()
}

/// Does `serve`, and has the server stop if that fails.
fn stop_on_failure(stop: &watch::Sender<bool>, serve: impl FnOnce() -> Result<()>) -> Result<()> {
    serve().inspect_err(|error| {
        tracing::error!(%error, "a thread that serves failed; stopping");
        stop.send_replace(true);
    })
}

fn join(crew: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    let mut ended = Ok(());
    for thread in crew {
        match thread.join() {
            Ok(result) => ended = ended.and(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    ended
}

/// One listening socket, exclusively: `SO_REUSEADDR` only lets a restart follow at once, and without
/// `SO_REUSEPORT` a second server on the address fails.
fn listen(address: SocketAddr) -> Result<(StdListener, SocketAddr)> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = StdListener::from(socket);
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|source| Error::Bind { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its error was seen only once the server was stopped by something else, and until then it swallowed the
    /// connections that were placed with it.
    #[test]
    fn thread_that_fails_stops_the_server_and_its_error_is_answered() {
        let stop = Arc::new(watch::Sender::new(false));
        let crew = [false, true].map(|fails| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut stopping = stop.subscribe();
                stop_on_failure(&stop, || match fails {
                    true => Err(Error::InvalidOption("so it is".to_owned())),
                    false => wait_for_stop(&mut stopping),
                })
            })
        });
        assert!(matches!(join(crew.into()), Err(Error::InvalidOption(_))));
        assert!(*stop.borrow());
        let well = watch::Sender::new(false);
        stop_on_failure(&well, || Ok(())).unwrap();
        assert!(!*well.borrow());
    }
}
