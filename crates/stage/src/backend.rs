//! One server behind: connections that are kept, and what is known of its health.

use crate::config::{ConfigError, Limits, Server};
use crate::tls;
use bytes::Bytes;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use machine::Duration;
use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A server behind.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) name: String,
    scheme: Scheme,
    authority: Authority,
    is_http2: bool,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    is_down: AtomicBool,
    /// How often it failed.
    pub(crate) failures: AtomicU64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The request never left us.
    NotSent(String),
    /// It may have arrived.
    Broken(String),
    /// The answer did not begin in time.
    Slow,
}

impl Backend {
    pub(crate) fn new(server: &Server, limits: &Limits) -> Result<Self, ConfigError> {
        let origin = server.origin()?.into_parts();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(limits.connect.into()));
        let is_tls = origin.scheme == Some(Scheme::HTTPS);
        let connector = tls::to_server(server, is_tls)?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(connector).https_or_http();
        let connector = if server.http2 {
            connector.enable_http2().wrap_connector(tcp)
        } else {
            connector.enable_http1().wrap_connector(tcp)
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(std::time::Duration::from(limits.idle))
            .http2_only(server.http2)
            .build(connector);
        Ok(Self {
            name: server.shown().to_owned(),
            scheme: origin.scheme.expect("a checked server has one"),
            authority: origin.authority.expect("a checked server has one"),
            is_http2: server.http2,
            client,
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
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = self.uri(crate::routes::target(&parts.uri))?;
        *request.headers_mut() = parts.headers.clone();
        if self.is_http2 {
            // There the host stands in the request's address, which is the server's own.
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(header::HOST);
        }
        match tokio::time::timeout(patience.into(), self.client.request(request)).await {
            Err(_) => Err(Failed::Slow),
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let said = error.source().map_or_else(|| error.to_string(), told);
                let canceled = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
                let not_sent = error.is_connect() || canceled.is_some_and(hyper::Error::is_canceled);
                Err(if not_sent { Failed::NotSent(said) } else { Failed::Broken(said) })
            }
        }
    }

    fn uri(&self, target: http::uri::PathAndQuery) -> Result<Uri, Failed> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).map_err(|error| Failed::NotSent(error.to_string()))
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        self.is_http2
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    /// It answered.
    pub(crate) fn mark_up(&self) {
        self.is_down.store(false, Ordering::Relaxed);
    }

    /// It failed; true if it is the first time since it was well, so that somebody should knock.
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
        let port = self.authority.port_u16().unwrap_or(if self.scheme == Scheme::HTTPS { 443 } else { 80 });
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let connected = tokio::net::TcpStream::connect((host, port));
        matches!(tokio::time::timeout(limits.connect.into(), connected).await, Ok(Ok(_)))
    }
}

/// An error with its causes, on one line.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
