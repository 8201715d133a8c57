//! Modules that are no policies, misbehave, or decide.

use machine::{Duration, Goal, Instant, Kilohertz};
use policy::kind::Responses;
use policy::own::{Decide as _, Orders, Reading};
use wasm::{Decides, Deciding, Knobs, Module};

/// A module of this text, with the export of its version.
fn module(text: &str) -> Result<Module, String> {
    let version = r#"(func (export "roost_policy") (result i32) (i32.const 1))"#;
    whole(&format!("(module {text} {version})"))
}

fn whole(text: &str) -> Result<Module, String> {
    Module::new("mine.wasm", &wat::parse_str(text).expect("a module")).map_err(|error| error.to_string())
}

fn knobs() -> Knobs {
    Knobs {
        workers: 4,
        cpus: 4,
        idle_states: vec![(Duration::from_micros(2), Duration::from_micros(2))],
        clocks: vec![Kilohertz(1_000_000), Kilohertz(2_000_000)],
        goal: None,
    }
}

const READING: Reading<'_> = Reading {
    now: Instant::from_nanos(3_000_000_000),
    span: Duration::from_secs(1),
    responses: Responses { count: 1_000, tail: Some(Duration::from_micros(400)), mean: None },
    active: 4,
    working: &[0.5; 4],
    core_watts: 12.0,
};

fn epoch(text: &str) -> Result<Orders, String> {
    Deciding::new(&module(text)?, knobs())?.on_epoch(&READING)
}

