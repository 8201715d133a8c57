//! A recording as a scenario that a person can read and change: each value with its source.

use super::generator::Awake;
use super::recording::{GENERATOR, KERNEL_THREADS, Known, Loop, Machine, Recording, Service, Source, State};
use machine::Goal;
use std::fmt::{Display, Write as _};

/// Why no scenario comes of a recording.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WrittenError {
    #[error(
        "it has neither the service's CPU time nor its work by request\nhint: record as root, on a kernel \
         that takes the programs; `roost doctor` says which"
    )]
    NoWork,
    #[error("it has no rate of requests\nhint: record for ten seconds or more")]
    NoRate,
}

/// The policies that the kernel itself has in force, as the simulator calls them.
pub fn stock_policy(machine: &Machine) -> &'static str {
    let major = machine.kernel.as_deref().and_then(|kernel| kernel.split('.').next()?.parse::<u32>().ok());
    match machine.governor.as_deref() {
        Some("teo") if major.is_some_and(|major| major >= 7) => "teo@7.0",
        Some("teo") => "teo",
        // It halts in the shallowest state, after polling where the guest polls at all.
        Some("haltpoll") => "shallow",
        _ => "menu",
    }
}

/// The text of `scenario.toml` for a recorded run, each value with its source.
pub fn scenario_text(recording: &Recording, goal: Option<Goal>) -> Result<String, WrittenError> {
    let mut text = Text(String::new());
    let service = recording.service.clone().unwrap_or_default();
    text.remark("Made by `roost plan` from recording.json. Every value may be changed; `roost plan` and");
    text.remark("`roost sim run` take the file as it then is. measured: seen on the machine; derived: by a");
    text.remark("formula of docs/plan.md; ESTIMATE: neither.");
    text.line(&format!("title = {}", quoted(&format!("{} as recorded", service.name))), "");
    let stock = stock_policy(&recording.machine);
    let governor = recording.machine.governor.as_deref().map_or_else(
        || "ESTIMATE: cpuidle's governor is not known".to_owned(),
        |governor| format!("measured: cpuidle's governor is {governor}"),
    );
    text.line(&format!("policies = [\"{stock}\"]"), &governor);
    if let Some(goal) = goal {
        text.line(&format!("goal = \"{goal}\""), "as asked for");
    }
    machine(&mut text, recording);
    server(&mut text, recording)?;
    workload(&mut text, recording)?;
    noise(&mut text, recording);
    Ok(text.0)
}

fn machine(text: &mut Text, recording: &Recording) {
    let machine = &recording.machine;
    text.table("machine");
    match &machine.preset {
        Some(preset) => text.known(&format!("preset = {}", quoted(&preset.value)), preset),
        None => text.line("preset = \"xeon-silver-4116\"", "ESTIMATE: the processor is not listed"),
    }
    let counted = match machine.topology {
        None | Some(Source::Measured) => "measured: the kernel's topology",
        _ => "ESTIMATE: the recording has no topology, so each CPU is a core of one socket",
    };
    text.line(&format!("sockets = {}", machine.sockets), counted);
    text.line(&format!("cores = {}", machine.cores), counted);
    text.line(&format!("threads = {}", machine.threads), counted);
    if machine.virtual_machine == Some(true) {
        text.line("package = false", "derived: a virtual machine does not put sockets to sleep");
    }
    if let Some(spread) = waking_spread(recording) {
        text.known(&format!("waking_spread = {}", rounded(spread.value)), &spread);
    }
    let halting: Vec<&State> = machine.states.iter().filter(|state| !state.polls).collect();
    if halting.is_empty() {
        text.remark("No idle state is shown by the kernel, so the preset's are taken: ESTIMATE.");
        return;
    }
    text.remark("Idle states as the kernel lists them, in nanoseconds and microwatts.");
    text.line("cstates = [", "");
    let mut deepest_exit = 0.0f64;
    for state in halting {
        // The tables must rise; a driver that advertises the same for two states is taken at its
        // word for the first.
        let exit = state.exit_us.max(deepest_exit);
        deepest_exit = exit;
        let mut entry = format!("  {{ name = {}, kind = \"halting\"", quoted(&state.name));
        let _ = write!(entry, ", exit_latency = {}", nanos(exit));
        if let Some(wake) = &state.wake_us {
            let _ = write!(entry, ", true_exit_latency = {}", nanos(wake.value));
        }
        let _ = write!(entry, ", target_residency = {}", nanos(state.residency_us.max(exit)));
        if let Some(watts) = &state.watts {
            let _ = write!(entry, ", power = {}", (watts.value * 1e6).round().max(0.0) as u64);
        }
        entry.push_str(" },");
        let waking = state.wake_us.as_ref().map_or_else(
            || "its waking as advertised: ESTIMATE".to_owned(),
            |wake| format!("its waking {}", told(wake)),
        );
        let power = state.watts.as_ref().map_or_else(String::new, |watts| format!("; power {}", told(watts)));
        text.line(&entry, &format!("{waking}{power}"));
    }
    text.line("]", "");
}

