//! Which headers a request and an answer have on the other side.
//!
//! A proxy reads a message's frame on one side and writes a frame of its own on the other. If the
//! two sides could read one message differently, a client could hide a request in another's body
//! ("request smuggling"). So an ambiguous message is refused, and headers that belong to one
//! connection (RFC 9110, 7.6.1) end here.

use crate::answer::Refusal;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use std::net::IpAddr;

/// Refuses requests that two readers could read differently, and requests that this proxy does not
/// support.
pub(crate) fn check(parts: &Parts) -> Result<(), Refusal> {
    let headers = &parts.headers;
    let count = |name: HeaderName| headers.get_all(name).iter().count();
    if parts.method == Method::CONNECT {
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "CONNECT is for forward proxies"));
    }
    if parts.method == Method::TRACE {
        // It would show its sender the headers that other proxies added (RFC 9110, 9.3.8), and no
        // client needs it.
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "no TRACE here"));
    }
    if parts.method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "methods are written in capitals"));
    }
    if parts.uri.authority().is_some() && parts.uri.scheme().is_none() {
        return Err(Refusal::bad("a host alone is no target"));
    }
    // Lengths and chunks are hyper's to settle before this; the check here covers forms that hyper
    // takes and this proxy does not.
    if headers.contains_key(header::TRANSFER_ENCODING)
        && !headers
            .get_all(header::TRANSFER_ENCODING)
            .iter()
            .all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "no transfer coding but chunked"));
    }
    match count(header::HOST) {
        0 if parts.version == Version::HTTP_11 => return Err(Refusal::bad("no Host")),
        0 | 1 => {}
        _ => return Err(Refusal::bad("more than one Host")),
    }
    match headers.get(header::EXPECT) {
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            Err(Refusal::new(StatusCode::EXPECTATION_FAILED, "no expectation but 100-continue"))
        }
        _ => Ok(()),
    }
}

/// The host that a request names: in the request line or, in HTTP/2, as `:authority`; else in
/// `Host`; empty without one.
pub(crate) fn host(parts: &Parts) -> Result<HeaderValue, Refusal> {
    let wrong = || Refusal::bad("a Host that is none");
    if let Some(authority) = parts.uri.authority() {
        let name = authority.as_str().rsplit('@').next().unwrap_or_default();
        return HeaderValue::from_str(name).map_err(|_| wrong());
    }
    let Some(host) = parts.headers.get(header::HOST) else { return Ok(HeaderValue::from_static("")) };
    // No user, no path, no space: one name, perhaps with a port.
    let plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+,;=".contains(&byte);
    if host.as_bytes().iter().all(plain) { Ok(host.clone()) } else { Err(wrong()) }
}

/// The protocol that a client wants its connection to change to, if it asks in the way of HTTP/1.1
/// and for one thing that is `allowed`. A list would leave the choice to the server.
pub(crate) fn upgrade(parts: &Parts, allowed: &[String]) -> Option<HeaderValue> {
    let mut all = parts.headers.get_all(header::UPGRADE).iter();
    let wanted = all.next().filter(|_| all.next().is_none())?;
    let is_allowed = allowed.iter().any(|name| wanted.as_bytes().eq_ignore_ascii_case(name.as_bytes()));
    let asked = tokens(&parts.headers, header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    (asked && is_allowed && parts.version == Version::HTTP_11).then(|| wanted.clone())
}

/// Takes out names that a server could read as another that counts: CGI and its heirs make `_` of
/// `-`, so that `X_Forwarded_For` is `X-Forwarded-For` to them (nginx and Apache drop all such
/// names).
fn end_look_alikes(headers: &mut HeaderMap, is_trusted: bool) {
    let is_ours = |name: &HeaderName| {
        let name = name.as_str();
        let folded = name.replace('_', "-");
        let forwarding = folded.starts_with("x-forwarded-") || folded == "forwarded" || folded == "x-real-ip";
        let framing = ["host", "content-length", "expect", "cookie", "via"].contains(&folded.as_str())
            || OF_A_CONNECTION.iter().any(|own| own.as_str() == folded);
        if name.contains('_') { forwarding || framing } else { forwarding && !is_trusted }
    };
    let named: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes the headers of one connection: the fixed ones, and those that `Connection` names.
pub(crate) fn end_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        tokens(headers, header::CONNECTION).filter_map(|token| token.parse().ok()).collect();
    for name in named {
        // Not to be taken out by its sender's own word: it says where the request goes.
        if name != header::HOST {
            headers.remove(name);
        }
    }
    for name in OF_A_CONNECTION {
        headers.remove(name);
    }
}

/// The client at the other end of a connection, as the server shall know it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    address: HeaderValue,
    protocol: HeaderValue,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, is_tls: bool) -> Self {
        let address = HeaderValue::from_str(&address.to_canonical().to_string());
        Self {
            address: address.expect("digits, letters, dots and colons"),
            protocol: HeaderValue::from_static(if is_tls { "https" } else { "http" }),
        }
    }
}

