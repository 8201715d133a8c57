use super::*;
use workload::Distribution;

fn format(name: &str) -> &'static Format {
    FORMATS.iter().find(|format| format.name == name).unwrap()
}

fn fixed(micros: u64) -> Sampler {
    let law: Distribution =
        toml::from_str::<toml::Table>(&format!("law = {{ deterministic = \"{micros}us\" }}")).unwrap()["law"]
            .clone()
            .try_into()
            .unwrap();
    law.sampler().unwrap()
}

fn import_bytes(name: &str, bytes: &[u8], law: Option<&Sampler>) -> Result<(String, Counted)> {
    let folder = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let counted = import(format(name), bytes, folder.path(), law, 1, &mut out)?;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left beside it");
    Ok((String::from_utf8(out).unwrap(), counted))
}

/// The made-up rows of a format.
fn rows_of(name: &str) -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces").join(format!("{name}.csv"));
    fs::read(path).unwrap()
}

#[test]
fn each_format_becomes_requests_or_rates_and_says_what_it_skipped() {
    let law = fixed(10);
    for (name, lines, told) in [
        (
            "twitter",
            "time,class,service,connection\n0ns,get,10000ns,5\n500000000ns,get,10000ns,6\n\
             1000000000ns,set,10000ns,5\n2000000000ns,delete,10000ns,7\n",
            "twitter: 5 rows, 1 skipped: 1 has no operation (first in line 4)",
        ),
        (
            "azure-functions-2021",
            "time,class,service,connection\n0ns,invocation,2000000000ns\n175000000ns,invocation,125000000ns\n\
             250000000ns,invocation,250000000ns\n",
            "azure-functions-2021: 4 rows, 1 skipped: 1 has an end_timestamp that is no time (first in line 4)",
        ),
        (
            "azure-functions-2019",
            "seconds,rate\n0,1\n60,0\n120,0.2\n",
            "azure-functions-2019: 3 rows, 1 skipped: 1 has a count that is no number (first in line 4)",
        ),
        (
            "alibaba-2021",
            "time,class,service,connection\n0ns,mc,1000000ns\n500000ns,db,2500000ns\n1000000000ns,rpc,12000000ns\n",
            "alibaba-2021: 4 rows, 1 skipped: 1 has an rt that is no time (first in line 5)",
        ),
        (
            "google-2019",
            "seconds,rate\n0,0.75\n300,0.25\n",
            "google-2019: 3 rows, 1 skipped: 1 ends before it begins (first in line 4)",
        ),
        (
            "msr",
            "time,class,service,connection\n0ns,Read,4128600ns,0\n1000ns,Write,2000000ns,1\n",
            "msr: 3 rows, 1 skipped: 1 has a response time that is no time (first in line 3)",
        ),
    ] {
        let (written, counted) = import_bytes(name, &rows_of(name), Some(&law)).unwrap();
        assert_eq!(written, lines, "{name}");
        assert_eq!(counted.told(format(name)), told);
    }
}

#[test]
fn a_trace_without_service_times_needs_a_law() {
    let error = import_bytes("twitter", &rows_of("twitter"), None).unwrap_err().to_string();
    assert!(error.contains("twitter has no service times") && error.contains("workload.service"), "{error}");
}

/// The clock of this format has whole seconds; a row between them must not come after later ones.
#[test]
fn rows_between_two_steps_of_the_clock_keep_their_order() {
    let text = "0.2,k,1,1,1,get,0\n0.2,k,1,1,2,get,0\n0.5,k,1,1,3,get,0\n1,k,1,1,4,get,0\n";
    let (written, _) = import_bytes("twitter", text.as_bytes(), Some(&fixed(10))).unwrap();
    let times: Vec<&str> = written.lines().skip(1).map(|line| line.split_once("ns").unwrap().0).collect();
    assert_eq!(times, ["0", "333333333", "666666666", "1000000000"]);
}

#[test]
fn what_is_no_trace_of_the_format_is_refused_with_the_reasons() {
    for (name, text, problem) in [
        ("twitter", "", "0 rows"),
        ("msr", "root:x:0:0:root:/root:/bin/sh\n", "1 has a timestamp that is no time (first in line 1)"),
        ("twitter", "1,k,2,3,4,get,0\nx\ny\n", "2 has a timestamp that is no time (first in line 2)"),
        ("azure-functions-2019", "a,b,c,d,1\no,a,f,t,5\n", "has one window"),
        ("google-2019", "start,end\n1,2\n", "1 is below no start_time"),
        ("google-2019", "start_time,end_time,average_usage_cpus\n0,9e15,1\n", "span more than a year"),
        ("azure-functions-2021", "a,f,e,d\na,f,1,1\na,f,1e8,1\n", "span more than 115 days"),
        ("twitter", &"1".repeat(2 << 20), "a line is longer than 1 MiB"),
    ] {
        let error = import_bytes(name, text.as_bytes(), Some(&fixed(1))).unwrap_err().to_string();
        assert!(error.contains(problem), "{name}: {error}");
    }
}