/// The spread of wake-up times: that of the waits for a CPU, where CPUs are idle often enough for most
/// waits to be wake-ups; else that of a probe, where there is one state to wake from.
fn waking_spread(recording: &Recording) -> Option<Known<f64>> {
    waiting_spread(recording).or_else(|| probed_spread(recording))
}

/// A wider spread is of other things than wake-ups.
const MOST_SPREAD: f64 = 2.0;

fn waiting_spread(recording: &Recording) -> Option<Known<f64>> {
    const OFTEN: f64 = 0.3;
    /// The standard normal distribution's ninetieth percentile.
    const P90: f64 = 1.2816;
    let responses = &recording.responses;
    let (p50, p90) = (responses.waiting_p50_us.as_ref()?.value, responses.waiting_p90_us.as_ref()?.value);
    let idle = 1.0 - recording.sleeps.busy_cpus.as_ref()?.value / f64::from(recording.cpus());
    if idle < OFTEN || p50 <= 0.0 || p90 <= p50 {
        return None;
    }
    let by = format!(
        "lognormal through {p50:.1} and {p90:.1} us, the middle and the ninetieth percentile of ready to \
         taken, while CPUs are idle {:.0} % of the time",
        idle * 100.0
    );
    Some(Known::derived(((p90 / p50).ln() / P90).min(MOST_SPREAD), by))
}

fn probed_spread(recording: &Recording) -> Option<Known<f64>> {
    /// The standard normal distribution's ninety-ninth percentile.
    const P99: f64 = 2.3263;
    let mut halting = recording.machine.states.iter().filter(|state| !state.polls);
    let (state, None) = (halting.next()?, halting.next()) else { return None };
    let (p50, p99) = (state.wake_us.as_ref()?.value, state.wake_p99_us.as_ref()?.value);
    if p50 <= 0.0 || p99 <= p50 {
        return None;
    }
    let by = format!("lognormal through {p50:.1} and {p99:.1} us, the middle and the p99 of a probe");
    Some(Known::derived(((p99 / p50).ln() / P99).min(MOST_SPREAD), by))
}

fn server(text: &mut Text, recording: &Recording) -> Result<(), WrittenError> {
    let service = recording.service.clone().unwrap_or_default();
    text.table("server");
    text.line(
        "dispatch = \"shared\"",
        "ESTIMATE: the scheduler wakes a thread where a CPU is idle, as one queue for all cores does",
    );
    let cpus = service.cpus.unwrap_or(recording.cpus()).min(recording.cpus()).max(1);
    let (workers, by) = match &service.threads {
        Some(threads) if threads.value < cpus => {
            (threads.value.max(1), format!("its threads, {}", told(threads)))
        }
        _ if service.cpus.is_none() => {
            (cpus, "ESTIMATE: that it may use every CPU; it has as many threads".to_owned())
        }
        _ => (cpus, "measured: the CPUs that it may use; it has as many threads".to_owned()),
    };
    text.line(&format!("workers = {workers}"), &by);
    if let Some((count, turn)) = turns(&service) {
        let half = time(turn.value / 2.0);
        text.table("server.threads");
        text.line(&format!("count = {}", count.value), &told(&count));
        text.line(&format!("before = \"{half}\""), &format!("{}; ESTIMATE: half of it", told(&turn)));
        text.line(&format!("after = \"{half}\""), "ESTIMATE: the other half");
    }
    if let Some(after) = after_reply(recording) {
        text.table("server.nic");
        text.line("receive = \"0s\"", "derived: response times begin when a request is ready");
        text.line(&format!("transmit = \"{}\"", time(after.value)), &told(&after));
    }
    Ok(())
}

