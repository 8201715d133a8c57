//! Connections to one server: opened when one is needed, kept for the next request, closed when
//! unused for a while.
//!
//! hyper speaks on them; the choice of the connection is ours. A pool for one server needs no keys,
//! no race between a connection that is being opened and one that comes free, and no task for each
//! answer: a request takes the connection that was used last and is free, or opens one. In HTTP/2
//! all requests share one. A general client spends most of its CPU time per request on these.
//!
//! Invariants:
//! - a connection is taken again only after the end of the answer before it, and never after an
//!   error;
//! - a request that was given back unsent by a connection from the pool, which may have ended
//!   meanwhile, takes another one; one that may have left us is not repeated here;
//! - without requests nothing wakes up, except once to close connections kept for long enough.

use crate::backend::Failed;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

type Asking = Request<Full<Bytes>>;

/// Where connections go, and how long they are waited for and kept.
pub(crate) struct Route {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The TLS configuration, and the name on the server's certificate.
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
    pub(crate) is_http2: bool,
    /// It takes our connection within this.
    pub(crate) patience: Duration,
    /// A connection is kept for this long without a request.
    pub(crate) idle: Duration,
}

pub(crate) struct Pool {
    route: Route,
    kept: Arc<Mutex<Kept>>,
    /// The task that opens the connection that all share.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    /// Those that are free, and since when; the one used last is last.
    free: VecDeque<(Instant, http1::SendRequest<Full<Bytes>>)>,
    shared: Option<Shared>,
    opened: u64,
    /// A task is waiting to close connections kept for too long.
    is_swept: bool,
}

/// The connection that all share.
struct Shared {
    connection: http2::SendRequest<Full<Bytes>>,
    /// Of all that were opened, from 1.
    number: u64,
    asked: Instant,
    /// Each reader of an answer has one.
    heard: Arc<()>,
}

/// The connection that all share, for one request.
struct Taken {
    connection: http2::SendRequest<Full<Bytes>>,
    heard: Arc<()>,
    number: u64,
}

enum Lease {
    Alone(http1::SendRequest<Full<Bytes>>, Weak<Mutex<Kept>>, Duration),
    Shared { _heard: Arc<()> },
}

/// An answer's body as it comes; with its end its connection is free.
pub(crate) struct Arriving {
    body: Incoming,
    lease: Option<Lease>,
}

impl Pool {
    pub(crate) fn new(route: Route) -> Self {
        Self { route, kept: Arc::default(), opening: tokio::sync::Mutex::new(()) }
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// A request had no answer in time on the shared connection of that number: it may be dead
    /// without a word, and is asked nothing more. Others that wait on it may have their answers
    /// yet.
    pub(crate) fn distrust(&self, number: u64) {
        drop(lock(&self.kept).shared.take_if(|shared| shared.number == number));
    }

    /// Sends a request and waits for the beginning of the answer. `on` is the number of the shared
    /// connection that it is sent on.
    pub(crate) async fn ask(
        &self,
        mut request: Asking,
        on: &AtomicU64,
    ) -> Result<Response<Arriving>, Failed> {
        loop {
            let (answer, lease, is_reused) = if self.route.is_http2 {
                let (Taken { mut connection, heard, number }, is_reused) = self.shared().await?;
                on.store(number, Ordering::Relaxed);
                let lease = Lease::Shared { _heard: heard };
                (connection.try_send_request(request).await, lease, is_reused)
            } else {
                let (mut connection, is_reused) = match self.free() {
                    Some(connection) => (connection, true),
                    None => (self.open_http1().await?, false),
                };
                let answer = connection.try_send_request(request).await;
                let lease = Lease::Alone(connection, Arc::downgrade(&self.kept), self.route.idle);
                (answer, lease, is_reused)
            };
            match answer {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    let lease = if head.status == StatusCode::SWITCHING_PROTOCOLS {
                        // It will never be free.
                        None
                    } else if body.is_end_stream() {
                        lease.end();
                        None
                    } else {
                        Some(lease)
                    };
                    return Ok(Response::from_parts(head, Arriving { body, lease }));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_reused => request = unsent,
                    Some(_) => return Err(Failed::NotSent(told(&error.into_error()))),
                    None => {
                        let error = error.into_error();
                        // A server that refuses a stream has not worked on it (RFC 9113, 8.7).
                        let is_refused = is_refused_stream(&error);
                        let told = told(&error);
                        return Err(if is_refused { Failed::NotSent(told) } else { Failed::Broken(told) });
                    }
                },
            }
        }
    }

    /// The connection that was used last of those that are free.
    fn free(&self) -> Option<http1::SendRequest<Full<Bytes>>> {
        let mut kept = lock(&self.kept);
        kept.free.retain(|(_, connection)| !connection.is_closed());
        // One whose last request is still being written is not free yet.
        let place = kept.free.iter().rposition(|(_, connection)| connection.is_ready())?;
        let (since, connection) = kept.free.remove(place)?;
        (since.elapsed() < self.route.idle).then_some(connection)
    }

    /// The connection that all share, and whether it was there already.
    async fn shared(&self) -> Result<(Taken, bool), Failed> {
        if let Some(taken) = self.shared_now() {
            return Ok((taken, true));
        }
        let _turn = self.opening.lock().await;
        if let Some(taken) = self.shared_now() {
            return Ok((taken, true));
        }
        let connection = self.open_http2().await?;
        let heard = Arc::new(());
        let mut kept = lock(&self.kept);
        kept.opened += 1;
        let number = kept.opened;
        let taken = Taken { connection: connection.clone(), heard: heard.clone(), number };
        kept.shared = Some(Shared { connection, number, asked: Instant::now(), heard });
        drop(kept);
        sweep(&self.kept, self.route.idle);
        Ok((taken, false))
    }

