use super::*;
use crate::{Client, Identity, Server};
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::path::{Path, PathBuf};

fn of_tests(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stage").join(name)
}

fn server(clients: Option<PathBuf>) -> Server {
    let identity =
        Identity { certificate: of_tests("localhost.pem"), key: of_tests("localhost.key.pem"), clients };
    Server::load(identity).unwrap()
}

fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

type Ours = TlsSocket<UnbufferedServerConnection>;
type Theirs = TlsSocket<UnbufferedClientConnection>;

fn pair() -> (Ours, Theirs) {
    let (ours, theirs) = sockets();
    let client = Client::new(&of_tests("localhost.pem"), "localhost").unwrap();
    (server(None).accept(ours).unwrap(), client.connect(theirs).unwrap())
}

fn acquainted() -> (Ours, Theirs) {
    let (mut ours, mut theirs) = pair();
    for _ in 0..10 {
        let done = [theirs.greet().unwrap(), ours.greet().unwrap()];
        if done == [true, true] {
            return (ours, theirs);
        }
    }
    panic!("they do not get acquainted");
}

/// Sends as a connection does: bytes that were not taken go first the next time.
struct Sender {
    bytes: Vec<u8>,
    at: usize,
}

impl Sender {
    fn go_on<S: Session>(&mut self, socket: &mut TlsSocket<S>, most: usize) {
        let end = self.bytes.len().min(self.at + most.max(1));
        match socket.send(&self.bytes[self.at..end]) {
            Ok(length) => self.at += length,
            Err(Errno::AGAIN) => {}
            Err(errno) => panic!("{errno}"),
        }
    }

    fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }
}

#[test]
fn a_word_goes_both_ways_and_nothing_is_held_after_it() {
    let (mut ours, mut theirs) = acquainted();
    let mut space = [0; 100];
    for _ in 0..3 {
        assert_eq!(theirs.send(b"get a\r\n"), Ok(7));
        assert_eq!(ours.receive(&mut space), Ok(7));
        assert_eq!(&space[..7], b"get a\r\n");
        assert_eq!(ours.send(b"END\r\n"), Ok(5));
        assert_eq!(theirs.receive(&mut space), Ok(5));
    }
    assert_eq!(ours.receive(&mut space), Err(Errno::AGAIN));
    assert_eq!((ours.held(), theirs.held()), (0, 0));
    assert!(!ours.has_more());
    theirs.say_farewell();
    assert_eq!(ours.receive(&mut space), Ok(0), "the end");
    assert_eq!(ours.send(b"END\r\n"), Ok(5), "our part is not ended");
}

#[test]
fn records_that_came_together_are_told_of() {
    let (mut ours, mut theirs) = acquainted();
    for word in [b"one", b"two", b"six"] {
        theirs.send(word).unwrap();
    }
    let mut space = [0; 2];
    let mut seen = Vec::new();
    loop {
        let length = ours.receive(&mut space).unwrap();
        seen.extend_from_slice(&space[..length]);
        if !ours.has_more() {
            break;
        }
    }
    assert_eq!(seen, b"onetwosix");
    assert_eq!(ours.receive(&mut space), Err(Errno::AGAIN));
}

#[test]
fn a_farewell_that_a_send_takes_in_is_an_end_that_is_told_of() {
    let (mut ours, mut theirs) = acquainted();
    theirs.send(b"get a\r\n").unwrap();
    theirs.say_farewell();
    assert_eq!(ours.receive(&mut [0; 100]), Ok(7));
    assert_eq!(ours.send(b"END\r\n"), Ok(5));
    assert!(ours.has_more(), "the kernel tells of nothing any more");
    assert_eq!(ours.receive(&mut [0; 100]), Ok(0));
    // Our own farewell comes through, too.
    ours.say_farewell();
    assert_eq!(theirs.receive(&mut [0; 100]), Ok(5));
    assert_eq!(theirs.receive(&mut [0; 100]), Ok(0));
}

#[test]
fn a_client_whose_first_word_comes_with_its_greeting_is_greeted() {
    let (mut ours, mut theirs) = pair();
    theirs.greet().unwrap();
    ours.greet().unwrap();
    assert!(theirs.greet().unwrap());
    theirs.send(b"set a 0 0 1 noreply\r\nx\r\n").unwrap();
    assert!(!ours.is_greeted());
    assert_eq!(ours.receive(&mut [0; 100]), Ok(24));
    assert!(ours.is_greeted(), "it waits for nothing of the client's");
}

#[test]
fn small_records_are_taken_by_the_hundred() {
    let (mut ours, mut theirs) = acquainted();
    for _ in 0..150 {
        theirs.send(b"mn\r\n").unwrap();
    }
    let mut space = [0; 550];
    assert_eq!(ours.receive(&mut space), Ok(550), "as much as there is room for");
    assert_eq!(ours.receive(&mut space), Ok(50));
    assert!(!ours.has_more());
}