#[test]
fn a_file_that_is_no_policy_is_told_with_its_fix() {
    let error = Module::new("mine.wasm", b"\0asm????").unwrap_err().to_string();
    assert!(error.starts_with("mine.wasm: ") && error.contains("binary format"), "{error}");
    let large = Module::new("mine.wasm", &vec![0; 2 << 20]).unwrap_err().to_string();
    assert!(large.contains("more than 1 MiB"), "{large}");
    let nowhere = Module::read("/nowhere/mine.wasm".as_ref()).unwrap_err().to_string();
    assert!(nowhere.starts_with("cannot read /nowhere/mine.wasm"), "{nowhere}");
    let pipe = Module::read("/dev/null".as_ref()).unwrap_err().to_string();
    assert!(pipe.contains("no regular file"), "{pipe}");
    for (text, told) in [
        ("", "exports no decision"),
        (r#"(func (export "on_epcoh"))"#, "exports on_epcoh, which is never called"),
        (r#"(func (export "on_epoch") (param i32))"#, "exports on_epoch of another type"),
        (r#"(func (export "on_epoch")) (func (export "on_idle"))"#, "make two files"),
        (r#"(import "env" "memset" (func)) (func (export "on_epoch"))"#, "memset"),
        (r#"(import "roost" "workers" (func (param i32))) (func (export "on_epoch"))"#, "workers"),
        (r#"(memory 300) (func (export "on_epoch"))"#, "emory"),
        (r#"(func $begin unreachable) (start $begin) (func (export "on_epoch"))"#, "unreachable"),
        (r#"(func $begin (loop (br 0))) (start $begin) (func (export "on_epoch"))"#, "ran out of fuel"),
    ] {
        let error = module(text).expect_err(text);
        assert!(error.starts_with("mine.wasm: ") && error.contains("hint: "), "{error}");
        assert!(error.contains(told), "{text}: {error}");
    }
    let error = whole(r#"(module (func (export "on_epoch")))"#).unwrap_err();
    assert!(error.contains("exports no roost_policy"), "{error}");
    let other =
        r#"(module (func (export "on_epoch")) (func (export "roost_policy") (result i32) (i32.const 9)))"#;
    assert!(whole(other).unwrap_err().contains("version 9"), "{other}");
}

#[test]
fn the_decision_of_a_module_is_known_from_its_exports() {
    let on_idle = r#"(func (export "on_idle") (param i64 i64 i64 i64) (result i32) (i32.const 0))"#;
    for (text, decides) in [
        (r#"(func (export "on_epoch"))"#, Decides::Epochs),
        (r#"(func (export "on_epoch")) (func (export "on_arrival") (param i64 i32))"#, Decides::Requests),
        (r#"(func (export "on_completion") (param i64 i64 i32))"#, Decides::Requests),
        (on_idle, Decides::Idle),
    ] {
        assert_eq!(module(text).unwrap().decides(), decides, "{text}");
    }
    let clocks = r#"(import "roost" "set_clock_khz" (func (param i64))) (func (export "on_epoch"))"#;
    assert!(module(clocks).unwrap().orders_clocks());
}

#[test]
fn an_order_out_of_bounds_a_trap_and_a_loop_are_faults() {
    let cores = |number: i32| {
        format!(
            r#"(import "roost" "set_cores" (func $set (param i32)))
               (func (export "on_epoch") (call $set (i32.const {number})))"#
        )
    };
    assert_eq!(epoch(&cores(3)), Ok(Orders { cores: Some(3), ..Orders::default() }));
    for (text, told) in [
        (cores(0), "set_cores(0): order 1 to 4"),
        (cores(5), "set_cores(5): order 1 to 4"),
        (cores(65_537), "order 1 to 4"),
        (r#"(func (export "on_epoch") unreachable)"#.to_owned(), "unreachable"),
        (r#"(func (export "on_epoch") (loop (br 0)))"#.to_owned(), "ran out of fuel"),
        (r#"(func $deep (export "on_epoch") (call $deep))"#.to_owned(), "stack"),
        (
            r#"(import "roost" "working" (func $working (param i32) (result f64)))
               (func (export "on_epoch") (drop (call $working (i32.const 4))))"#
                .to_owned(),
            "working(4): there are 4",
        ),
        (
            r#"(import "roost" "set_clock_khz" (func $set (param i64)))
               (func (export "on_epoch") (call $set (i64.const 0)))"#
                .to_owned(),
            "set_clock_khz(0)",
        ),
    ] {
        let fault = epoch(&text).unwrap_err();
        assert!(fault.starts_with("mine.wasm at 3.00s: ") && fault.contains(told), "{text}: {fault}");
    }
}

#[test]
fn memory_that_cannot_be_had_is_refused_and_harms_nothing() {
    let grow = r#"(memory 1)
        (import "roost" "set_cores" (func $set (param i32)))
        (func (export "on_epoch")
            (call $set (select (i32.const 2) (i32.const 1)
                (i32.eq (memory.grow (i32.const 60000)) (i32.const -1)))))"#;
    // Imports come first in a text.
    let (memory, rest) = grow.split_once('\n').unwrap();
    let (import, call) = rest.split_once('\n').unwrap();
    assert_eq!(epoch(&format!("{import} {memory} {call}")).unwrap().cores, Some(2));
}

#[test]
fn readings_and_goals_reach_the_module() {
    // It orders as many cores as 100 us fit into the tail.
    let text = r#"(import "roost" "tail_ns" (func $tail (result i64)))
        (import "roost" "set_cores" (func $set (param i32)))
        (func (export "on_epoch")
            (call $set (i32.wrap_i64 (i64.div_s (call $tail) (i64.const 100000)))))"#;
    assert_eq!(epoch(text).unwrap().cores, Some(4));
    let goal: Goal = "500us@p90".parse().unwrap();
    let with_goal = Knobs { goal: Some(goal), ..knobs() };
    let mut deciding = Deciding::new(&module(text).unwrap(), with_goal).unwrap();
    assert_eq!(deciding.quantile(), 0.9);
    deciding.set_goal("400us@p95".parse().unwrap());
    assert_eq!(deciding.quantile(), 0.95);
    let text = r#"(import "roost" "goal_ns" (func $goal (result i64)))
        (import "roost" "set_idle_limit_ns" (func $limit (param i64)))
        (func (export "tail_quantile") (result f64) (f64.const 0.5))
        (func (export "epoch_ns") (result i64) (i64.const 20000000))
        (func (export "on_epoch") (call $limit (call $goal)))"#;
    let mut deciding = Deciding::new(&module(text).unwrap(), knobs()).unwrap();
    assert_eq!((deciding.epoch(), deciding.quantile()), (Duration::from_millis(20), 0.5));
    assert_eq!(deciding.on_epoch(&READING).unwrap().idle_limit, Some(Duration::MAX), "without a goal");
    deciding.set_goal(goal);
    assert_eq!(deciding.on_epoch(&READING).unwrap().idle_limit, Some(Duration::from_micros(500)));
    assert_eq!(deciding.quantile(), 0.5, "its own, whatever the goal's is");
}

#[test]
fn parameters_of_a_module_are_checked_when_it_begins() {
    let on_epoch = r#"(func (export "on_epoch"))"#;
    for (text, told) in [
        (r#"(func (export "epoch_ns") (result i64) (i64.const 5))"#, "epoch_ns() is 5: give 10000"),
        (r#"(func (export "epoch_ns") (result i64) (i64.const -5))"#, "epoch_ns() is 0"),
        (r#"(func (export "tail_quantile") (result f64) (f64.const nan))"#, "tail_quantile() is NaN"),
        (r#"(func (export "on_start") (loop (br 0)))"#, "ran out of fuel"),
    ] {
        let module = module(&format!("{text} {on_epoch}")).unwrap();
        let fault = Deciding::new(&module, knobs()).map(drop).unwrap_err();
        assert!(fault.starts_with("mine.wasm: ") && fault.contains(told), "{fault}");
    }
}
