//! Every word that a line of policies may have runs on a service that fits it.

use super::{document, run, task};
use sim::policies::WORDS;
use toml::Value;

#[test]
fn every_policy_runs() {
    let text = |text: &str| Value::String(text.to_owned());
    let table = |text: &str| Value::Table(text.parse().expect("a table"));
    for word in WORDS {
        let mut set = vec![
            ("run.requests", Value::Integer(20_000)),
            ("run.utilisation", Value::Float(0.3)),
            ("workload.connections", Value::Integer(64)),
        ];
        match *word {
            "peafowl" | "peafowl-paper" => set.push(("server.dispatch", text("connections"))),
            "anticipate" | "anticipate-paper" | "anticipate-kernels" | "quiesce" => set.push((
                "server.device",
                table("latency = { distribution = \"lognormal\", mean = \"100us\", cv = 0.05 }\ninterrupt = \"1us\""),
            )),
            "staged" | "staged-paper" => set.push(("goal", text("500ms@p99.9"))),
            word if word.starts_with("clairvoyant") || word.starts_with("udpm") || word.starts_with("dynsleep") => {
                set.push(("server.dispatch", text("random")));
            }
            _ => {}
        }
        let outcome = run(&set, word, 1);
        assert_eq!(outcome.requests, 20_000, "{word}");
        assert!(outcome.power.cores_watts > 0.0, "{word}");
    }
}

#[test]
fn a_line_that_makes_no_sense_is_refused_with_its_fix() {
    for (line, part) in [
        ("menu + teo", "both menu and teo"),
        ("menuu", "no policy is called `menuu`"),
        ("peafowl", "connections"),
        ("udpm + rubik", "which gear is decided already"),
        ("anticipate", "[server.device]"),
        ("clairvoyant", "which core each request will go to"),
    ] {
        let error = task(document(&[]), line, 1).run().unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("hint:"), "{line}: {error}");
    }
    let no_goal = document(&[]).with("goal", &Value::String("0us@p99".to_owned())).unwrap();
    assert!(task(no_goal, "rubik", 1).run().is_err());
}
