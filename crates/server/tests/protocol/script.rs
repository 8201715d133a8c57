//! Random streams of requests.
//!
//! They lean towards a few keys, so that requests meet, and towards the edges: lengths around limits, flags in any
//! order, numbers that just fit and just do not, values that are shorter or longer than announced, junk. What they
//! leave out is what `docs/protocol.md` lists as different on purpose.

use crate::compare::{CHOSEN_STEP, CHOSEN_UNIQUE};
use memcache::base64;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt, SeedableRng};

/// A stream, request by request.
pub struct Script {
    pub requests: Vec<Vec<u8>>,
}

/// What a script may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests as a correct client sends them, by text protocol alone.
    Text,
    /// The same by text and meta protocol.
    WellFormed,
    /// Those, and broken ones of every sort.
    Hostile,
}

/// Makes one script.
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

/// Scripts' choices of unique numbers are this far apart: more than a script can use up.
const CHOSEN_SPAN: u64 = 1_000_000;

/// Waits until everything before it is answered and sent. memcached keeps an item alive while an answer with it
/// waits to be sent, and then changes numbers differently (`docs/protocol.md`).
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
    /// Every key gets a unique number that the client chose. Ours count on from there, so that their own choices are
    /// no multiples of the step.
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
        let sound = [&b"0"[..], b"0", b"100", b"1000", b"2592000", b"-1", b"1", b"2000000000", b"1000000000"];
        let unsound = [&b"x"[..], b"-", b"+5", b"99999999999", b"2147483648", b"\t7", b"1e3", b"-2147483648"];
        // One second, and two thousand million, are too close to a tick or the end of time to be told from others.
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
                // Old memcacheds may find a minus far behind a number above 2^63 and refuse to count on.
                let number: u64 = self.pick(&numbers[..if self.meta { numbers.len() } else { 8 }]);
                number.to_string().into_bytes()
            }
            4 => self
                .pick(&[&b" 5"[..], b"5 ", b"-5", b"+5", b"5x", b"18446744073709551616", b"7\n", b"\t8"])
                .to_vec(),
            5 => Vec::new(),
            6 => b"\r\nget x\r\nEND\r\n".to_vec(),
            7 if self.one_in(4) => {
                // Junk longer than a line may be ends the connection where it is taken for commands.
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
        bytes
    }

    fn retrieval(&mut self) -> Vec<u8> {
        let command = self.pick(&[&b"get"[..], b"get", b"gets", b"gat", b"gats"]);
        let mut words = vec![command.to_vec()];
        if command.starts_with(b"gat") {
            words.push(self.exptime().to_vec());
        }
        let count = match self.random.random_range(0..20) {
            0 => self.random.random_range(20..400),
            1..8 => self.random.random_range(2..6),
            _ => 1,
        };
        // Long lists belong to get and gets: memcached closes on a gat of more than 2048 bytes, or not, by how it is cut.
        let count = if command.starts_with(b"gat") { count.min(6) } else { count };
        for _ in 0..count {
            words.push(self.keys.choose(&mut self.random).expect("not empty").clone());
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut request = line(&words);
        if self.one_in(10) {
            request = request.split(|&byte| byte == b' ').collect::<Vec<_>>().join(&b"   "[..]);
        }
        request
    }

    fn store(&mut self) -> Vec<u8> {
        let command =
            self.pick(&[&b"set"[..], b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"]);
        let unique = if command == b"cas" { self.unique() } else { Vec::new() };
        let (key, flags, exptime, value) = (self.key(), self.flags(), self.exptime(), self.value());
        let length = value.len().to_string();
        let noreply = self.noreply();
        let head = line(&[command, &key, flags, exptime, length.as_bytes(), &unique, noreply]);
        [&head[..], &value, b"\r\n"].concat()
    }

    fn unique(&mut self) -> Vec<u8> {
        let hostile: [&[u8]; 4] = [b"0", b"x", b"18446744073709551616", b""];
        if self.hostile && self.one_in(8) {
            return self.pick(&hostile).to_vec();
        }
        self.chosen_unique().to_string().into_bytes()
    }

    /// Few, so that they match now and then.
    fn chosen_unique(&mut self) -> u64 {
        self.unique + CHOSEN_STEP * self.random.random_range(0..3)
    }

    fn arithmetic(&mut self) -> Vec<u8> {
        let command = self.pick(&[&b"incr"[..], b"decr"]);
        let amount: &[u8] = if self.hostile && self.one_in(6) {
            self.pick(&[&b"x"[..], b"-1", b"18446744073709551616", b"00000000000000000000001"])
        } else {
            let amounts = [&b"1"[..], b"5", b"0", b"100", b"18446744073709551615"];
            self.pick(&amounts[..if self.meta { 5 } else { 4 }])
        };
        [FLUSH, &line(&[command, &self.key(), amount, self.noreply()])].concat()
    }

    /// A key for a meta command and the flag that tells its encoding.
    fn meta_key(&mut self) -> (Vec<u8>, &'static [u8]) {
        if self.one_in(4) {
            let key = self.binary_keys.choose(&mut self.random).expect("not empty");
            return (encoded(key), b"b");
        }
        (self.key(), b"")
    }

    /// Some of `choices` in any order.
    fn some_of(&mut self, choices: &[&[u8]], one_in: u32) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = choices
            .iter()
            .filter(|_| self.random.random_range(0..one_in) == 0)
            .map(|word| word.to_vec())
            .collect();
        words.shuffle(&mut self.random);
        words
    }

    fn meta(
        &mut self,
        command: &[u8],
        key: &[u8],
        length: &[u8],
        mut flags: Vec<Vec<u8>>,
        b: &[u8],
    ) -> Vec<u8> {
        if !b.is_empty() {
            flags.insert(self.random.random_range(0..=flags.len()), b.to_vec());
        }
        if self.hostile && self.one_in(12) {
            let unsound = [
                &b"v v"[..],
                b"T",
                b"Tx",
                b"!",
                b"y",
                b"5",
                b"N",
                b"Cx",
                b"J",
                b"D-1",
                b"M",
                b"MZ",
                b"F",
                b"Fx",
                b"_",
            ];
            flags.push(self.pick(&unsound).to_vec());
        }
        if self.hostile && self.one_in(40) {
            flags.extend(std::iter::repeat_n(b"P".to_vec(), 20));
        }
        let flags = flags.join(&b' ');
        line(&[command, key, length, &flags])
    }

    fn meta_get(&mut self) -> Vec<u8> {
        let (key, b) = self.meta_key();
        let mut flags = self.some_of(
            &[
                b"v", b"v", b"s", b"t", b"c", b"f", b"k", b"l", b"h", b"q", b"u", b"Oab1", b"N500", b"T1000",
                b"R300",
            ],
            3,
        );
        flags.dedup();
        let second_value =
            flags.iter().skip_while(|flag| *flag != b"v").skip(1).position(|flag| flag == b"v");
        if let (false, Some(_)) = (self.hostile, second_value) {
            let last = flags.iter().rposition(|flag| flag == b"v").expect("found above");
            flags.remove(last);
        }
        if self.one_in(10) {
            flags.push([b"C", &self.unique()[..]].concat());
        }
        if self.one_in(10) {
            flags.push([b"E", self.chosen_unique().to_string().as_bytes()].concat());
        }
        self.meta(b"mg", &key, b"", flags, b)
    }

    fn meta_set(&mut self) -> Vec<u8> {
        let (key, b) = self.meta_key();
        let mut flags = self.some_of(&[b"c", b"k", b"s", b"q", b"Oxyz", b"T1000", b"F77", b"N700"], 4);
        if self.one_in(3) {
            flags.push(self.pick(&[&b"ME"[..], b"MA", b"MP", b"MR", b"MS", b"MA", b"MP"]).to_vec());
        }
        match self.random.random_range(0..8) {
            0 => flags.push([b"C", &self.unique()[..]].concat()),
            // Too late for any item, and never a match: marks the item stale.
            1 => flags.extend([b"C2".to_vec(), b"I".to_vec()]),
            2 => flags.push([b"E", self.chosen_unique().to_string().as_bytes()].concat()),
            _ => {}
        }
        // Not with E: memcached then gives that number to the connection's next store.
        if self.hostile && self.one_in(20) && !flags.iter().any(|flag| flag[0] == b'E') {
            flags.push(format!("O{}", "z".repeat(self.random.random_range(30..34))).into_bytes());
        }
        let value = self.value();
        let head = self.meta(b"ms", &key, value.len().to_string().as_bytes(), flags, b);
        [&head[..], &value, b"\r\n"].concat()
    }

    fn meta_delete(&mut self) -> Vec<u8> {
        let (key, b) = self.meta_key();
        let mut flags = self.some_of(&[b"q", b"k", b"Oq1", b"I", b"I", b"T400", b"x", b"F9"], 3);
        flags.sort();
        flags.dedup();
        flags.shuffle(&mut self.random);
        match self.random.random_range(0..6) {
            0 => flags.push([b"C", &self.unique()[..]].concat()),
            1 => flags.push([b"E", self.chosen_unique().to_string().as_bytes()].concat()),
            _ => {}
        }
        self.meta(b"md", &key, b"", flags, b)
    }

    fn meta_arithmetic(&mut self) -> Vec<u8> {
        let (key, b) = self.meta_key();
        let mut flags = self.some_of(&[b"v", b"q", b"k", b"Oma", b"t", b"c", b"D7", b"J50", b"N300"], 3);
        match self.random.random_range(0..4) {
            // Only downwards: memcached loses both where the number becomes longer.
            0 => {
                flags.push(b"MD".to_vec());
                flags.extend(self.some_of(&[b"T800"], 2));
                if self.one_in(2) {
                    flags.push([b"E", self.chosen_unique().to_string().as_bytes()].concat());
                }
            }
            1 => flags.push(self.pick(&[&b"MI"[..], b"M+", b"MD", b"M-"]).to_vec()),
            2 => flags.push([b"C", &self.unique()[..]].concat()),
            _ => {}
        }
        [FLUSH, &self.meta(b"ma", &key, b"", flags, b)].concat()
    }

    fn rare(&mut self) -> Vec<u8> {
        match self.random.random_range(0..8) {
            0 => line(&[b"me", &self.key()]),
            1 => b"verbosity 0\r\n".to_vec(),
            2 => b"version\r\n".to_vec(),
            3 => b"mn\r\n".to_vec(),
            4 => b"shutdown\r\n".to_vec(),
            5 => b"stats nonsense\r\n".to_vec(),
            6 if self.one_in(4) => self.large(),
            _ => line(&[b"gets", self.keys.choose(&mut self.random).expect("not empty")]),
        }
    }

    /// A value around the largest size.
    fn large(&mut self) -> Vec<u8> {
        let key = self.keys[0].clone();
        let around = 48 + 8 + 1 + 2 + key.len();
        let largest = 1024 * 1024 - around;
        let length = if self.one_in(2) { largest } else { largest + 1 };
        let command = self.pick(&[&b"set"[..], b"add", b"append", b"ms"]);
        let value = vec![b'v'; length];
        let length = length.to_string();
        let head = match command {
            b"ms" => line(&[command, &key, length.as_bytes()]),
            _ => line(&[command, &key, b"0", b"0", length.as_bytes()]),
        };
        [&head[..], &value, b"\r\n"].concat()
    }

    /// What no correct client sends.
    fn broken(&mut self) -> Vec<u8> {
        match self.random.random_range(0..10) {
            0 => {
                // The value is longer than announced; what is over is taken for a command.
                let key = self.key();
                [&line(&[b"set", &key, b"0", b"0", b"3"]), &b"abcdefgh\r\n"[..]].concat()
            }
            1 => {
                // It is shorter, and takes the beginning of the next request with it.
                let key = self.key();
                [&line(&[b"set", &key, b"0", b"0", b"6"]), &b"abc\r\nget nothing-here\r\n"[..]].concat()
            }
            2 => {
                let key = self.key();
                let length = self.pick(&[&b"-1"[..], b"x", b"", b"2147483646", b"99999999999", b"+3"]);
                line(&[b"set", &key, b"0", b"0", length])
            }
            3 => self
                .pick(&[
                    &b"get\r\n"[..],
                    b"get \r\n",
                    b"gets\n",
                    b"gat 5\r\n",
                    b"set\r\n",
                    b"set a 0 0\r\n",
                    b"delete\r\n",
                    b"incr a\r\n",
                    b"touch a\r\n",
                    b"mg\r\n",
                    b"ms a\r\n",
                    b"ms a x\r\n",
                    b"md\r\n",
                    b"ma\r\n",
                    b"me\r\n",
                    b"verbosity\r\n",
                    b"verbosity noreply\r\n",
                    b"flush_all x\r\n",
                    b"\r\n",
                    b"\n",
                    b"a\r\n",
                    b"mn\n",
                    b"ab\n",
                    b"abc\n",
                    b" get a\r\n",
                    b" verbosity 0\r\n",
                    b"frob noreply\r\n",
                    b"mx a\r\n",
                    b"GET a\r\n",
                    b"touch a 0 b c\r\n",
                    b"delete a b noreply\r\n",
                    b"delete noreply\r\n",
                    b"me a !\r\n",
                ])
                .to_vec(),
            4 => line(&[b"delete", &[b'k'; 251], self.noreply()]),
            5 => {
                let mut request = line(&[b"set", &self.key(), b"0", b"0", b"1"]);
                let junk = b"a ".repeat(self.random.random_range(0..25));
                request.splice(request.len() - 2.., [&b" "[..], &junk, b"noreply\r\n"].concat());
                [&request[..], b"7\r\n"].concat()
            }
            6 => {
                let key = encoded(&self.binary_keys[0]);
                let damaged = self.pick(&[&b"!"[..], b"=", b"A", b"===", b"\x80"]);
                line(&[b"mg", &[&key[..], damaged].concat(), b"b", b"v"])
            }
            7 => line(&[b"cas", &self.key(), b"0", b"0", b"2", b"\r\nab"]),
            8 => {
                // Swallowed whole, whatever it holds.
                let key = vec![b'k'; 251];
                let head = self.pick(&[&b"set"[..], b"add", b"ms"]);
                let head = match head {
                    b"ms" => line(&[head, &key, b"10"]),
                    _ => line(&[head, &key, b"0", b"0", b"10"]),
                };
                [&head[..], b"get\r\na\r\nb3\r\n"].concat()
            }
            _ => {
                let length = self.random.random_range(0..60);
                let mut junk = self.bytes(length);
                junk.retain(|byte| *byte != b'\n');
                // Words that begin a command with a value would take the rest of the script with them.
                junk.insert(0, b'#');
                junk.extend_from_slice(b"\r\n");
                junk
            }
        }
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
