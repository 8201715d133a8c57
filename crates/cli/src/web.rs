//! The live page: the charts of a run while it goes on, in a browser, from this very binary.
//!
//! ```text
//!  driver thread --frame, phase--> Live (mutex) <--reads-- "web" thread: tokio, axum
//!                                                            GET /              the page, once
//!                                                            GET /events        its body, pushed when it changed
//!                                                            GET /frames.jsonl  the frames so far
//! ```
//!
//! The server shares the machine with the measurement, so it must cost next to nothing: one thread,
//! asleep in `epoll` without a reader; with browsers open, at most two drawings a second, made once
//! for all of them and only if something changed.
//!
//! Invariants:
//! - The driver never waits for a browser: it appends under a lock that is held for a copy at most.
//! - It listens on loopback unless asked otherwise, serves at most [`CLIENTS_MAX`] event streams,
//!   and refers to nothing outside itself.

use crate::exit::usage;
use crate::http::{self, Hosts, Limits};
use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{Stream, unfold};
use report::html;
use report::run::{Frame, Phase, RunInfo, Summary};
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// A run as the live page sees it, filled by the driver while it goes on.
#[derive(Debug)]
pub struct Live {
    info: RunInfo,
    seen: Mutex<Seen>,
    /// Counts changes; the event streams wait on it.
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Seen {
    frames: Vec<Frame>,
    summary: Summary,
    /// The line under the title.
    state: String,
    over: bool,
    /// The body last drawn, as JSON, with the version that it shows.
    drawn: Option<(u64, Arc<str>)>,
}

impl Live {
    /// A run of which nothing has been seen yet.
    pub fn new(info: RunInfo) -> Arc<Self> {
        let seen = Seen { state: "starting".to_owned(), ..Seen::default() };
        Arc::new(Self { info, seen: Mutex::new(seen), version: watch::Sender::new(0) })
    }

    /// One more moment.
    pub fn frame(&self, frame: Frame) {
        self.change(|seen| {
            seen.state = format!("{}, {:.1} s", frame.phase, frame.at.as_secs_f64());
            seen.frames.push(frame);
        });
    }

    /// A phase ended.
    pub fn phase(&self, phase: Phase) {
        self.change(|seen| seen.summary.phases.push(phase));
    }

    /// The run ended; `state` says so, and where its report is.
    pub fn over(&self, summary: Summary, state: &str) {
        self.change(|seen| {
            seen.summary = summary;
            state.clone_into(&mut seen.state);
            seen.over = true;
        });
    }

    fn change(&self, act: impl FnOnce(&mut Seen)) {
        act(&mut self.seen());
        self.version.send_modify(|version| *version += 1);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // A panic while the lock was held leaves at worst a frame that is not there.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body as a JSON string, the state line, and whether the run is over.
    fn body(&self) -> (Arc<str>, String, bool) {
        let (version, frames, summary) = {
            let seen = self.seen();
            let version = *self.version.borrow();
            if let Some((drawn, body)) = &seen.drawn
                && *drawn == version
            {
                return (Arc::clone(body), seen.state.clone(), seen.over);
            }
            (version, seen.frames.clone(), seen.summary.clone())
        };
        // Drawn without the lock: the driver must not wait for it.
        let html = html::live_body(&frames, &summary);
        let json = serde_json::to_string(&html).expect("a text is JSON");
        let body: Arc<str> = json.into();
        let mut seen = self.seen();
        seen.drawn = Some((version, Arc::clone(&body)));
        (body, seen.state.clone(), seen.over)
    }
}

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This machine only.
    Loopback,
    /// Any client that reaches the address.
    Anywhere,
}

/// The server of the live page.
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// Serves `live` at `address` (port 0 lets the system choose) until dropped.
    pub fn serve(address: SocketAddr, reach: Reach, live: Arc<Live>) -> Result<Self> {
        if reach == Reach::Loopback && !address.ip().is_loopback() {
            return Err(usage(format!(
                "--web {address} could be read from other machines; use 127.0.0.1:{}, or add --web-anywhere",
                address.port()
            )));
        }
        let taken =
            || format!("cannot serve the live page at {address}; give --web another port, or 0 for any");
        let listener = TcpListener::bind(address).with_context(taken)?;
        let address = listener.local_addr().with_context(taken)?;
        let (stop, stopped) = watch::channel(false);
        let mut asked = stopped.clone();
        let over = async move { drop(asked.wait_for(|&stop| stop).await) };
        let hosts = Hosts::Named(Vec::new());
        let thread = http::serve("web", listener, router(live, stopped), Limits::STREAMS, hosts, over)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the page's thread is no reason to end the run that it shows.
            let _ = thread.join();
        }
    }
}

/// Event streams at the same time; more are told to come back.
pub const CLIENTS_MAX: usize = 16;
/// Between two drawings.
const PUSH_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Page {
    live: Arc<Live>,
    nonce: Arc<str>,
    clients: Arc<AtomicUsize>,
    stopped: watch::Receiver<bool>,
}

