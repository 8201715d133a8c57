//! The report in a real browser: the charts are there, nothing is fetched, nothing overflows.
//!
//! Needs Chromium on the `PATH` under one of its usual names, or at `ROOST_CHROMIUM`. Without one
//! the test says so and is skipped, unless `ROOST_CHROMIUM` is set, in which case it must exist.

use crate::{every_figure, sample};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn a_browser_shows_every_chart_and_asks_for_nothing() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, report::html::page(&sample::run(7))).unwrap();
    let dom = dump(&chromium, &page, folder.path());
    assert_eq!(dom.matches("<svg").count(), 7, "one drawing per chart");
    for id in ["workers", "latency", "percentiles", "cost", "residency", "load", "transfers"] {
        assert!(dom.contains(&format!("id=\"{id}\"")), "{id}");
    }
    assert!(dom.contains("</html>"));
}

#[test]
fn a_browser_shows_every_figure_and_asks_for_nothing() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, every_figure::page(7).html()).unwrap();
    let dom = dump(&chromium, &page, folder.path());
    assert_eq!(dom.matches("<figure>").count(), every_figure::FIGURES);
    assert_eq!(dom.matches("<svg").count(), every_figure::FIGURES - 2, "two have nothing to draw");
    // An unclosed tag would swallow the text behind it.
    assert_eq!(dom.matches("<details>").count(), every_figure::WITH_NUMBERS + 1);
    assert!(dom.contains("What this rests on") && dom.contains("</html>"));
}

#[test]
fn the_policy_of_the_page_stops_what_a_text_might_smuggle_in() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let html = report::html::page(&sample::run(7));
    // Suppose an escape failed: a script would change the title. The policy must stop it all the
    // same.
    let smuggled = html.replacen("<main>", "<main><script>document.title='owned'</script>", 1);
    std::fs::write(&page, smuggled).unwrap();
    let dom = dump(&chromium, &page, folder.path());
    assert!(!dom.contains("<title>owned"), "the script ran");
}

#[test]
fn a_page_that_does_ask_for_something_is_caught() {
    let Some(chromium) = chromium() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("asks.html");
    std::fs::write(&page, "<html><body><img src=\"http://outside.invalid/x.png\"></body></html>").unwrap();
    let (_, asked) = open(&chromium, &page, folder.path());
    assert!(
        asked.iter().any(|url| url.contains("outside.invalid")),
        "the watch of the tests above is blind: {asked:?}"
    );
}

/// The document as the browser holds it, of a page that asks for nothing.
fn dump(chromium: &Path, page: &Path, scratch: &Path) -> String {
    let (dom, asked) = open(chromium, page, scratch);
    let outside: Vec<&String> = asked.iter().filter(|url| !url.starts_with("file:")).collect();
    assert!(outside.is_empty(), "the page asked for {outside:?}");
    dom
}

/// The document, and every URL that the page asked for.
fn open(chromium: &Path, page: &Path, scratch: &Path) -> (String, Vec<String>) {
    let net_log = scratch.join("net.json");
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        // Nothing leaves the machine, whatever the browser itself would like to know.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", scratch.join("profile").display()))
        .arg(format!("--log-net-log={}", net_log.display()))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    let log: serde_json::Value = serde_json::from_slice(&std::fs::read(&net_log).unwrap()).unwrap();
    let events = log["events"].as_array().expect("a net log has events");
    // The browser's own errands have no initiator; a page's have its origin.
    let by_page = |event: &&serde_json::Value| {
        event["params"]["initiator"].as_str().is_some_and(|initiator| initiator != "not an origin")
    };
    let asked = events.iter().filter(by_page).filter_map(|event| event["params"]["url"].as_str());
    (String::from_utf8(output.stdout).unwrap(), asked.map(str::to_owned).collect())
}

fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("ROOST_CHROMIUM") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!(
            "SKIPPED: no chromium on the PATH; install one or set ROOST_CHROMIUM to test the page in a \
             browser"
        );
    }
    found
}