/// Makes a client's headers those that the server gets; `length` is its body's. The client's own
/// statement about earlier hops is kept if `is_trusted`.
pub(crate) fn for_server(
    parts: &mut Parts,
    peer: &Peer,
    is_trusted: bool,
    host: &HeaderValue,
    length: usize,
) {
    let had_body = parts.headers.contains_key(header::CONTENT_LENGTH)
        || parts.headers.contains_key(header::TRANSFER_ENCODING)
        || length > 0;
    let headers = &mut parts.headers;
    end_connection(headers);
    end_look_alikes(headers, is_trusted);
    headers.remove(header::EXPECT);
    headers.remove(header::CONTENT_LENGTH);
    if had_body {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    one_cookie(headers);
    headers.insert(header::HOST, host.clone());
    let earlier = is_trusted.then(|| joined(headers, &FORWARDED_FOR)).flatten();
    let told = earlier.and_then(|earlier| {
        let address = peer.address.to_str().unwrap_or_default();
        HeaderValue::from_str(&format!("{earlier}, {address}")).ok()
    });
    headers.insert(FORWARDED_FOR, told.unwrap_or_else(|| peer.address.clone()));
    for (name, value) in [(FORWARDED_PROTO, &peer.protocol), (FORWARDED_HOST, host)] {
        if !(is_trusted && headers.contains_key(&name)) {
            headers.insert(name, value.clone());
        }
    }
    let via = if parts.version == Version::HTTP_2 { "2.0 roost" } else { "1.1 roost" };
    headers.append(header::VIA, HeaderValue::from_static(via));
}

/// HTTP/2 may send each cookie alone; HTTP/1.1 knows one header (RFC 9113, 8.2.3).
fn one_cookie(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().count() > 1 {
        let all: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
        if let Ok(all) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
            headers.insert(header::COOKIE, all);
        }
    }
}

fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let all: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// RFC 9110, 7.6.1, and those that practice adds; as Go's and nginx's proxies have them.
const OF_A_CONNECTION: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(headers: &[(&'static str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn pass(parts: &mut Parts, is_trusted: bool, length: usize) {
        let peer = Peer::new("::ffff:192.0.2.7".parse().unwrap(), true);
        for_server(parts, &peer, is_trusted, &HeaderValue::from_static("a.example"), length);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        check(&parts(&[("host", "a"), ("content-length", "3")])).unwrap();
        check(&parts(&[("host", "a"), ("transfer-encoding", "Chunked"), ("expect", "100-Continue")]))
            .unwrap();
        for (headers, status) in [
            (&[("host", "a"), ("transfer-encoding", "gzip, chunked")][..], 501),
            (&[("host", "a"), ("transfer-encoding", "chunked"), ("transfer-encoding", "identity")], 501),
            (&[("host", "a"), ("host", "a")], 400),
            (&[], 400),
            (&[("host", "a"), ("expect", "wonders")], 417),
        ] {
            assert_eq!(check(&parts(headers)).unwrap_err().status.as_u16(), status, "{headers:?}");
        }
        for wrong in ["a b", "a/b", "u@a", "a\tb", "a?b"] {
            assert!(host(&parts(&[("host", wrong)])).is_err(), "{wrong}");
        }
        assert_eq!(host(&parts(&[("host", "[::1]:80")])).unwrap(), "[::1]:80");
    }

    #[test]
    fn what_concerns_a_connection_ends_here() {
        let mut parts = parts(&[
            ("host", "x"),
            ("connection", "close, X-Secret, host, x-forwarded-for"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("x-forwarded-for", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("x-kept", "yes"),
        ]);
        pass(&mut parts, false, 5);
        let mut left: Vec<(&str, &str)> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        let expected = [
            ("content-length", "5"),
            ("cookie", "a=1; b=2"),
            ("host", "a.example"),
            ("via", "1.1 roost"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-proto", "https"),
            ("x-kept", "yes"),
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn clients_are_believed_only_if_asked() {
        let said = [("host", "x"), ("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "gopher")];
        let told = |trusted| {
            let mut parts = parts(&said);
            pass(&mut parts, trusted, 0);
            let header = |name| parts.headers[name].to_str().unwrap().to_owned();
            (header("x-forwarded-for"), header("x-forwarded-proto"))
        };
        assert_eq!(told(false), ("192.0.2.7".to_owned(), "https".to_owned()));
        assert_eq!(told(true), ("10.0.0.1, 192.0.2.7".to_owned(), "gopher".to_owned()));
    }

    #[test]
    fn an_upgrade_is_asked_for_in_two_headers_and_never_to_http2() {
        let wanted =
            |headers: &[(&'static str, &str)]| upgrade(&parts(headers), &["websocket".to_owned()]).is_some();
        assert!(wanted(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
        assert!(!wanted(&[("upgrade", "websocket")]));
        for other in ["h2c", "HTTP/2.0", "x, h2c", "websocket, h2c", "shout"] {
            assert!(!wanted(&[("connection", "upgrade"), ("upgrade", other)]), "{other}");
        }
    }

    #[test]
    fn a_length_is_told_where_a_body_was_announced() {
        let length = |headers: &[(&'static str, &str)], length| {
            let mut parts = parts(headers);
            pass(&mut parts, false, length);
            parts.headers.get(header::CONTENT_LENGTH).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(length(&[("host", "x")], 0), None);
        assert_eq!(length(&[("host", "x"), ("content-length", "0")], 0).as_deref(), Some("0"));
        assert_eq!(length(&[("host", "x"), ("transfer-encoding", "chunked")], 9).as_deref(), Some("9"));
    }
}
