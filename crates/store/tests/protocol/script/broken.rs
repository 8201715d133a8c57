//! Requests that no correct client sends.

use super::{Author, encoded, line};
use rand::RngExt;

impl Author {
    pub(super) fn broken(&mut self) -> Vec<u8> {
        match self.random.random_range(0..10) {
            0 => {
                // The value is longer than announced; the surplus is taken for a command.
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
                // Words that begin a command with a value would take the rest of the script with
                // them.
                junk.insert(0, b'#');
                junk.extend_from_slice(b"\r\n");
                junk
            }
        }
    }
}