/// The service's threads, and CPU time of a turn of theirs beside the work of its requests, where both
/// are known.
fn turns(service: &Service) -> Option<(Known<u64>, Known<f64>)> {
    let (threads, requests) = (service.threads.clone()?, service.requests_a_turn.as_ref()?);
    let cost = beyond_work(service) * requests.value;
    (threads.value > 0 && cost > 0.0 && cost.is_finite()).then(|| {
        let by = format!(
            "{:.2} us of CPU time by request beyond its work until the reply, times {:.2} requests a turn",
            beyond_work(service),
            requests.value
        );
        (
            Known { value: u64::from(threads.value), source: threads.source, by: threads.by },
            Known::derived(cost, by),
        )
    })
}

/// CPU time by request that no reply waits for: the service's own after it (epoll, the socket, the
/// receiver's part on a loopback), and interrupts and wake-ups, which no thread's count holds.
fn after_reply(recording: &Recording) -> Option<Known<f64>> {
    let service = recording.service.as_ref()?;
    let known = |value: &Option<Known<f64>>| value.as_ref().map(|known| known.value);
    // Turns have it where they are known.
    let own = if turns(service).is_some() { 0.0 } else { beyond_work(service) * (1.0 - BEFORE) };
    let rate = known(&recording.arrivals.rate_per_s)?;
    let beyond = known(&recording.sleeps.beyond_threads_cpus).map_or(0.0, |cpus| cpus * 1e6 / rate);
    // Of a service that is hardly asked anything, interrupts have other causes than requests.
    let wakes = known(&recording.sleeps.wakes_per_s).unwrap_or(0.0);
    let beyond = if rate >= SOME_OF_WAKES * wakes { beyond } else { 0.0 };
    (own + beyond > 0.0).then(|| {
        let by = format!(
            "by request {own:.2} us, half of the service's CPU time beyond its work until the reply, and \
             {beyond:.2} us of busy time beyond all threads'; ESTIMATE: the half"
        );
        Known::derived(own + beyond, by)
    })
}

/// CPU time by request outside the work until its reply: switching to the thread, epoll, the socket.
fn beyond_work(service: &Service) -> f64 {
    match (&service.cpu_us, &service.work_us) {
        (Some(cpu), Some(work)) => (cpu.value - work.value).max(0.0),
        _ => 0.0,
    }
}

/// So much of it is before the request is taken.
const BEFORE: f64 = 0.5;

/// Requests are the cause of wake-ups if they are at least this share of them.
const SOME_OF_WAKES: f64 = 0.1;

/// The work of a request until its reply.
fn work(recording: &Recording) -> Option<Known<f64>> {
    let service = recording.service.as_ref()?;
    match (&service.cpu_us, &service.work_us) {
        (Some(cpu), Some(work)) if cpu.value <= work.value => Some(Known::derived(
            cpu.value,
            format!("CPU time by request; until the reply {:.2} us pass, with waiting", work.value),
        )),
        (Some(_), Some(work)) => {
            if turns(service).is_some() {
                return Some(work.clone());
            }
            let before = beyond_work(service) * BEFORE;
            let by = format!(
                "{:.2} us until the reply, {}; {before:.2} us before the request is taken, ESTIMATE: half of \
                 the CPU time beyond",
                work.value, work.by
            );
            Some(Known::derived(work.value + before, by))
        }
        (None, Some(work)) => Some(work.clone()),
        (cpu, None) => cpu.clone(),
    }
}

