//! A line asked, and an answer with an end, over one connection that is kept.
//!
//! One for each question would be the service's work, more than the answer itself: it accepts,
//! hands over and closes, and wakes a thread for each. And it would be counted: a service that has
//! not seen yet that the last one is closed reports two of ours, and so does one that two of us ask
//! at once. So a second caller waits for the first; neither takes longer than [`PATIENCE`].
//!
//! Invariants: after any end but a whole answer the connection is not used again, so a late answer
//! is never taken for another's; a connection that the service has closed meanwhile, by a restart
//! or a timeout, is replaced silently.

use super::source::{Failure, LINE_SHOWN, PATIENCE, WHERE};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where to ask, and the connection.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    addresses: Vec<SocketAddr>,
    framing: Framing,
    kept: Arc<Mutex<Option<TcpStream>>>,
}

/// How the end of an answer is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// memcached's and Roost's: lines that begin with `STAT`, up to `END`.
    Stats,
    /// Redis': a line `$LENGTH`, so many bytes, and the end of a line.
    Bulk,
}

impl Framing {
    /// The content of a whole answer.
    fn whole(self, answer: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Stats => answer.strip_suffix(b"END\r\n").filter(|before| is_lines(before)),
            Self::Bulk => {
                let first = answer.iter().position(|&byte| byte == b'\n')?;
                let length = std::str::from_utf8(&answer[..first]).ok()?.trim_end().strip_prefix('$')?;
                let content = answer[first + 1..].strip_suffix(b"\r\n")?;
                (length.parse() == Ok(content.len())).then_some(content)
            }
        }
    }

    /// As far as it goes, it may be one.
    fn begins(self, answer: &[u8]) -> bool {
        match self {
            Self::Stats => answer.iter().zip(b"STAT ").all(|(is, should)| is == should),
            Self::Bulk => {
                let line = answer.split(|&byte| byte == b'\n').next().unwrap_or_default();
                let is_length = |byte: &u8| byte.is_ascii_digit() || *byte == b'\r';
                line.strip_prefix(b"$").is_some_and(|length| length.iter().all(is_length))
            }
        }
    }
}

/// memcached's stats have 2 KiB, Redis' INFO 5; a Roost of a thousand workers 256 KiB.
pub(super) const ANSWER_MAX: usize = 1 << 20;

/// For a whole exchange, connecting included.
#[derive(Clone, Copy)]
struct Deadline(Instant);

/// Why a connection gave no whole answer.
enum Broken {
    /// It was closed before the first byte of one.
    Unanswered(Failure),
    Failed(Failure),
}

impl Exchange {
    /// Not connected yet. The first address that accepts is taken.
    pub fn with(addresses: Vec<SocketAddr>, framing: Framing) -> Self {
        Self { addresses, framing, kept: Arc::default() }
    }

    /// Sends a line, and returns the content of the answer. `fix`: the remedy if that is no answer.
    pub fn ask(&self, line: &str, fix: &str) -> Result<String, Failure> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Deadline(Instant::now() + Duration::from(PATIENCE));
        if let Some(mut stream) = kept.take().filter(is_quiet) {
            match self.exchange(&mut stream, line, fix, deadline) {
                Ok(answer) => {
                    *kept = Some(stream);
                    return Ok(answer);
                }
                Err(Broken::Failed(failure)) => return Err(failure),
                Err(Broken::Unanswered(_)) => {}
            }
        }
        let mut stream = self.connect(deadline)?;
        let answer = self.exchange(&mut stream, line, fix, deadline)?;
        *kept = Some(stream);
        Ok(answer)
    }

    fn connect(&self, deadline: Deadline) -> Result<TcpStream, Failure> {
        let mut connected = Err(Failure::new("it has no address", WHERE));
        for address in &self.addresses {
            connected =
                TcpStream::connect_timeout(address, deadline.left()?).map_err(|cause| Failure::of(&cause));
            if connected.is_ok() {
                break;
            }
        }
        connected
    }

    fn exchange(
        &self,
        stream: &mut TcpStream,
        line: &str,
        fix: &str,
        deadline: Deadline,
    ) -> Result<String, Broken> {
        let failed = |cause| Failure::of(&cause);
        stream.set_write_timeout(Some(deadline.left()?)).map_err(failed)?;
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        if let Err(cause) = stream.write_all(format!("{line}\r\n").as_bytes()) {
            return Err(broken(&cause, &answer));
        }
        loop {
            stream.set_read_timeout(Some(deadline.left()?)).map_err(failed)?;
            let read = match stream.read(&mut part) {
                Ok(0) => {
                    let failure = Failure::new("it closed the connection before its answer's end", fix);
                    return Err(if answer.is_empty() { Broken::Unanswered(failure) } else { failure.into() });
                }
                Ok(read) => read,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(cause) => return Err(broken(&cause, &answer)),
            };
            answer.extend_from_slice(&part[..read]);
            if let Some(content) = self.framing.whole(&answer) {
                return Ok(String::from_utf8_lossy(content).into_owned());
            }
            if !self.framing.begins(&answer) && (answer.contains(&b'\n') || answer.len() > LINE_SHOWN) {
                let line: String = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().into();
                let shown: String = line.chars().take(LINE_SHOWN).collect();
                return Err(Failure::new(format!("it answers `{}`", shown.escape_debug()), fix).into());
            }
            if answer.len() > ANSWER_MAX {
                return Err(
                    Failure::new(format!("its answer does not end within {ANSWER_MAX} bytes"), fix).into()
                );
            }
        }
    }
}

