//! The flags of a meta command.

use crate::key::{KEY_MAX, MetaKey};
use crate::number::{strict_i32, strict_u32, strict_u64};
use crate::refusal::Refusal;
use crate::token::{TOKENS_MAX, Tokens};

/// Words of a meta command, command and key included (`MFLAG_MAX_OPT_LENGTH`).
const WORDS_MAX: usize = 20;

/// Longest opaque, its letter included (`MFLAG_MAX_OPAQUE_LENGTH`).
const OPAQUE_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag<'a> {
    pub letter: u8,
    pub token: &'a [u8],
}

/// The flags of one command. Each letter comes once at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags<'a> {
    text: &'a [u8],
    /// Letters that came, bit 0 being `A`.
    present: u64,
    /// `T`: the item's new expiry.
    pub exptime: i32,
    /// `N`: the expiry of an item that this command creates.
    pub vivify: i32,
    /// `R`: an item that expires before this is to be fetched anew by one client.
    pub recache: i32,
    /// `F`: the client's number to be kept with the value.
    pub client_flags: u32,
    /// `C`: the unique number that the item must have.
    pub compare: Option<u64>,
    /// `E`: the unique number that the item is given.
    pub unique: Option<u64>,
    /// `M`: a variant of the command; zero if none is named.
    pub mode: u8,
    /// `J`: the number that `ma` creates.
    pub initial: u64,
    /// `D`: by how much `ma` changes a number.
    pub delta: u64,
}

/// Whether every flag begins with a letter or a digit, or one of the six characters between `Z` and
/// `a`.
pub(super) fn readable(tokens: Tokens<'_>, words_before_flags: usize) -> bool {
    let beyond_key = words_before_flags - 2;
    tokens.take(TOKENS_MAX - 2).skip(beyond_key).all(|token| matches!(token[0], b'A'..=b'z' | b'0'..=b'9'))
}

const fn bit(letter: u8) -> u64 {
    1 << (letter - b'A')
}

impl<'a> Flags<'a> {
    /// Reads the flags in `text`, which `words_before` words precede, and the key as they say.
    ///
    /// memcached reads on after a flag that it cannot use, and tells of the last mistake that it
    /// met, unless one of them ends the reading.
    pub(super) fn parse(
        wire: &'a [u8],
        text: &'a [u8],
        words_before: usize,
    ) -> Result<(MetaKey<'a>, Self), Refusal> {
        if wire.len() > KEY_MAX {
            return Err(Refusal::BadFormat);
        }
        let mut key = MetaKey { wire, encoded: false };
        let mut flags = Self { text, delta: 1, ..Self::default() };
        if text.is_empty() {
            return Ok((key, flags));
        }
        if words_before + Tokens::new(text).count() > WORDS_MAX {
            return Err(Refusal::TooManyFlags);
        }
        let mut mistake = None;
        for Flag { letter, token } in flags.iter() {
            if !letter.is_ascii_alphabetic() {
                return Err(Refusal::UnknownFlag);
            }
            if flags.has(letter) {
                return Err(Refusal::DuplicateFlag);
            }
            flags.present |= bit(letter);
            let argument = &token[1..];
            let understood = match letter {
                b'b' => {
                    key.encoded = true;
                    let mut scratch = [0; KEY_MAX];
                    (!key.decoded(&mut scratch).is_empty()).then_some(()).ok_or(Refusal::BadBase64)
                }
                b'N' => number(argument, strict_i32, &mut flags.vivify),
                b'T' => number(argument, strict_i32, &mut flags.exptime),
                b'R' => number(argument, strict_i32, &mut flags.recache),
                b'F' => number(argument, strict_u32, &mut flags.client_flags)
                    .map_err(|_| mistake.unwrap_or(Refusal::BadFormat)),
                b'C' => number(argument, strict_u64, flags.compare.insert(0)),
                b'E' => number(argument, strict_u64, flags.unique.insert(0)),
                b'J' => number(argument, strict_u64, &mut flags.initial).map_err(|_| Refusal::BadInitial),
                b'D' => number(argument, strict_u64, &mut flags.delta).map_err(|_| Refusal::BadDelta),
                b'M' => {
                    flags.mode = argument.first().copied().unwrap_or(b' ');
                    Ok(())
                }
                b'l' | b'h' | b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'u' | b'q'
                | b'x' | b'I' => Ok(()),
                _ => return Err(Refusal::UnknownFlag),
            };
            mistake = understood.err().or(mistake);
        }
        match mistake {
            None => Ok((key, flags)),
            Some(mistake) => Err(mistake),
        }
    }

