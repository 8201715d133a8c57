//! How long each request keeps its generator awake, where both share the machine.

use super::recording::{GENERATOR, Loop, Recording};

/// Two readings of one time: the CPU time that a generator works for after each request, times that
/// overlap counted once. Its turns on a CPU are then the busy periods of M/D/inf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Awake {
    /// By the mean length of a turn, (exp(rate w) - 1) / rate.
    pub by_turns_us: f64,
    /// By its share of a CPU, 1 - exp(-rate w).
    pub by_share_us: f64,
}

/// The readings differ by no more than this share of the first; beyond it, the law is another.
pub const AGREE: f64 = 0.25;

impl Awake {
    /// Absent of clients that wait, and of a generator that is elsewhere or has more than one thread.
    pub fn of(recording: &Recording) -> Option<Self> {
        if recording.generator.as_ref()?.kind.value != Loop::Open {
            return None;
        }
        let rate = recording.arrivals.rate_per_s.as_ref()?.value * 1e-6;
        let other = recording.others.iter().find(|other| other.name == GENERATOR)?;
        let turn = other.length_us.as_ref().filter(|length| length.value > 0.0)?.value;
        let share = other.per_s.value * 1e-6 * turn;
        if !(share > 0.0 && share < super::written::MOST_OF_A_CPU && rate > 0.0) {
            return None;
        }
        let awake =
            Self { by_turns_us: (rate * turn).ln_1p() / rate, by_share_us: -(1.0 - share).ln() / rate };
        Some(awake)
    }

    pub fn agrees(&self) -> bool {
        (self.by_share_us / self.by_turns_us - 1.0).abs() <= AGREE
    }

    /// A sentence for the reader, where the readings differ.
    pub fn warning(&self) -> Option<String> {
        (!self.agrees()).then(|| {
            format!(
                "the generator is not awake for one time after each request: {:.1} us by its turns, {:.1} us \
                 by its CPU time; its work is taken to follow the load in a line",
                self.by_turns_us, self.by_share_us
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording::tests::sample;
    use super::super::recording::{Generator, Known};
    use super::*;

    fn recorded(rate: f64, turns_per_s: f64, turn_us: f64) -> Recording {
        let mut recording = sample();
        recording.arrivals.rate_per_s.as_mut().unwrap().value = rate;
        let other = &mut recording.others[0];
        other.name = GENERATOR.to_owned();
        other.per_s.value = turns_per_s;
        other.length_us.as_mut().unwrap().value = turn_us;
        let kind = Known::derived(Loop::Open, "Little");
        recording.generator = Some(Generator { names: vec!["load".to_owned()], kind });
        recording
    }

    #[test]
    fn both_readings_find_the_time_of_an_infinite_server() {
        for rate in [2_000.0, 20_000.0, 80_000.0] {
            let per_us: f64 = rate * 1e-6;
            let asleep = (-per_us * 40.0).exp();
            let turn_us = (1.0 / asleep - 1.0) / per_us;
            let found = Awake::of(&recorded(rate, rate * asleep, turn_us)).unwrap();
            assert!((found.by_turns_us - 40.0).abs() < 1e-6, "{found:?}");
            assert!((found.by_share_us - 40.0).abs() < 1e-6, "{found:?}");
            assert!(found.agrees() && found.warning().is_none());
        }
    }

    #[test]
    fn a_generator_of_another_law_is_told() {
        // Twice as many turns of half the length: it is woken by answers too.
        let found = Awake::of(&recorded(20_000.0, 18_000.0, 30.0)).unwrap();
        assert!(!found.agrees());
        assert!(found.warning().unwrap().contains("in a line"));
    }

    #[test]
    fn of_clients_that_wait_there_is_no_such_time() {
        let mut closed = recorded(20_000.0, 9_000.0, 60.0);
        closed.generator.as_mut().unwrap().kind.value = Loop::Closed;
        assert_eq!(Awake::of(&closed), None);
        assert_eq!(Awake::of(&sample()), None);
        // More than a CPU's time: two threads.
        assert_eq!(Awake::of(&recorded(20_000.0, 9_000.0, 150.0)), None);
    }
}
