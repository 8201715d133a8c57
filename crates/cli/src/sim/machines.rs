//! `roost sim machines`: the presets' idle states, and the energy of waking from each of them.

use crate::exit::usage;
use crate::table::{Table, print};
use anyhow::Result;
use machine::{Duration, Microwatts, Platform, Waking};
use serde::Serialize;
use std::process::ExitCode;

/// List the machines: idle states, the energy of a wake-up, and the sleep that pays for it
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/sim-machines.txt"))]
pub struct Args {
    /// Only this machine, with the source of each figure
    #[arg(value_name = "MACHINE")]
    machine: Option<String>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    machines: Vec<Machine>,
}

#[derive(Serialize)]
struct Machine {
    machine: String,
    waking: Waking,
    states: Vec<State>,
}

#[derive(Serialize)]
struct State {
    name: String,
    exit_latency: Duration,
    target_residency: Duration,
    power: Microwatts,
    /// Finer than whole [`machine::Microjoules`].
    wake_uj: f64,
    break_even: Option<Duration>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let platforms = match &args.machine {
        None => Platform::presets(),
        Some(name) => vec![Platform::by_name(name).ok_or_else(|| {
            usage(format!("no machine is called `{name}`; `roost sim machines` lists them"))
        })?],
    };
    if args.json {
        crate::json::print(1, &Document { machines: platforms.iter().map(described).collect() })?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&text(&platforms))?;
    if args.machine.is_some() {
        platforms[0].sources.iter().try_for_each(|line| print(&format!("\n{line}")))?;
        print("\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn described(platform: &Platform) -> Machine {
    let rows = platform.cstates.0.iter().zip(platform.wake_joules()).zip(platform.break_even());
    let states = rows.map(|((state, joules), break_even)| State {
        name: state.name.clone(),
        exit_latency: state.real_exit_latency(),
        target_residency: state.target_residency,
        power: state.power.unwrap_or_default(),
        wake_uj: joules * 1e6,
        break_even,
    });
    Machine { machine: platform.name.clone(), waking: platform.waking, states: states.collect() }
}

fn text(platforms: &[Platform]) -> String {
    let header = ["machine", "state", "waking", "exit us", "residency us", "W", "wake uJ", "break-even us"];
    let mut table = Table::new(3, header.map(str::to_owned).to_vec());
    let micros = |time: Duration| format!("{}", (time.as_nanos() as f64 / 100.0).round() / 10.0);
    for Machine { machine, waking, states } in platforms.iter().map(described) {
        for state in states {
            table.row(vec![
                machine.clone(),
                state.name,
                match waking {
                    Waking::BreakEven => "break-even".to_owned(),
                    Waking::FullPower => "full-power".to_owned(),
                },
                micros(state.exit_latency),
                micros(state.target_residency),
                format!("{:.3}", state.power.as_watts()),
                format!("{:.1}", state.wake_uj),
                state.break_even.map_or_else(|| "never".to_owned(), micros),
            ]);
        }
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_its_break_evens() {
        let text = text(&Platform::presets());
        let row = |machine: &str, state: &str| {
            let line = text.lines().find(|line| line.starts_with(machine) && line.contains(state));
            line.unwrap_or_else(|| panic!("no row of {machine}, {state}:\n{text}")).to_owned()
        };
        // The table's residency, and the break-even that follows from its energy: 7.4 uJ and 3.525 W
        // for 106 us.
        let sandy_bridge = row("tradeoffs-sandybridge", " C3 ");
        assert!(sandy_bridge.contains(" 381.") && sandy_bridge.ends_with("106"), "{sandy_bridge}");
        // Charged as work for 22 us, C2 of the EPYC pays long before the 800 us of Linux's guess.
        let epyc = row("epyc-7502", " C2 ");
        assert!(epyc.contains("full-power") && !epyc.ends_with(" 800"), "{epyc}");
    }
}
