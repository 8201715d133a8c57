//! Memory follows the number in the system, never the number of requests that have been through it.
//!
//! A binary of its own, because it counts the allocations of the whole process.

use sim::scenario::Estimates;
use sim::{Document, Engine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use toml::Value;

/// The system's allocator, counting.
struct CoreControl;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator as it came; counting touches no memory but
// its counters.
unsafe impl GlobalAlloc for CoreControl {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CoreControl = CoreControl;

/// Most bytes at once, and allocations, of a run of so many requests.
fn used(policies: &str, dispatch: &str, requests: i64) -> (usize, usize) {
    let text = "goal = \"300us@p99\"\n[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 10\n\
                threads = 1\n[workload]\nconnections = 512\nservice = { exponential = \"10us\" }\n\
                [run]\nutilisation = 0.6\nsamples = 0\n";
    let document = Document::parse("test.toml".as_ref(), text, &Estimates::default())
        .and_then(|document| document.with("run.requests", &Value::Integer(requests)))
        .and_then(|document| document.with("server.dispatch", &Value::String(dispatch.to_owned())))
        .expect("a scenario");
    let (setup, jobs) = document.setup(policies, 1).expect("a scenario");
    let (live, calls) = (LIVE.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
    MOST.store(live, Ordering::Relaxed);
    let ended = Engine::new(setup, jobs).run();
    assert_eq!(ended.metrics().left(), requests as u64, "{policies}");
    (MOST.load(Ordering::Relaxed) - live, CALLS.load(Ordering::Relaxed) - calls)
}

// One test, because another in the same process would be counted too.
#[test]
fn ten_times_as_many_requests_take_no_more_memory() {
    for (policies, dispatch) in [
        ("poll", "shared"),
        ("menu", "shared"),
        ("teo-feedback", "shared"),
        ("clairvoyant", "random"),
        ("rubik", "shared"),
        ("udpm", "random"),
        ("peafowl + teo + pegasus", "connections"),
    ] {
        let (few, few_calls) = used(policies, dispatch, 200_000);
        let (many, many_calls) = used(policies, dispatch, 1_000_000);
        // Histograms and queues grow to the longest response and the longest queue, which a longer
        // run exceeds a little.
        assert!(many as f64 <= 1.3 * few as f64, "{policies}: {few} bytes, then {many}");
        let per_request = (many_calls as f64 - few_calls as f64) / 800_000.0;
        assert!(per_request < 0.01, "{policies}: {per_request} allocations per request");
    }
}
