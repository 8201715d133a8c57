//! Bytes that strangers may send, for a few seconds with the stable toolchain: sound streams,
//! damaged at random. The fuzz targets run as long as one likes.
//!
//! Seeds are fixed, and a failure prints its own.

use memcache::client::{Reading, compose, parse as read_answer};
use memcache::{Head, KEY_MAX, Request, head, parse, reply};

const STREAMS: u64 = 20_000;

/// Marsaglia's xorshift64: enough to pick places and bytes.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

fn requests() -> Vec<u8> {
    let mut out = Vec::new();
    compose::get(&mut out, b"key");
    compose::set(&mut out, b"key", 5, 60, b"value\r\nwith lines");
    out.extend_from_slice(
        b"get a bb ccc\r\nmg a2V5 b v t k Oq T30 N60 R10 C5 E6\r\nms key 5 T0 F9 MA I C1 E2 q\r\nvalue\r\n\
          cas key 1 2 3 4 noreply\r\nabc\r\nincr key 18446744073709551615\r\ngats -1 a b\r\ntouch key 5\r\n\
          md key I x T30 C5\r\nma key MD D5 J7 N9 v\r\nme key b\r\nmn\r\nflush_all 5 noreply\r\nverbosity 1\r\n\
          stats items\r\ndelete key noreply\r\nversion\r\nquit\r\n",
    );
    out
}

fn answers() -> Vec<u8> {
    let mut out = Vec::new();
    reply::value(&mut out, b"key", 7, b"value", Some(9));
    reply::value(&mut out, b"key", 0, b"", None);
    out.extend_from_slice(b"END\r\nVA 5 t-1 kkey\r\nvalue\r\nHD c5\r\nEN\r\nSTORED\r\n42\r\n");
    out.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
    out
}

fn damage(stream: &mut Vec<u8>, random: &mut Random) {
    const TELLING: &[u8] = b"\r\n \0\x80\xff-0129bCEINORTv";
    for _ in 0..=random.below(6) {
        let at = random.below(stream.len());
        match random.below(5) {
            0 => stream[at] = random.below(256) as u8,
            1 => stream[at] = TELLING[random.below(TELLING.len())],
            2 => drop(stream.drain(at..(at + random.below(9)).min(stream.len()))),
            3 => {
                let from = random.below(stream.len());
                let copied = stream[from..(from + random.below(40)).min(stream.len())].to_vec();
                stream.splice(at..at, copied);
            }
            _ => {
                let byte = TELLING[random.below(TELLING.len())];
                stream.splice(at..at, std::iter::repeat_n(byte, 1 << random.below(12)));
            }
        }
        if stream.is_empty() {
            stream.push(b'\n');
        }
    }
}

#[test]
fn damaged_requests_have_a_meaning_and_come_to_an_end() {
    for seed in 0..STREAMS {
        let mut stream = requests();
        damage(&mut stream, &mut Random::new(seed));
        let mut rest = &stream[..];
        while let Head::Line(line) = head(rest) {
            assert!(line.length <= rest.len() && line.text.len() < line.length, "seed {seed}");
            let mut scratch = [0; KEY_MAX];
            match parse(line) {
                Request::Retrieve(request) => {
                    let mut keys = request.keys.split(|byte| *byte == b' ');
                    assert!(keys.any(|key| (1..=KEY_MAX).contains(&key.len())), "seed {seed}");
                }
                Request::Store(request) => assert!((1..=KEY_MAX).contains(&request.key.len()), "seed {seed}"),
                Request::MetaSet(request) => {
                    assert!(!request.key.decoded(&mut scratch).is_empty(), "seed {seed}");
                    assert!(request.flags.iter().all(|flag| request.flags.has(flag.letter)), "seed {seed}");
                }
                Request::MetaGet(request) => {
                    assert!(!request.key.decoded(&mut scratch).is_empty(), "seed {seed}");
                    let mut echo = Vec::new();
                    request.key.echo(&mut echo);
                    assert!(echo.len() <= 2 + KEY_MAX + 2, "seed {seed}");
                }
                _ => {}
            }
            rest = &rest[line.length..];
        }
    }
}

#[test]
fn damaged_answers_are_read_refused_or_waited_for() {
    for seed in 0..STREAMS {
        let mut stream = answers();
        damage(&mut stream, &mut Random::new(seed));
        let mut rest = &stream[..];
        while let Ok(reading) = read_answer(rest) {
            match reading {
                Reading::Answer { length, .. } => {
                    assert!((1..=rest.len()).contains(&length), "seed {seed}");
                    rest = &rest[length..];
                }
                Reading::Partial { wanted } => {
                    assert!(wanted > rest.len(), "seed {seed}");
                    break;
                }
            }
        }
    }
}
