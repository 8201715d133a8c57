//! Search queries: how many keywords each has, and which.
//!
//! A query's cost in a search engine grows with its keywords, and with how common they are: every
//! document that has one is scored. So a load of queries is two laws. The number of keywords is a
//! [`Keywords`]: the mixes of the Hurry-up paper and of CloudSuite, or a range of one class. The
//! words are drawn from a list of the index's own, most frequent first, by a [`Popularity`] over
//! the ranks: words of real queries follow Zipf's law as the texts do, and uniform ones would make
//! long queries of words that no document contains.
//!
//! Invariants: query number n is a pure function of the seed, the list and n; a query's words
//! differ from each other as long as the list has enough of them.

use crate::alias::Alias;
use crate::distribution::{KEYWORDS_MAX, keyword_weight};
use crate::requests::request_stream;
use crate::{Popularity, Ranks, SpecError, connections};
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keywords {
    /// 95 % have 1 to 8 and 5 % 9 to 18, by Zipf's law within each (Hurry-up, section II-C;
    /// exponent 1).
    Paper,
    /// CloudSuite's web search: 24 % have 1, 24 % 2, 22 % 3, 14 % 4, 5 % 5, 4 % 6, 3 % 7, and 4 % 7
    /// to 16 alike.
    CloudSuite,
    /// From one number to another, in the proportions of the paper's mix: 3 to 4 are its light
    /// class, 12 to 18 its heavy one (section III).
    Range(u8, u8),
}

impl Keywords {
    pub const LIGHT: Self = Self::Range(3, 4);
    pub const HEAVY: Self = Self::Range(12, 18);

    /// The weight of each number of keywords, from 1 on.
    fn weights(&self) -> [f64; KEYWORDS_MAX as usize] {
        let mut weights = [0.0; KEYWORDS_MAX as usize];
        for (place, weight) in weights.iter_mut().enumerate() {
            let k = place as u8 + 1;
            *weight = match self {
                Self::Paper => keyword_weight(k),
                Self::CloudSuite => cloudsuite_weight(k),
                Self::Range(fewest, most) if (*fewest..=*most).contains(&k) => keyword_weight(k),
                Self::Range(..) => 0.0,
            };
        }
        weights
    }
}

/// Share of CloudSuite's queries that have `k` keywords.
fn cloudsuite_weight(k: u8) -> f64 {
    let own = match k {
        1 | 2 => 0.24,
        3 => 0.22,
        4 => 0.14,
        5 => 0.05,
        6 => 0.04,
        7 => 0.03,
        _ => 0.0,
    };
    if (7..=16).contains(&k) { own + 0.04 / 10.0 } else { own }
}

impl FromStr for Keywords {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let number = |text: &str| text.parse::<u8>().ok().filter(|k| (1..=KEYWORDS_MAX).contains(k));
        let range = match text {
            "paper" | "mix" => return Ok(Self::Paper),
            "cloudsuite" => return Ok(Self::CloudSuite),
            "light" => return Ok(Self::LIGHT),
            "heavy" => return Ok(Self::HEAVY),
            _ => match text.split_once('-') {
                Some((fewest, most)) => number(fewest).zip(number(most)),
                None => number(text).map(|k| (k, k)),
            },
        };
        match range {
            Some((fewest, most)) if fewest <= most => Ok(Self::Range(fewest, most)),
            _ => Err(SpecError::Keywords(text.to_owned())),
        }
    }
}

impl fmt::Display for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paper => f.write_str("paper"),
            Self::CloudSuite => f.write_str("cloudsuite"),
            Self::Range(fewest, most) if fewest == most => write!(f, "{fewest}"),
            Self::Range(fewest, most) => write!(f, "{fewest}-{most}"),
        }
    }
}

/// The words of an index, most frequent first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Arc<[Box<str>]>);

impl Words {
    /// Words in the order of their frequency.
    pub fn new(words: impl IntoIterator<Item = String>) -> Self {
        Self(words.into_iter().map(String::into_boxed_str).collect())
    }