#[test]
fn a_greeting_in_pieces_is_waited_for_and_keeps_no_thread_busy() {
    let (ours, wire) = sockets();
    let (theirs, tap) = sockets();
    let client = Client::new(&of_tests("localhost.pem"), "localhost").unwrap();
    let (mut ours, mut theirs) = (server(None).accept(ours).unwrap(), client.connect(theirs).unwrap());
    theirs.greet().unwrap();
    let mut hello = vec![0; 4_000];
    let (_, length) = recv(&tap, &mut hello[..], RecvFlags::empty()).unwrap();
    // One record becomes three, each with a part of the message.
    let message = hello[HEADER..length].to_vec();
    for part in message.chunks(message.len().div_ceil(3)) {
        let mut record = hello[..3].to_vec();
        record.extend_from_slice(&(part.len() as u16).to_be_bytes());
        record.extend_from_slice(part);
        assert_eq!(ours.receive(&mut [0; 100]), Err(Errno::AGAIN));
        assert!(!ours.has_more(), "nothing can be done with what came");
        rustix::net::send(&wire, &record, SendFlags::empty()).unwrap();
    }
    assert_eq!(ours.receive(&mut [0; 100]), Err(Errno::AGAIN));
    let mut answer = [0; 1];
    assert!(recv(&wire, &mut answer[..], RecvFlags::empty()).is_ok(), "it was understood");
}

#[test]
fn a_stranger_without_a_certificate_is_refused_where_one_is_asked_for() {
    let (ours, theirs) = sockets();
    let mut ours = server(Some(of_tests("localhost.pem"))).accept(ours).unwrap();
    let client = Client::new(&of_tests("localhost.pem"), "localhost").unwrap();
    let mut theirs = client.connect(theirs).unwrap();
    let told = (0..10).find_map(|_| {
        let _ = theirs.greet();
        ours.greet().err()
    });
    assert_eq!(told, Some(Errno::PROTO));
    // Of TLS 1.3 the client's part is over before it learns of it.
    assert_eq!(theirs.receive(&mut [0; 100]), Err(Errno::PROTO));
}

#[test]
fn the_wrong_name_and_plain_text_are_no_acquaintance() {
    let (ours, theirs) = sockets();
    let client = Client::new(&of_tests("localhost.pem"), "elsewhere.example").unwrap();
    let (mut ours, mut theirs) = (server(None).accept(ours).unwrap(), client.connect(theirs).unwrap());
    let told = (0..10).find_map(|_| theirs.greet().err().or_else(|| ours.greet().err()));
    assert_eq!(told, Some(Errno::PROTO));

    let (ours, theirs) = sockets();
    let mut ours = server(None).accept(ours).unwrap();
    rustix::net::send(&theirs, b"set a 0 0 1\r\nx\r\n", SendFlags::empty()).unwrap();
    assert_eq!(ours.receive(&mut [0; 100]), Err(Errno::PROTO));
    assert_eq!(ours.send(b"ERROR\r\n"), Err(Errno::PROTO), "nothing is said in plain text");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the sizes, and whichever side is slow, the bytes are the same, and memory is bounded.
    #[test]
    fn bytes_arrive_as_they_were_sent(
        there in proptest::collection::vec(any::<u8>(), 0..400_000),
        back in proptest::collection::vec(any::<u8>(), 0..400_000),
        turns in proptest::collection::vec((0..4_u8, 1..70_000_usize), 1..60),
    ) {
        let (mut ours, mut theirs) = acquainted();
        let mut asks = Sender { bytes: there.clone(), at: 0 };
        let mut answers = Sender { bytes: back.clone(), at: 0 };
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        let mut space = vec![0; 70_000];
        for round in 0..100_000 {
            // After the turns all go on at the same pace, so that it ends.
            let (who, size) = turns.get(round).copied().unwrap_or(((round % 4) as u8, 50_000));
            match who {
                0 => asks.go_on(&mut theirs, size),
                1 => answers.go_on(&mut ours, size),
                2 => take(&mut ours, &mut space[..size], &mut asked),
                _ => take(&mut theirs, &mut space[..size], &mut answered),
            }
            prop_assert!(ours.held() < 200_000 && theirs.held() < 200_000);
            let have_come = asked.len() == there.len() && answered.len() == back.len();
            if asks.is_done() && answers.is_done() && have_come {
                break;
            }
        }
        prop_assert!(asked == there && answered == back);
        prop_assert!(!ours.has_more() && !theirs.has_more());
    }

    /// Strangers' bytes end the connection, or wait for more; they open nothing.
    #[test]
    fn any_bytes_of_a_stranger_are_refused_or_waited_for(
        bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        is_hello: bool,
    ) {
        let (ours, theirs) = sockets();
        let mut ours = server(None).accept(ours).unwrap();
        let mut bytes = bytes;
        if is_hello && bytes.len() > 9 {
            let length = (bytes.len() - 5) as u16;
            bytes[..3].copy_from_slice(&[22, 3, 1]);
            bytes[3..5].copy_from_slice(&length.to_be_bytes());
            bytes[5] = 1;
        }
        rustix::net::send(&theirs, &bytes, SendFlags::empty()).unwrap();
        for _ in 0..3 {
            match ours.receive(&mut [0; 100]) {
                Ok(length) => prop_assert_eq!(length, 0),
                Err(errno) => prop_assert!(matches!(errno, Errno::AGAIN | Errno::PROTO | Errno::PIPE)),
            }
        }
    }
}

fn take<S: Session>(socket: &mut TlsSocket<S>, space: &mut [u8], into: &mut Vec<u8>) {
    match socket.receive(space) {
        Ok(length) => into.extend_from_slice(&space[..length]),
        Err(Errno::AGAIN) => {}
        Err(errno) => panic!("{errno}"),
    }
}
