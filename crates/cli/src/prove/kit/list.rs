//! The plan for people: measurements, changes, the archive's contents. Told before anything begins.

use machine::Duration;
use std::path::Path;
use study::kit::{Machine, MeterKind};

pub fn text(machine: &Machine, length: Duration, place: &Path) -> String {
    let meters: Vec<String> = machine.meters.iter().map(|meter| meter.name.to_string()).collect();
    let states = machine.idle_tables.first().map(|table| &table.states[..]).unwrap_or_default();
    let states: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
    let has_meter = machine.meters.iter().any(|meter| meter.kind != MeterKind::Model);
    let power = if has_meter { meters.join(", ") } else { "NO METER here: watts are modelled".to_owned() };
    let idle = if states.is_empty() { "GAP: no idle states shown".to_owned() } else { states.join(", ") };
    let clocks = match machine.clocks.is_empty() {
        true => "GAP: no clock can be set here".to_owned(),
        false => "the lowest, a middle and the highest limit, one CPU at work".to_owned(),
    };
    format!(
        "\
This takes about {}, and no network.

Measured
  machine       idle states, limits, clocks, meters, queues of network cards: read
  wake-up times of one CPU, by state: {idle}
  idle power    with all CPUs limited to each of these states, polling among them
  clocks        {clocks}
  three loads   roost serve and roost load of its own on 127.0.0.1, governed and not, in turn
  power         {power}

Changed, journalled first, and put back at the end, on Ctrl-C, and by `roost restore` after a kill
  idle limits of all CPUs; upper bounds of clocks; in governed blocks the CPUs of the kit's own
  server, and whatever `roost govern` does with the options after --

In {} (JSON files in a tar)
  processor's name, numbers of the kernel's release, counts, clocks, times, watts, request rates,
  names that drivers give to states, governors and meters; the day
Not in it
  host name, addresses, MAC, serial numbers, maker's names, names of users, processes, cards and
  disks, command lines (neither --meter's nor the kernel's), labels of sensors, any payload

Ctrl-C ends it early; the archive has the parts that were done.",
        length,
        place.display(),
    )
}