    fn shared_now(&self) -> Option<Taken> {
        let mut kept = lock(&self.kept);
        let shared = kept.shared.as_mut().filter(|shared| !shared.connection.is_closed())?;
        shared.asked = Instant::now();
        let (connection, heard) = (shared.connection.clone(), shared.heard.clone());
        Some(Taken { connection, heard, number: shared.number })
    }

    async fn open_http1(&self) -> Result<http1::SendRequest<Full<Bytes>>, Failed> {
        async fn speak(
            stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        ) -> Result<http1::SendRequest<Full<Bytes>>, Failed> {
            let opened = http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream)).await;
            let (connection, work) = opened.map_err(|error| Failed::NotSent(told(&error)))?;
            // Its requests report its faults.
            tokio::spawn(async move { drop(work.with_upgrades().await) });
            Ok(connection)
        }
        self.within_patience(async {
            let stream = self.connect().await?;
            match &self.route.tls {
                None => speak(stream).await,
                Some(tls) => speak(encrypted(tls, stream).await?).await,
            }
        })
        .await
    }

    async fn open_http2(&self) -> Result<http2::SendRequest<Full<Bytes>>, Failed> {
        async fn speak(
            stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        ) -> Result<http2::SendRequest<Full<Bytes>>, Failed> {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .initial_stream_window_size(BUFFER as u32)
                .initial_connection_window_size(16 * BUFFER as u32)
                .max_send_buf_size(BUFFER)
                .keep_alive_interval(PING)
                .keep_alive_timeout(PING);
            let opened = builder.handshake(TokioIo::new(stream)).await;
            let (connection, work) = opened.map_err(|error| Failed::NotSent(told(&error)))?;
            tokio::spawn(async move { drop(work.await) });
            Ok(connection)
        }
        self.within_patience(async {
            let stream = self.connect().await?;
            match &self.route.tls {
                None => speak(stream).await,
                Some(tls) => speak(encrypted(tls, stream).await?).await,
            }
        })
        .await
    }

    async fn within_patience<T>(
        &self,
        opening: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let patience = self.route.patience;
        tokio::time::timeout(patience, opening).await.unwrap_or_else(|_| {
            Err(Failed::NotSent(format!("no connection within {}", machine::Duration::from(patience))))
        })
    }

    async fn connect(&self) -> Result<TcpStream, Failed> {
        let stream = TcpStream::connect((self.route.host.as_str(), self.route.port)).await;
        let stream = stream.map_err(|error| Failed::NotSent(told(&error)))?;
        // Without it a request would wait for the acknowledgement of the one before; that it cannot
        // be set is no reason not to ask.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

async fn encrypted(
    (connector, name): &(TlsConnector, ServerName<'static>),
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Failed> {
    connector.connect(name.clone(), stream).await.map_err(|error| Failed::NotSent(told(&error)))
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = lock(&self.kept).free.len();
        formatter
            .debug_struct("Pool")
            .field("host", &self.route.host)
            .field("free", &free)
            .finish_non_exhaustive()
    }
}

impl Lease {
    fn end(self) {
        let Self::Alone(connection, kept, idle) = self else { return };
        let Some(kept) = kept.upgrade() else { return };
        if !connection.is_closed() {
            lock(&kept).free.push_back((Instant::now(), connection));
            sweep(&kept, idle);
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Err(_)) => self.lease = None,
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            _ => drop(self.lease.take().map(Lease::end)),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Makes sure that connections kept for too long are closed, unless a task does already.
fn sweep(kept: &Arc<Mutex<Kept>>, idle: Duration) {
    if std::mem::replace(&mut lock(kept).is_swept, true) {
        return;
    }
    let kept = Arc::downgrade(kept);
    tokio::spawn(async move {
        while let Some(wait) = kept.upgrade().and_then(|kept| lock(&kept).close_idle(idle)) {
            tokio::time::sleep(wait).await;
        }
    });
}

impl Kept {
    /// Closes connections unused for so long; returns the time of the next look, unless none are
    /// left.
    fn close_idle(&mut self, idle: Duration) -> Option<Duration> {
        self.free.retain(|(since, _)| since.elapsed() < idle);
        let is_over =
            |shared: &mut Shared| shared.asked.elapsed() >= idle && Arc::strong_count(&shared.heard) == 1;
        drop(self.shared.take_if(is_over));
        let oldest = self.free.front().map(|(since, _)| *since);
        let oldest = oldest.into_iter().chain(self.shared.as_ref().map(|shared| shared.asked)).min();
        self.is_swept = oldest.is_some();
        // An answer that is still heard is looked after again later.
        oldest.map(|oldest| idle.saturating_sub(oldest.elapsed()).max(LOOK))
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_refused_stream(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let refused = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason);
        if refused == Some(h2::Reason::REFUSED_STREAM) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error with its causes, on one line.
fn told(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Bytes read ahead of one answer: the rest, which its client does not take, waits at the server.
const BUFFER: usize = 64 << 10;
/// A server of HTTP/2 that owes answers shows this often that it is there, and within as long
/// again.
const PING: Duration = Duration::from_secs(10);
/// Kept connections are checked no more often.
const LOOK: Duration = Duration::from_millis(10);
