//! Asks a source on a thread of its own, at the times that it is told.
//!
//! A controller that decides once an epoch wants an answer when its epoch ends, and cannot wait for
//! one. So it announces the time: the thread asks a little earlier ([`Asker::lead`]), and the
//! answers that have come by then are taken without waiting.
//!
//! ```text
//!   epoch      |----------------------------------------|----------------------
//!   thread          sleeps                    |ask, told|
//!   caller     |next(..)                                |answers()  next(..)
//! ```
//!
//! Invariants:
//! - No call of this blocks, however long the source does.
//! - At most one question is under way. One that is late is answered late, and its answer bears its
//!   own time.
//! - The thread ends with the [`Asker`], or once its question is answered.

use super::source::Source;
use super::tally::Answer;
use super::timed;
use machine::{CpuList, Duration, Instant};
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// Asks when it is told to.
#[derive(Debug)]
pub struct Asker {
    wishes: Sender<Wish>,
    answers: Receiver<(Instant, Duration, Answer)>,
    took: Duration,
}

enum Wish {
    Ask(Instant),
    Stay(CpuList),
}

impl Asker {
    /// Begins with a first question, at once.
    pub fn start(source: Source) -> io::Result<Self> {
        let (wishes, wished) = channel();
        let (told, answers) = channel();
        std::thread::Builder::new().name("scrape".to_owned()).spawn(move || {
            let mut due = BTreeSet::from([linux::now()]);
            loop {
                let now = linux::now();
                let wait = due.first().map_or(FOREVER, |first| first.since(now));
                if wait.is_zero() {
                    // Requests that became due meanwhile share one question.
                    due.retain(|at| *at > now);
                    let (at, answer) = timed(&source);
                    let took = linux::now().since(now);
                    if told.send((at, took, answer.map_err(|failure| format!("{failure:#}")))).is_err() {
                        return;
                    }
                    continue;
                }
                match wished.recv_timeout(wait.into()) {
                    Ok(Wish::Ask(at)) if due.len() < WISHES => drop(due.insert(at)),
                    // A cpuset may forbid it; then it is where it is.
                    Ok(Wish::Stay(cpus)) => drop(linux::pin_current_thread_to(&cpus)),
                    Ok(Wish::Ask(_)) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { wishes, answers, took: Duration::ZERO })
    }

    /// An answer is wanted of this moment.
    pub fn next(&self, at: Instant) {
        // The thread ends only after this.
        let _ = self.wishes.send(Wish::Ask(at));
    }

    /// The thread keeps itself to these CPUs from now on, so that it wakes none that is parked.
    pub fn stay_on(&self, cpus: &CpuList) {
        let _ = self.wishes.send(Wish::Stay(cpus.clone()));
    }

    /// The answers since the last call, in order.
    pub fn answers(&mut self) -> Vec<(Instant, Answer)> {
        let mut answers = Vec::new();
        while let Ok(answer) = self.answers.try_recv() {
            answers.push(self.noted(answer));
        }
        answers
    }

    /// Waits for the first answer, but no longer than this.
    pub fn first(&mut self, at_most: Duration) -> Option<(Instant, Answer)> {
        let answer = self.answers.recv_timeout(at_most.into()).ok()?;
        Some(self.noted(answer))
    }

    /// How much earlier to ask than the answer is needed: twice as long as the source lately took.
    pub fn lead(&self) -> Duration {
        (self.took * 2).max(LEAD_MIN)
    }

    fn noted(&mut self, (at, took, answer): (Instant, Duration, Answer)) -> (Instant, Answer) {
        // A source that was slow once may be again; it is forgiven by a half each time.
        self.took = took.max(self.took / 2);
        (at, answer)
    }
}

/// A loopback exchange takes a quarter of a millisecond, and a thread may be woken some
/// milliseconds late.
const LEAD_MIN: Duration = Duration::from_millis(5);
/// No caller wishes more than the end of this epoch and, after a change, its beginning.
const WISHES: usize = 4;
const FOREVER: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::super::source::tests::{answering, source};
    use super::*;
    use std::net::TcpListener;

    fn stats(count: u32) -> String {
        format!("STAT cmd_get {count}\r\nEND\r\n")
    }

    #[test]
    fn it_asks_when_it_is_told_and_not_otherwise() {
        let address = answering(vec![stats(1), stats(2), stats(3)]);
        let source = source(&format!("memcached:{address}"), None, None).unwrap();
        let mut asker = Asker::start(source).unwrap();
        let (_, first) = asker.first(Duration::from_secs(5)).unwrap();
        assert_eq!(first.unwrap().requests, 1.0);
        let at = linux::now() + Duration::from_millis(150);
        asker.next(at);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(asker.answers(), []);
        let (when, second) = asker.first(Duration::from_secs(5)).unwrap();
        assert!(when >= at && second.unwrap().requests == 2.0);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(asker.answers(), [], "no third question");
        assert!(asker.lead() >= LEAD_MIN);
    }

    #[test]
    fn a_source_that_hangs_blocks_no_caller() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let named = format!("memcached:{}", silent.local_addr().unwrap());
        let began = linux::now();
        let mut asker = Asker::start(source(&named, None, None).unwrap()).unwrap();
        for _ in 0..100 {
            asker.next(linux::now());
            assert_eq!(asker.answers(), []);
        }
        drop(asker);
        assert!(linux::now().since(began) < Duration::from_millis(500));
    }

    #[test]
    fn a_refusal_is_an_answer_with_its_fix() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut asker = Asker::start(source(&format!("memcached:{free}"), None, None).unwrap()).unwrap();
        let (_, answer) = asker.first(Duration::from_secs(5)).unwrap();
        assert!(answer.unwrap_err().contains("no service listens there; start the service"));
    }
}
