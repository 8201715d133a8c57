use super::super::*;
use super::*;
use crate::prove::Treatment;

/// A server with a meter, deep states and clocks.
pub(in super::super) fn archive() -> Archive {
    let state = |name: &str, halts, exit_latency_ns| IdleState {
        name: Word::of(name),
        halts,
        exit_latency_ns,
        target_residency_ns: exit_latency_ns * 3,
        disabled: Some(false),
    };
    let machine = Machine {
        processor: Some(Word::of("Intel(R) Xeon(R) Silver 4116 CPU @ 2.10GHz")),
        kernel: Some(Word::of("6.12.0")),
        virtual_machine: Some(false),
        cpus: 24,
        cores: 12,
        sockets: 1,
        numa_nodes: 1,
        idle_tables: vec![IdleTable {
            cpus: 24,
            states: vec![state("POLL", false, 0), state("C1", true, 2_000), state("C6", true, 133_000)],
        }],
        clocks: vec![ClockDomains {
            domains: 24,
            cpus: 24,
            driver: Word::name("intel_cpufreq"),
            governor: Word::name("schedutil"),
            preference: None,
            hardware_min_khz: Some(800_000),
            hardware_max_khz: Some(3_500_000),
            base_khz: Some(2_100_000),
            min_khz: Some(800_000),
            max_khz: Some(3_500_000),
        }],
        uncore: vec![Uncore { domains: 1, min_khz: Some(1_200_000), max_khz: Some(2_400_000) }],
        meters: vec![Meter { kind: MeterKind::Rapl, name: Word::of("package-0") }],
        nics: vec![Nic { rx_queues: 8, tx_queues: 8, mbit_per_s: Some(10_000) }],
        cgroups: Word::of("v2"),
        cpuset: true,
        bpf_loaded: Some((12, 12)),
        ..Machine::default()
    };
    let span = |state: Option<&str>, watts| IdleSpan {
        limited_to: state.map(Word::of),
        seconds: 20.0,
        watts: vec![Some(watts)],
        busy_cpus: Some(0.1),
        states: vec![Share { state: Word::of("C6"), share: 0.9 }],
    };
    let block = |number: u32| {
        let is_governed = number.is_multiple_of(2);
        LoadBlock {
            number,
            pair: number.div_ceil(2),
            treatment: if is_governed { Treatment::Governed } else { Treatment::Ungoverned },
            began_s: f64::from(number) * 30.0,
            measured_s: 20.0,
            rate_per_s: Some(10_000.0),
            tail_ns: Some(200_000.0),
            watts: vec![Some(if is_governed { 45.0 + 0.1 * f64::from(number % 4) } else { 50.0 })],
            busy_cpus: Some(2.0),
            awake_cpus: Some(3.0),
            cores: Some(4.0),
            missed_goal: Some(false),
            is_void: false,
        }
    };
    Archive {
        summary: Summary {
            format: FORMAT,
            version: Word::of("0.1.0"),
            date: Word::of("2026-11-26"),
            planned_s: 1800,
            took_s: 1790.5,
            ended_early: false,
            parts: Part::ALL.map(|part| PartState { part, state: State::Done, why: None }).to_vec(),
        },
        machine,
        wakes: vec![Wakes {
            limited_to: None,
            by_other_cpu: true,
            sleep_ns: 10_000_000,
            samples: 2000,
            p50_ns: 60_000,
            p99_ns: 90_000,
            states: vec![Share { state: Word::of("C6"), share: 0.98 }],
        }],
        idle: vec![span(None, 20.0), span(Some("C1"), 30.0), span(Some("C1"), 31.0), span(None, 20.0)],
        clocks: [(800_000, 1.0), (3_500_000, 4.0)]
            .map(|(at_most_khz, turns_per_s)| ClockSpan {
                at_most_khz,
                seconds: 5.0,
                turns_per_s,
                watts: vec![Some(30.0)],
            })
            .to_vec(),
        loads: vec![Load {
            share: 0.05,
            offered_per_s: 10_000.0,
            goal: Word::of("1ms@p99"),
            planned_blocks: 8,
            block_s: 30.0,
            settling_s: 10.0,
            like: 0.1,
            end: LoadEnd::Whole,
            blocks: (1..=8).map(block).collect(),
        }],
    }
}

fn packed(archive: &Archive) -> Vec<u8> {
    let mut bytes = Vec::new();
    archive.write(&mut bytes).unwrap();
    bytes
}

