//! A short text of printable ASCII: the name of a kind of hardware, or one of Roost's own sentences.

use serde::{Deserialize, Serialize};
use std::fmt;

/// At most [`Word::LENGTH_MAX`] bytes, and none that a terminal or a page would take for a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Word(String);

impl Word {
    /// Longer than a processor's name, which has 48 bytes at most (CPUID, leaves 80000002 to
    /// 80000004 of the hex numbers), and long enough for a reason.
    pub const LENGTH_MAX: usize = 160;

    /// Other characters become `?`, and the rest is cut off.
    pub fn of(text: &str) -> Self {
        let kept = text.trim().chars().map(|letter| if is_kept(letter) { letter } else { '?' });
        Self(kept.take(Self::LENGTH_MAX).collect())
    }

    /// A name that a driver gives to a kind of thing: one that holds other characters than those of
    /// such names is left out whole.
    pub fn name(text: &str) -> Option<Self> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-+. ".contains(letter);
        let text = text.trim();
        (!text.is_empty() && text.len() <= 32 && text.chars().all(is_name)).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_kept(letter: char) -> bool {
    (' '..='~').contains(&letter) && !matches!(letter, '<' | '>' | '&' | '`' | '|' | '\\')
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let word = Self::of(&text);
        if word.0 == text { Ok(word) } else { Err("a text that is too long or not plain".to_owned()) }
    }
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        word.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_plain() {
        assert_eq!(Word::of(" Intel(R) Xeon(R) CPU @ 2.20GHz\n").as_str(), "Intel(R) Xeon(R) CPU @ 2.20GHz");
        assert_eq!(Word::of("a<b>\u{1b}[1m").as_str(), "a?b??[1m");
        assert_eq!(Word::of(&"x".repeat(500)).as_str().len(), Word::LENGTH_MAX);
        assert!(serde_json::from_str::<Word>("\"a<b\"").is_err());
        assert_eq!(serde_json::from_str::<Word>("\"C6\"").unwrap(), Word::of("C6"));
    }

    #[test]
    fn a_name_with_strange_letters_is_left_out() {
        assert_eq!(Word::name("haltpoll idle"), Some(Word::of("haltpoll idle")));
        for odd in ["", "db1:eth0", "user@host", "/home/x", &"x".repeat(33)] {
            assert_eq!(Word::name(odd), None, "{odd}");
        }
    }
}
