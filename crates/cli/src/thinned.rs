//! A run's samples for its page, of which a long run keeps fewer: from its whole length, at equal
//! distances.

use serde::{Serialize, Serializer};

/// Samples, at most so many.
#[derive(Clone, Debug)]
pub struct Thinned<T> {
    kept: Vec<T>,
    at_most: usize,
    /// One in so many is kept.
    step: usize,
    skipped: usize,
}

impl<T> Thinned<T> {
    pub fn new(at_most: usize) -> Self {
        Self { kept: Vec::new(), at_most, step: 1, skipped: 0 }
    }

    /// Adds the one that `sample` makes, if it is one to be kept. When there are too many every
    /// other one goes.
    pub fn add(&mut self, sample: impl FnOnce() -> T) {
        self.skipped += 1;
        if self.skipped < self.step {
            return;
        }
        self.skipped = 0;
        self.kept.push(sample());
        if self.kept.len() >= self.at_most {
            self.step *= 2;
            let mut nth = 0;
            self.kept.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
        }
    }

    /// In the order in which they came.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }
}

impl<T: Serialize> Serialize for Thinned<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.kept.serialize(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_a_bounded_number_from_its_whole_length_at_equal_distances() {
        let mut samples = Thinned::new(100);
        for number in 0..50_000 {
            samples.add(|| number);
            assert!(samples.kept().len() < 100);
        }
        let kept = samples.kept();
        assert!(kept[0] < 1_000 && kept[kept.len() - 1] > 49_000, "{kept:?}");
        assert!(kept.windows(3).all(|three| three[1] - three[0] == three[2] - three[1]), "{kept:?}");
        assert_eq!(serde_json::to_string(&samples).unwrap(), serde_json::to_string(kept).unwrap());
    }
}
