//! Servers written by hand, because they must misbehave, and clients that send any bytes.

use machine::Duration;
use proxy::{Config, Limits, Proxy, Server, Status};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// A request as a server got it.
#[derive(Clone, Debug)]
pub struct Got {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    pub fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// A server's reaction to a request: writes any bytes, and says whether the connection goes on.
pub type Act = dyn Fn(&Got, &mut TcpStream) -> bool + Send + Sync;

/// A server of HTTP/1.1, one thread for each connection. Ends when dropped.
pub struct Upstream {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    taken: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    pub fn start(act: impl Fn(&Got, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), Arc::new(act))
    }

    pub fn start_at(address: SocketAddr, act: Arc<Act>) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (taken, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (log, all, over) = (got.clone(), connections.clone(), is_over.clone());
        let (took, opened) = (taken.clone(), open.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                all.lock().unwrap().push(stream.try_clone().unwrap());
                took.fetch_add(1, Ordering::SeqCst);
                opened.fetch_add(1, Ordering::SeqCst);
                let (log, act, opened) = (log.clone(), act.clone(), opened.clone());
                std::thread::spawn(move || {
                    converse(stream, &log, &*act);
                    opened.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, got, connections, taken, open, is_over, thread: Some(thread) }
    }

    /// One that says its path, in a line.
    pub fn echo() -> Self {
        Self::start(|got, stream| say(stream, 200, got.path().as_bytes()))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Connections that it took, and those of them that are still open.
    pub fn connections(&self) -> (usize, usize) {
        (self.taken.load(Ordering::SeqCst), self.open.load(Ordering::SeqCst))
    }

    pub fn paths(&self) -> Vec<String> {
        self.got().iter().map(|got| got.path().to_owned()).collect()
    }

    /// Ends it in the middle of its work; its address refuses connections from then on.
    pub fn kill(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        thread.join().unwrap();
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.kill();
    }
}

fn converse(stream: TcpStream, log: &Mutex<Vec<Got>>, act: &Act) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some((line, headers)) = head(&mut reader) {
        let length = header(&headers, "content-length").map_or(0, |text| text.parse().unwrap());
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            break;
        }
        let got = Got { line, headers, body };
        log.lock().unwrap().push(got.clone());
        if !act(&got, &mut writer) {
            break;
        }
    }
    let _ = writer.shutdown(Shutdown::Both);
}

type Head = (String, Vec<(String, String)>);

fn head(reader: &mut impl std::io::BufRead) -> Option<Head> {
    let mut line = String::new();
    if !matches!(reader.read_line(&mut line), Ok(1..)) {
        return None;
    }
    let mut headers = Vec::new();
    loop {
        let mut text = String::new();
        if !matches!(reader.read_line(&mut text), Ok(1..)) {
            return None;
        }
        match text.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => return Some((line.trim_end().to_owned(), headers)),
        }
    }
}

pub fn say(stream: &mut TcpStream, status: u16, body: &[u8]) -> bool {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).is_ok()
}

pub struct Client {
    pub reader: BufReader<TcpStream>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body is as long as was said.
    pub is_whole: bool,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl Client {
    pub fn to(proxy: &Proxy) -> Self {
        Self { reader: BufReader::new(TcpStream::connect(proxy.addresses()[0]).unwrap()) }
    }

    pub fn write(&mut self, text: impl AsRef<[u8]>) {
        // A proxy that has refused already may have closed.
        let _ = self.reader.get_mut().write_all(text.as_ref());
    }

    /// `None` if the connection ends before an answer.
    pub fn read(&mut self) -> Option<Answer> {
        let (line, headers) = head(&mut self.reader)?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut body = Vec::new();
        let mut is_whole = true;
        if let Some(length) = header(&headers, "content-length") {
            let length: u64 = length.parse().unwrap();
            (&mut self.reader).take(length).read_to_end(&mut body).ok()?;
            is_whole = body.len() as u64 == length;
        } else if header(&headers, "transfer-encoding").is_some() {
            is_whole = self.chunks(&mut body).is_some();
        }
        Some(Answer { status, headers, body, is_whole })
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).ok().filter(|&bytes| bytes > 0)?;
            let length = u64::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; length as usize + 2];
            self.reader.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..length as usize]);
            if length == 0 {
                return Some(());
            }
        }
    }

    pub fn get(&mut self, path: &str) -> Option<Answer> {
        self.ask(path);
        self.read()
    }

    pub fn ask(&mut self, path: &str) {
        self.write(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    }
}

/// A proxy before some servers, listening wherever the system likes.
pub fn proxy(servers: &[&Upstream], change: impl FnOnce(&mut Config)) -> Proxy {
    let mut config = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        servers: servers.iter().map(|server| Server::at(&server.url())).collect(),
        limits: Limits { drain: Duration::from_secs(20), ..Limits::default() },
        ..Config::default()
    };
    change(&mut config);
    Proxy::start(config).unwrap()
}

/// Holds everything until so many are there; the goal is far away.
pub fn hold_until_full(config: &mut Config, count: u32) {
    config.goal = "1h@p99.9".parse().unwrap();
    config.stage.max_staged = count;
}

/// Waits until the proxy is as wanted. A state that never comes is a failure of the test, after a
/// generous time.
pub fn until(proxy: &Proxy, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let began = Instant::now();
    loop {
        let status = proxy.status();
        if is_so(&status) {
            return status;
        }
        assert!(began.elapsed().as_secs() < 30, "never: {what}: {status:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

pub fn held(status: &Status) -> u64 {
    status.servers.iter().map(|server| server.held).sum()
}