    #[inline]
    pub const fn has(&self, letter: u8) -> bool {
        self.present & bit(letter) != 0
    }

    /// The flags in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = Flag<'a>> + use<'a> {
        Tokens::new(self.text).map(|token| Flag { letter: token[0], token })
    }

    /// An opaque has a bounded length.
    pub(super) fn check_opaque(&self) -> Result<(), Refusal> {
        let too_long = |flag: Flag<'_>| flag.letter == b'O' && flag.token.len() > OPAQUE_MAX;
        if self.has(b'O') && self.iter().any(too_long) { Err(Refusal::OpaqueTooLong) } else { Ok(()) }
    }
}

/// Reads a flag's number into its place.
fn number<T>(argument: &[u8], read: fn(&[u8]) -> Option<T>, place: &mut T) -> Result<(), Refusal> {
    let number = if argument.is_empty() { None } else { read(argument) };
    *place = number.ok_or(Refusal::BadFlagNumber)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> Result<Flags<'_>, Refusal> {
        Flags::parse(b"Zm9v", text.as_bytes(), 2).map(|(_, flags)| flags)
    }

    #[test]
    fn arguments_are_read_and_order_is_kept() {
        let flags = flags("t T30 v Oabc C18446744073709551615 N-1").unwrap();
        assert_eq!((flags.exptime, flags.vivify, flags.compare), (30, -1, Some(u64::MAX)));
        assert!(flags.has(b'v') && !flags.has(b'k'));
        let letters: Vec<_> = flags.iter().map(|flag| flag.letter).collect();
        assert_eq!(letters, *b"tTvOCN");
    }

    #[test]
    fn the_last_mistake_is_told_unless_one_ends_the_reading() {
        assert_eq!(flags("T"), Err(Refusal::BadFlagNumber));
        assert_eq!(flags("Tx J"), Err(Refusal::BadInitial));
        assert_eq!(flags("J Tx"), Err(Refusal::BadFlagNumber));
        assert_eq!(flags("J v v"), Err(Refusal::DuplicateFlag));
        assert_eq!(flags("J y"), Err(Refusal::UnknownFlag));
        assert_eq!(flags("F"), Err(Refusal::BadFormat), "the one flag that has no message of its own");
        assert_eq!(flags("J Fx"), Err(Refusal::BadInitial));
    }

    #[test]
    fn words_are_counted_and_measured() {
        let letters =
            ["k", "s", "t", "c", "f", "v", "u", "q", "x", "l", "h", "I", "O", "P", "L", "T1", "N1", "R1"];
        assert!(flags(&letters.join(" ")).is_ok(), "command, key and 18 flags");
        assert_eq!(flags(&[&letters[..], &["b"]].concat().join(" ")), Err(Refusal::TooManyFlags));
        let opaque = format!("O{}", "x".repeat(OPAQUE_MAX - 1));
        assert_eq!(flags(&opaque).unwrap().check_opaque(), Ok(()));
        assert_eq!(flags(&format!("{opaque}x")).unwrap().check_opaque(), Err(Refusal::OpaqueTooLong));
    }

    #[test]
    fn unreadable_flags_are_told_apart_from_unknown_ones() {
        assert!(readable(Tokens::new(b"v _ 5 [x"), 2));
        assert!(!readable(Tokens::new(b"v !"), 2));
        assert!(!readable(Tokens::new(b"@"), 2));
        assert!(readable(Tokens::new(b"-5 v"), 3), "the length of ms is no flag");
        assert_eq!(flags("_"), Err(Refusal::UnknownFlag));
        assert_eq!(flags("5"), Err(Refusal::UnknownFlag));
    }
}
