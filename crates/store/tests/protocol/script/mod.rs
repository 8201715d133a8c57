//! Random streams of requests.
//!
//! They lean towards a few keys, so that requests meet, and towards the edges: lengths around
//! limits, flags in any order, numbers that just fit and just do not, values that are shorter or
//! longer than announced, junk. They leave out the intended differences listed in
//! `docs/protocol.md`.

mod broken;
mod meta;
mod text;

use crate::compare::CHOSEN_UNIQUE;
use memcache::base64;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};

pub struct Script {
    pub requests: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests as a correct client sends them, by text protocol alone.
    Text,
    /// The same by text and meta protocol.
    WellFormed,
    /// Those, and broken ones of every sort.
    Hostile,
}

struct Author {
    random: StdRng,
    /// Names of this script alone, so that no script meets another one's items.
    keys: Vec<Vec<u8>>,
    /// Named in Base64 only.
    binary_keys: Vec<Vec<u8>>,
    /// The smallest unique number that the script chooses.
    unique: u64,
    hostile: bool,
    meta: bool,
}

/// Scripts' choices of unique numbers are this far apart: more than all stores in a test can use
/// up.
const CHOSEN_SPAN: u64 = 10_000_000;

/// Waits until everything before it is answered and sent. memcached keeps an item alive while an
/// answer with it waits to be sent, and then changes numbers differently (`docs/protocol.md`).
const FLUSH: &[u8] = b"mn\r\n";

impl Script {
    /// The script of this seed. `name` must be new to the servers.
    pub fn random(seed: u64, name: &str, kind: Kind, length: usize) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let mut keys: Vec<Vec<u8>> = (0..6).map(|number| format!("{name}-{number}").into_bytes()).collect();
        let mut longest = format!("{name}-").into_bytes();
        longest.resize(250, b'x');
        keys.push(longest);
        keys.push([name.as_bytes(), b"-\x01\xff\t"].concat());
        let binary_keys = (0..3).map(|number| format!("{name}-binary-{number}").into_bytes()).collect();
        let unique = CHOSEN_UNIQUE + CHOSEN_SPAN * seed;
        let hostile = kind == Kind::Hostile;
        let mut author = Author { random, keys, binary_keys, unique, hostile, meta: kind != Kind::Text };
        let mut requests = if author.meta { author.warm_up() } else { Vec::new() };
        requests.extend((0..length).map(|_| author.request()));
        Self { requests }
    }

    /// The stream cut at random places.
    pub fn pieces(stream: &[u8], seed: u64) -> Vec<&[u8]> {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut pieces, mut rest) = (Vec::new(), stream);
        while !rest.is_empty() {
            let longest = *[3, 40, 500, 20_000].choose(&mut random).expect("not empty");
            let (piece, behind) = rest.split_at(random.random_range(1..=longest).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces
    }
}

impl Author {
    /// Every key gets a unique number that the client chose. Ours count on from there, so that
    /// their own choices are no multiples of the step.
    fn warm_up(&mut self) -> Vec<Vec<u8>> {
        let keys: Vec<_> = self.keys.iter().map(|key| (key.clone(), false)).collect();
        let binary = self.binary_keys.iter().map(|key| (encoded(key), true));
        keys.into_iter()
            .chain(binary)
            .map(|(key, encoded)| {
                let flags = if encoded { &b" b"[..] } else { b"" };
                [b"ms ", &key[..], b" 0 E", self.unique.to_string().as_bytes(), flags, b"\r\n\r\n"].concat()
            })
            .collect()
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_range(0..times) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.random).expect("not empty")
    }

    fn request(&mut self) -> Vec<u8> {
        if self.hostile && self.one_in(5) {
            return self.broken();
        }
        match self.random.random_range(0..if self.meta { 22 } else { 12 }) {
            0..4 => self.retrieval(),
            4..8 => self.store(),
            8 => line(&[b"delete", &self.key(), self.noreply()]),
            9..11 => self.arithmetic(),
            11 => line(&[b"touch", &self.key(), self.exptime(), self.noreply()]),
            12..16 => self.meta_get(),
            16..19 => self.meta_set(),
            19 => self.meta_delete(),
            20 => self.meta_arithmetic(),
            _ => self.rare(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        if self.hostile && self.one_in(40) {
            return vec![b'k'; 251];
        }
        self.keys.choose(&mut self.random).expect("not empty").clone()
    }

    fn noreply(&mut self) -> &'static [u8] {
        if self.one_in(6) { b"noreply" } else { b"" }
    }

    fn exptime(&mut self) -> &'static [u8] {
        let sound = [&b"0"[..], b"0", b"100", b"1000", b"2592000", b"-1", b"2000000000", b"1000000000"];
        let unsound = [&b"x"[..], b"-", b"+5", b"99999999999", b"2147483648", b"\t7", b"1e3", b"-2147483648"];
        // Not one second, which a tick of either clock ends. Two thousand million are close to the end of
        // time.
        let sound = &sound[..if self.one_in(20) { sound.len() } else { 6 }];
        if self.hostile && self.one_in(10) { self.pick(&unsound) } else { self.pick(sound) }
    }

    fn flags(&mut self) -> &'static [u8] {
        let unsound = [&b"x"[..], b"-1", b"4294967296", b"+7", b"99999999999999999999", b"0x10"];
        if self.hostile && self.one_in(10) {
            self.pick(&unsound)
        } else {
            self.pick(&[&b"0"[..], b"0", b"5", b"32", b"4294967295"])
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.random_range(0..12) {
            0..4 => {
                let numbers = [0, 1, 9, 10, 99, 100, 999, 12_345, u64::MAX / 2, u64::MAX, u64::MAX - 1];
                // Old memcacheds may find a minus far behind a number above 2^63 and refuse to
                // count on.
                let number: u64 = self.pick(&numbers[..if self.meta { numbers.len() } else { 8 }]);
                number.to_string().into_bytes()
            }
            4 => self
                .pick(&[&b" 5"[..], b"5 ", b"-5", b"+5", b"5x", b"18446744073709551616", b"7\n", b"\t8"])
                .to_vec(),
            5 => Vec::new(),
            6 => b"\r\nget x\r\nEND\r\n".to_vec(),
            7 if self.one_in(4) => {
                // Junk longer than a line may be ends the connection where it is taken for
                // commands.
                let longest = if self.hostile { 1500 } else { 100_000 };
                let length = self.random.random_range(1..longest);
                self.bytes(length)
            }
            _ => {
                let length = self.random.random_range(0..200);
                self.bytes(length)
            }
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.random.fill_bytes(&mut bytes);
        // White space alone is a number to memcached, by the bytes that lie behind it.
        if bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b'\x0b') {
            bytes.fill(b'w');
        }
        bytes
    }
}

/// Words that are not empty, and a line ending.
fn line(words: &[&[u8]]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    [&words.join(&b' ')[..], b"\r\n"].concat()
}

fn encoded(key: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    base64::encode(key, &mut text);
    text
}
