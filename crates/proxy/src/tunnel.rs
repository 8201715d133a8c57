//! Connections that become something else (WebSocket): asked for at once, never held, and then
//! bytes in both directions.
//!
//! A tunnel keeps its client's place among the connections until it ends: when either side ends it,
//! when nothing passed for [`crate::Limits::tunnel`], or, once the proxy is to end, as soon as
//! nothing passes.

use crate::answer::{Begun, Gathered, Refusal};
use crate::backend::Failed;
use crate::request;
use crate::routes::Group;
use crate::shared::{Place, Shared};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{StatusCode, response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Asks a server of the group; its answer goes to the client, and after a 101 the two are joined.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    group: &Group,
    mut server: usize,
    mut parts: Parts,
    protocol: HeaderValue,
    place: Arc<Place>,
) -> Result<(response::Parts, Begun), Refusal> {
    let Shared { config, servers, .. } = &**shared;
    let client: Option<OnUpgrade> = parts.extensions.remove();
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.insert(header::UPGRADE, protocol.clone());
    let mut attempt = 0;
    let mut answer = loop {
        let backend = &servers[server].backend;
        if backend.speaks_http2() {
            return Err(Refusal::new(
                StatusCode::NOT_IMPLEMENTED,
                "the server behind speaks HTTP/2, which has no Upgrade",
            ));
        }
        let failed = match backend.ask(&parts, Bytes::new(), config.limits.answer).await {
            Ok(answer) => break answer,
            Err(failed) => failed,
        };
        request::note_failure(shared, server, &failed);
        // The fate of a connection that the server took is unknown, so only one that it never took
        // is tried again.
        if !matches!(failed, Failed::NotSent(_)) || attempt >= config.health.retries {
            return Err(request::given_up(&failed));
        }
        tokio::time::sleep((config.health.pause * (1 << attempt)).into()).await;
        attempt += 1;
        server = group.pick(|other| other != server && servers[other].backend.is_up());
    };
    servers[server].backend.mark_up();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut head, body) = answer.into_parts();
        crate::headers::end_connection(&mut head.headers);
        return Ok((head, Begun::Part(Gathered::default(), body)));
    }
    let chosen = answer.headers().get(header::UPGRADE);
    if !chosen.is_some_and(|chosen| chosen.as_bytes().eq_ignore_ascii_case(protocol.as_bytes())) {
        return Err(Refusal::new(
            StatusCode::BAD_GATEWAY,
            "the server behind changed to what it was not asked",
        ));
    }
    let server = hyper::upgrade::on(&mut answer);
    let (mut head, _) = answer.into_parts();
    crate::headers::end_connection(&mut head.headers);
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(header::UPGRADE, protocol);
    let idle = config.limits.tunnel.into();
    tokio::spawn(async move {
        let Some(client) = client else { return };
        if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
            join(client, server, idle, &place).await;
        }
    });
    Ok((head, Begun::Whole(Gathered::default())))
}

/// Passes bytes for as long as the tunnel lives. However it ends, both ends see it.
async fn join(client: Upgraded, server: Upgraded, idle: Duration, place: &Place) {
    let passed = AtomicU64::new(0);
    let mut client = Counting { stream: TokioIo::new(client), passed: &passed };
    let mut server = Counting { stream: TokioIo::new(server), passed: &passed };
    let mut copy = std::pin::pin!(tokio::io::copy_bidirectional(&mut client, &mut server));
    let mut stop = place.stop.clone();
    let (mut patience, mut is_stopping) = (idle, false);
    loop {
        let before = passed.load(Ordering::Relaxed);
        tokio::select! {
            _ = copy.as_mut() => return,
            () = tokio::time::sleep(patience) => {
                if passed.load(Ordering::Relaxed) == before {
                    return;
                }
            }
            _ = stop.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                patience = patience.min(AT_THE_END);
            }
        }
    }
}

/// One end, whose bytes are counted.
struct Counting<'a, S> {
    stream: S,
    passed: &'a AtomicU64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counting<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.passed.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counting<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(bytes)) = wrote {
            self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// On the way out, a tunnel in which nothing passes for this long is over.
const AT_THE_END: Duration = Duration::from_millis(200);