fn workload(text: &mut Text, recording: &Recording) -> Result<(), WrittenError> {
    let service = recording.service.clone().unwrap_or_default();
    let work = work(recording).ok_or(WrittenError::NoWork)?;
    let arrivals = &recording.arrivals;
    let rate = arrivals.rate_per_s.as_ref().ok_or(WrittenError::NoRate)?;
    let closed = recording.generator.as_ref().filter(|generator| generator.kind.value == Loop::Closed);
    let connections = arrivals.connections.as_ref().filter(|connections| connections.value > 0);
    let response = recording.responses.mean_us.as_ref();
    let is_closed = match (closed, connections, response) {
        (Some(generator), Some(connections), Some(response)) => {
            text.table("server.clients");
            text.line(
                &format!("count = {}", connections.value),
                &format!("{}; a closed loop, {}", told(connections), told(&generator.kind)),
            );
            let cycle_us = connections.value as f64 / rate.value * 1e6;
            let think = (cycle_us - response.value).max(0.001);
            text.line(
                &format!("think = {{ exponential = \"{}\" }}", time(think)),
                &format!(
                    "derived: connections / rate - mean response, {cycle_us:.2} - {:.2} us; ESTIMATE: that \
                     pauses are exponential",
                    response.value
                ),
            );
            true
        }
        _ => false,
    };
    text.table("workload");
    if !is_closed {
        text.known(&format!("rate = {}", rounded(rate.value)), rate);
        let (kind, why) = match &arrivals.scv {
            Some(scv) => (arrival_kind(recording, scv.value), format!("scv {:.2}, {}", scv.value, told(scv))),
            None => ("poisson".to_owned(), "ESTIMATE: too few arrivals tell of bursts".to_owned()),
        };
        text.line(&format!("arrivals = \"{kind}\""), &why);
        if let Some(connections) = connections {
            text.line(&format!("connections = {}", connections.value), &told(connections));
        }
    }
    let until_reply = service.work_us.as_ref().map_or(work.value, |until| until.value.min(work.value));
    let service_line = match &service.work_cv {
        Some(cv) if cv.value > 0.01 => (
            format!(
                "service = {{ distribution = \"lognormal\", mean = \"{}\", cv = {} }}",
                time(work.value),
                // The part before does not vary.
                { rounded((cv.value * until_reply / work.value).min(20.0)) }
            ),
            format!("mean {}; cv {}; ESTIMATE: that it is lognormal", told(&work), told(cv)),
        ),
        _ => (
            format!("service = {{ exponential = \"{}\" }}", time(work.value)),
            format!("mean {}; ESTIMATE: that it is exponential", told(&work)),
        ),
    };
    text.line(&service_line.0, &service_line.1);
    text.table("run");
    // What else runs is simulated with them, however seldom a request comes.
    let requests = (rate.value * 600.0).clamp(2e3, 2e5) as u64;
    text.line(
        &format!("requests = {requests}"),
        "so many are simulated of each policy: ten minutes' worth, 2000 to 200000",
    );
    Ok(())
}

/// Burstier than Poisson beyond doubt, nearly even, or neither. Requests of a generator on the same
/// CPUs come in bursts after each of its waits for a CPU, which the model has as well: of a Poisson
/// one counts tell up to 3.3 (docs/journal/2026-11-26-plan.md).
fn arrival_kind(recording: &Recording, scv: f64) -> String {
    let bursty = if recording.others.iter().any(|other| other.name == GENERATOR) { 5.0 } else { 1.5 };
    if scv >= bursty {
        format!("h2:{}", rounded(scv.sqrt().min(100.0)))
    } else if scv <= 0.1 {
        "uniform".to_owned()
    } else {
        "poisson".to_owned()
    }
}

