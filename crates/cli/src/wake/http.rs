//! Remote callers over HTTP: `POST /wake` with `Authorization: Bearer TOKEN` and the envelope of a datagram. And the page of metrics.

use super::options::Options;
use crate::http::{self, Hosts, Limits};
use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use daemon::wake::{RemoteDesk, Unheard, WakeHandle};

/// A message is no longer.
const BODY_MAX: usize = 1024;

/// Begins to serve what was asked for; a line for each, with the address.
pub fn serve(options: &Options, handle: &WakeHandle) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    if let Some(address) = options.metrics {
        let address = crate::metrics::wake::serve(address, &options.names, handle.clone())?;
        lines.push(format!("metrics at http://{address}/metrics"));
    }
    if let (Some(address), Some(remote)) = (options.http, handle.remote()) {
        let listener = std::net::TcpListener::bind(address).map_err(|cause| {
            crate::exit::usage(format!("cannot listen at {address}: {cause}; choose another with --http"))
        })?;
        let address = listener.local_addr().context("preparing HTTP")?;
        let router = Router::new()
            .route(
                "/wake",
                post(move |headers: HeaderMap, body: Bytes| {
                    std::future::ready(hear(&remote, &headers, &body))
                }),
            )
            .layer(DefaultBodyLimit::max(BODY_MAX));
        // The token proves who asks, by whatever name; it ends with the process.
        http::serve("wake-http", listener, router, Limits::CALLERS, Hosts::Any, std::future::pending())
            .context("preparing HTTP")?;
        lines.push(format!("announcements at http://{address}/wake"));
    }
    Ok(lines)
}

fn hear(remote: &RemoteDesk, headers: &HeaderMap, body: &[u8]) -> (StatusCode, String) {
    let token =
        headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    match remote.hear(body, Some(token.unwrap_or_default())) {
        Ok(id) => (StatusCode::OK, format!("{{\"done\":{{\"id\":{id}}}}}\n")),
        Err(Unheard::Token) => {
            (StatusCode::UNAUTHORIZED, "{\"refused\":\"the token does not match\"}\n".to_owned())
        }
        Err(Unheard::Refused(reason)) => {
            let answer = serde_json::json!({ "refused": reason });
            (StatusCode::UNPROCESSABLE_ENTITY, format!("{answer}\n"))
        }
    }
}
