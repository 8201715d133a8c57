//! The few calls of the API server that Roost makes.
//!
//! ```text
//!   list --> items, version --> watch from that version: one line of JSON a change
//!     ^                            |  ended: watch again     broken: wait, watch again
//!     '---------- 410 Gone --------'
//! ```
//! The token is read for each call, since the kubelet replaces it. A watch asks the server to end it
//! after a minute, so a connection that has died in silence is noticed then.
//! A line is read to 4 MiB and no further.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::WithBody;

/// An object of the API server is at most 1.5 MiB in etcd.
const LINE_MAX: u64 = 4 << 20;
/// A list of the pods of one node: the kubelet's default is 110.
const LIST_MAX: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(15);
const WATCH_S: u64 = 60;
/// Where a kubelet puts the account of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[derive(Debug, Error)]
pub enum ApiError {
    #[error("{0}\nhint: in a pod, automountServiceAccountToken has to be true; elsewhere name --server")]
    Place(String),
    /// The version that a watch began from is too old.
    #[error("the version is gone")]
    Gone,
    #[error("{what}: the server answers {code}: {message}")]
    Refused { what: String, code: u16, message: String },
    #[error("{what}: {cause}")]
    Failed { what: String, cause: String },
}

impl ApiError {
    /// The account may not do this.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }
}

#[derive(Clone, Debug)]
pub struct Client {
    agent: ureq::Agent,
    server: String,
    token: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    pub metadata: ListMetadata,
    pub items: Vec<T>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMetadata {
    pub resource_version: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum News<T> {
    /// All of it, in place of an earlier reading.
    All(Vec<T>),
    Is(T),
    Gone(T),
    /// The server could not be asked; the reason.
    Away(String),
}

impl Client {
    /// At `server`, or at the cluster's own from within a pod.
    pub fn new(server: Option<&str>, ca: Option<PathBuf>, token: Option<PathBuf>) -> Result<Self, ApiError> {
        let within = || {
            let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
            let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".to_owned());
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            Some(format!("https://{host}:{port}"))
        };
        let is_within = server.is_none();
        let server = server.map(|server| server.trim_end_matches('/').to_owned()).or_else(within);
        let server = server.ok_or_else(|| ApiError::Place("no API server is known here".to_owned()))?;
        let of_account = |name: &str| is_within.then(|| PathBuf::from(ACCOUNT).join(name));
        let (ca, token) = (ca.or_else(|| of_account("ca.crt")), token.or_else(|| of_account("token")));
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(ring);
        if let Some(path) = &ca {
            let wrong = |cause: String| ApiError::Place(format!("{}: {cause}", path.display()));
            let text = std::fs::read(path).map_err(|cause| wrong(cause.to_string()))?;
            let all = ureq::tls::parse_pem(&text).filter_map(|item| match item {
                Ok(ureq::tls::PemItem::Certificate(one)) => Some(one),
                _ => None,
            });
            let all = all.collect::<Vec<Certificate<'static>>>();
            if all.is_empty() {
                return Err(wrong("it holds no certificate".to_owned()));
            }
            tls = tls.root_certs(RootCerts::Specific(Arc::new(all)));
        } else if server.starts_with("https:") {
            return Err(ApiError::Place("name the server's authority by --ca".to_owned()));
        }
        let agent = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .timeout_connect(Some(PATIENCE))
            .timeout_send_request(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_recv_body(Some(PATIENCE + Duration::from_secs(WATCH_S)))
            .http_status_as_error(false)
            // The server is the cluster's own.
            .proxy(None)
            .user_agent("roost-kube")
            .build()
            .into();
        Ok(Self { agent, server, token })
    }

    /// `collection` is a path with a query.
    pub fn list<T: DeserializeOwned>(&self, collection: &str) -> Result<List<T>, ApiError> {
        let what = format!("listing {collection}");
        let reader = BufReader::new(self.get(collection, &what)?.into_reader().take(LIST_MAX));
        serde_json::from_reader(reader).map_err(|cause| failed(&what, cause))
    }

    /// Each change since `version`, which follows, until the server ends the watch.
    pub fn watch<T: DeserializeOwned>(
        &self,
        collection: &str,
        version: &mut String,
        mut tell: impl FnMut(News<T>),
    ) -> Result<(), ApiError> {
        let what = format!("watching {collection}");
        let asked = format!(
            "{collection}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}"
        );
        let mut lines = BufReader::new(self.get(&asked, &what)?.into_reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            lines
                .by_ref()
                .take(LINE_MAX)
                .read_until(b'\n', &mut line)
                .map_err(|cause| failed(&what, cause))?;
            match line.last() {
                None => return Ok(()),
                Some(b'\n') => {}
                Some(_) => return Err(failed(&what, "a line does not end")),
            }
            let event: Event = serde_json::from_slice(&line).map_err(|cause| failed(&what, cause))?;
            if event.kind == "ERROR" {
                let code = event.object["code"].as_u64().unwrap_or_default();
                if code == 410 {
                    return Err(ApiError::Gone);
                }
                return Err(failed(&what, event.object["message"].as_str().unwrap_or("an error")));
            }
            if let Some(newer) = event.object["metadata"]["resourceVersion"].as_str() {
                newer.clone_into(version);
            }
            if event.kind == "BOOKMARK" {
                continue;
            }
            let object = serde_json::from_value(event.object).map_err(|cause| failed(&what, cause))?;
            tell(if event.kind == "DELETED" { News::Gone(object) } else { News::Is(object) });
        }
    }

    /// Adds an object to a collection.
    pub fn post(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        let request = self.agent.post(self.address(path)).header("content-type", "application/json");
        self.send(request, object, format!("posting to {path}"))
    }

    /// Changes the named fields of an object.
    pub fn patch(&self, path: &str, fields: &Value) -> Result<(), ApiError> {
        let request = self.agent.patch(self.address(path));
        let request = request.header("content-type", "application/merge-patch+json");
        self.send(request, fields, format!("patching {path}"))
    }

    fn send(
        &self,
        request: ureq::RequestBuilder<WithBody>,
        body: &Value,
        what: String,
    ) -> Result<(), ApiError> {
        let sent = self.authorised(request).send(body.to_string());
        checked(sent.map_err(|cause| failed(&what, cause))?, &what).map(drop)
    }

    fn get(&self, path: &str, what: &str) -> Result<ureq::Body, ApiError> {
        let answer = self.authorised(self.agent.get(self.address(path))).call();
        checked(answer.map_err(|cause| failed(what, cause))?, what)
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    fn authorised<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let token = self.token.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        match token {
            Some(token) => request.header("authorization", format!("Bearer {}", token.trim())),
            None => request,
        }
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

fn failed(what: &str, cause: impl std::fmt::Display) -> ApiError {
    ApiError::Failed { what: what.to_owned(), cause: cause.to_string() }
}

fn checked(mut answer: ureq::http::Response<ureq::Body>, what: &str) -> Result<ureq::Body, ApiError> {
    let code = answer.status().as_u16();
    if answer.status().is_success() {
        return Ok(answer.into_body());
    }
    if code == 410 {
        return Err(ApiError::Gone);
    }
    let text = answer.body_mut().with_config().limit(64 << 10).lossy_utf8(true).read_to_string();
    let said: Option<Value> = text.ok().and_then(|text| serde_json::from_str(&text).ok());
    let message = said.and_then(|said| Some(said["message"].as_str()?.to_owned())).unwrap_or_default();
    Err(ApiError::Refused { what: what.to_owned(), code, message })
}
