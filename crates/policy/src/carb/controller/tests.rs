use super::State::{Down, Hold, Up};
use super::*;
use proptest::prelude::*;

/// Rate in kRPS, tail and mean in us.
fn epoch(krps: f64, tail_us: u64) -> Epoch {
    let (tail, mean) = (Some(Duration::from_micros(tail_us)), Some(Duration::from_micros(100)));
    Epoch { rate: Some(Rate::per_second(krps * 1000.0)), tail, mean, busy: None }
}

/// Plays epochs and checks workers and state after each.
fn play(controller: &mut Controller, table: &[(f64, u64, u16, State)]) {
    for (at, &(krps, tail_us, active, state)) in table.iter().enumerate() {
        controller.handle_epoch(&epoch(krps, tail_us));
        let got = (controller.active(), controller.state());
        assert_eq!(got, (active, state), "epoch {at}: {krps} kRPS, {tail_us} us");
    }
}

fn paper(max_active: u16) -> Controller {
    Controller::new(Params::paper(), max_active)
}

#[test]
fn paper_starts_at_the_top_and_searches_down() {
    // dy = 10 us. Epoch 0 is measured only; then S2 until the tail rises, and one step back.
    let table = [
        (50.0, 200, 8, Down),
        (50.0, 190, 7, Down),
        (50.0, 199, 6, Down),
        (50.0, 208, 5, Down),
        (50.0, 218, 6, Hold),
        (50.0, 205, 6, Hold),
    ];
    play(&mut paper(8), &table);
}

#[test]
fn paper_s0_answers_to_rate_first_and_then_to_the_tail() {
    let settled = || {
        let mut controller = paper(8);
        play(&mut controller, &[(50.0, 200, 8, Down), (50.0, 250, 8, Hold)]);
        // A fall brings it off the bound: S2, one step, then worse again.
        play(&mut controller, &[(44.0, 250, 7, Down), (44.0, 240, 6, Down), (44.0, 300, 7, Hold)]);
        controller
    };
    play(&mut settled(), &[(49.5, 100, 8, Up)]);
    play(&mut settled(), &[(49.0, 300, 7, Hold)]);
    play(&mut settled(), &[(38.9, 999, 6, Down)]);
    play(&mut settled(), &[(44.0, 310, 7, Hold)]);
    play(&mut settled(), &[(44.0, 311, 8, Up)]);
}

#[test]
fn paper_s1_adds_while_the_tail_rises_by_less_than_dy() {
    let mut controller = paper(8);
    controller.active = 3;
    controller.state = Hold;
    let table = [
        (20.0, 200, 3, Hold),
        (26.0, 200, 4, Up),
        (26.0, 209, 5, Up),
        (26.0, 180, 6, Up),
        (26.0, 190, 5, Hold),
        (26.0, 190, 5, Hold),
    ];
    play(&mut controller, &table);
}

#[test]
fn paper_jump_wakes_everybody_in_any_state_before_dr_is_looked_at() {
    for state in [Hold, Up, Down] {
        let mut controller = paper(8);
        play(&mut controller, &[(20.0, 200, 8, Down)]);
        controller.active = 3;
        controller.state = state;
        play(&mut controller, &[(40.1, 200, 8, Down), (40.1, 200, 7, Down)]);
    }
    let mut level = paper(8);
    level.active = 3;
    level.state = Hold;
    // 20 kRPS is a rise, not a level: a store that is always above it still sleeps.
    play(&mut level, &[(90.0, 200, 3, Hold), (94.0, 200, 3, Hold), (98.0, 200, 3, Hold)]);
}

#[test]
fn paper_a_bound_reached_counts_as_settled() {
    let mut controller = paper(4);
    // c_min is 2. Flat tails: down to it, and then a later rise is seen.
    let table = [
        (50.0, 200, 4, Down),
        (50.0, 200, 3, Down),
        (50.0, 200, 2, Down),
        (50.0, 200, 2, Hold),
        (56.0, 200, 3, Up),
        (56.0, 200, 4, Up),
        (56.0, 200, 4, Hold),
        (50.0, 200, 3, Down),
    ];
    play(&mut controller, &table);
}

