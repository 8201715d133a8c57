//! The calls of the API server against a server that breaks off, forgets and refuses.
//!
//! `lab/kubernetes` has the real one, which seldom does so.

use kube::api::{ApiError, Client, News};
use kube::node::Pod;
use kube::watcher::watch;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Answers one request after the other; the requests come back.
fn serve(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        answers.iter().map(|answer| reply(listener.accept().unwrap().0, answer)).collect()
    });
    (address, answering)
}

fn reply(stream: TcpStream, answer: &str) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line, mut length) = (String::new(), String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = told.trim().parse().unwrap();
        }
        head.push_str(&std::mem::take(&mut line));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    // The client may have left before the end.
    let _ = reader.into_inner().write_all(answer.as_bytes());
    head + &String::from_utf8(body).unwrap()
}

fn answer(code: &str, body: &str) -> String {
    format!("HTTP/1.1 {code}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A stream of lines that ends with the connection.
fn stream(lines: &[&str]) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", lines.concat())
}

fn client(address: &str) -> Client {
    Client::new(Some(address), None, None).unwrap()
}

const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"uid":"a"}}]}"#;
const ADDED: &str =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"uid\":\"b\",\"resourceVersion\":\"6\"}}}\n";
const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n";
const GONE: &str = "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n";

fn seen(news: News<Pod>) -> String {
    match news {
        News::All(all) => format!("all {}", all.len()),
        News::Is(pod) => format!("is {}", pod.metadata.uid),
        News::Gone(pod) => format!("gone {}", pod.metadata.uid),
        News::Away(_) => "away".to_owned(),
    }
}

#[test]
fn a_watch_that_breaks_off_goes_on_from_its_version_and_one_that_is_gone_lists_anew() {
    let (address, answering) = serve(vec![
        answer("200 OK", LIST),
        stream(&[ADDED, BOOKMARK]),
        // In the middle of a line.
        stream(&["{\"type\":\"ADD"]),
        answer("503 Service Unavailable", "{}"),
        stream(&[GONE]),
        answer("200 OK", LIST),
    ]);
    let (sender, receiver) = channel();
    watch(client(&address), "/api/v1/pods?x=y".to_owned(), sender, seen).unwrap();
    let told: Vec<String> = (0..5).map(|_| receiver.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
    assert_eq!(told, ["all 1", "is b", "away", "away", "all 1"]);
    drop(receiver);
    let asked = answering.join().unwrap();
    let versions: Vec<&str> = asked
        .iter()
        .map(|asked| {
            asked.split("resourceVersion=").nth(1).map_or("-", |rest| rest.split(' ').next().unwrap())
        })
        .collect();
    assert_eq!(versions, ["-", "5", "9", "9", "9", "-"]);
}

#[test]
fn a_refusal_says_the_servers_reason() {
    let reason = r#"{"kind":"Status","message":"pods \"x\" is forbidden"}"#;
    let (address, answering) =
        serve(vec![answer("403 Forbidden", reason), answer("404 Not Found", "no JSON")]);
    let client = client(&address);
    let error =
        client.patch("/api/v1/namespaces/a/pods/x", &serde_json::json!({ "metadata": {} })).unwrap_err();
    assert!(error.is_forbidden() && error.to_string().contains("pods \"x\" is forbidden"), "{error}");
    let error = client.post("/api/v1/namespaces/a/events", &serde_json::json!({})).unwrap_err();
    assert!(matches!(&error, ApiError::Refused { code: 404, message, .. } if message.is_empty()), "{error}");
    let asked = answering.join().unwrap();
    assert!(
        asked[0].starts_with("PATCH") && asked[0].to_lowercase().contains("application/merge-patch+json"),
        "{asked:?}"
    );
}

#[test]
fn a_line_without_end_is_not_read_for_ever() {
    let (address, _answering) = serve(vec![stream(&[&"x".repeat(5 << 20)])]);
    let mut version = "1".to_owned();
    let error = client(&address).watch::<Pod>("/p?", &mut version, |_| panic!("nothing came")).unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");
}

#[test]
fn without_a_server_the_remedy_is_told() {
    let error = Client::new(None, None, None).unwrap_err().to_string();
    assert!(error.contains("--server"), "{error}");
    let missing = Client::new(Some("https://127.0.0.1:1"), Some("/nowhere/ca.crt".into()), None).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/ca.crt"), "{missing}");
    let unknown = Client::new(Some("https://127.0.0.1:1"), None, None).unwrap_err();
    assert!(unknown.to_string().contains("--ca"), "{unknown}");
}