fn router(live: Arc<Live>, stopped: watch::Receiver<bool>) -> Router {
    let nonce = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
    let page = Page { live, nonce: nonce.into(), clients: Arc::default(), stopped };
    Router::new()
        .route("/", get(index))
        .route("/events", get(events))
        .route("/frames.jsonl", get(frames))
        .with_state(page)
}

async fn index(State(page): State<Page>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (headers, Html(html::live_page(&page.live.info, &page.nonce))).into_response()
}

async fn frames(State(page): State<Page>) -> Response {
    let frames = page.live.seen().frames.clone();
    let mut lines = Vec::new();
    for frame in &frames {
        serde_json::to_writer(&mut lines, frame).expect("a frame is JSON");
        lines.push(b'\n');
    }
    ([(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")], lines)
        .into_response()
}

async fn events(State(page): State<Page>) -> Response {
    match Client::admitted(&page) {
        Some(client) => Sse::new(pushed(page, client)).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "enough browsers watch this run\n").into_response(),
    }
}

/// One event stream, counted while it lives.
struct Client {
    clients: Arc<AtomicUsize>,
}

impl Client {
    fn admitted(page: &Page) -> Option<Self> {
        let room = |count: usize| (count < CLIENTS_MAX).then_some(count + 1);
        page.clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Self { clients: Arc::clone(&page.clients) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next item of a stream.
enum Next {
    /// The body, once it has changed.
    Body,
    /// The line under the title, as this event; the body has just been sent.
    Line(&'static str, String, bool),
    /// Nothing: the run is over, or the server stops.
    End,
}

/// Body and state line by turns, until the run is over or the server stops. A browser that reads
/// slowly gets the present state when it has read: nothing queues up for it.
fn pushed(page: Page, client: Client) -> impl Stream<Item = Result<Event, Infallible>> {
    let versions = page.live.version.subscribe();
    let first = (Next::Body, versions, page, client, true);
    unfold(first, async move |(next, mut versions, mut page, client, fresh)| match next {
        Next::Body => {
            if !fresh {
                tokio::select! {
                    () = changed_after_a_while(&mut versions) => {}
                    _ = page.stopped.wait_for(|&stop| stop) => {}
                }
            }
            versions.mark_unchanged();
            let (body, state, over) = page.live.body();
            let last = over || *page.stopped.borrow();
            let event = Event::default().event("body").data(&*body);
            let name = if over { "over" } else { "state" };
            Some((Ok(event), (Next::Line(name, state, last), versions, page, client, false)))
        }
        Next::Line(name, state, last) => {
            let next = if last { Next::End } else { Next::Body };
            let event = Event::default().event(name).data(state);
            Some((Ok(event), (next, versions, page, client, false)))
        }
        Next::End => None,
    })
}

async fn changed_after_a_while(versions: &mut watch::Receiver<u64>) {
    tokio::time::sleep(PUSH_INTERVAL).await;
    // The sender lives in the run that this stream holds, so there is always a next change to wait
    // for.
    let _ = versions.changed().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{CpuId, Rate, WorkerId};
    use report::run::WorkerFrame;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpStream;
    use std::process::{Command, Stdio};

    fn live() -> Arc<Live> {
        let info = RunInfo {
            format: RunInfo::FORMAT,
            name: "sample".to_owned(),
            title: "Three treatments of one load.".to_owned(),
            command: vec!["roost".to_owned(), "demo".to_owned()],
            version: "0.1.0".to_owned(),
            started: report::run::utc(0),
            method: Vec::new(),
            machine: report::run::Machine::default(),
            config: toml::Table::new(),
        };
        Live::new(info)
    }

    fn frame(n: u64) -> Frame {
        let worker = |number: u16| WorkerFrame {
            worker: WorkerId(number),
            cpu: CpuId(0),
            active: number == 0,
            load: Rate::per_second(100.0),
            limit: None,
            busy: None,
            residents: 1,
            guests: 0,
        };
        Frame {
            phase: "stock".to_owned(),
            at: machine::Duration::from_millis(200 * (n + 1)),
            offered: Some(Rate::per_second(1_000.0)),
            p99: Some(machine::Duration::from_micros(300 + n)),
            workers: (0..2).map(worker).collect(),
            ..Frame::default()
        }
    }

    fn serve(live: &Arc<Live>) -> Web {
        Web::serve("127.0.0.1:0".parse().unwrap(), Reach::Loopback, Arc::clone(live)).unwrap()
    }

    fn ask(web: &Web, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(web.address()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        BufReader::new(stream)
    }

    fn whole(web: &Web, path: &str) -> String {
        let mut text = String::new();
        ask(web, path).read_to_string(&mut text).unwrap();
        text
    }

    /// The next event of this name: its data.
    fn event(stream: &mut BufReader<TcpStream>, name: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended before an event `{name}`");
            if line.trim_end() == format!("event: {name}") {
                line.clear();
                stream.read_line(&mut line).unwrap();
                return line.strip_prefix("data: ").expect("data follows").trim_end().to_owned();
            }
        }
    }

    #[test]
    fn an_address_that_others_reach_is_refused_unless_asked_for() {
        let at: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let message = Web::serve(at, Reach::Loopback, live()).unwrap_err().to_string();
        assert_eq!(
            message,
            "--web 0.0.0.0:0 could be read from other machines; use 127.0.0.1:0, or add --web-anywhere"
        );
        Web::serve(at, Reach::Anywhere, live()).unwrap();
    }

    #[test]
    fn a_taken_port_is_named() {
        let web = serve(&live());
        let message = Web::serve(web.address(), Reach::Loopback, live()).unwrap_err().to_string();
        assert!(message.ends_with("give --web another port, or 0 for any"), "{message}");
    }

    #[test]
    fn the_page_refers_to_nothing_outside() {
        let page = whole(&serve(&live()), "/");
        assert!(page.contains("Three treatments of one load."));
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="), "{page}");
        let (_, nonce) = page.split_once("script-src 'nonce-").unwrap();
        let nonce = nonce.split('\'').next().unwrap();
        assert!(page.contains(&format!("<script nonce=\"{nonce}\">")));
    }

    #[test]
    fn events_follow_the_run_to_its_end() {
        let live = live();
        let web = serve(&live);
        let mut events = ask(&web, "/events");
        assert!(event(&mut events, "body").contains("No worker reported"));
        assert_eq!(event(&mut events, "state"), "starting");
        live.frame(frame(1));
        assert!(event(&mut events, "body").contains("<svg"));
        assert_eq!(event(&mut events, "state"), "stock, 0.4 s");
        live.phase(Phase { name: "stock".to_owned(), requests: Some(5), ..Phase::default() });
        assert!(event(&mut events, "body").contains("id=\\\"figures\\\""));
        live.over(Summary::default(), "done, report in runs/sample");
        assert_eq!(event(&mut events, "over"), "done, report in runs/sample");
        let mut rest = String::new();
        events.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("event:"), "{rest}");
    }

    #[test]
    fn frames_can_be_fetched_as_they_are_recorded() {
        let live = live();
        let web = serve(&live);
        live.frame(frame(0));
        live.frame(frame(1));
        let answer = whole(&web, "/frames.jsonl");
        let lines: Vec<Frame> = answer
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines, [frame(0), frame(1)]);
    }

    #[test]
    fn an_absent_page_and_a_stranger_harm_nothing() {
        let live = live();
        let web = serve(&live);
        assert!(whole(&web, "/etc/passwd").starts_with("HTTP/1.1 404"));
        let mut stranger = TcpStream::connect(web.address()).unwrap();
        stranger.write_all(b"\x16\x03\x01 not http\r\n\r\n").unwrap();
        drop(stranger);
        assert!(whole(&web, "/").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn more_watchers_than_allowed_are_told_so_and_a_place_becomes_free() {
        let live = live();
        let web = serve(&live);
        let mut watchers: Vec<_> = (0..CLIENTS_MAX).map(|_| ask(&web, "/events")).collect();
        for watcher in &mut watchers {
            event(watcher, "state");
        }
        assert!(whole(&web, "/events").starts_with("HTTP/1.1 503"));
        watchers.pop();
        // The server notices the closed connection when it next has something to push.
        loop {
            live.frame(frame(0));
            let mut stream = ask(&web, "/events");
            let mut status = String::new();
            stream.read_line(&mut status).unwrap();
            if status.starts_with("HTTP/1.1 200") {
                break;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn dropping_the_server_ends_the_streams() {
        let live = live();
        let web = serve(&live);
        let mut events = ask(&web, "/events");
        event(&mut events, "state");
        drop(web);
        let mut rest = String::new();
        events.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("event: over"), "the run is not over: {rest}");
    }

    /// Needs Chromium on the `PATH`, or at `ROOST_CHROMIUM`; without one the test says so and is
    /// skipped.
    #[test]
    fn a_browser_draws_what_is_pushed() {
        let Some(chromium) = chromium() else { return };
        let live = live();
        let web = serve(&live);
        for n in 0..20 {
            live.frame(frame(n));
        }
        live.over(Summary::default(), "done, report in runs/sample");
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new(chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--virtual-time-budget=5000", "--dump-dom"])
            .arg(format!("http://{}/", web.address()))
            .stderr(Stdio::null())
            .output()
            .unwrap();
        let dom = String::from_utf8(output.stdout).unwrap();
        assert!(dom.contains(">done, report in runs/sample</p>"), "the script ran: {dom}");
        assert_eq!(dom.matches("<svg").count(), 3, "workers, latency and load have data: {dom}");
    }

    fn chromium() -> Option<std::path::PathBuf> {
        if let Some(named) = std::env::var_os("ROOST_CHROMIUM") {
            return Some(named.into());
        }
        let path = std::env::var_os("PATH")?;
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let mut files = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
        let found = files.find(|file| file.is_file());
        if found.is_none() {
            eprintln!(
                "SKIPPED: no chromium on the PATH; install one or set ROOST_CHROMIUM to test the live page"
            );
        }
        found
    }
}