fn noise(text: &mut Text, recording: &Recording) {
    let cpus = f64::from(recording.cpus());
    let is_open = recording.generator.as_ref().is_none_or(|generator| generator.kind.value == Loop::Open);
    let open_rate = recording.arrivals.rate_per_s.as_ref().map(|rate| rate.value).filter(|_| is_open);
    for other in &recording.others {
        let Some(length) = other.length_us.as_ref().filter(|length| length.value > 0.0) else {
            text.remark(&format!(
                "{}: {:.0} a second, of unknown length, are left out.",
                other.name, other.per_s.value
            ));
            continue;
        };
        if other.per_s.value <= 0.0 {
            continue;
        }
        let rate =
            format!("{}: {:.1}/s on {cpus} CPUs, {}", other.name, other.per_s.value, told(&other.per_s));
        let long = format!("length = {{ exponential = \"{}\" }}", time(length.value));
        let by = format!("{}; ESTIMATE: that it is exponential", told(length));
        if other.name == KERNEL_THREADS {
            text.array("server.noise");
            text.line(&format!("every = \"{}\"", time(cpus / other.per_s.value * 1e6)), &rate);
            text.line(&long, &by);
            text.line("on = \"each\"", "ESTIMATE: that it comes to all CPUs alike");
            continue;
        }
        let awake = Awake::of(recording).filter(|_| other.name == GENERATOR);
        if let Some(warning) = awake.and_then(|awake| awake.warning()) {
            text.remark(&format!("ESTIMATE: {warning}."));
        }
        if let Some(awake) = awake.filter(Awake::agrees) {
            text.array("server.noise");
            let by = format!(
                "{rate}; derived: by turns of {:.2} us, ln(1 + rate x turn) / rate; by its share of a CPU \
                 {:.2} us",
                length.value, awake.by_share_us
            );
            text.line(&format!("after_request = \"{}\"", time(awake.by_turns_us)), &by);
            text.line("sends = true", "derived: the service's clients are on this machine");
            text.line("on = \"scheduled\"", "ESTIMATE: the kernel puts it where a CPU is idle");
            continue;
        }
        // As few threads as can have had that CPU time, a CPU each at the most.
        let share = other.per_s.value * length.value * 1e-6;
        let threads = (share / MOST_OF_A_CPU).ceil().clamp(1.0, cpus.max(1.0));
        let sleep = (threads / other.per_s.value * 1e6 - length.value).max(0.001);
        for _ in 0..threads as u64 {
            text.array("server.noise");
            let so_many = format!("{threads} threads of {share:.2} CPUs; ESTIMATE: so many");
            match open_rate.filter(|_| other.name == GENERATOR) {
                Some(requests) => text.line(
                    &format!("per_request = {}", rounded(other.per_s.value / threads / requests)),
                    &format!("{rate}; derived: over requests; {so_many}; ESTIMATE: that it follows the load"),
                ),
                None => text.line(
                    &format!("every = \"{}\"", time(sleep)),
                    &format!("{rate}; derived: the sleep of {so_many}"),
                ),
            }
            text.line(&long, &by);
            text.line("on = \"scheduled\"", "ESTIMATE: the kernel puts it where a CPU is idle");
        }
    }
}

/// A thread that has more of a CPU than this is taken for two.
pub(super) const MOST_OF_A_CPU: f64 = 0.995;

struct Text(String);

impl Text {
    fn remark(&mut self, sentence: &str) {
        let _ = writeln!(self.0, "# {sentence}");
    }

    fn table(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[{name}]");
    }

    fn array(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[[{name}]]");
    }

    fn line(&mut self, line: &str, why: &str) {
        // A name from the machine must not end the remark.
        let why: String = why.chars().filter(|letter| !letter.is_control()).collect();
        let gap = if why.is_empty() { "" } else { "  # " };
        let _ = writeln!(self.0, "{line}{gap}{why}");
    }

    fn known<T>(&mut self, line: &str, known: &Known<T>) {
        self.line(line, &told(known));
    }
}

