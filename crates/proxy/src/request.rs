//! The path of one request: checked, read whole, held, sent on, perhaps again, answered.

use crate::answer::{Answer, Begun, Passing, Refusal, gather};
use crate::backend::Failed;
use crate::body;
use crate::budget::Share;
use crate::headers::{self, Peer};
use crate::pool::Arriving;
use crate::routes::{Group, Treatment};
use crate::shared::{Behind, Place, Shared};
use crate::stage::Ticket;
use crate::status::End;
use crate::tunnel;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, Version, response};
use hyper::body::{Body as _, Incoming};
use machine::{Duration, Instant};
use std::convert::Infallible;
use std::sync::Arc;

/// Answers one request. Dropping this before it is done is how a client's leaving shows.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    place: Arc<Place>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let (parts, body) = request.into_parts();
    let mut account = Account::open(&shared, &parts);
    Ok(match pass(&shared, &peer, place, parts, body, &mut account).await {
        Ok((head, Begun::Whole(gathered))) => {
            account.answered();
            Response::from_parts(head, Answer::Whole(gathered))
        }
        Ok((head, Begun::Part(gathered, rest))) => match charge(&shared, &rest) {
            Some(share) => {
                let limits = &shared.config.limits;
                let slow = shared.config.goal.latency.into();
                let passing = Passing::new(gathered, rest, account, share, limits.client.into(), slow);
                Response::from_parts(head, Answer::Passing(passing))
            }
            None => {
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no memory for this answer now");
                account.refused(refusal.status);
                refusal.response()
            }
        },
        Err(refusal) => {
            account.refused(refusal.status);
            refusal.response()
        }
    })
}

/// The share of a passing answer in the memory of all bodies. A short one is counted and never
/// refused: it is here.
fn charge(shared: &Shared, rest: &Arriving) -> Option<Share> {
    match rest.size_hint().exact() {
        Some(length) if length <= PASSING / 2 => Some(shared.budget.count(length)),
        _ => shared.budget.take(PASSING),
    }
}

async fn pass(
    shared: &Arc<Shared>,
    peer: &Peer,
    place: Arc<Place>,
    mut parts: Parts,
    body: Incoming,
    account: &mut Account,
) -> Result<(response::Parts, Begun), Refusal> {
    headers::check(&parts)?;
    let host = headers::host(&parts)?;
    let nobody = || Refusal::new(StatusCode::NOT_FOUND, "no server here is asked for this host and path");
    let group = shared.routes.find(host.to_str().unwrap_or_default(), parts.uri.path()).ok_or_else(nobody)?;
    let Shared { config, servers, .. } = &**shared;
    let upgrade = headers::upgrade(&parts, &config.upgrades).filter(|_| body.is_end_stream());
    let body = body::read(body, &config.limits, &shared.budget).await?;
    headers::for_server(&mut parts, peer, config.trust_forwarded, &host, body.bytes.len());
    parts.version = Version::HTTP_11;
    let server = group.pick(|server| servers[server].backend.is_up());
    if let Some(protocol) = upgrade {
        // In a box, as all that is rare: a request's state is moved as a whole, and shall be small.
        return Box::pin(tunnel::open(shared, group, server, parts, protocol, place)).await;
    }
    if account.treatment.hold {
        let mut ticket = servers[server].stage.arrive(account.arrived + account.treatment.time);
        account.held = ticket.released().await;
        account.ticket = Some(ticket);
    }
    ask(shared, group, server, &parts, &body.bytes, account).await
}

/// Sends it on, again where that is safe.
async fn ask(
    shared: &Arc<Shared>,
    group: &Group,
    mut server: usize,
    parts: &Parts,
    body: &Bytes,
    account: &mut Account,
) -> Result<(response::Parts, Begun), Refusal> {
    let Shared { config, servers, .. } = &**shared;
    for attempt in 0.. {
        let failed = match once(shared, &servers[server], parts, body, account.treatment).await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        // A burst with a failure in it says nothing about how long bursts take.
        account.ticket = None;
        let may_repeat = match failed {
            Failed::NotSent(_) => true,
            Failed::Broken(_) => parts.method.is_idempotent(),
            Failed::Slow => false,
        };
        note_failure(shared, server, &failed);
        if !may_repeat || attempt >= config.health.retries {
            return Err(given_up(&failed));
        }
        shared.books.retried(account.treatment.class);
        tokio::time::sleep((config.health.pause * (1 << attempt)).into()).await;
        server = group.pick(|other| other != server && servers[other].backend.is_up());
    }
    unreachable!("the last attempt returns")
}

