//! Bursts of several servers, kept apart where no period does it.
//!
//! The problem: servers that share a machine, a disk, a database or a feed of power feel each
//! other's bursts. With a period their phases keep them apart ([`super::phases`]); where each stage
//! goes when its own deadlines say so, two may meet, each takes longer, and both stages learn to go
//! earlier for no reason of their own.
//!
//! The approach: each stage says when its next burst is due at the latest, and how long such a
//! burst lasts ([`Coming`]). A burst can be made earlier and never later, so the timetable is
//! filled from its end: the burst that would be over last keeps its time, and of the others each is
//! over before the next one begins. That is the latest timetable in which no two meet.
//!
//! ```text
//!   due, each for itself    A ######         in the timetable     A ######
//!                           B    ######                                 B ######
//!                           C      ####                                          C ####
//!                                                                 (C keeps its time)
//! ```
//!
//! Going early has a price, a shorter rest for the server; so a stage gives way down to its
//! [`Coming::floor`] only, half of the time that its most urgent request may take, which is how
//! long it waits when it knows nothing. Beyond that bursts meet: many servers with long bursts do
//! not fit one after the other, and staging is worth more than distance.
//!
//! Invariants:
//! - no stage goes later than it would alone, nor earlier than its floor;
//! - two bursts overlap only if one of them is at its floor, or does not know how long it lasts;
//! - one more stage makes no other later.

use machine::{Duration, Instant};

/// A burst that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// When it goes if it is alone: the latest that its deadlines allow.
    pub due: Instant,
    /// It is not made earlier than this; not above `due`.
    pub floor: Instant,
    /// How long it lasts, as far as is known. Zero: nothing is, and no stage gives way to it, nor
    /// it to others.
    pub span: Duration,
}