impl Deadline {
    fn left(self) -> Result<Duration, Failure> {
        let left = self.0.saturating_duration_since(Instant::now());
        // A timeout of zero would be none.
        if left.is_zero() { Err(Failure::silent()) } else { Ok(left) }
    }
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        let (Broken::Unanswered(failure) | Broken::Failed(failure)) = broken;
        failure
    }
}

/// Neither closed nor with unexpected data to read.
fn is_quiet(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let is_quiet = matches!(looked, Err(cause) if cause.kind() == ErrorKind::WouldBlock);
    is_quiet && stream.set_nonblocking(false).is_ok()
}

fn broken(cause: &std::io::Error, answer: &[u8]) -> Broken {
    let failure = Failure::of(cause);
    match cause.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if answer.is_empty() => {
            Broken::Unanswered(failure)
        }
        _ => Broken::Failed(failure),
    }
}

/// Nothing, or lines that have ended.
fn is_lines(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes.ends_with(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    /// A service that gives each of its connections these answers, one to a line, and closes it
    /// after the last.
    fn service(connections: Vec<Vec<&'static str>>) -> Exchange {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let exchange = Exchange::with(vec![listener.local_addr().unwrap()], Framing::Stats);
        std::thread::spawn(move || {
            for answers in connections {
                let (mut client, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(client.try_clone().unwrap());
                for answer in answers {
                    lines.read_line(&mut String::new()).unwrap();
                    client.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        exchange
    }

    fn asked(exchange: &Exchange) -> Result<String, String> {
        exchange.ask("stats", "mend it").map_err(|failure| failure.to_string())
    }

    #[test]
    fn one_connection_does_for_all_questions_until_it_is_closed() {
        let exchange = service(vec![vec!["STAT a 1\r\nEND\r\n", "END\r\n"], vec!["STAT a 2\r\nEND\r\n"]]);
        let copy = exchange.clone();
        assert_eq!(asked(&exchange).unwrap(), "STAT a 1\r\n");
        assert_eq!(asked(&copy).unwrap(), "");
        assert_eq!(asked(&exchange).unwrap(), "STAT a 2\r\n", "anew, without a word");
    }

    #[test]
    fn an_answer_that_comes_too_late_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let exchange = Exchange::with(vec![listener.local_addr().unwrap()], Framing::Stats);
        let asking = {
            let exchange = exchange.clone();
            std::thread::spawn(move || [asked(&exchange), asked(&exchange)])
        };
        let (mut late, _) = listener.accept().unwrap();
        let (mut second, _) = listener.accept().unwrap();
        // The first has given up, or it would not be here.
        let _ = late.write_all(b"STAT late 1\r\nEND\r\n");
        second.write_all(b"STAT a 1\r\nEND\r\n").unwrap();
        let [first, then] = asking.join().unwrap();
        assert!(first.unwrap_err().contains("no whole answer"));
        assert_eq!(then.unwrap(), "STAT a 1\r\n");
    }

    #[test]
    fn one_that_speaks_unasked_is_not_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let exchange = Exchange::with(vec![listener.local_addr().unwrap()], Framing::Stats);
        let serve = || {
            let (mut client, _) = listener.accept().unwrap();
            BufReader::new(client.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
            client.write_all(b"STAT a 1\r\nEND\r\n").unwrap();
            client
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| asked(&exchange));
            let mut client = serve();
            assert_eq!(first.join().unwrap().unwrap(), "STAT a 1\r\n");
            client.write_all(b"STAT b 2\r\nEND\r\n").unwrap();
            let second = scope.spawn(|| asked(&exchange));
            let _kept = serve();
            assert_eq!(second.join().unwrap().unwrap(), "STAT a 1\r\n");
        });
    }
}
