//! Requests of the meta protocol.

use super::{Author, FLUSH, encoded, line};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};

impl Author {
    /// A key for a meta command and the flag that tells its encoding.
    pub(super) fn meta_key(&mut self) -> (Vec<u8>, &'static [u8]) {
        if self.one_in(4) {
            let key = self.binary_keys.choose(&mut self.random).expect("not empty");
            return (encoded(key), b"b");
        }
        (self.key(), b"")
    }

    /// Some of `choices` in any order.
    pub(super) fn some_of(&mut self, choices: &[&[u8]], one_in: u32) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = choices
            .iter()
            .filter(|_| self.random.random_range(0..one_in) == 0)
            .map(|word| word.to_vec())
            .collect();
        words.shuffle(&mut self.random);
        words
    }

    pub(super) fn meta(
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

    pub(super) fn meta_get(&mut self) -> Vec<u8> {
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

    pub(super) fn meta_set(&mut self) -> Vec<u8> {
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

    pub(super) fn meta_delete(&mut self) -> Vec<u8> {
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

    pub(super) fn meta_arithmetic(&mut self) -> Vec<u8> {
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
}
