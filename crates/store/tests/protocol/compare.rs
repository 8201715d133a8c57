//! When two servers' answers count as the same.
//!
//! Byte for byte, after these replacements on both sides, each for a reason:
//!
//! - The unique number (`VALUE`, flag `c`, `cas=`) becomes `*` where the server chose it: servers count
//!   differently. Numbers that the client chose (multiples of 10^6 from 10^12 on) are compared.
//! - Seconds to live (flag `t`, `exp=`) may differ by 3: clocks tick at different instants.
//! - Seconds since the last access (flag `l`, `la=`) become `*`: memcached notes the first access after
//!   a store late, Roost notes every one.
//! - `cls=` and `size=` of `me` become `*`: they are about memcached's slabs.
//! - `k<base64> b` (flag `k` of a key in Base64) becomes `k<key>`: memcached answers in the encoding in
//!   which the item was stored, Roost in that of the request.
//! - The rest of the line `VERSION` becomes `*`.

use memcache::base64;

/// The smallest unique number that scripts choose; all of them are multiples of it.
pub const CHOSEN_UNIQUE: u64 = 1_000_000_000_000;
pub const CHOSEN_STEP: u64 = 1_000_000;

/// Seconds by which two servers may differ about a time to live.
const TIME_TOLERANCE: u64 = 3;

/// Cut into comparable parts: lines and values.
fn units(answers: &[u8]) -> Vec<Vec<u8>> {
    let mut units = Vec::new();
    let mut rest = answers;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").map_or(rest.len(), |at| at + 2);
        let (line, behind) = rest.split_at(end);
        rest = behind;
        let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
        let length = match words[..] {
            [b"VALUE", _, _, length, ..] | [b"VA", length, ..] => number(length),
            _ => None,
        };
        units.push(normal(&words, line.ends_with(b"\r\n")));
        if let Some(length) = length {
            let length = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX).saturating_add(2));
            units.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
    }
    units
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unique(text: &[u8]) -> Vec<u8> {
    match number(text) {
        Some(number) if number >= CHOSEN_UNIQUE && number.is_multiple_of(CHOSEN_STEP) => text.to_vec(),
        Some(0) => text.to_vec(),
        _ => b"*".to_vec(),
    }
}

fn normal(words: &[&[u8]], ended: bool) -> Vec<u8> {
    let mut line: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    match words[0] {
        b"VALUE" if words.len() == 5 => line[4] = unique(words[4]),
        b"VERSION" => line = vec![b"VERSION".to_vec(), b"*".to_vec()],
        b"ME" => {
            for word in &mut line {
                for name in [&b"cls="[..], b"size=", b"la="] {
                    if word.starts_with(name) {
                        *word = [name, b"*"].concat();
                    }
                }
                if let Some(number) = word.strip_prefix(b"cas=") {
                    *word = [b"cas=", &unique(number)[..]].concat();
                }
            }
        }
        b"VA" | b"HD" | b"EN" | b"NS" | b"EX" | b"NF" => {
            for word in &mut line {
                match word.first() {
                    Some(b'c') => *word = [b"c", &unique(&word[1..])[..]].concat(),
                    Some(b'l') => *word = b"l*".to_vec(),
                    _ => {}
                }
            }
            if line.last().is_some_and(|word| word == b"b") || line.iter().any(|word| word == b"b") {
                line.retain(|word| word != b"b");
                for word in line.iter_mut().filter(|word| word.starts_with(b"k")) {
                    let mut key = vec![0; word.len()];
                    if let Some(length) = base64::decode(&word[1..], &mut key) {
                        *word = [b"k", &key[..length]].concat();
                    }
                }
            }
        }
        _ => {}
    }
    let mut line = line.join(&b' ');
    if ended {
        line.extend_from_slice(b"\r\n");
    }
    line
}

/// Whether two lines say the same, times to live being allowed to differ a little.
fn same(ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let (ours, theirs): (Vec<&[u8]>, Vec<&[u8]>) = (words(ours), words(theirs));
    let time = |word: &[u8]| word.strip_prefix(b"exp=").or_else(|| word.strip_prefix(b"t")).and_then(number);
    ours.len() == theirs.len()
        && std::iter::zip(ours, theirs).all(|(ours, theirs)| match (time(ours), time(theirs)) {
            (Some(ours), Some(theirs)) => ours.abs_diff(theirs) <= TIME_TOLERANCE,
            _ => ours == theirs,
        })
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|&byte| byte == b' ' || byte == b'\r').collect()
}

/// The first difference, told for a person; `None` if there is none.
pub fn difference(ours: &[u8], theirs: &[u8]) -> Option<String> {
    let (ours, theirs) = (units(ours), units(theirs));
    let at = (0..ours.len().max(theirs.len())).find(|&at| match (ours.get(at), theirs.get(at)) {
        (Some(ours), Some(theirs)) => !same(ours, theirs),
        _ => true,
    })?;
    let show = |units: &[Vec<u8>]| {
        units[units.len().min(at.saturating_sub(3))..units.len().min(at + 3)]
            .iter()
            .map(|unit| format!("\n    {:?}", String::from_utf8_lossy(&unit[..unit.len().min(200)])))
            .collect::<String>()
    };
    Some(format!("at unit {at}\n  ours:{}\n  memcached:{}", show(&ours), show(&theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_chooses_may_differ_and_nothing_else() {
        let same = |ours: &str, theirs: &str| difference(ours.as_bytes(), theirs.as_bytes()).is_none();
        assert!(same("HD c5 t30\r\n", "HD c9 t29\r\n"));
        assert!(!same("HD c5 t30\r\n", "HD c9 t20\r\n"));
        assert!(!same("HD c1000001000000\r\n", "HD c1000002000000\r\n"));
        assert!(same("VALUE k 0 1 7\r\na\r\nEND\r\n", "VALUE k 0 1 8\r\na\r\nEND\r\n"));
        assert!(!same("VALUE k 0 1\r\na\r\nEND\r\n", "VALUE k 0 1\r\nb\r\nEND\r\n"));
        assert!(
            !same("VALUE k 0 4\r\nHD c\r\nEND\r\n", "VALUE k 0 4\r\nHD d\r\nEND\r\n"),
            "values are not lines"
        );
        assert!(same("HD kZm9v b\r\n", "HD kfoo\r\n"));
        assert!(!same("HD\r\n", "HD\r\nHD\r\n"));
    }
}