/// The three algorithms, written once more from the paper; `c` may not leave its bounds.
fn as_in_the_paper(c: u16, s: State, r: [f64; 2], y: [f64; 2], dy: f64, c_max: u16) -> (u16, State) {
    let (up, down) = ((c < c_max).then_some(c + 1), (c > 2).then(|| c - 1));
    let moved = |to: Option<u16>, state| to.map_or((c, Hold), |c| (c, state));
    if r[1] - r[0] > 20e3 {
        return (c_max, Down);
    }
    match s {
        Hold if r[1] > r[0] + 5e3 => moved(up, Up),
        Hold if r[1] < r[0] - 5e3 => moved(down, Down),
        Hold if y[1] > y[0] + dy => moved(up, Up),
        Hold => (c, Hold),
        Up if y[1] < y[0] + dy => moved(up, Up),
        Up => (down.unwrap_or(c), Hold),
        Down if y[1] < y[0] + dy => moved(down, Down),
        Down => (up.unwrap_or(c), Hold),
    }
}

#[test]
fn repaired_sees_a_ramp_that_is_slow_per_epoch() {
    let mut controller = Controller::new(Params::default(), 8);
    let settle = [(100.0, 200, 8, Down), (100.0, 200, 7, Down), (100.0, 300, 8, Hold), (100.0, 200, 8, Hold)];
    play(&mut controller, &settle);
    // 1 % per epoch, below dr = 5 % of the peak in each.
    let fell = (1..12).find(|&step| {
        controller.handle_epoch(&epoch(100.0 - f64::from(step), 200));
        controller.active() < 8
    });
    assert_eq!(fell, Some(6));
}

#[test]
fn repaired_takes_no_scatter_of_a_low_rate_for_a_jump() {
    let rises = |params: Params| {
        let mut controller = Controller::new(params, 8);
        // A fifth of the peak, and two standard deviations of the difference of counts of a second.
        [0.11, 0.11, 0.105, 0.139].map(|krps| controller.handle_epoch(&epoch(krps, 200)))
    };
    assert!(rises(Params::default())[3] < 8);
    assert_eq!(rises(Params { noise_z: 0.0, ..Params::default() })[3], 8);
}

#[test]
fn repaired_sees_a_tail_that_creeps() {
    let mut controller = Controller::new(Params { noise_z: 0.0, ..Params::default() }, 8);
    controller.active = 4;
    controller.state = Hold;
    let crept = (0..20).find(|step| {
        controller.handle_epoch(&epoch(100.0, 200 + 4 * step));
        controller.active() > 4
    });
    // The first two epochs are measured only: 200 and 204 us; then 10 us above them.
    assert_eq!(crept, Some(3));
}

#[test]
fn repaired_gives_back_the_worker_that_did_not_help() {
    let mut controller = Controller::new(Params::default(), 8);
    controller.active = 4;
    controller.state = Hold;
    let table = [
        (100.0, 200, 4, Hold),
        (100.0, 200, 4, Hold),
        (112.0, 200, 5, Up),
        (112.0, 200, 4, Hold),
        (112.0, 400, 4, Hold),
    ];
    play(&mut controller, &table);
}

#[test]
fn repaired_adds_workers_while_the_queue_grows() {
    // As printed, S1 would give a worker back exactly when the tail explodes.
    let mut controller = Controller::new(Params::default(), 8);
    controller.active = 3;
    controller.state = Hold;
    let table = [
        (100.0, 200, 3, Hold),
        (100.0, 200, 3, Hold),
        (112.0, 900, 4, Up),
        (112.0, 2_000, 5, Up),
        (112.0, 1_000, 6, Up),
        (112.0, 205, 7, Up),
        (112.0, 200, 6, Hold),
    ];
    play(&mut controller, &table);
}