fn told<T>(known: &Known<T>) -> String {
    format!("{}: {}", known.source, known.by)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn nanos(micros: f64) -> u64 {
    (micros * 1000.0).round().max(0.0) as u64
}

/// A length of time as scenarios write it.
fn time(micros: f64) -> impl Display {
    format!("{}ns", nanos(micros).max(1))
}

/// Four digits: no more is known.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let factor = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::super::recording::tests::sample;
    use super::super::recording::{Generator, Known};
    use super::*;
    use crate::scenario::{Document, Estimates};
    use std::path::Path;

    fn document(recording: &Recording) -> Document {
        let text = scenario_text(recording, Some("500us@p99".parse().unwrap())).unwrap();
        Document::parse(Path::new("scenario.toml"), &text, &Estimates::default())
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_kernels_version_says_which_teo_it_has() {
        let policy = |governor: Option<&str>, kernel: Option<&str>| {
            let [governor, kernel] = [governor, kernel].map(|text| text.map(str::to_owned));
            stock_policy(&Machine { governor, kernel, ..Machine::default() })
        };
        for (kernel, word) in [(Some("7.2.13-1"), "teo@7.0"), (Some("6.18.44"), "teo"), (None, "teo")] {
            assert_eq!(policy(Some("teo"), kernel), word);
        }
        assert_eq!((policy(None, Some("7.2")), policy(Some("haltpoll"), None)), ("menu", "shallow"));
    }

    #[test]
    fn a_recording_becomes_a_scenario_that_runs() {
        let document = document(&sample());
        let contestants = document.contestants().unwrap();
        let (setup, jobs) = document.setup(&contestants[0].policies, 1).unwrap();
        assert_eq!(setup.workers, 2);
        assert_eq!(setup.platform.cstates.0.len(), 1, "polling is no state of the table");
        assert_eq!(setup.platform.cstates.0[0].real_exit_latency().as_micros(), 40);
        // 12 us of CPU time, 8 until the reply: half of the rest before it, half after.
        assert_eq!(jobs.mean_service().as_micros(), 10);
        assert_eq!(setup.nic.unwrap().transmit.as_micros(), 2);
        assert_eq!(jobs.mean_rate().as_per_second(), 10_000.0);
        // 500 a second by one thread, which sleeps for all but 20 us.
        assert_eq!(setup.noise[0].every.as_micros(), 1_980);
    }

    #[test]
    fn a_turn_has_the_cpu_time_beyond_the_work_of_its_requests() {
        let mut recording = sample();
        let service = recording.service.as_mut().unwrap();
        service.requests_a_turn = Some(Known::derived(2.0, "requests over turns"));
        let (setup, jobs) = document(&recording).setup("menu", 1).unwrap();
        assert_eq!(jobs.mean_service().as_micros(), 8);
        assert_eq!(jobs.connections(), 32);
        let threads = setup.threads.unwrap();
        assert_eq!(threads.count, 4);
        assert_eq!([threads.before.as_micros(), threads.after.as_micros()], [4, 4]);
        assert!(setup.nic.is_none());
    }

    #[test]
    fn other_work_is_placed_by_its_kind() {
        let mut recording = sample();
        let named = |name: &str, length_us: f64| {
            let mut other = recording.others[0].clone();
            other.name = name.to_owned();
            other.length_us = Some(Known::derived(length_us, "time over turns"));
            other
        };
        // Of 500 a second: 1 % of a CPU, and 1.5 CPUs.
        recording.others = vec![named(KERNEL_THREADS, 20.0), named(GENERATOR, 3_000.0)];
        let (setup, _) = document(&recording).setup("menu", 1).unwrap();
        let noise: Vec<_> = setup.noise.iter().map(|noise| (noise.on, noise.every.as_micros())).collect();
        use crate::engine::NoiseOn::{Each, Scheduled};
        assert_eq!(noise, [(Each, 4_000), (Scheduled, 1_000), (Scheduled, 1_000)]);
        // Clients of unknown kind, whose generator has half to do at half the load, and sleeps longer.
        let half = document(&recording).with("workload.rate", &toml::Value::Integer(5_000)).unwrap();
        assert_eq!(half.setup("menu", 1).unwrap().0.noise[1].every.as_micros(), 5_000);
    }

    #[test]
    fn wake_ups_spread_as_waits_do_or_as_a_probe_says() {
        let spread = |recording: &Recording| document(recording).setup("menu", 1).unwrap().0.waking_spread;
        let mut recording = sample();
        assert_eq!(spread(&recording), 0.0);
        // A p99 of e^(2.3263 x 0.2) times the middle.
        recording.machine.states[1].wake_p99_us = Some(Known::measured(40.0 * 1.5924, "a probe"));
        assert!((spread(&recording) - 0.2).abs() < 1e-4);
        // With two CPUs of which 0.6 are busy most waits are wake-ups.
        recording.responses.waiting_p50_us = Some(Known::measured(30.0, "probes"));
        recording.responses.waiting_p90_us = Some(Known::measured(30.0 * 1.4690, "probes"));
        assert!((spread(&recording) - 0.3).abs() < 1e-3);
        recording.sleeps.busy_cpus.as_mut().unwrap().value = 1.5;
        assert!((spread(&recording) - 0.2).abs() < 1e-4);
    }

    #[test]
    fn an_open_generator_is_awake_after_each_request_and_sends() {
        let mut recording = sample();
        let kind = Known::derived(Loop::Open, "Little");
        recording.generator = Some(Generator { names: vec!["load".to_owned()], kind });
        recording.others[0].name = GENERATOR.to_owned();
        // At 10,000/s and w = 40 us: turns of (e^0.4 - 1) / rate, and e^-0.4 as many as requests.
        recording.others[0].per_s.value = 6_703.2;
        recording.others[0].length_us = Some(Known::derived(49.1825, "time over turns"));
        let (setup, _) = document(&recording).setup("menu", 1).unwrap();
        assert_eq!(setup.noise[0].follows, Some(crate::engine::Follows { sends: true }));
        assert_eq!(setup.noise[0].length.mean().as_micros(), 40);
        // Of another law its work is linear in the load.
        recording.others[0].length_us.as_mut().unwrap().value = 5.0;
        let text = scenario_text(&recording, None).unwrap();
        assert!(text.contains("per_request") && text.contains("# ESTIMATE: the generator"), "{text}");
        document(&recording).setup("menu", 1).unwrap();
    }

    #[test]
    fn every_value_says_where_it_came_from() {
        let text = scenario_text(&sample(), None).unwrap();
        let plain = ["title", "cstates", "]", "#", "["];
        for line in text.lines().filter(|line| !line.is_empty()) {
            let is_plain = plain.iter().any(|begin| line.starts_with(begin));
            let sources = ["measured", "derived", "ESTIMATE", "simulated", "as asked for"];
            assert!(is_plain || sources.iter().any(|source| line.contains(source)), "{line}");
        }
    }

    #[test]
    fn a_closed_loop_thinks_for_the_rest_of_its_cycle() {
        let mut recording = sample();
        let names = vec!["load".to_owned()];
        recording.generator = Some(Generator { names, kind: Known::derived(Loop::Closed, "Little") });
        let text = scenario_text(&recording, None).unwrap();
        // 32 connections at 10,000 a second: a cycle of 3,200 us, of which 55 are the response.
        assert!(text.contains("count = 32") && text.contains("exponential = \"3145000ns\""), "{text}");
        assert!(!text.contains("rate ="), "{text}");
        document(&recording).setup("menu", 1).unwrap();
    }

    #[test]
    fn a_missing_value_is_no_zero() {
        let mut recording = sample();
        let service = recording.service.as_mut().unwrap();
        (service.cpu_us, service.work_us) = (None, None);
        assert_eq!(scenario_text(&recording, None), Err(WrittenError::NoWork));
        let mut recording = sample();
        recording.arrivals.rate_per_s = Some(Known::measured(5.0, "x"));
        assert!(scenario_text(&recording, None).unwrap().contains("requests = 3000"));
        recording.arrivals.rate_per_s = None;
        assert_eq!(scenario_text(&recording, None), Err(WrittenError::NoRate));
        let mut recording = sample();
        recording.others[0].length_us = None;
        recording.machine.states.clear();
        let text = scenario_text(&recording, None).unwrap();
        assert!(text.contains("of unknown length") && !text.contains("[[server.noise]]"), "{text}");
        document(&recording).setup("menu", 1).unwrap();
    }

    #[test]
    fn names_from_the_machine_cannot_break_the_file() {
        let mut recording = sample();
        recording.service.as_mut().unwrap().name = "a\"b\n[server]\\".to_owned();
        recording.others[0].name = "x\ny = 1".to_owned();
        recording.machine.states[1].name = "C\"1".to_owned();
        document(&recording);
    }

    #[test]
    fn bursts_are_told_from_even_gaps() {
        let mut recording = sample();
        assert_eq!(
            (arrival_kind(&recording, 4.0), arrival_kind(&recording, 1.2)),
            ("h2:2".into(), "poisson".into())
        );
        assert_eq!(arrival_kind(&recording, 0.0), "uniform");
        recording.others[0].name = GENERATOR.to_owned();
        assert_eq!(
            (arrival_kind(&recording, 9.0), arrival_kind(&recording, 4.0)),
            ("h2:3".into(), "poisson".into())
        );
    }
}
