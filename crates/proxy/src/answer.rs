//! A client's answer: a server's, or one of our own.
//!
//! A short answer is gathered before its first byte is passed on: while it is not, a server that
//! dies in the middle of it costs a second try or a clean error, not a broken answer. Longer ones,
//! and streams of events, pass through as they come.

use crate::budget::{Budget, Share};
use crate::config::Limits;
use crate::pool::Arriving;
use crate::request::Account;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// A request that is not passed on, or whose answer is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    why: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub(crate) fn response(&self) -> Response<Answer> {
        let text = format!("roost stage: {}\n", self.why);
        let mut response = Response::new(Answer::Whole(Gathered::of(text.into())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if matches!(self.status, StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED) {
            // A client whose bytes are no request may frame the rest otherwise than we would read
            // it.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

pub(crate) enum Answer {
    Whole(Gathered),
    /// The rest comes from the server.
    Passing(Passing),
}

/// The received part of a body.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    chunks: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    length: u64,
    /// Its part of all bodies' memory.
    share: Option<Share>,
}

/// A body on its way through.
pub(crate) struct Passing {
    begun: Gathered,
    rest: Arc<Mutex<Rest>>,
}

/// The parts of an answer that the watch takes from a client that does not read.
struct Rest {
    body: Option<Arriving>,
    account: Option<Account>,
    share: Option<Share>,
    /// Since when it is the client's turn.
    offered: Option<Instant>,
    /// How long the client has let its answer wait so far.
    waited: Duration,
}

impl Gathered {
    fn of(bytes: Bytes) -> Self {
        Self { length: bytes.len() as u64, chunks: VecDeque::from([bytes]), ..Self::default() }
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        let chunk = self.chunks.pop_front().map(|chunk| {
            self.length -= chunk.len() as u64;
            Frame::data(chunk)
        });
        chunk.or_else(|| self.trailers.take().map(Frame::trailers))
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.trailers.is_none()
    }
}

pub(crate) enum Begun {
    Whole(Gathered),
    Part(Gathered, Arriving),
}

/// Gathers an answer if it is short. `may_wait` is false where even the beginning of a longer one
/// must not be kept back.
pub(crate) async fn gather(
    headers: &HeaderMap,
    mut body: Arriving,
    limits: &Limits,
    budget: &Budget,
    may_wait: bool,
) -> Result<Begun, hyper::Error> {
    use http_body_util::BodyExt as _;
    let mut gathered = Gathered::default();
    if body.is_end_stream() {
        return Ok(Begun::Whole(gathered));
    }
    let bound = match body.size_hint().exact() {
        Some(length) if length <= limits.whole_answer => length,
        None if may_wait && !is_event_stream(headers) => limits.whole_answer,
        _ => return Ok(Begun::Part(gathered, body)),
    };
    // Without memory for it, it passes through.
    let Some(share) = budget.take(bound) else { return Ok(Begun::Part(gathered, body)) };
    gathered.share = Some(share);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                gathered.length += data.len() as u64;
                gathered.chunks.push_back(data);
            }
            Err(frame) => gathered.trailers = frame.into_trailers().ok(),
        }
        if body.is_end_stream() {
            break;
        }
        if gathered.length > bound {
            return Ok(Begun::Part(gathered, body));
        }
    }
    Ok(Begun::Whole(gathered))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

impl Passing {
    /// `patience` is how long the client may take nothing, and `slow` how long it may keep its
    /// answer waiting in all before it no longer counts as its server's load.
    pub(crate) fn new(
        begun: Gathered,
        body: Arriving,
        account: Account,
        share: Share,
        patience: Duration,
        slow: Duration,
    ) -> Self {
        let rest = Arc::new(Mutex::new(Rest {
            body: Some(body),
            account: Some(account),
            share: Some(share),
            offered: Some(Instant::now()),
            waited: Duration::ZERO,
        }));
        let watched = Arc::downgrade(&rest);
        let every = (patience / 2).min(slow).max(LOOK);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(rest) = watched.upgrade() else { return };
                if !lock(&rest).look(patience, slow) {
                    return;
                }
            }
        });
        Self { begun, rest }
    }
}

impl Rest {
    /// False once there is nothing left to watch.
    fn look(&mut self, patience: Duration, slow: Duration) -> bool {
        let waits = self.offered.map_or(Duration::ZERO, |since| since.elapsed());
        if waits >= patience {
            // Its connection to the server ends, and with it the bytes read ahead. A stream of
            // HTTP/2 is not ours to write to while its client takes nothing; the rest of it is
            // small, and goes with its connection.
            self.body = None;
            self.share = None;
            self.account = None;
        } else if self.waited + waits >= slow
            && let Some(account) = &mut self.account
        {
            account.leave_stage();
        }
        self.body.is_some() && self.account.is_some()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(since) = self.offered.take() {
            self.waited += since.elapsed();
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err("the client took nothing of its answer for too long".into())));
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        let is_over = frame.is_none() || body.is_end_stream();
        match &frame {
            Some(Err(_)) => drop(self.account.take().map(Account::broke_off)),
            _ if is_over => drop(self.account.take().map(Account::answered)),
            _ => {}
        }
        self.offered = Some(Instant::now());
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }
}

fn lock(rest: &Mutex<Rest>) -> MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let passing = match &mut *self {
            Self::Whole(gathered) => return Poll::Ready(gathered.next().map(Ok)),
            Self::Passing(passing) => passing,
        };
        if let Some(frame) = passing.begun.next() {
            return Poll::Ready(Some(Ok(frame)));
        }
        passing.begun.share = None;
        lock(&passing.rest).poll(context)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(gathered) => gathered.is_empty(),
            Self::Passing(passing) => {
                passing.begun.is_empty() && lock(&passing.rest).body.as_ref().is_some_and(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(gathered) => SizeHint::with_exact(gathered.length),
            Self::Passing(passing) => {
                let rest = lock(&passing.rest).body.as_ref().map(Body::size_hint).unwrap_or_default();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(passing.begun.length));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(passing.begun.length));
                }
                hint
            }
        }
    }
}

/// Clients that are slow are looked at no more often.
const LOOK: Duration = Duration::from_millis(10);
