//! A rate over time, and its integral.
//!
//! A profile is a chain of straight pieces, repeated for ever. The integral over time, the *event
//! count*, turns any profile into a clock on which one event falls due per tick on average:
//! arrivals are drawn with unit gaps on that clock and carried back by the inverse
//! ([`Profile::time_of`]). This is the time-rescaling of a nonhomogeneous process (Çinlar,
//! "Introduction to Stochastic Processes", 1975, ch. 4.7); unlike thinning it wastes no draw and
//! serves every distribution of gaps, not only the exponential.

use crate::SpecError;
use machine::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// A piece of a profile: the rate goes straight from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// How long it takes; a piece of no length is left out.
    pub length: Duration,
    pub from: Rate,
    /// Rate at its end; the next piece may begin at another.
    pub to: Rate,
}

/// A rate over time, repeated for ever.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pieces: Vec<Piece>,
    period_s: f64,
    events_per_period: f64,
    /// If the rate never changes: nanoseconds from one event to the next. The same arithmetic for
    /// all who ask.
    flat_ns: Option<f64>,
}

/// A segment in numbers, and the sums of the segments before it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    start_s: f64,
    length_s: f64,
    from: f64,
    to: f64,
    events_before: f64,
}

impl Piece {
    fn rate_after(&self, elapsed_s: f64) -> f64 {
        self.from + (self.to - self.from) * (elapsed_s / self.length_s)
    }

    fn events_after(&self, elapsed_s: f64) -> f64 {
        (self.from + self.rate_after(elapsed_s)) / 2.0 * elapsed_s
    }

    fn events(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.length_s
    }

    /// When this many events have passed since its beginning, in seconds since then.
    fn elapsed_at(&self, events: f64) -> f64 {
        // The quadratic solved for its small root without cancellation; slope 0 needs no case of
        // its own.
        let slope = (self.to - self.from) / self.length_s;
        let root = (self.from * self.from + 2.0 * slope * events).max(0.0).sqrt();
        let divisor = self.from + root;
        if divisor > 0.0 { (2.0 * events / divisor).min(self.length_s) } else { 0.0 }
    }
}

impl Profile {
    /// The chain of these segments, over and over.
    pub fn new(segments: &[Segment]) -> Result<Self, SpecError> {
        let mut profile = Self { pieces: Vec::new(), period_s: 0.0, events_per_period: 0.0, flat_ns: None };
        for segment in segments.iter().filter(|segment| !segment.length.is_zero()) {
            let piece = Piece {
                start_s: profile.period_s,
                length_s: segment.length.as_secs_f64(),
                from: segment.from.as_per_second(),
                to: segment.to.as_per_second(),
                events_before: profile.events_per_period,
            };
            profile.period_s += piece.length_s;
            profile.events_per_period += piece.events();
            profile.pieces.push(piece);
        }
        if profile.events_per_period <= 0.0 {
            return Err(SpecError::NothingArrives);
        }
        let rate = profile.pieces[0].from;
        let flat = profile.pieces.iter().all(|piece| piece.from == rate && piece.to == rate);
        profile.flat_ns = flat.then(|| 1e9 / rate);
        Ok(profile)
    }

    /// The same rate at all times.
    pub fn constant(rate: Rate) -> Result<Self, SpecError> {
        Self::new(&[Segment { length: Duration::from_secs(1), from: rate, to: rate }])
    }

