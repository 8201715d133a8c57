//! temporary
fn main() {
    let policy = std::env::args().nth(1).unwrap_or("poll".into());
    let file = std::env::args().nth(2).unwrap_or("/tmp/mmk.toml".into());
    let document = sim::Document::read(file.as_ref(), &Default::default()).unwrap_or_else(|e| panic!("{e}"));
    let t = std::time::Instant::now();
    let contestant = sim::scenario::Contestant { name: policy.clone(), policies: policy.clone(), document };
    let o = sim::runner::Task { contestant, seed: 1 }.run().unwrap_or_else(|e| panic!("{e}"));
    let dt = t.elapsed().as_secs_f64();
    let f = |e: &Option<sim::outcome::Estimate>| {
        e.map_or("-".into(), |e| {
            format!("{:.2}±{:.2}", e.value / 1e3, e.half_width.unwrap_or(f64::NAN) / 1e3)
        })
    };
    println!(
        "{policy:20} {:5.2} M/s mean {} p99 {} cores {:.2} W ±{:.2} awake {:.2} active {:.2} trans/req {:.2} {:?} {:?}",
        o.requests as f64 * o.replications as f64 / dt / 1e6,
        f(&o.responses.mean_ns),
        f(&o.responses.p99_ns),
        o.power.cores_watts,
        o.power.cpu_half_width_watts.unwrap_or(f64::NAN),
        o.awake,
        o.active,
        o.transitions_per_s / o.rate,
        o.verdict,
        o.transfers
    );
}