/// When each goes so that they are apart, in the order of `coming`.
pub fn timetable(coming: &[Option<Coming>]) -> Vec<Option<Instant>> {
    let mut starts: Vec<Option<Instant>> = coming.iter().map(|one| one.map(|one| one.due)).collect();
    let known = |one: &Option<Coming>| one.filter(|one| !one.span.is_zero());
    let mut places: Vec<(Instant, usize, Coming)> = coming
        .iter()
        .enumerate()
        .filter_map(|(place, one)| known(one).map(|one| (one.due + one.span, place, one)))
        .collect();
    // From the last end to the first; of equal ones the first named keeps its time.
    places.sort_by_key(|&(end, place, _)| (std::cmp::Reverse(end), place));
    let mut next = None;
    for (end, place, one) in places {
        let end = next.map_or(end, |next| end.min(next));
        // Not after `due`: the end is not after its own, and the floor is not above.
        let start = (end - one.span).max(one.floor);
        starts[place] = Some(start);
        next = Some(next.map_or(start, |next: Instant| next.min(start)));
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::super::{Params, Release, StagedId, Stager};
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn coming(floor: u64, due: u64, span: u64) -> Option<Coming> {
        Some(Coming { due: at(due), floor: at(floor), span: ms(span) })
    }

    fn starts(coming: &[Option<Coming>]) -> Vec<Option<u64>> {
        timetable(coming)
            .iter()
            .map(|start| start.map(|start| start.since(Instant::ZERO).as_millis()))
            .collect()
    }

    #[test]
    fn who_is_over_last_keeps_its_time_and_the_others_go_before() {
        assert_eq!(starts(&[coming(250, 440, 60), coming(260, 450, 60)]), [Some(390), Some(450)]);
        let three = [coming(0, 450, 60), None, coming(0, 440, 60), coming(0, 445, 10)];
        assert_eq!(starts(&three), [Some(450), None, Some(390), Some(380)]);
    }

    #[test]
    fn who_is_far_away_or_unknown_changes_nothing() {
        assert_eq!(starts(&[coming(0, 100, 50), coming(0, 150, 50)]), [Some(100), Some(150)]);
        assert_eq!(starts(&[coming(0, 100, 50), coming(0, 120, 0)]), [Some(100), Some(120)]);
        assert_eq!(starts(&[]), []);
    }

    #[test]
    fn nobody_gives_way_beyond_its_floor() {
        let many =
            [coming(250, 440, 100), coming(250, 441, 100), coming(250, 442, 100), coming(250, 443, 100)];
        assert_eq!(starts(&many), [Some(250), Some(250), Some(343), Some(443)]);
    }

    fn any_coming() -> impl Strategy<Value = Option<Coming>> {
        let one = (0_u64..400, 0_u64..200, prop_oneof![1 => Just(0), 6 => 1_u64..90]);
        prop_oneof![1 => Just(None), 9 => one.prop_map(|(floor, more, span)| coming(floor, floor + more, span))]
    }

    proptest! {
        #[test]
        fn never_later_than_alone_nor_beyond_the_floor_and_apart_in_between(
            all in prop::collection::vec(any_coming(), 0..12),
            one_more in any_coming(),
        ) {
            let starts = timetable(&all);
            for (one, start) in all.iter().zip(&starts) {
                prop_assert_eq!(one.is_some(), start.is_some());
                let Some((one, start)) = one.zip(*start) else { continue };
                prop_assert!(one.floor <= start && start <= one.due);
            }
            let placed: Vec<_> = all.iter().zip(&starts).filter_map(|(one, start)| one.zip(*start)).collect();
            for (number, &(one, start)) in placed.iter().enumerate() {
                for &(other, later) in &placed[number + 1..] {
                    let is_apart = start + one.span <= later || later + other.span <= start;
                    let is_unknown = one.span.is_zero() || other.span.is_zero();
                    let has_given_all = start == one.floor || later == other.floor;
                    prop_assert!(is_apart || is_unknown || has_given_all, "{:?} {:?}", one, other);
                }
            }
            let more: Vec<_> = all.iter().copied().chain([one_more]).collect();
            for (before, after) in starts.iter().zip(timetable(&more)) {
                prop_assert!(after <= *before, "{:?} {:?}", before, after);
            }
        }
    }

    /// Chance, from a seed.
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The fate of three servers' bursts.
    #[derive(Debug, Default)]
    struct Seen {
        bursts: u64,
        /// Bursts that began while another server's was under way: more of it than stragglers.
        met: u64,
        missed: u64,
        gave_way: u64,
    }

    /// Three servers with eight CPUs each, asked 100 times a second, for 6 ms in the mean and an
    /// answer within 500.
    fn serve(is_kept_apart: bool) -> Seen {
        const SERVERS: usize = 3;
        let mut stagers: Vec<Stager> = (0..SERVERS).map(|_| Stager::new(Params::default())).collect();
        let mut cpus = [[Instant::ZERO; 8]; SERVERS];
        let mut under_way: Vec<(Instant, usize, Release)> = Vec::new();
        let mut state = 3;
        let mut length =
            |mean_ms: f64| Duration::from_secs_f64(-mean_ms / 1e3 * (1.0 - uniform(&mut state)).ln());
        let (mut next, mut seen, mut count) = ([Instant::ZERO; SERVERS], Seen::default(), 0);
        while count < 60_000 {
            let coming: Vec<_> = stagers.iter().map(Stager::coming).collect();
            let starts = if is_kept_apart {
                timetable(&coming)
            } else {
                coming.iter().map(|one| one.map(|one| one.due)).collect()
            };
            let done = under_way.iter().map(|&(end, ..)| end).min();
            let arrival = next.iter().min().copied();
            let start = starts.iter().flatten().min().copied();
            let now = [done, arrival, start].into_iter().flatten().min().unwrap();
            if Some(now) == done {
                let place = under_way.iter().position(|&(end, ..)| end == now).unwrap();
                let (_, server, release) = under_way.swap_remove(place);
                stagers[server].handle_completed(now, &release);
            } else if Some(now) == arrival {
                let server = next.iter().position(|&next| next == now).unwrap();
                stagers[server].handle_arrival(now, StagedId(count), now + ms(500));
                next[server] = now + length(10.0);
                count += 1;
            } else {
                let server = starts.iter().position(|&start| start == Some(now)).unwrap();
                if stagers[server].poll_timeout().is_some_and(|due| due <= now) {
                    stagers[server].handle_timeout(now);
                } else {
                    stagers[server].handle_give_way(now);
                }
            }
            for (server, stager) in stagers.iter_mut().enumerate() {
                let others = under_way.iter().filter(|&&(_, other, _)| other != server).count() >= 4;
                let mut has_begun = false;
                while let Some(release) = stager.poll_release() {
                    let cpu = cpus[server].iter_mut().min().unwrap();
                    *cpu = now.max(*cpu) + length(6.0);
                    under_way.push((*cpu, server, release));
                    has_begun = true;
                }
                seen.bursts += u64::from(has_begun);
                seen.met += u64::from(has_begun && others);
            }
        }
        for record in stagers.iter().map(Stager::record) {
            seen.missed += record.held_and_missed + record.passed_and_missed;
            seen.gave_way += record.by_giving_way;
        }
        seen
    }

    #[test]
    fn three_servers_bursts_meet_seldom_and_in_time() {
        let (apart, alone) = (serve(true), serve(false));
        assert!(alone.met * 10 > alone.bursts && alone.gave_way == 0, "{alone:?}");
        assert!(apart.met * 5 < alone.met && apart.gave_way > 100, "{apart:?} {alone:?}");
        assert!(apart.missed <= 60 && apart.bursts * 10 < alone.bursts * 11, "{apart:?} {alone:?}");
    }
}