    /// How long it takes until it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(self.period_s)
    }

    pub fn peak(&self) -> Rate {
        Rate::per_second(self.pieces.iter().map(|piece| piece.from.max(piece.to)).fold(0.0, f64::max))
    }

    pub fn mean(&self) -> Rate {
        Rate::per_second(self.events_per_period / self.period_s)
    }

    /// The rate at `t` since the beginning.
    pub fn rate_at(&self, t: Duration) -> Rate {
        let (_, within_s) = self.locate(t);
        let piece = self.pieces[self.piece_at(within_s)];
        Rate::per_second(piece.rate_after(within_s - piece.start_s))
    }

    /// Events expected from the beginning until `t`.
    pub fn expected_by(&self, t: Duration) -> f64 {
        let (periods, within_s) = self.locate(t);
        let piece = self.pieces[self.piece_at(within_s)];
        periods * self.events_per_period + piece.events_before + piece.events_after(within_s - piece.start_s)
    }

    /// When the event count reaches `events`.
    pub fn time_of(&self, events: f64) -> Duration {
        self.time_of_near(events, &mut 0)
    }

    /// As [`Profile::time_of`], looking first at the piece `hint`, where the last event fell:
    /// arrivals come in order, so nearly every look-up ends there.
    #[inline]
    pub(crate) fn time_of_near(&self, events: f64, hint: &mut usize) -> Duration {
        match self.flat_ns {
            // The signed conversion is one instruction.
            Some(gap_ns) => Duration::from_nanos((events.max(0.0) * gap_ns) as i64 as u64),
            None => self.time_of_bent(events.max(0.0), hint),
        }
    }

    fn time_of_bent(&self, events: f64, hint: &mut usize) -> Duration {
        let periods = (events / self.events_per_period).floor();
        let within = (events - periods * self.events_per_period).max(0.0);
        let holds =
            |piece: &Piece| piece.events_before <= within && within < piece.events_before + piece.events();
        if !self.pieces.get(*hint).is_some_and(holds) {
            *hint = self.pieces.partition_point(|piece| piece.events_before <= within) - 1;
        }
        let piece = &self.pieces[*hint];
        let within_s = piece.start_s + piece.elapsed_at(within - piece.events_before);
        Duration::from_secs_f64(periods * self.period_s + within_s)
    }

    /// The hour of the day in which a piece begins, if the period is taken for a day; 0 to 23.
    pub(crate) fn hour_of_piece(&self, piece: usize) -> usize {
        self.pieces.get(piece).map_or(0, |piece| (piece.start_s / self.period_s * 24.0 + 1e-6) as usize)
    }

    /// Whole periods before `t`, and the seconds since the last of them.
    fn locate(&self, t: Duration) -> (f64, f64) {
        let t = t.as_secs_f64();
        let periods = (t / self.period_s).floor();
        (periods, (t - periods * self.period_s).clamp(0.0, self.period_s))
    }

    fn piece_at(&self, within_s: f64) -> usize {
        self.pieces.partition_point(|piece| piece.start_s <= within_s).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(millis: u64, from: f64, to: f64) -> Segment {
        Segment {
            length: Duration::from_millis(millis),
            from: Rate::per_second(from),
            to: Rate::per_second(to),
        }
    }

    #[test]
    fn a_ramp_has_the_area_of_its_trapezoid() {
        let ramp = Profile::new(&[segment(10_000, 0.0, 1000.0)]).unwrap();
        assert_eq!(ramp.expected_by(Duration::from_secs(5)), 1250.0);
        assert_eq!(ramp.expected_by(Duration::from_secs(10)), 5000.0);
        assert_eq!(ramp.expected_by(Duration::from_secs(25)), 2.0 * 5000.0 + 1250.0);
        assert_eq!(ramp.rate_at(Duration::from_secs(5)).as_per_second(), 500.0);
        assert_eq!(ramp.time_of(1250.0), Duration::from_secs(5));
        assert_eq!(ramp.peak().as_per_second(), 1000.0);
    }

    #[test]
    fn nothing_falls_into_a_pause() {
        let profile =
            Profile::new(&[segment(100, 0.0, 0.0), segment(100, 50.0, 50.0), segment(100, 0.0, 0.0)]);
        let profile = profile.unwrap();
        for n in 0..100 {
            let t = profile.time_of(f64::from(n) + 0.5).as_nanos() % 300_000_000;
            assert!((100_000_000..=200_000_000).contains(&t), "{t}");
        }
    }

    #[test]
    fn a_rate_that_never_changes_gives_the_same_instants_however_it_is_cut() {
        let whole = Profile::constant(Rate::per_second(80e3)).unwrap();
        let cut = Profile::new(&[segment(100, 80e3, 80e3), segment(700, 80e3, 80e3)]).unwrap();
        for events in [0.0, 0.3, 1.0, 12_345.678, 1e9] {
            assert_eq!(whole.time_of(events), cut.time_of(events));
            assert_eq!(whole.time_of(events), Duration::from_nanos((events * 12_500.0) as u64));
        }
    }

    #[test]
    fn a_profile_without_events_is_refused() {
        assert!(Profile::new(&[]).is_err());
        assert!(Profile::new(&[segment(100, 0.0, 0.0), segment(0, 5.0, 5.0)]).is_err());
        assert!(Profile::constant(Rate::ZERO).is_err());
    }

    proptest! {
        #[test]
        fn time_and_event_count_are_inverse(
            pieces in prop::collection::vec((1u64..5000, 0.0..1e6f64, 0.0..1e6f64), 1..12), at in 0.0..3.0f64,
        ) {
            let segments: Vec<Segment> = pieces.iter().map(|(ms, from, to)| segment(*ms, *from, *to)).collect();
            let profile = Profile::new(&segments).unwrap();
            let t = profile.period().scale(at);
            let events = profile.expected_by(t);
            let again = profile.expected_by(profile.time_of(events));
            prop_assert!((again - events).abs() <= 1e-6 * events + 0.01, "{} -> {}", events, again);
        }

        #[test]
        fn the_event_count_never_falls(
            pieces in prop::collection::vec((0u64..300, 0.0..1e5f64, 0.0..1e5f64), 1..8),
            mut times in prop::collection::vec(0u64..3_000_000_000, 2..30),
        ) {
            let segments: Vec<Segment> = pieces.iter().map(|(ms, from, to)| segment(*ms, *from, *to)).collect();
            let Ok(profile) = Profile::new(&segments) else { return Ok(()) };
            times.sort_unstable();
            let counts: Vec<f64> = times.iter().map(|t| profile.expected_by(Duration::from_nanos(*t))).collect();
            prop_assert!(counts.windows(2).all(|w| w[0] <= w[1] + 1e-6), "{counts:?}");
        }
    }
}
