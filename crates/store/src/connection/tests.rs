//! A connection between a real socket and a store, one step at a time: the test is the client and
//! the worker.

use super::*;
use crate::session::{Alone, Counters, Limits};
use crate::store::{NewItem, Store, StoreConfig};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Lengths of the values that are there to be asked for.
const LENGTHS: [usize; 5] = [0, 10, 3_000, 70_000, 300_000];

/// The parts of a server, except for sockets.
struct Rig {
    store: Store,
    counters: Counters,
    limits: Limits,
    /// Turns so far: the answers of every other one are sent later, of those every other one in a first
    /// part by a ring.
    turns: Cell<u32>,
}

impl Rig {
    fn new(memory_limit: usize) -> Self {
        let limits = Limits::default();
        let store =
            Store::new(StoreConfig { memory_limit, max_item_size: limits.max_item_size, shards: None });
        Self { store: store.unwrap(), counters: Counters::default(), limits, turns: Cell::new(0) }
    }

    fn with_values() -> Self {
        let rig = Self::new(64 << 20);
        let (mut connection, client) = rig.connect();
        let mut scratch = Scratch::new();
        for (key, &length) in LENGTHS.iter().enumerate() {
            let text =
                [format!("ms v{key} {length}\r\n").into_bytes(), value(key), b"\r\n".to_vec()].concat();
            let mut rest = &text[..];
            let mut out = Vec::new();
            while out.is_empty() {
                rest = &rest[send_some(&client, rest)..];
                assert_ne!(rig.turn(&mut connection, &mut scratch), Turn::Closed);
                out = read_some(&client, 100);
            }
            assert_eq!(out, b"HD\r\n");
        }
        connection.close(rig.store.budget());
        rig
    }

    /// A connection and the client's end of it.
    fn connect(&self) -> (Connection, OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        (Connection::new(Socket::Plain(ours), ConnId(0), WorkerId(0)), theirs)
    }

    fn session(&self) -> Context<'_> {
        let Self { store, counters, limits, .. } = self;
        Context { store, counters, all: &Alone, now: 2, unix_offset: 0, limits, client: 1, users: None }
    }

    /// One turn, given as a worker gives it, in no time.
    fn turn<T: Transport>(&self, connection: &mut Connection<T>, scratch: &mut Scratch) -> Turn {
        self.turn_by(&|| Instant::ZERO, connection, scratch).1
    }

    /// One turn by that clock: requests served, and how it ended.
    fn turn_by<T: Transport>(
        &self,
        clock: &dyn Fn() -> Instant,
        connection: &mut Connection<T>,
        scratch: &mut Scratch,
    ) -> (u32, Turn) {
        let context = TurnContext { session: self.session(), began: clock(), clock };
        if !connection.is_plain() {
            return connection.take_turn(scratch, &context);
        }
        let length = match connection.receive(&mut scratch.input, self.store.budget()) {
            Ok(length) => length,
            Err(turn) => return (0, turn),
        };
        self.turns.set(self.turns.get() + 1);
        let sends_later = self.turns.get() % 2 == 1;
        let (requests, mut turn) = connection.take_received(0..length, scratch, &context, sends_later);
        if turn == Turn::Unsent {
            let by_ring = self.turns.get() % 4 == 3;
            let sent = by_ring.then(|| connection.socket.send(&scratch.output, self.store.budget()));
            turn = connection.send(&scratch.output, sent.and_then(Result::ok).unwrap_or(0), &context);
            scratch.clear_output();
        }
        (requests, turn)
    }

    /// Leaves so many bytes of the share of connections.
    fn leave(&self, bytes: usize) -> usize {
        let budget = self.store.budget();
        let mut taken = 0;
        for piece in [1 << 20, 1 << 10, 1] {
            while budget.try_charge_connection(piece) {
                taken += piece;
            }
        }
        let back = bytes.min(taken);
        budget.release_connection(back);
        taken - back
    }
}

/// A socket by a script: the bytes that it gives and takes at each call. The client holds the other
/// clone.
#[derive(Clone, Default)]
struct Script(Rc<RefCell<Lines>>);

#[derive(Default)]
struct Lines {
    /// The client's bytes that the server has not received.
    sent: VecDeque<u8>,
    /// Bytes that the next sends take at the most; a socket without room takes none. Afterwards it
    /// takes all.
    takes: VecDeque<usize>,
    out: Vec<u8>,
}

impl Transport for Script {
    fn receive(&mut self, into: &mut [u8], _: &Budget) -> Result<usize, Errno> {
        match std::io::Read::read(&mut self.0.borrow_mut().sent, into) {
            Ok(0) | Err(_) => Err(Errno::AGAIN),
            Ok(length) => Ok(length),
        }
    }

