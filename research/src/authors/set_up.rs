//! The set-up of Hurry-up's figures, as `papers/hurry-up` keeps it: the baselines' constants, written
//! as a base of scenarios and as tables of work. The test writes them with `ROOST_WRITE=1`.

use super::constants::{Constants, KEYWORDS_MAX, PROBABILITIES, TURBO_KHZ, Work};
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "\
# Hurry-up's figures share this: the authors' machine, queries and clients. Powers and work are the
# constants of their baselines, research/src/authors/constants.toml; this file and the tables in work/
# are written by `ROOST_WRITE=1 cargo test -p papers the_set_up`.

";

const SHARED: &str = r#"[shared]
socket = """
    one socket of 12 cores without hyperthreads (V-A); a query has five shards in one queue of twelve \
    threads, and five short ones at its end (Elasticsearch 6: query then fetch)"""
turbo = """
    2.6 GHz is without turbo (2,600,000 kHz in the authors' logs); governors and Hurry-up go up to \
    2,601,000, which is turbo: 3.7, 3.5, 3.4, 3.3 GHz for 2, 4, 8, 12 awake cores"""
clients = """
    4 closed clients, or 8 or 12 where the authors had so many, with a cycle of 1.000 s, in step (their \
    summaries of Faban: 0.999 to 1.010 s); power is the server socket's (RAPL)"""
keywords = """
    keywords as in the authors' logs of queries: 24, 24, 22, 14, 5, 4 and 3 % have 1 to 7, 0.4 % each \
    8 to 16; low is 4, high 7 to 16 evenly"""
constants = """
    work, memory time and all powers are the constants of the authors' baselines at fixed clocks \
    (roost-papers calibrate); a socket asleep takes the measured 15.3 W with all that wakes it"""
agent = """
    Hurry-up's thread is background work on any core, once every sleep time; a stall of threads \
    (Figure 10) is not added: Table I's Hurry-up column shows none"""
"#;

/// The clients' queries: name, and the share of each number of keywords from 1.
fn loads() -> [(&'static str, Vec<(u32, f64)>); 4] {
    let mix = [0.24, 0.24, 0.22, 0.14, 0.05, 0.04, 0.03];
    let rare = (8..=KEYWORDS_MAX).map(|keywords| (keywords, 0.004));
    [
        ("low", vec![(4, 1.0)]),
        // The folder `low` of their repository, Figure 3's runs.
        ("one", vec![(1, 1.0)]),
        ("mix", (1..).zip(mix).chain(rare).collect()),
        ("high", (7..=KEYWORDS_MAX).map(|keywords| (keywords, 0.1)).collect()),
    ]
}

fn base(constants: &Constants) -> String {
    let mut text = HEAD.to_owned();
    let _ = write!(
        text,
        "[machine]\npreset = \"xeon-gold-6126\"\nsockets = 1\nrest_watts = 0.0\n\
         # While a core is awake, and asleep.\nuncore_watts = {}\npackage_watts = {}\nwarming = {}\n\
         # The processor's rated power.\ncap = {{ watts = 125.0, window = \"1s\" }}\n\
         # Nothing else wakes it: the power of a sleeping socket was measured with all that does.\n\
         tick = \"never\"\ntimer = \"1h\"\nwaking = \"full-power\"\n\
         cstate.C1.watts = 0.0\ncstate.C1E.watts = 0.0\ncstate.C6.watts = 0.0\nturbo = [\n",
        constants.awake_watts, constants.asleep_watts, constants.warming
    );
    for bin in &constants.turbo {
        let _ = writeln!(text, "    {{ cores = {}, khz = {}, watts = {} }},", bin.cores, bin.khz, bin.watts);
    }
    text += "]\n\n[machine.frequencies]\ndomain = \"core\"\ndelay = \"270us\"\nstall = \"0s\"\npoints = [\n";
    let turbo_watts = constants.point.last().map_or(f64::NAN, |point| point.watts);
    let points = constants.point.iter().map(|point| (point.khz, point.watts));
    for (khz, watts) in points.chain([(TURBO_KHZ, turbo_watts)]) {
        let _ = writeln!(text, "    {{ frequency = {khz}, power = {:.0} }},", watts * 1e6);
    }
    let _ = write!(
        text,
        "]\n\n[server]\ndispatch = \"fork-join\"\nshard_cv = {}\n\
         shards = {{ count = 5, onto = \"idle\", fetch = \"500us\" }}\n\n\
         [server.clients]\ncount = 4\ncycle = {{ deterministic = \"1s\" }}\nin_step = true\n\n{SHARED}",
        constants.shard_cv
    );
    for sleep in ["5ms", "10ms", "20ms", "50ms", "100ms"] {
        let _ = writeln!(
            text,
            "agent-{sleep} = [{{ every = \"{sleep}\", length = {{ exponential = \
             \"estimate:hurryup.agent.work\" }}, on = \"any\" }}]"
        );
    }
    for (name, queries) in loads() {
        for (keywords, share) in queries {
            let plural = if keywords == 1 { "" } else { "s" };
            let _ = write!(
                text,
                "\n[[shared.{name}]]\nname = \"{keywords} keyword{plural}\"\nshare = {share}\n\
                 deadline = \"1s\"\nmemory_most = \"{}ms\"\n\
                 service = {{ distribution = \"empirical\", file = \"work/{keywords}.cdf\", unit = \"ms\" }}\n",
                constants.work(keywords).memory_ms
            );
        }
    }
    text
}

/// The table of a work's quantiles. Between two of them it is straight on a logarithmic scale; the file
/// is read as straight on a linear one, so each stretch gets a point in its middle.
fn law(work: &Work) -> String {
    let mut text = format!(
        "# Milliseconds at 2.6 GHz of one of five shards of a query of {} keywords, and the share of\n\
         # queries that have at most so many.\n",
        work.keywords
    );
    let last = PROBABILITIES.len() - 1;
    let at = |probability: f64| {
        let place = PROBABILITIES.iter().position(|p| *p >= probability).unwrap_or(last).max(1);
        let part =
            (probability - PROBABILITIES[place - 1]) / (PROBABILITIES[place] - PROBABILITIES[place - 1]);
        (work.ms[place - 1].ln() * (1.0 - part) + work.ms[place].ln() * part).exp()
    };
    let mut shares = vec![0.0];
    for probability in PROBABILITIES {
        let before = shares.last().copied().unwrap_or(0.0);
        if before > 0.0 {
            shares.push((before + probability) / 2.0);
        }
        shares.push(probability);
    }
    shares.push(1.0);
    for share in shares {
        let _ = writeln!(text, "{:.4} {share}", at(share));
    }
    text
}

#[test]
fn the_set_up_of_the_figures_is_the_constants() {
    let constants = Constants::kept().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../papers/hurry-up");
    let mut files = vec![(folder.join("base.toml"), base(&constants))];
    for work in &constants.work {
        files.push((folder.join(format!("work/{}.cdf", work.keywords)), law(work)));
    }
    for (path, text) in files {
        if std::env::var_os("ROOST_WRITE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(kept, text, "{}: ROOST_WRITE=1 cargo test -p papers the_set_up", path.display());
    }
}