/// Rows of a day, backwards: far more than `sort` would show of a mistake in its keys.
#[test]
fn rows_out_of_order_are_sorted_and_those_of_one_time_keep_their_order() {
    let mut text = "app,func,end_timestamp,duration\n".to_owned();
    for second in (0..2_000).rev() {
        text += &format!("a,f,{second},0\na,f,{second},0\n");
    }
    let (written, _) = import_bytes("azure-functions-2021", text.as_bytes(), None).unwrap();
    let times: Vec<u64> =
        written.lines().skip(1).map(|line| line.split_once("ns").unwrap().0.parse().unwrap()).collect();
    let wanted: Vec<u64> = (0..4_000).map(|place| place / 2 * 1_000_000_000).collect();
    assert_eq!(times, wanted);
}

fn document(folder: &Path, workload: &str) -> Document {
    let text = format!(
        "policies = [\"menu\"]\n[machine]\npreset = \"xeon-silver-4116\"\nsockets = 1\ncores = 4\n\
         [workload]\n{workload}\n"
    );
    Document::parse(&folder.join("s.toml"), &text, &Default::default()).unwrap()
}

/// The cache is found by the environment, which is the whole process's: one test has it.
#[test]
fn a_scenario_gets_the_file_in_its_place_and_the_cache_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let cache = here.join("cache/roost/traces");
    // The variable is set for a child of this process.
    if std::env::var_os("XDG_CACHE_HOME").is_none_or(|place| !Path::new(&place).ends_with("cache")) {
        let test = "traces::tests::a_scenario_gets_the_file_in_its_place_and_the_cache_is_used_again";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env("XDG_CACHE_HOME", here.join("cache"))
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(fs::read_dir(cache).unwrap().count(), 6, "three traces, a note to each");
        return;
    }
    fs::write(here.join("t.csv"), rows_of("twitter")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&rows_of("azure-functions-2021")).unwrap();
    fs::write(here.join("f.csv.gz"), packed.finish().unwrap()).unwrap();
    fs::write(here.join("g.csv"), rows_of("google-2019")).unwrap();

    let service = "service = { exponential = \"10us\" }";
    let twitter = format!("trace = \"twitter:t.csv\"\n{service}\nrate = 5\n[run]\nutilisation = 0.8");
    let twitter = document(here, &twitter);
    let first = imported(twitter.clone()).unwrap();
    let workload = &first.table()["workload"];
    let file = workload["trace"].as_str().unwrap();
    assert!(workload.get("service").is_none() && workload.get("rate").is_none(), "{workload}");
    assert_eq!(imported(first.clone()).unwrap().table(), first.table(), "a file of our own stays");
    let written = Path::new(file).metadata().unwrap().modified().unwrap();
    let again = imported(twitter).unwrap();
    assert_eq!(again.table(), first.table());
    assert_eq!(Path::new(file).metadata().unwrap().modified().unwrap(), written, "it was not made again");
    let task = crate::options::task(crate::options::contestants(&first).unwrap().remove(0)).unwrap();
    assert_eq!(task.task.run().unwrap().requests, 4);
    let axis = "[sweep]\n\"workload.trace\" = [\"twitter:t.csv\"]";
    let swept = format!("{service}\nrate = 5\n[run]\nutilisation = 0.8\n{axis}");
    let cells = crate::grid::cells(&document(here, &swept), &Default::default()).unwrap();
    assert_eq!(cells[0].run.task.run().unwrap().requests, 4, "an axis names traces, too");

    let packed = imported(document(here, "trace = \"azure-functions-2021:f.csv.gz\"")).unwrap();
    assert!(packed.table()["workload"].get("trace").is_some());
    let rates =
        imported(document(here, &format!("trace = \"google-2019:g.csv\"\nrate = \"80k\"\n{service}")));
    let rates = rates.unwrap();
    assert!(rates.table()["workload"]["shape"].as_str().unwrap().starts_with("csv:/"));
    crate::options::task(crate::options::contestants(&rates).unwrap().remove(0)).unwrap();

    for (workload, problem) in [
        (format!("trace = \"google-2019:g.csv\"\n{service}"), "workload.rate: google-2019 tells CPU time"),
        ("trace = \"tweets:t.csv\"".to_owned(), "no published format is called `tweets`"),
        ("trace = \"twitter:none.csv\"".to_owned(), "cannot read the trace"),
        ("trace = \"twitter:t.csv\"".to_owned(), "t.csv: twitter has no service times"),
    ] {
        let error = format!("{:#}", imported(document(here, &workload)).unwrap_err());
        assert!(error.contains(problem), "{workload}: {error}");
    }
    assert!(imported(document(here, "trace = \"/a/dir:x/t.csv\"")).is_ok(), "a colon in a folder's name");
}