#[test]
fn noise_is_no_change() {
    // At 1 kRPS a count over one second scatters by 45: 4 sigma is above dr = 5 %.
    let mut controller = Controller::new(Params::default(), 8);
    controller.active = 4;
    controller.state = Hold;
    for krps in [1.0, 1.0, 1.09, 0.92, 1.1, 0.95, 1.08] {
        controller.handle_epoch(&epoch(krps, 200));
        assert_eq!((controller.active(), controller.state()), (4, Hold), "{krps}");
    }
}

#[test]
fn a_blind_controller_wakes_everybody() {
    for params in [Params::paper(), Params::default()] {
        let mut controller = Controller::new(params, 8);
        controller.active = 2;
        controller.state = Hold;
        controller.handle_epoch(&epoch(50.0, 200));
        assert_eq!(controller.handle_epoch(&Epoch::default()), 8);
    }
}

#[test]
fn it_looks_again_after_a_minute() {
    let mut controller = Controller::new(Params::default(), 8);
    controller.active = 4;
    controller.state = Hold;
    let probed = (0..200).find(|_| controller.handle_epoch(&epoch(100.0, 200)) < 4);
    assert_eq!(probed, Some(61));
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    let rate = prop::option::weighted(0.95, 0.0..120.0_f64);
    (rate, prop::option::weighted(0.9, 50_u64..900)).prop_map(|(krps, tail)| Epoch {
        rate: krps.map(|krps| Rate::per_second(krps * 1000.0)),
        tail: tail.map(Duration::from_micros),
        mean: tail.map(|_| Duration::from_micros(100)),
        busy: None,
    })
}

proptest! {
    #[test]
    fn the_paper_preset_is_the_paper(
        max_active in 2_u16..12,
        readings in prop::collection::vec((0.0..60.0_f64, 100_u64..300), 2..80),
    ) {
        let mut controller = paper(max_active);
        let (mut c, mut s) = (max_active, Down);
        for pair in readings.windows(2) {
            let [(r0, y0), (r1, y1)] = [pair[0], pair[1]];
            if controller.previous.is_none() {
                controller.handle_epoch(&epoch(r0, y0));
            }
            controller.handle_epoch(&epoch(r1, y1));
            let (r, y) = ([r0 * 1000.0, r1 * 1000.0], [y0 as f64, y1 as f64]);
            (c, s) = as_in_the_paper(c, s, r, y, 10.0, max_active);
            prop_assert_eq!((controller.active(), controller.state()), (c, s));
        }
    }

    #[test]
    fn it_stays_within_its_bounds(
        repaired in any::<bool>(),
        max_active in 1_u16..10,
        steps in (1_u16..4, 1_u16..4),
        epochs in prop::collection::vec(any_epoch(), 0..200),
    ) {
        let params = if repaired { Params::default() } else { Params::paper() };
        let params = Params { step_up: steps.0, step_down: steps.1, ..params };
        let mut controller = Controller::new(params, max_active);
        for epoch in epochs {
            let active = controller.handle_epoch(&epoch);
            prop_assert!(active <= max_active && active >= params.min_active.min(max_active));
        }
    }

    #[test]
    fn the_repaired_controller_finds_the_bottom_of_a_valley(best in 1_u16..9, load in 1.0..100.0_f64) {
        // A tail that is least at `best` workers; from the top the search must end there.
        let tail = |active: u16| {
            let short = f64::from(best.saturating_sub(active));
            let long = f64::from(active.saturating_sub(best));
            (200.0 * (1.0 + short * 0.5 + long * 0.2)) as u64
        };
        let mut controller = Controller::new(Params::default(), 8);
        for _ in 0..30 {
            controller.handle_epoch(&epoch(load, tail(controller.active())));
        }
        prop_assert_eq!((controller.active(), controller.state()), (best.min(8), Hold));
    }
}