    fn receive_behind(&mut self, into: &mut Vec<u8>, budget: &Budget) -> Result<usize, Errno> {
        let mut bytes = vec![0; into.capacity() - into.len()];
        let length = self.receive(&mut bytes, budget)?;
        into.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn send(&mut self, bytes: &[u8], _: &Budget) -> Result<usize, Errno> {
        let mut lines = self.0.borrow_mut();
        let length = lines.takes.pop_front().unwrap_or(bytes.len()).min(bytes.len());
        lines.out.extend_from_slice(&bytes[..length]);
        if length == 0 { Err(Errno::AGAIN) } else { Ok(length) }
    }
}

/// A transport that always has half of a record left over.
struct Halves(Script);

impl Transport for Halves {
    fn receive(&mut self, into: &mut [u8], budget: &Budget) -> Result<usize, Errno> {
        self.0.receive(into, budget)
    }

    fn receive_behind(&mut self, into: &mut Vec<u8>, budget: &Budget) -> Result<usize, Errno> {
        self.0.receive_behind(into, budget)
    }

    fn send(&mut self, bytes: &[u8], budget: &Budget) -> Result<usize, Errno> {
        self.0.send(bytes, budget)
    }

    fn is_incomplete(&self) -> bool {
        true
    }
}

#[test]
fn half_a_record_stalls_only_while_nothing_comes() {
    let rig = Rig::new(64 << 20);
    let script = Script::default();
    let mut connection = Connection::new(Halves(script.clone()), ConnId(0), WorkerId(0));
    let mut scratch = Scratch::new();
    let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
    for second in 1..100 {
        script.0.borrow_mut().sent.extend(b"mn\r\n");
        rig.turn(&mut connection, &mut scratch);
        connection.look_at_rest(at(second));
        assert_eq!(connection.stalled_since(), Some(at(second)), "a request has come since");
    }
    for second in 100..110 {
        connection.look_at_rest(at(second));
        assert_eq!(connection.stalled_since(), Some(at(99)));
    }
}

fn value(key: usize) -> Vec<u8> {
    (0..LENGTHS[key]).map(|at| b'a' + (at * 7 + key) as u8 % 26).collect()
}

fn send_some(client: &OwnedFd, bytes: &[u8]) -> usize {
    send(client, bytes, SendFlags::NOSIGNAL).unwrap_or(0)
}

fn read_some(client: &OwnedFd, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let mut length = 0;
    while length < most {
        match recv(client, &mut bytes[length..], RecvFlags::empty()) {
            Ok((0, _)) | Err(_) => break,
            Ok((more, _)) => length += more,
        }
    }
    bytes.truncate(length);
    bytes
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Get(usize),
    Set(usize),
    Noop,
}

impl Ask {
    fn request(self, at: usize) -> Vec<u8> {
        match self {
            Self::Get(key) => format!("mg v{key} v O{at}\r\n").into_bytes(),
            Self::Set(length) => {
                [format!("ms w {length} O{at}\r\n").as_bytes(), &vec![b'w'; length], b"\r\n"].concat()
            }
            Self::Noop => format!("mg nothing O{at}\r\n").into_bytes(),
        }
    }

