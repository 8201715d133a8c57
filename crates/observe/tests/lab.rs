//! On a real kernel with four idle states and six frequencies, which `lab/run` boots in an
//! emulator.

mod lab {
    use linux::probes::RequestWay;
    use linux::{IdleControl, IdleOptions, Root, pin_current_thread};
    use machine::{CpuId, CpuList, Duration, IdleLimit, LengthHistogram};
    use observe::doctor::{gather, page, verdicts};
    use observe::requests::RequestWatch;
    use observe::sleep::{SleepPattern, SleepWatch, Without};
    use observe::verdict::{Change, compare};
    use observe::verify::{Blocks, verify};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::TempDir;

    const CPU: CpuId = CpuId(5);

    /// The real machine, with locks and journals in a folder of the test's own.
    fn machine() -> (TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for part in ["sys", "proc", "dev"] {
            symlink(format!("/{part}"), folder.path().join(part)).unwrap();
        }
        let root = Root::at(folder.path());
        assert_eq!(
            linux::idle_table(&root, CPU).map_or(0, |table| table.0.len()),
            4,
            "this needs the lab's machine: run `make lab`"
        );
        (folder, root)
    }

    /// Sleeps on `CPU`, long enough for its deepest state.
    fn nap() {
        let napping = || {
            pin_current_thread(CPU).unwrap();
            (0..40).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(15)));
        };
        std::thread::spawn(napping).join().unwrap();
    }

    /// Sleeps of `CPU` in each state while it naps.
    fn states(watch: &mut SleepWatch) -> Vec<u64> {
        let counts = |pattern: &SleepPattern| -> Vec<u64> {
            let of_cpu = pattern.cpus.iter().find(|cpu| cpu.cpu == CPU);
            let mut counts: Vec<u64> =
                of_cpu.map_or_else(Vec::new, |cpu| cpu.idle.iter().map(LengthHistogram::count).collect());
            counts.resize(4, 0);
            counts
        };
        // The first event of a CPU only begins its story.
        nap();
        let before = counts(&watch.read(linux::now()));
        nap();
        counts(&watch.read(linux::now())).iter().zip(before).map(|(after, before)| after - before).collect()
    }

    #[test]
    #[ignore = "needs a kernel with four idle states: make lab"]
    fn doctor_sees_the_states_the_clocks_and_what_each_policy_finds() {
        let (_folder, root) = machine();
        let facts = gather(&root, Some(linux::probes::survey(&root)));
        let text = page(&facts, &verdicts(&facts));
        eprintln!("{text}");
        for part in
            ["acpi_idle", "POLL", "C3", "133", "acpi-cpufreq", "8 CPUs", "2.60 GHz", "sleeps:cpu_idle"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(serde_json::to_string(&facts).is_ok());
    }

    #[test]
    #[ignore = "needs a kernel with four idle states: make lab"]
    fn what_doctor_says_of_this_kernel_is_what_the_commands_then_find() {
        use linux::probes::{AlarmProgram, ThreadProgram, WaitProgram};
        use observe::doctor::VerdictKind;
        let (_folder, root) = machine();
        let facts = gather(&root, Some(linux::probes::survey(&root)));
        let verdicts = verdicts(&facts);
        let of = |family: &str| verdicts.iter().find(|verdict| verdict.family == family).unwrap();
        let tells = |family: &str, words: &str| of(family).reasons.iter().any(|why| why.contains(words));
        let cpus = linux::online_cpus(&root).unwrap();
        for (family, words, found) in [
            ("hurry-up", "by their files in /proc", ThreadProgram::load(std::process::id()).err()),
            ("active CPUs", "no alarm between epochs", AlarmProgram::load().err()),
            ("quiescence", "what threads wait for", WaitProgram::load(&cpus, false).err()),
        ] {
            println!("{family}: {:?}, {found:?}", of(family).verdict);
            assert_eq!(tells(family, words), found.is_some(), "{family}: {found:?}");
            assert!(found.is_none_or(|error| error.is_lack()), "{family}");
        }
        let offline = linux::Hotplug::supported(&root);
        println!("CPUs offline: {:?}, {offline:?}", of("CPUs offline").verdict);
        assert_eq!(of("CPUs offline").verdict == VerdictKind::Cannot, offline.is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = linux::service::of_port(&Root::system(), port).unwrap();
        let way = RequestWatch::open(&root, &service, linux::now()).0.unwrap().total().way;
        println!("requests: {way}");
        assert_eq!(tells("observation", "no socket tracepoints"), way != RequestWay::Sockets);
    }

    /// The recording that lies in testdata as `lab.tree` came from here: `lab/run observe`, and the
    /// lines after the mark.
    #[test]
    #[ignore = "needs a kernel with four idle states: make lab"]
    fn a_recording_of_this_machine_gives_the_same_page_elsewhere() {
        let (_folder, root) = machine();
        let text = observe::doctor::record(&root);
        text.lines().for_each(|line| println!("tree: {line}"));
        let elsewhere = tempfile::tempdir().unwrap();
        observe::doctor::unpack(&text, elsewhere.path()).unwrap();
        let (here, there) = (gather(&root, None), gather(&Root::at(elsewhere.path()), None));
        assert_eq!(page(&here, &verdicts(&here)), page(&there, &verdicts(&there)));
    }

    /// The document in testdata/doctor/lab-probe.json came from here: `lab/run observe`, and the
    /// line after the mark.
    #[test]
    #[ignore = "needs a kernel with four idle states: make lab"]
    fn a_probe_tells_every_state_that_halts() {
        let (_folder, root) = machine();
        let stop = AtomicBool::new(false);
        let found = observe::probe::probe(Duration::from_secs(20), &stop, &mut |_| ()).unwrap();
        eprintln!("{found}");
        let facts = serde_json::to_value(gather(&root, None)).unwrap();
        let mut report = facts.as_object().unwrap().clone();
        report.insert("probe".to_owned(), serde_json::to_value(&found).unwrap());
        println!("doctor: {}", serde_json::to_string(&report).unwrap());
        let table = linux::idle_table(&root, found.sleeper).unwrap();
        let wake = found.wake_latencies(&table).unwrap();
        assert_eq!(wake.keys().map(|state| state.0).collect::<Vec<_>>(), [1, 2, 3], "{wake:?}");
    }

    #[test]
    #[ignore = "needs a kernel with four idle states: make lab"]
    fn a_limit_shows_in_the_histograms_by_every_means() {
        let (_folder, root) = machine();
        for without in [Without::Nothing, Without::Bpf, Without::Events] {
            let (mut watch, notices) = SleepWatch::open(&root, without, linux::now());
            eprintln!("{without:?}: {notices:?}");
            let free = states(&mut watch);
            assert!(free[3] > 0, "{without:?}: the deepest state is entered: {free:?}");
            let cpus = CpuList([CPU].into());
            let mut control = IdleControl::open(&root, &cpus, IdleOptions::new("lab")).unwrap();
            control.apply(CPU, IdleLimit::ExitLatency(Duration::from_micros(50)));
            let limited = states(&mut watch);
            drop(control);
            assert_eq!(limited[3], 0, "{without:?}: a limit of 50 us forbids 133 us: {limited:?}");
            assert!(limited[2] > 0, "{without:?}: and the next one is taken: {limited:?}");
            let again = states(&mut watch);
            assert!(again[3] > 0, "{without:?}: it is put back: {again:?}");
        }
    }

    #[test]
    #[ignore = "needs a kernel with four idle states: make lab"]
    fn both_extremes_are_measured_and_everything_is_put_back() {
        let (_folder, root) = machine();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let service = linux::service::of_port(&Root::system(), address.port()).unwrap();
        // On one kernel requests are seen at their sockets, on the other at their packets.
        let (watch, failed) = RequestWatch::open(&root, &service, linux::now());
        let mut watch = watch.unwrap();
        eprintln!("requests at {}, not at {:?}", watch.total().way, failed);
        assert_ne!(watch.total().way, RequestWay::Calls);
        let stop = AtomicBool::new(false);
        let knobs = || -> Vec<String> {
            let file = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
            (0..8).map(|cpu| std::fs::read_to_string(file(cpu)).unwrap()).collect()
        };
        let untouched = knobs();
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).unwrap_or(0) > 0 {
                    stream.write_all(&byte).unwrap();
                }
            });
            scope.spawn(|| {
                let mut client = TcpStream::connect(address).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    client.write_all(b"x").unwrap();
                    client.read_exact(&mut [0]).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            let cpus = linux::online_cpus(&root).unwrap();
            let blocks = Blocks { pairs: 3, length: Duration::from_millis(600) };
            let never = AtomicBool::new(false);
            let measured = verify(&root, &cpus, &mut watch, blocks, &never, |pair, side| {
                // Deep blocks are without a limit, shallow ones are not; told before it changes, so
                // of the one before.
                eprintln!("pair {pair}: {side}");
            });
            stop.store(true, Ordering::Relaxed);
            measured.unwrap()
        });
        assert_eq!(knobs(), untouched);
        assert!(measured.shallow.p99 > Duration::ZERO && measured.deep.p99 > Duration::ZERO);
        assert_eq!((measured.shallow.power, measured.deep.power), (None, None), "no meter in an emulator");
        // All states are the same halt here, so any movement is noise, and a bound of 131 us a wake
        // holds in any case.
        let bound = Change { tail: Some(Duration::from_micros(2 * 131)), power: None };
        let comparison = compare(&bound, &measured.shallow, &measured.deep);
        eprintln!("{measured:?}\n{comparison}");
    }
}
