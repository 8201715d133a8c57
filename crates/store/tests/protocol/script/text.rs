//! Requests of the text protocol.

use super::{Author, FLUSH, line};
use crate::compare::CHOSEN_STEP;
use rand::RngExt;
use rand::seq::IndexedRandom;

impl Author {
    pub(super) fn retrieval(&mut self) -> Vec<u8> {
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
        // Long lists belong to get and gets: memcached closes on a gat of more than 2048 bytes, or
        // not, by how it is cut.
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

    pub(super) fn store(&mut self) -> Vec<u8> {
        let command =
            self.pick(&[&b"set"[..], b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"]);
        let unique = if command == b"cas" { self.unique() } else { Vec::new() };
        let (key, flags, exptime, value) = (self.key(), self.flags(), self.exptime(), self.value());
        let length = value.len().to_string();
        let noreply = self.noreply();
        let head = line(&[command, &key, flags, exptime, length.as_bytes(), &unique, noreply]);
        [&head[..], &value, b"\r\n"].concat()
    }

    pub(super) fn unique(&mut self) -> Vec<u8> {
        let hostile: [&[u8]; 4] = [b"0", b"x", b"18446744073709551616", b""];
        if self.hostile && self.one_in(8) {
            return self.pick(&hostile).to_vec();
        }
        self.chosen_unique().to_string().into_bytes()
    }

    /// Few, so that they match now and then.
    pub(super) fn chosen_unique(&mut self) -> u64 {
        self.unique + CHOSEN_STEP * self.random.random_range(0..3)
    }

    pub(super) fn arithmetic(&mut self) -> Vec<u8> {
        let command = self.pick(&[&b"incr"[..], b"decr"]);
        let amount: &[u8] = if self.hostile && self.one_in(6) {
            self.pick(&[&b"x"[..], b"-1", b"18446744073709551616", b"00000000000000000000001"])
        } else {
            let amounts = [&b"1"[..], b"5", b"0", b"100", b"18446744073709551615"];
            self.pick(&amounts[..if self.meta { 5 } else { 4 }])
        };
        [FLUSH, &line(&[command, &self.key(), amount, self.noreply()])].concat()
    }

    pub(super) fn rare(&mut self) -> Vec<u8> {
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
    pub(super) fn large(&mut self) -> Vec<u8> {
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
}