    /// The possible answers. A value that could not be kept while it was incomplete is refused.
    fn answers(self, at: usize) -> Vec<Vec<u8>> {
        match self {
            Self::Get(key) => {
                let head = format!("VA {} O{at}\r\n", LENGTHS[key]).into_bytes();
                vec![[head, value(key), b"\r\n".to_vec()].concat()]
            }
            Self::Set(_) => vec![
                format!("HD O{at}\r\n").into_bytes(),
                b"SERVER_ERROR out of memory storing object\r\n".to_vec(),
            ],
            Self::Noop => vec![format!("EN O{at}\r\n").into_bytes()],
        }
    }
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let ask = prop_oneof![
        4 => (0..LENGTHS.len()).prop_map(Ask::Get),
        3 => prop_oneof![0..50usize, 0..200_000usize].prop_map(Ask::Set),
        4 => Just(Ask::Noop),
    ];
    let many = (1..700usize).prop_map(|count| vec![Ask::Noop; count]);
    let some = proptest::collection::vec(ask, 1..40);
    (prop::option::of(many), some).prop_map(|(many, some)| [many.unwrap_or_default(), some].concat())
}

/// Follows the answers through `out`; where they end before all are there, says at which request.
fn follow(asks: &[Ask], out: &[u8], is_closed: bool) -> Result<usize, String> {
    let mut rest = out;
    for (at, ask) in asks.iter().enumerate() {
        let answers = ask.answers(at);
        if let Some(answer) = answers.iter().find(|answer| rest.starts_with(answer)) {
            rest = &rest[answer.len()..];
        } else if is_closed && answers.iter().any(|answer| answer.starts_with(rest)) {
            return Ok(at);
        } else {
            let seen = String::from_utf8_lossy(&rest[..rest.len().min(80)]).into_owned();
            return Err(format!("request {at}, {ask:?}, is answered by {seen:?}"));
        }
    }
    if rest.is_empty() { Ok(asks.len()) } else { Err(format!("{} bytes that answer nothing", rest.len())) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_an_unlimited_server_or_a_prefix_and_a_close(
        asks in asks(),
        left in prop_oneof![Just(0usize), 0..5_000usize, 0..400_000usize, Just(usize::MAX)],
        takes in proptest::collection::vec(prop_oneof![2 => Just(0usize), 3 => 1..100_000usize], 0..60),
        steps in proptest::collection::vec((0..100_000usize, any::<bool>(), 0..8u8), 1..60),
    ) {
        let rig = Rig::with_values();
        let taken = rig.leave(left);
        let script = Script::default();
        script.0.borrow_mut().takes = takes.into();
        let mut connection = Connection::new(script.clone(), ConnId(0), WorkerId(0));
        let mut scratches = [Scratch::new(), Scratch::new()];
        let text: Vec<u8> = asks.iter().enumerate().flat_map(|(at, ask)| ask.request(at)).collect();
        let (mut rest, mut is_closed) = (&text[..], false);
        for (most, is_move, turns) in steps {
            let (piece, behind) = rest.split_at(most.min(rest.len()));
            script.0.borrow_mut().sent.extend(piece);
            rest = behind;
            // Another worker has other scratch space; all else moves with the connection.
            if is_move {
                scratches.swap(0, 1);
            }
            for _ in 0..turns {
                is_closed = is_closed || rig.turn(&mut connection, &mut scratches[0]) == Turn::Closed;
            }
        }
        // The client sends the rest, and takes all there is.
        script.0.borrow_mut().sent.extend(rest);
        script.0.borrow_mut().takes.clear();
        // A turn may only look at bytes that are left over, and find no whole request.
        let so_far = |connection: &Connection<Script>| {
            (connection.progress(), connection.has_unserved(), script.0.borrow().out.len())
        };
        let mut before = None;
        while !is_closed && before != Some(so_far(&connection)) {
            before = Some(so_far(&connection));
            is_closed = rig.turn(&mut connection, &mut scratches[0]) == Turn::Closed;
        }
        prop_assert!(!is_closed || left != usize::MAX, "closed though there is memory");
        follow(&asks, &script.0.borrow().out, is_closed).map_err(TestCaseError::fail)?;
        connection.close(rig.store.budget());
        rig.store.budget().release_connection(taken);
    }
}

#[test]
fn a_dump_takes_no_more_than_its_turn_though_no_byte_can_be_kept() {
    let rig = Rig::with_values();
    for key in 0..5_000 {
        let new = NewItem { flags: 0, exptime: 0, value: &[b""], cas: None };
        rig.store.entry(format!("key{key}").as_bytes(), 2).put(new).unwrap();
    }
    let taken = rig.leave(0);
    let script = Script::default();
    script.0.borrow_mut().sent.extend(b"lru_crawler mgdump all\r\n");
    let mut connection = Connection::new(script.clone(), ConnId(0), WorkerId(0));
    // A second passes at each look: a turn is over as it begins.
    let clock = Cell::new(0);
    let clock = || Instant::ZERO + Duration::from_secs(clock.replace(clock.get() + 1));
    let (_, turn) = rig.turn_by(&clock, &mut connection, &mut Scratch::new());
    assert_eq!(turn, Turn::Closed);
    assert!(!script.0.borrow().out.ends_with(b"EN\r\n"), "{} bytes", script.0.borrow().out.len());
    connection.close(rig.store.budget());
    rig.store.budget().release_connection(taken);
}

#[test]
fn whole_requests_are_answered_though_no_byte_can_be_kept() {
    let rig = Rig::new(16 << 20);
    rig.leave(0);
    let (mut connection, client) = rig.connect();
    let text = b"mn\r\n".repeat(4_000);
    assert_eq!(send_some(&client, &text), text.len());
    let mut scratch = Scratch::new();
    assert_ne!(rig.turn(&mut connection, &mut scratch), Turn::Closed);
    assert_eq!(read_some(&client, 1 << 20), b"MN\r\n".repeat(4_000));
}

#[test]
fn no_turn_writes_more_than_its_share() {
    let rig = Rig::with_values();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ours = listener.accept().unwrap().0;
    ours.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    let (ours, client) = (OwnedFd::from(ours), OwnedFd::from(client));
    sockopt::set_socket_send_buffer_size(&ours, 4 << 20).unwrap();
    let mut connection = Connection::new(Socket::Plain(ours), ConnId(0), WorkerId(0));
    let mut scratch = Scratch::new();
    for keys in ["v3 ", "v4 "] {
        let text = format!("get {}\r\n", keys.repeat(100));
        assert_eq!(send_some(&client, text.as_bytes()), text.len());
        let mut out = Vec::new();
        while !out.ends_with(b"END\r\n") {
            assert_ne!(rig.turn(&mut connection, &mut scratch), Turn::Closed);
            assert!(connection.written <= TURN_BYTES, "{} bytes in a turn", connection.written);
            out.extend(read_some(&client, 8 << 20));
        }
        assert_eq!(out.windows(6).filter(|part| part == b"VALUE ").count(), 100);
    }
}

#[test]
fn a_turn_ends_when_its_time_is_over() {
    let rig = Rig::with_values();
    let (mut connection, client) = rig.connect();
    let mut scratch = Scratch::new();
    // Each look at this clock finds that a tenth of a turn's time has passed.
    let time = Cell::new(Instant::ZERO);
    let clock = || {
        time.set(time.get() + Duration::from_nanos(TURN_TIME.as_nanos() / 10));
        time.get()
    };
    let mut serve = |text: &[u8], most: u32| {
        assert_eq!(send_some(&client, text), text.len());
        loop {
            let (requests, turn) = rig.turn_by(&clock, &mut connection, &mut scratch);
            assert!(requests <= most, "{requests} requests in a turn");
            read_some(&client, 1 << 20);
            match turn {
                Turn::Again | Turn::Held => {}
                Turn::Idle => break,
                Turn::Closed | Turn::Unsent => panic!("{turn:?}"),
            }
        }
    };
    serve(&b"mn\r\n".repeat(2_000), 10 * SLICE_REQUESTS);
    serve(format!("get {}\r\n", "none ".repeat(2_000)).as_bytes(), 10 * SLICE_REQUESTS);
    // A request that copies the old value may take as long as a slice of others.
    serve(&b"append v4 0 0 1\r\n+\r\n".repeat(100), 10);
    serve(&b"ms v4 1 MP\r\n+\r\n".repeat(100), 10);
    serve(&b"stats\r\n".repeat(100), 10);
    assert_eq!(rig.store.entry(b"v4", 2).item().unwrap().value.len(), LENGTHS[4] + 200);
}

#[test]
fn what_is_announced_is_not_charged() {
    let rig = Rig::new(64 << 20);
    let (mut connection, client) = rig.connect();
    let mut scratch = Scratch::new();
    let before = rig.store.budget().used();
    for piece in [&b"set key 0 0 1000000\r\nbegun"[..], b"a", b"few", b"more"] {
        assert_eq!(send_some(&client, piece), piece.len());
        assert_eq!(rig.turn(&mut connection, &mut scratch), Turn::Idle);
    }
    let charged = rig.store.budget().used() - before;
    assert!(charged <= 16 << 10, "{charged} bytes charged for some forty");
    assert!(connection.stalled_since().is_some(), "a request that does not go on is watched");
}

/// Items of 1 KB that a store of 128 MiB keeps of 150,000.
fn kept(rig: &Rig) -> u64 {
    for key in 0..150_000u32 {
        let item = crate::store::NewItem { flags: 0, exptime: 0, value: &[&[b'x'; 1_000]], cas: None };
        rig.store.entry(format!("key{key}").as_bytes(), 2).put(item).unwrap();
    }
    rig.store.stats().items
}

#[test]
#[cfg_attr(miri, ignore = "many steps")]
fn half_sent_values_leave_the_items_their_room() {
    let alone = kept(&Rig::new(128 << 20));
    let rig = Rig::new(128 << 20);
    let mut scratch = Scratch::new();
    let piece = [b"set key 0 0 1000000\r\n", &[b'v'; 150_000][..]].concat();
    let mut clients = Vec::new();
    for _ in 0..400 {
        let (mut connection, client) = rig.connect();
        let mut rest = &piece[..];
        let mut turn = Turn::Idle;
        let mut before = None;
        while before != Some(connection.progress()) && turn != Turn::Closed {
            before = Some(connection.progress());
            rest = &rest[send_some(&client, rest)..];
            turn = rig.turn(&mut connection, &mut scratch);
        }
        clients.push((connection, client));
    }
    let beside = kept(&rig);
    assert!(beside * 10 >= alone * 9, "{beside} items kept beside half-sent values, {alone} alone");
    assert!(rig.store.budget().used() <= rig.store.budget().limit());
}
