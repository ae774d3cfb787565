//! What every request shares: the engine, the file store, the limits, and the way to the pool that may wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use tallybook::error::Error;
use tallybook_files::FileStore;

use crate::admission::{Connections, Quota, Quotas};
use crate::engine::Engine;
use crate::files::INTAKE_BYTES;
use crate::history::{Gauges, History};
use crate::link::Link;
use crate::meter::Meter;
use crate::options::ServerOptions;
use crate::reply::{self, INTERNAL, OVERLOADED, Problem, Reply, STALLED};
use crate::snapshot::{Recent, Snapshot};

/// Above this write pressure a runtime thread no longer writes itself.
const INLINE_PRESSURE_MAX: f64 = 0.5;

/// What every request shares.
pub(crate) struct Api<E> {
    pub(crate) engine: E,
    /// The file store, where there is one.
    pub(crate) files: Option<FileStore>,
    pub(crate) options: ServerOptions,
    pub(crate) connections: Arc<Connections>,
    pub(crate) quotas: Quotas,
    /// Verifications of the file store: one at a time.
    pub(crate) verifying: Arc<Quota>,
    pub(crate) draining: AtomicBool,
    pub(crate) meter: Meter,
    pub(crate) recent: Recent,
    pub(crate) history: History,
    retry_after: HeaderValue,
}

/// A reply, or how to get it.
pub(crate) enum Answer {
    /// The reply.
    Ready(Reply),
    /// The reply comes from elsewhere.
    Later(Pin<Box<dyn Future<Output = Reply>>>),
}

impl Answer {
    /// Waits for the reply.
    pub(crate) async fn wait(self) -> Reply {
        match self {
            Answer::Ready(reply) => reply,
            Answer::Later(reply) => reply.await,
        }
    }
}

impl<E: Engine> Api<E> {
    pub(crate) fn new(engine: E, files: Option<FileStore>, options: ServerOptions) -> Arc<Api<E>> {
        let limits = &options.limits;
        // What an address may have has room for what receives a file, too.
        let intake_bytes = if files.is_some() { INTAKE_BYTES as u64 } else { 0 };
        let body_bytes_max = limits.value_bytes_max.max(limits.batch_bytes_max).max(intake_bytes);
        let quotas = Quotas {
            in_flight: Quota::new(limits.in_flight_max),
            body_memory: Quota::new(limits.body_memory_bytes_max),
            body_bytes_max: usize::try_from(body_bytes_max).unwrap_or(usize::MAX),
        };
        Arc::new(Api {
            engine,
            files,
            connections: Connections::new(
                limits.connections_max,
                limits.connections_per_address_max,
                quotas.clone(),
            ),
            quotas,
            verifying: Quota::new(1),
            draining: AtomicBool::new(false),
            meter: Meter::default(),
            recent: Recent::new(),
            history: History::new(),
            retry_after: HeaderValue::from(options.retry_after_secs),
            options,
        })
    }

    /// What the books say now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.engine, &self.meter)
    }

    /// Adds a second to the history.
    pub(crate) fn look(&self) {
        let gauges = Gauges {
            connections: self.connections.open(),
            requests_in_flight: self.quotas.in_flight.used(),
            body_memory_bytes: self.quotas.body_memory.used(),
            write_pressure: self.engine.write_pressure(),
        };
        self.history.look(&self.engine, &self.meter, gauges);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub(crate) fn retry_after(&self) -> &HeaderValue {
        &self.retry_after
    }

    pub(crate) fn refuse(&self, headers: HeaderMap, problem: Problem) -> Reply {
        reply::refuse(headers, problem, &self.retry_after)
    }

    pub(crate) fn engine_error(&self, headers: HeaderMap, error: &Error) -> Reply {
        reply::engine_error(headers, error, &self.retry_after)
    }

    /// What the client of this connection may hold.
    pub(crate) fn quotas_of<'a>(&'a self, link: &'a Link) -> &'a Quotas {
        link.part.as_ref().unwrap_or(&self.quotas)
    }

    /// How long a stream waits for memory: as long as a client may be silent.
    pub(crate) fn memory_patience(&self) -> Duration {
        Duration::from_millis(self.options.timeouts.body_idle_ms)
    }

    /// Refuses a write before its body is read, when the engine makes no progress. While it does,
    /// writes wait their turn on the pool.
    pub(crate) fn check_stall(&self) -> Result<(), Problem> {
        if self.engine.is_stalled() { Err(STALLED) } else { Ok(()) }
    }

    /// Whether a runtime thread may make a write of this many bytes itself.
    pub(crate) fn may_write_inline(&self, bytes: usize) -> bool {
        bytes <= self.options.limits.inline_value_bytes_max
            && self.engine.write_pressure() < INLINE_PRESSURE_MAX
    }

    /// Does `work`, which may wait for the disk, on the pool, then answers on this thread.
    pub(crate) fn on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&E) -> T + Send + 'static,
        respond: impl FnOnce(&Api<E>, T) -> Reply + 'static,
    ) -> Answer {
        let Some(share) = self.quotas.in_flight.try_take(1) else {
            return Answer::Ready(self.refuse(HeaderMap::new(), OVERLOADED));
        };
        let api = self.clone();
        Answer::Later(Box::pin(async move {
            let engine = api.engine.clone();
            let done = tokio::task::spawn_blocking(move || work(&engine)).await;
            drop(share);
            match done {
                Ok(result) => respond(&api, result),
                Err(_) => api.refuse(HeaderMap::new(), INTERNAL),
            }
        }))
    }
}
