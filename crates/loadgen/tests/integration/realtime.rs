use crate::misbehaving::{gets_only, lines, server};
use crate::{open, short};
use loadgen::{Error, Interval, Plan, run};
use std::io::Write as _;
use std::ops::ControlFlow;

/// Of all generators' threads of this process, how many are real-time ones: field 41 of `stat` is
/// the policy, 1 is `SCHED_FIFO`.
fn realtime_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let is_realtime = |stat: &String| {
        let Some((name, fields)) = stat.rsplit_once(')') else { return false };
        name.contains("(load-") && fields.split_ascii_whitespace().nth(38) == Some("1")
    };
    stats.filter(is_realtime).count()
}

#[test]
fn a_realtime_generator_runs_before_others_while_it_sends() {
    let target = server(|stream| lines(stream, |_, writer| writer.write_all(b"END\r\n").is_ok()));
    let plan = Plan { realtime: true, ..gets_only(short(target, open(2000.0))) };
    let mut seen = 0;
    let outcome = run(&plan, &mut |_: &Interval<'_>| {
        seen = seen.max(realtime_threads());
        ControlFlow::Continue(())
    });
    match outcome {
        Ok(outcome) => {
            assert!(outcome.counts.answered > 0 && !outcome.is_broken(), "{outcome}");
            assert_eq!(seen, 1, "one thread sends, and those that look on are ordinary ones");
            assert_eq!(realtime_threads(), 0);
        }
        Err(error @ Error::Realtime(_)) => {
            assert!(error.is_usage() && error.to_string().contains("CAP_SYS_NICE"), "{error}");
            println!("SKIPPED: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}
