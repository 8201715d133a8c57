//! One server behind: its kept connections, and its health.

use crate::config::{ConfigError, Limits, Server};
use crate::pool::{Arriving, Pool, Route};
use crate::tls;
use bytes::Bytes;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version, header};
use http_body_util::Full;
use machine::Duration;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) name: String,
    scheme: Scheme,
    authority: Authority,
    pool: Pool,
    is_down: AtomicBool,
    pub(crate) failures: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The request never left us.
    NotSent(String),
    Broken(String),
    /// The answer did not begin in time.
    Slow,
}

impl Backend {
    pub(crate) fn new(server: &Server, limits: &Limits) -> Result<Self, ConfigError> {
        let origin = server.origin()?.into_parts();
        let (Some(scheme), Some(authority)) = (origin.scheme, origin.authority) else {
            return Err(ConfigError::new(format!("`{}` is no server: write http://HOST:PORT", server.to)));
        };
        let is_tls = scheme == Scheme::HTTPS;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let pool = Pool::new(Route {
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            tls: is_tls.then(|| tls::to_server(server, &host)).transpose()?,
            host,
            is_http2: server.http2,
            patience: limits.connect.into(),
            idle: limits.idle.into(),
        });
        Ok(Self {
            name: server.shown().to_owned(),
            scheme,
            authority,
            pool,
            is_down: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        })
    }

    /// Sends a request and waits for the beginning of the answer.
    pub(crate) async fn ask(
        &self,
        parts: &Parts,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response<Arriving>, Failed> {
        let target = crate::routes::target(&parts.uri);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = parts.method.clone();
        *request.headers_mut() = parts.headers.clone();
        if self.speaks_http2() {
            // There the host stands in the request's address, which is the server's own.
            *request.uri_mut() = self.uri(target)?;
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(header::HOST);
        } else {
            *request.uri_mut() = target.into();
        }
        let on = AtomicU64::new(0);
        tokio::time::timeout(patience.into(), self.pool.ask(request, &on)).await.unwrap_or_else(|_| {
            self.pool.distrust(on.load(Ordering::Relaxed));
            Err(Failed::Slow)
        })
    }

    fn uri(&self, target: http::uri::PathAndQuery) -> Result<Uri, Failed> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).map_err(|error| Failed::NotSent(error.to_string()))
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        self.pool.route().is_http2
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_up(&self) {
        self.is_down.store(false, Ordering::Relaxed);
    }

    /// It failed; true if it is the first time since it was well, so that a probe should knock.
    pub(crate) fn mark_down(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        !self.is_down.swap(true, Ordering::Relaxed)
    }

    /// Knocks until the server is back.
    pub(crate) async fn knock(&self, health: &crate::config::Health, limits: &Limits) {
        while !self.is_up() {
            tokio::time::sleep(health.every.into()).await;
            if self.is_back(health, limits).await {
                self.mark_up();
            }
        }
    }

    async fn is_back(&self, health: &crate::config::Health, limits: &Limits) -> bool {
        if let Some(path) = &health.path {
            let Ok(request) =
                Request::get(path.as_str()).header(header::HOST, self.authority.as_str()).body(())
            else {
                return false;
            };
            let (parts, ()) = request.into_parts();
            let answer = self.ask(&parts, Bytes::new(), limits.connect * 2).await;
            return answer.is_ok_and(|answer| !answer.status().is_server_error());
        }
        let Route { host, port, .. } = self.pool.route();
        let connected = tokio::net::TcpStream::connect((host.as_str(), *port));
        matches!(tokio::time::timeout(limits.connect.into(), connected).await, Ok(Ok(_)))
    }
}
