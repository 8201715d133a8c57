//! Connections that become something else (WebSocket): asked for at once, never held, and then bytes in both directions.

use crate::answer::{Begun, Gathered, Refusal};
use crate::backend::{Backend, Failed};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{StatusCode, response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machine::Duration;

/// Asks the server; what it answers goes to the client, and after a 101 the two are joined.
pub(crate) async fn open(
    backend: &Backend,
    mut parts: Parts,
    protocol: HeaderValue,
    patience: Duration,
) -> Result<(response::Parts, Begun), Refusal> {
    if backend.speaks_http2() {
        return Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "the server behind speaks HTTP/2, which has no Upgrade",
        ));
    }
    let client: Option<OnUpgrade> = parts.extensions.remove();
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.insert(header::UPGRADE, protocol);
    let failed = |failed| match failed {
        Failed::Slow => Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the server behind did not answer in time"),
        _ => Refusal::new(StatusCode::BAD_GATEWAY, "the server behind failed"),
    };
    let mut answer = backend.ask(&parts, Bytes::new(), patience).await.map_err(failed)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut head, body) = answer.into_parts();
        crate::headers::end_connection(&mut head.headers);
        return Ok((head, Begun::Part(Gathered::default(), body)));
    }
    let server = hyper::upgrade::on(&mut answer);
    let (mut head, _) = answer.into_parts();
    let protocol = head.headers.get(header::UPGRADE).cloned();
    crate::headers::end_connection(&mut head.headers);
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(header::UPGRADE, protocol);
    }
    tokio::spawn(async move {
        let Some(client) = client else { return };
        if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
            // However it ends, both ends see it.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
        }
    });
    Ok((head, Begun::Whole(Gathered::default())))
}