/// Writes a failure down; a server that failed is not asked first any more, and knocked at until it
/// is back.
pub(crate) fn note_failure(shared: &Arc<Shared>, server: usize, failed: &Failed) {
    let backend = &shared.servers[server].backend;
    shared.books.failed(&backend.name, failed);
    if *failed != Failed::Slow && backend.mark_down() {
        let shared = shared.clone();
        tokio::spawn(async move {
            servers_knock(&shared, server).await;
        });
    }
}

async fn servers_knock(shared: &Shared, server: usize) {
    shared.servers[server].backend.knock(&shared.config.health, &shared.config.limits).await;
}

/// One try: all of a short answer, the beginning of a long one.
async fn once(
    shared: &Shared,
    behind: &Behind,
    parts: &Parts,
    body: &Bytes,
    treatment: Treatment,
) -> Result<(response::Parts, Begun), Failed> {
    let limits = &shared.config.limits;
    let answer = behind.backend.ask(parts, body.clone(), limits.answer).await?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Failed::Broken("101 without having been asked for it".to_owned()));
    }
    let (mut head, rest) = answer.into_parts();
    // A client that waits on the stage does not notice that the beginning of an answer waits for
    // its end.
    let gathered = gather(&head.headers, rest, limits, &shared.budget, treatment.hold);
    let begun = match tokio::time::timeout(limits.answer.into(), gathered).await {
        Err(_) => return Err(Failed::Slow),
        Ok(Err(error)) => return Err(Failed::Broken(error.to_string())),
        Ok(Ok(begun)) => begun,
    };
    behind.backend.mark_up();
    headers::end_connection(&mut head.headers);
    head.version = Version::HTTP_11;
    Ok((head, begun))
}

pub(crate) fn given_up(failed: &Failed) -> Refusal {
    match failed {
        Failed::Slow => Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the server behind did not answer in time"),
        Failed::NotSent(_) => Refusal::new(StatusCode::BAD_GATEWAY, "the server behind takes no connection"),
        Failed::Broken(_) => {
            Refusal::new(StatusCode::BAD_GATEWAY, "the server behind ended the connection before its answer")
        }
    }
}

/// The record of a request: written once, for any end.
pub(crate) struct Account {
    shared: Arc<Shared>,
    treatment: Treatment,
    arrived: Instant,
    held: Duration,
    ticket: Option<Ticket>,
    is_over: bool,
}

impl Account {
    fn open(shared: &Arc<Shared>, parts: &Parts) -> Self {
        let treatment = shared.classes.treatment(parts);
        shared.books.arrived(treatment.class);
        Self {
            shared: shared.clone(),
            treatment,
            arrived: linux::now(),
            held: Duration::ZERO,
            ticket: None,
            is_over: false,
        }
    }

    pub(crate) fn answered(mut self) {
        let latency = linux::now().since(self.arrived);
        if let Some(ticket) = self.ticket.take() {
            ticket.completed();
        }
        self.end(End::Answered { latency, held: self.held, in_time: latency <= self.treatment.time });
    }

    /// The stage waits for it no longer and learns nothing from it: only the client is slow now.
    pub(crate) fn leave_stage(&mut self) {
        self.ticket = None;
    }

    /// The answer broke off after its beginning was passed on.
    pub(crate) fn broke_off(mut self) {
        self.end(End::BrokeOff);
    }

    fn refused(mut self, status: StatusCode) {
        self.end(End::Refused(status));
    }

    fn end(&mut self, end: End) {
        self.is_over = true;
        self.shared.books.ended(self.treatment.class, end);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.books.ended(self.treatment.class, End::Gone);
        }
    }
}

/// The most memory that one passing answer takes, bytes: read ahead of it, and given to its client
/// but not taken yet (`pool::BUFFER` each).
const PASSING: u64 = 128 << 10;
