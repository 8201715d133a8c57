use super::*;
use linux::probes::RequestWay;
use machine::Rate;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn epoch(times_us: impl IntoIterator<Item = u64>) -> RequestPattern {
    let mut response = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
    times_us.into_iter().for_each(|us| response.record(us * 1000).unwrap());
    RequestPattern {
        elapsed: Duration::from_secs(1),
        way: RequestWay::Sockets,
        requests: response.len(),
        timed: response.len(),
        merged: 0,
        unfit: 0,
        response: Some(response),
        service: None,
        waiting: None,
        interrupt: None,
        wakes_hidden: 0,
    }
}

fn window() -> Window {
    Window::new(Some("500us@p99".parse().unwrap()))
}

#[test]
fn a_tail_is_missing_until_there_are_enough_and_then_spans_no_more_than_it_needs() {
    let mut window = window();
    for _ in 0..9 {
        let reading = window.take(&epoch((0..100).map(|_| 100)));
        assert_eq!((reading.rate, reading.tail), (Some(Rate::per_second(100.0)), None));
    }
    assert!(window.take(&epoch((0..100).map(|_| 100))).tail.is_some());
    // A thousand at once: the slow ones before are past.
    window.take(&epoch((0..500).map(|_| 9_000)));
    let tail = window.take(&epoch((0..1000).map(|_| 100))).tail.unwrap();
    assert!(tail < Duration::from_micros(110), "{tail}");
}

#[test]
fn requests_that_were_not_timed_are_no_evidence() {
    let mut window = window();
    let sparing = RequestPattern { timed: 300, ..epoch((0..2000).map(|_| 100)) };
    let tails: Vec<bool> = (0..4).map(|_| window.take(&sparing).tail.is_some()).collect();
    assert_eq!(tails, [false, false, false, true], "a p99 wants a thousand");
}

#[test]
fn a_change_begins_anew() {
    let mut window = window();
    window.take(&epoch((0..2000).map(|_| 100)));
    window.forget();
    assert_eq!(window.take(&epoch((0..900).map(|_| 100))).tail, None);
}

#[test]
fn silence_is_a_rate_of_zero_and_no_tail() {
    let mut window = window();
    let reading = window.take(&epoch([]));
    assert_eq!(reading, ServiceReading { rate: Some(Rate::ZERO), ..ServiceReading::default() });
}

#[test]
fn the_interrupts_delay_is_added() {
    let mut window = window();
    let mut slow = epoch((0..1000).map(|_| 100));
    slow.interrupt = epoch([50; 10]).response;
    let tail = window.take(&slow).tail.unwrap();
    assert!((Duration::from_micros(148)..Duration::from_micros(153)).contains(&tail), "{tail}");
}

/// Clients that ask, each with a pause of a tenth of a millisecond, until this is dropped: a
/// load that no calm of the machine makes faster.
struct Clients {
    over: Arc<AtomicBool>,
}

impl Clients {
    fn ask(address: SocketAddr, many: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..many {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut client = TcpStream::connect(address).unwrap();
                client.set_nodelay(true).unwrap();
                while !over.load(Ordering::Relaxed) {
                    client.write_all(b"x").unwrap();
                    client.read_exact(&mut [0]).unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            });
        }
        Self { over }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_steady_load_rings_no_alarm_and_many_times_as_much_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut byte = [0];
                while client.read(&mut byte).is_ok_and(|read| read > 0) && client.write_all(&byte).is_ok() {}
            });
        }
    });
    let config: ServiceConfig = toml::from_str(&format!("port = {}", address.port())).unwrap();
    let root = Root::system();
    let service = config.target.find(&root).unwrap();
    let mut telemetry =
        match Telemetry::open(&root, &service, &config, Duration::from_millis(50), linux::now()) {
            Ok(telemetry) => telemetry,
            Err(error) => return eprintln!("skipped: {error}"),
        };
    let rung = Arc::new(AtomicU64::new(0));
    let ring = Arc::clone(&rung);
    telemetry.hear(Arc::new(move |_| {
        ring.fetch_add(1, Ordering::Relaxed);
    }));
    let mut epochs = |many: usize| {
        for _ in 0..many {
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(telemetry.read(linux::now()).rate.is_some());
            telemetry.arm(true);
        }
        rung.load(Ordering::Relaxed)
    };
    // No request came.
    assert_eq!(epochs(5), 0);
    let steady = Clients::ask(address, 1);
    // Its start is reported; its cost is learned meanwhile.
    let learned = epochs(20);
    assert_eq!(epochs(40), learned, "steady");
    let burst = Clients::ask(address, 60);
    assert!(epochs(4) > learned, "sixty times as many");
    drop((steady, burst));
}