    /// Reads a file of one word to a line, most frequent first; the rest of a line, such as a
    /// count, is skipped.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let unreadable = |cause| SpecError::FileUnreadable { path: path.to_owned(), cause, form: FORM };
        let mut words = Vec::new();
        for (at, line) in BufReader::new(File::open(path).map_err(unreadable)?).lines().enumerate() {
            let line = line.map_err(unreadable)?;
            if line.starts_with('#') {
                continue;
            }
            let Some(word) = line.split_whitespace().next() else { continue };
            if word.len() > WORD_BYTES_MAX {
                return Err(SpecError::file_line(path, at + 1, word, "is longer than 100 bytes", FORM));
            }
            if words.len() == WORDS_MAX {
                return Err(SpecError::file_line(path, at + 1, word, "is the 1000001st word", FORM));
            }
            words.push(word.to_owned());
        }
        if words.is_empty() {
            let problem = "has no word".to_owned();
            return Err(SpecError::FileShort { path: path.to_owned(), problem, form: FORM });
        }
        Ok(Self::new(words))
    }

    /// The word of this rank, 0 the most frequent.
    pub fn word(&self, rank: u32) -> &str {
        &self.0[rank as usize]
    }
}

/// The parts from which queries are drawn.
#[derive(Clone, Debug)]
pub struct Queries {
    seed: u64,
    keywords: Alias,
    words: Words,
    ranks: Ranks,
}

/// One query: the ranks of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    ranks: [u32; KEYWORDS_MAX as usize],
    count: u8,
}

impl Query {
    /// A query of no words: a request that asks for the same whenever it is made.
    pub const EMPTY: Self = Self { ranks: [0; KEYWORDS_MAX as usize], count: 0 };

    pub fn ranks(&self) -> &[u32] {
        &self.ranks[..usize::from(self.count)]
    }
}

impl Queries {
    /// Queries of so many keywords, of these words by that popularity. Without words every query is
    /// empty.
    pub fn new(seed: u64, keywords: &Keywords, words: Words, popularity: Popularity) -> Self {
        let ranks = Ranks::new(popularity, words.0.len() as u64);
        Self { seed, keywords: Alias::new(&keywords.weights()), words, ranks }
    }

    pub fn query(&self, index: u64) -> Query {
        let mut query = Query::EMPTY;
        if self.words.0.is_empty() {
            return query;
        }
        let mut random = request_stream(self.seed, index);
        let count = self.keywords.draw(&mut random) + 1;
        let mut redraws = REDRAWS_MAX;
        while usize::from(query.count) < count {
            let rank = self.ranks.draw(&mut random) as u32;
            if query.ranks().contains(&rank) && redraws > 0 {
                redraws -= 1;
                continue;
            }
            query.ranks[usize::from(query.count)] = rank;
            query.count += 1;
        }
        query
    }

    /// The words that its queries are made of.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Which of `count` connections query number `index` would take; see
    /// [`crate::Requests::connection`].
    pub fn connection(&self, index: u64, count: u32) -> u32 {
        connections::evenly(index, self.seed, count)
    }
}

