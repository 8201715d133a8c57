//! Remote callers over HTTP: `POST /wake` with `Authorization: Bearer TOKEN` and the envelope of a
//! datagram. And the page of metrics.

use crate::exit::usage;
use crate::http::{self, Hosts, Limits};
use ::daemon::Config;
use ::daemon::wake::{RemoteDesk, Unheard, WakeHandle};
use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

const BODY_MAX: usize = 1024;

/// The place where announcements come over HTTP, until a planner hears them.
pub struct Remote(Mutex<Option<TcpListener>>);

impl Remote {
    /// Takes the address that the configuration names, if any.
    pub fn new(config: &Config) -> Result<Self> {
        let address = config.wake.as_ref().and_then(|wake| wake.http);
        let bind = |address| {
            TcpListener::bind(address).map_err(|cause| {
                usage(format!("cannot listen at {address}: {cause}; write another in [wake] http"))
            })
        };
        Ok(Self(Mutex::new(address.map(bind).transpose()?)))
    }

    /// Begins to serve, the first time that there is a planner; a line with the address then.
    pub fn serve(&self, handle: &WakeHandle) -> Option<String> {
        let listener = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let remote = handle.remote()?;
        let address = listener.local_addr().ok()?;
        let router = Router::new()
            .route(
                "/wake",
                post(move |headers: HeaderMap, body: Bytes| {
                    std::future::ready(hear(&remote, &headers, &body))
                }),
            )
            .layer(DefaultBodyLimit::max(BODY_MAX));
        // The token proves who asks, by whatever name; it ends with the process.
        let served =
            http::serve("wake-http", listener, router, Limits::CALLERS, Hosts::Any, std::future::pending());
        Some(match served {
            Ok(_) => format!("announcements at http://{address}/wake"),
            Err(cause) => format!("announcements over HTTP are not heard: {cause:#}"),
        })
    }
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
