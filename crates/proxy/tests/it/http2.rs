//! HTTP/2 on either side, and TLS.

use crate::fixture::{Client, Upstream, held, hold_until_full, proxy, until};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::{Proxy, Server, Tls};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn spoken_with(io: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static) -> Sender {
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn connected(proxy: &Proxy) -> Sender {
    spoken_with(TokioIo::new(TcpStream::connect(proxy.addresses()[0]).await.unwrap())).await
}

fn asked(path: &str) -> Request<Full<Bytes>> {
    Request::post(format!("http://a.example{path}")).body(Full::from(path.to_owned())).unwrap()
}

async fn text(response: Response<hyper::body::Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn streams_of_one_connection_are_held_and_go_together() {
    let server = Upstream::start(|got, stream| crate::fixture::say(stream, 200, &got.body));
    let proxy = proxy(&[&server], |config| hold_until_full(config, 3));
    run(async {
        let mut sender = connected(&proxy).await;
        let answers: Vec<_> =
            ["/a", "/b", "/c"].map(|path| sender.send_request(asked(path))).into_iter().collect();
        for (answer, path) in
            futures_util::future::join_all(answers).await.into_iter().zip(["/a", "/b", "/c"])
        {
            assert_eq!(text(answer.unwrap()).await, (StatusCode::OK, path.to_owned()));
        }
    });
    let got = server.got();
    assert_eq!((got[0].header("host"), got[0].header("via")), (Some("a.example"), Some("2.0 roost")));
    let bursts = &proxy.take_bursts()[0];
    assert_eq!((bursts.len(), bursts[0].released), (1, 3));
}

#[test]
fn a_stream_that_is_reset_is_withdrawn_and_the_others_stay() {
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| hold_until_full(config, 2));
    run(async {
        let mut sender = connected(&proxy).await;
        let leaves = tokio::spawn(sender.send_request(asked("/leaves")));
        while held(&proxy.status()) < 1 {
            tokio::task::yield_now().await;
        }
        leaves.abort();
        let _ = leaves.await;
        while held(&proxy.status()) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let both = [sender.send_request(asked("/x")), sender.send_request(asked("/y"))];
        for answer in futures_util::future::join_all(both).await {
            assert_eq!(text(answer.unwrap()).await.0, StatusCode::OK);
        }
    });
    assert_eq!(proxy.status().counts().gone, 1);
    assert!(!server.paths().contains(&"/leaves".to_owned()));
}

/// A self-signed certificate for `localhost`, made for these tests:
///
/// ```text
/// openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 \
///     -subj "/CN=localhost, for tests" -addext basicConstraints=critical,CA:FALSE \
///     -addext subjectAltName=DNS:localhost
/// ```
fn certificate() -> Tls {
    Tls { certificate: file("localhost.pem"), key: file("localhost.key.pem") }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stage").join(name)
}

#[test]
fn tls_clients_get_the_version_that_they_ask_for() {
    let tls = certificate();
    let authority = CertificateDer::from_pem_file(&tls.certificate).unwrap();
    let server = Upstream::echo();
    let proxy = proxy(&[&server], |config| {
        config.hold = false;
        config.tls = Some(tls);
    });
    let mut roots = RootCertStore::empty();
    roots.add(authority).unwrap();
    run(async {
        for version in [&b"h2"[..], b"http/1.1"] {
            let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![version.to_vec()];
            let stream = TcpStream::connect(proxy.addresses()[0]).await.unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(version));
            let answer = if version == b"h2" {
                spoken_with(TokioIo::new(stream)).await.send_request(asked("/h2")).await.unwrap()
            } else {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                let request = Request::get("/h1").header("host", "a").body(Full::<Bytes>::default()).unwrap();
                sender.send_request(request).await.unwrap()
            };
            assert_eq!(text(answer).await.0, StatusCode::OK);
        }
    });
    assert!(server.got().iter().all(|got| got.header("x-forwarded-proto") == Some("https")));
    // A client that does not speak TLS gets nothing, and does no harm.
    assert_eq!(Client::to(&proxy).get("/"), None);
    assert_eq!(server.paths(), ["/h2", "/h1"]);
}

#[test]
fn wrong_certificates_are_refused_with_their_file() {
    let tls = certificate();
    let start = |tls: Tls| {
        let config = proxy::Config {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            servers: vec![Server::at("http://127.0.0.1:1")],
            tls: Some(tls),
            ..proxy::Config::default()
        };
        Proxy::start(config).map(drop).unwrap_err().to_string()
    };
    let missing = start(Tls { certificate: "/nowhere.pem".into(), ..tls.clone() });
    assert!(missing.contains("/nowhere.pem"), "{missing}");
    let swapped = start(Tls { certificate: tls.key.clone(), key: tls.certificate.clone() });
    assert!(swapped.contains("PEM"), "{swapped}");
    let strange = start(Tls { key: file("other.key.pem"), ..tls });
    assert!(strange.contains("belong together"), "{strange}");
}

#[test]
fn servers_may_speak_http2_and_tls_too() {
    let tls = certificate();
    let authorities = Some(tls.certificate.clone());
    // Each proxy on the way writes down how it was asked.
    let server = Upstream::start(|got, stream| {
        let via: Vec<&str> =
            got.headers.iter().filter(|(name, _)| name == "via").map(|(_, by)| by.as_str()).collect();
        crate::fixture::say(stream, 200, via.join(", ").as_bytes())
    });
    // The servers are proxies of this kind: one in plain HTTP/2, one with TLS.
    let plain = proxy(&[&server], |config| config.hold = false);
    let secured = proxy(&[&server], |config| {
        config.hold = false;
        config.tls = Some(tls);
    });
    let behind = |to: String, http2, authorities| Server { http2, authorities, ..Server::at(&to) };
    for server in [
        behind(format!("http://{}", plain.addresses()[0]), true, None),
        behind(format!("https://localhost:{}", secured.addresses()[0].port()), true, authorities.clone()),
        behind(format!("https://localhost:{}", secured.addresses()[0].port()), false, authorities),
    ] {
        let (is_http2, name) = (server.http2, server.to.clone());
        let front = proxy(&[], |config| {
            config.hold = false;
            config.servers = vec![server];
        });
        let answer = Client::to(&front).get("/").unwrap();
        assert_eq!(answer.status, 200, "{name}: {answer:?} {:?}", front.status().last_failure);
        let expected = if is_http2 { "1.1 roost, 2.0 roost" } else { "1.1 roost, 1.1 roost" };
        assert_eq!(answer.text(), expected, "{name}");
    }
    let unknown = Server::at(&format!("https://localhost:{}", secured.addresses()[0].port()));
    let config_with = |config: &mut proxy::Config| {
        config.hold = false;
        config.servers = vec![Server { authorities: None, ..unknown }];
    };
    // Without its authority a server is not believed. Where the system has no list of authorities,
    // that is said at the start.
    if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        let front = proxy(&[], config_with);
        assert_eq!(Client::to(&front).get("/").unwrap().status, 502);
        until(&front, "why is told", |status| {
            status.last_failure.as_ref().is_some_and(|why| why.contains("certificate"))
        });
    }
}