/// A list of one word cannot make a query of two that differ.
const REDRAWS_MAX: u32 = 200;
/// Longer ones are no words that a person types.
const WORD_BYTES_MAX: usize = 100;
const WORDS_MAX: usize = 1_000_000;
const FORM: &str = "a word list has one word to a line, the most frequent first, such as `kernel 51234`";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn words(count: usize) -> Words {
        Words::new((0..count).map(|n| format!("w{n}")))
    }

    fn queries(keywords: &Keywords, count: usize) -> Queries {
        Queries::new(7, keywords, words(count), Popularity::Zipf(1.0))
    }

    /// The share of queries that have `k` keywords.
    fn share_of(keywords: &Keywords, k: u8) -> f64 {
        let weights = keywords.weights();
        let own = usize::from(k).checked_sub(1).and_then(|place| weights.get(place)).copied();
        own.unwrap_or(0.0) / weights.iter().sum::<f64>()
    }

    #[test]
    fn the_mixes_are_the_published_ones() {
        let share = |keywords: &Keywords, numbers: std::ops::RangeInclusive<u8>| -> f64 {
            numbers.map(|k| share_of(keywords, k)).sum()
        };
        assert!((share(&Keywords::Paper, 1..=8) - 0.95).abs() < 1e-9);
        assert!((share(&Keywords::Paper, 9..=18) - 0.05).abs() < 1e-9);
        assert!((share(&Keywords::CloudSuite, 1..=18) - 1.0).abs() < 1e-9);
        assert!((share(&Keywords::CloudSuite, 1..=4) - 0.84).abs() < 1e-9);
        assert!((share(&Keywords::CloudSuite, 17..=18)).abs() < 1e-9);
        assert!((share(&Keywords::LIGHT, 3..=4) - 1.0).abs() < 1e-9);
        // 1/3 against 1/4 of the same Zipf's law.
        assert!((share_of(&Keywords::LIGHT, 3) - 4.0 / 7.0).abs() < 1e-9);
    }

    #[test]
    fn the_numbers_of_keywords_follow_the_mix() {
        for keywords in [Keywords::Paper, Keywords::CloudSuite, Keywords::LIGHT, Keywords::HEAVY] {
            let queries = queries(&keywords, 5000);
            let draws = 40_000;
            let mut seen = [0u32; 20];
            for n in 0..draws {
                seen[queries.query(n).ranks().len()] += 1;
            }
            for k in 0..20u8 {
                let expected = share_of(&keywords, k) * draws as f64;
                let off = (f64::from(seen[usize::from(k)]) - expected).abs();
                // Five standard deviations of the counting noise.
                assert!(
                    off <= 5.0 * expected.sqrt(),
                    "{keywords} {k}: {} for {expected}",
                    seen[usize::from(k)]
                );
            }
        }
    }

    #[test]
    fn what_is_no_mix_is_refused_with_the_fix() {
        for text in ["", "0", "19", "4-3", "3-", "-4", "1-19", "some", "3-4-5"] {
            let message = text.parse::<Keywords>().unwrap_err().to_string();
            assert!(message.contains("cloudsuite") && message.contains("12-18"), "{message}");
        }
        for text in ["paper", "cloudsuite", "3-4", "7"] {
            assert_eq!(text.parse::<Keywords>().unwrap().to_string(), text);
        }
        assert_eq!("light".parse::<Keywords>().unwrap(), Keywords::LIGHT);
        assert_eq!("mix".parse::<Keywords>().unwrap(), Keywords::Paper);
    }

    #[test]
    fn word_lists_are_read_by_rank_and_wrong_ones_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words");
        std::fs::write(&path, "# of the index\nkernel 512\n\n  driver\t90\nnaïve\n").unwrap();
        let words = Words::read(&path).unwrap();
        assert_eq!([words.word(0), words.word(1), words.word(2)], ["kernel", "driver", "naïve"]);
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Words::read(&path).unwrap_err().to_string()
        };
        for (bytes, problem) in [
            (&b"# nothing\n\n"[..], "has no word"),
            (b"\xff\xfe\n", "cannot read"),
            (&[b'x'; 101], "longer than 100"),
        ] {
            let message = refused(bytes);
            assert!(message.contains(problem) && message.contains("kernel 51234"), "{message}");
        }
        let missing = Words::read(Path::new("/nonexistent/words")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/words"), "{missing}");
    }

    #[test]
    fn a_query_of_more_keywords_than_words_repeats_them_and_ends() {
        let queries = queries(&Keywords::HEAVY, 3);
        let query = queries.query(1);
        assert!(query.ranks().len() >= 12 && query.ranks().iter().all(|rank| *rank < 3));
        assert_eq!(Queries::new(1, &Keywords::Paper, words(0), Popularity::Uniform).query(9), Query::EMPTY);
    }

    proptest! {
        #[test]
        fn the_same_number_is_the_same_query_and_its_words_differ(seed: u64, index: u64) {
            let make = || Queries::new(seed, &Keywords::Paper, words(1000), Popularity::Zipf(1.0));
            let query = make().query(index);
            prop_assert_eq!(query, make().query(index));
            let distinct: BTreeSet<u32> = query.ranks().iter().copied().collect();
            prop_assert_eq!(distinct.len(), query.ranks().len());
            prop_assert!((1..=18).contains(&query.ranks().len()));
        }
    }
}