/// An archive of these entries, as a stranger may make one.
fn made_of(entries: &[(&str, &[u8], tar::EntryType)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content, kind) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_entry_type(*kind);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn refused(bytes: &[u8]) -> String {
    Archive::read(bytes).unwrap_err().to_string()
}

#[test]
fn an_archive_reads_as_it_was_written_and_its_page_shows_it() {
    let archive = archive();
    let bytes = packed(&archive);
    assert!(Archive::is_one(&bytes) && !Archive::is_one(b"{}"));
    assert_eq!(Archive::read(&bytes).unwrap(), archive);
    assert_eq!(packed(&archive), bytes, "equal findings give equal bytes");
    let page = archive.page();
    let all = page.json();
    for words in ["Silver 4116", "power (package-0)", "C6", "3500 MHz", "saves"] {
        assert!(all.contains(words), "{words}: {all}");
    }
    assert!(page.alarms.is_empty(), "{:?}", page.alarms);
    assert!(page.cards.iter().all(|card| card.met == Some(true)), "{:?}", page.cards);
    assert!(page.html().contains("Idle power"));
    let mut killed = archive.clone();
    killed.summary.parts[4].state = State::NotBegun;
    assert!(killed.page().alarms[0].contains("A signal ended the run"));
    let mut busy = archive;
    busy.idle[0].busy_cpus = Some(20.0);
    assert!(busy.page().alarms[0].contains("20.0 of 24 CPUs were busy"));
}

#[test]
fn a_strangers_archive_is_refused_with_the_reason() {
    let good = archive();
    let files = good.files();
    let plain = tar::EntryType::Regular;
    let entries = |change: &dyn Fn(&str, &str) -> String| {
        let changed: Vec<(String, String)> =
            files.iter().map(|(name, text)| (name.clone(), change(name, text))).collect();
        let entries: Vec<(&str, &[u8], tar::EntryType)> =
            changed.iter().map(|(name, text)| (name.as_str(), text.as_bytes(), plain)).collect();
        made_of(&entries)
    };
    assert_eq!(Archive::read(&entries(&|_, text| text.to_owned())).unwrap(), good);
    for (from, to, why) in [
        ("\"format\": 1", "\"format\": 2", "format 2"),
        ("\"cpus\": 24", "\"cpus\": -1", "machine.json"),
        ("\"cpus\": 24", "\"hostname\": \"db1\", \"cpus\": 24", "hostname"),
        ("\"C6\"", "\"<script>\"", "not plain"),
        ("\"took_s\": 1790.5", "\"took_s\": -3.0", "negative"),
        ("\"watts\": [", "\"watts\": [1.0,", "one entry for each meter"),
        ("\"planned_blocks\": 8", "\"planned_blocks\": 6", "no run has"),
        ("\"planned_blocks\": 8", "\"planned_blocks\": 1000000", "no run has"),
    ] {
        assert!(files.iter().any(|(_, text)| text.contains(from)), "{from}");
        let told = refused(&entries(&|_, text| text.replace(from, to)));
        assert!(told.contains(why), "{to}: {told}");
    }
    let summary = files[0].1.as_bytes();
    for (name, kind, why) in [
        ("../kit.json", plain, "no archive of ours"),
        ("/etc/passwd", plain, "no archive of ours"),
        ("load-2.json", plain, "no archive of ours"),
        ("kit.json", tar::EntryType::Symlink, "no plain file"),
        ("kit.json", tar::EntryType::XHeader, "no plain file"),
    ] {
        assert!(refused(&made_of(&[(name, summary, kind)])).contains(why), "{name}");
    }
    let twice = made_of(&[("kit.json", summary, plain), ("kit.json", summary, plain)]);
    assert!(refused(&twice).contains("twice"));
    assert!(refused(&made_of(&[("kit.json", summary, plain)])).contains("machine.json is missing"));
    assert!(refused(b"\x1f\x8bnonsense").contains("cannot be unpacked"));
    let whole = packed(&good);
    assert!(refused(&whole[..whole.len() / 2]).contains("cannot be unpacked"));
}

#[test]
fn a_bomb_is_not_unpacked() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    io::copy(&mut io::repeat(0).take(SIZE_MAX * 16), &mut gzip).unwrap();
    let bytes = gzip.finish().unwrap();
    assert!(bytes.len() < 1 << 20);
    assert!(refused(&bytes).contains("more than 4 MiB"));
}
