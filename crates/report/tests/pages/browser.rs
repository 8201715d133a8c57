//! Pages in a real browser: the figures are there, nothing is fetched, no text runs, nothing is out
//! of sight.
//!
//! Needs Chromium on the `PATH` under one of its usual names, or at `ROOST_CHROMIUM`. Without one
//! the test says so and is skipped, unless `ROOST_CHROMIUM` is set, in which case it must exist.

use crate::{every_figure, sample};
use report::figures::{Lines, Page, Point, Quantity, Section, Series, Style, Unit};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn a_browser_shows_every_phase_in_every_chart_and_asks_for_nothing() {
    let Some(dom) = dump(&sample::run(7).page()) else { return };
    for words in [
        "Workers awake",
        "Load of each worker",
        "99th percentile latency over time",
        "Connections moved between workers",
        "Latency of the slowest",
        "Where the CPUs spent their time",
        "Configuration in force",
    ] {
        assert!(dom.contains(words), "{words}");
    }
    // Five plots of lines; the other figures are elements of the page.
    assert_eq!(dom.matches("class=\"uplot").count(), 5);
    assert_eq!(dom.matches("<figure>").count(), 9);
    assert!(dom.contains("measured</span>") && dom.contains("modelled</span>"));
}

#[test]
fn a_browser_shows_every_figure_and_its_numbers() {
    let page = every_figure::page(7);
    let Some(dom) = dump(&page) else { return };
    assert_eq!(dom.matches("<figure>").count(), every_figure::FIGURES);
    assert_eq!(dom.matches("There is nothing to draw").count(), every_figure::EMPTY);
    assert_eq!(dom.matches("role=\"img\"").count(), dom.matches("class=\"uplot").count());
    assert!(dom.contains("What this rests on") && dom.contains("</html>"));
    for words in ["printed in the paper", "unstable", "goal: 300 us", "The numbers"] {
        assert!(dom.contains(words), "{words}");
    }
    assert!(!dom.contains("NaN") && !dom.contains("undefined"));
}

#[test]
fn a_script_in_a_name_is_shown_and_does_not_run() {
    let hostile =
        "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    let Some(dom) = dump(&every_figure::page_of(hostile)) else { return };
    assert!(!dom.contains("<title>owned"), "the script ran");
    assert!(!dom.contains("<img") && dom.contains("&lt;/script&gt;&lt;script&gt;"), "it is shown as it is");
    // The head of the page's own scripts and of no other.
    assert_eq!(dom.matches("<script").count(), 3);
}

#[test]
fn the_policy_of_the_page_stops_what_a_text_might_smuggle_in() {
    let html = every_figure::page(7).html();
    // Suppose an escape failed: a script would change the title. The policy must stop it all the
    // same.
    let smuggled = html.replacen("<main", "<script>document.title='owned'</script><main", 1);
    assert_ne!(smuggled, html);
    let Some(dom) = dump_html(&smuggled) else { return };
    assert!(!dom.contains("<title>owned"), "the script ran");
    assert!(dom.contains("<figure>"), "the page's own scripts do run");
}

#[test]
fn the_page_writes_numbers_as_the_tables_do() {
    let units = [
        Unit::Nanoseconds,
        Unit::Seconds,
        Unit::Watts,
        Unit::Joules,
        Unit::PerSecond,
        Unit::Share,
        Unit::Megahertz,
        Unit::Count,
    ];
    let values = [
        0.0, 0.25, 0.032, 1.0, 4.0, 12.5, 90.0, 152.4, 999.6, 999.96, 5_400.0, 80_000.0, 152_400.0,
        999_960.0, 1.5e6, 3.2e9, 1e15, 3.2e-4, 1e-9, -7.5, 1e30,
    ];
    let spreads = [None, Some(0.001), Some(0.02), Some(0.0), Some(300.0)];
    let cases: Vec<(Unit, f64, Option<f64>)> = units
        .into_iter()
        .flat_map(|unit| values.map(|value| (unit, value)))
        .flat_map(|(unit, value)| spreads.map(|share| (unit, value, share.map(|share| share * value))))
        .collect();
    let bars = cases.iter().enumerate().map(|(n, &(unit, value, spread))| {
        let lines =
            Lines::new("", "", Quantity::named("case", vec![n.to_string()]), Quantity::new("y", unit));
        let points = vec![Point { spread, ..Point::new(0.0, Some(value)) }];
        Lines { series: vec![Series { name: "a".into(), style: Style::Line, points }], ..lines }.part()
    });
    let page =
        Page { sections: vec![Section { parts: bars.collect(), ..Section::default() }], ..Page::default() };
    let Some(dom) = dump(&page) else { return };
    let cells: Vec<String> = dom
        .split("<td data-head=\"a\"><span>")
        .skip(1)
        .map(|rest| rest.split("</span>").next().unwrap().replace("<small>", "").replace("</small>", ""))
        .map(|cell| cell.replace("&lt;", "<").replace("&gt;", ">"))
        .collect();
    let told: Vec<String> =
        cases.iter().map(|&(unit, value, spread)| unit.text_with(value, spread)).collect();
    assert_eq!(cells, told);
}

/// The findings of `probe`, the body of an asynchronous function, in the page; the page's policy is
/// taken out, because it would stop the probe as well.
fn probed(page: &Page, probe: &str) -> Option<serde_json::Value> {
    let html = page.html();
    let (head, rest) = html.split_once("<meta http-equiv").unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    let script = format!(
        "<script>setTimeout(async () => {{
           let found; try {{ found = await (async () => {{ {probe} }})(); }} catch (e) {{ found = String(e); }}
           document.title = JSON.stringify(found); }}, 500)</script></body>"
    );
    let dom = dump_html(&format!("{head}{}", rest.replace("</body>", &script)))?;
    let title = dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    Some(serde_json::from_str(&title.replace("&lt;", "<")).expect(title))
}

#[test]
fn a_stretch_is_zoomed_in_all_figures_of_an_axis_and_many_points_are_a_median_until_then() {
    // A level of one with a spike: the band reaches it, the median does not.
    let height = |n: u32| if n == 1_500 { 9.0 } else { 1.0 };
    let points = (0..3_000).map(|n| Point::new(f64::from(n), Some(height(n)))).collect();
    let figure = Lines {
        series: vec![Series { name: "a".into(), style: Style::Line, points }],
        ..Lines::new("", "", Quantity::new("time", Unit::Seconds), Quantity::new("y", Unit::Watts))
    };
    let parts = vec![figure.clone().part(), figure.part()];
    let page = Page { sections: vec![Section { parts, ..Section::default() }], ..Page::default() };
    let probe = "
        const plot = plots[0].plot, area = plot.over.getBoundingClientRect();
        const wait = () => new Promise((go) => setTimeout(go, 200));
        const mouse = (type, share) => plot.over.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0,
          movementX: 9, movementY: 1, clientX: area.left + share * area.width, clientY: area.top + 50 }));
        const shown = () => plot.series.slice(1).map((series) => series.show);
        const ends = () => plots.map(({ plot }) => [plot.scales.x.min, plot.scales.x.max].map(Math.round));
        const [, , middle, high, low] = plot.data;
        const found = { all: [shown(), ends()], middle: Math.max(...middle) };
        found.high = Math.max(...high); found.low = Math.min(...low);
        mouse('mouseenter', 0.5); mouse('mousemove', 0.5); await wait();
        found.read = [...document.querySelectorAll('.legend')].map((legend) => legend.textContent);
        mouse('mousedown', 0.5); mouse('mousemove', 0.52); mouse('mousemove', 0.55); await wait();
        mouse('mouseup', 0.55); await wait();
        found.zoomed = [shown(), ends()];
        document.querySelector('.legend button').click(); await wait();
        found.toggled = shown();
        return found;";
    let Some(found) = probed(&page, probe) else { return };
    let whole = serde_json::json!([0, 2999]);
    assert_eq!(found["all"], serde_json::json!([[false, true, true, true], [whole, whole]]), "{found}");
    assert_eq!(
        (&found["middle"], &found["high"], &found["low"]),
        (&1.into(), &9.into(), &1.into()),
        "{found}"
    );
    assert_eq!(found["read"].as_array().unwrap().len(), 2, "{found}");
    assert!(found["read"].as_array().unwrap().iter().all(|text| text == "a1.00 Wat 24.98 min"), "{found}");
    let (first, second) = (&found["zoomed"][1][0], &found["zoomed"][1][1]);
    assert!(first == second && first[0].as_f64().unwrap() > 1_400.0 && first[1].as_f64().unwrap() < 1_700.0);
    assert_eq!(found["zoomed"][0], serde_json::json!([true, false, false, false]), "{found}");
    assert_eq!(found["toggled"], serde_json::json!([false, false, false, false]), "{found}");
}

#[test]
fn nothing_is_out_of_sight_on_a_narrow_screen() {
    for page in [
        every_figure::page(7),
        sample::run(7).page(),
        every_figure::page_of("a_name_without_a_gap_that_is_far_too_long_for_it"),
    ] {
        let attribute = page.html().replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
            "<title>not looked</title><iframe id=f style=\"width:400px;height:900px;border:0\" srcdoc=\"{attribute}\"></iframe>
             <script>document.getElementById('f').onload = () => setTimeout(() => {{
               const d = document.getElementById('f').contentDocument;
               const out = [...d.body.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > 401);
               document.title = d.querySelectorAll('section').length + ' sections, out: '
                 + out.slice(0, 5)
                   .map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 30)).join('; ');
             }}, 1000)</script>"
        );
        let Some(dom) = dump_html(&frame) else { return };
        let title = dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        let (sections, out) = title.split_once(" sections, out: ").expect(title);
        assert!(sections.parse::<u32>().unwrap() > 1 && out.is_empty(), "{title}");
    }
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

/// The document as the browser holds it, of a page that asks for nothing; `None` without a browser.
fn dump(page: &Page) -> Option<String> {
    dump_html(&page.html())
}

fn dump_html(html: &str) -> Option<String> {
    let chromium = chromium()?;
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, html).unwrap();
    let (dom, asked) = open(&chromium, &page, folder.path());
    let outside: Vec<&String> =
        asked.iter().filter(|url| !url.starts_with("file:") && *url != "about:srcdoc").collect();
    assert!(outside.is_empty(), "the page asked for {outside:?}");
    // Of the document; the scripts in it have their own texts.
    let mut text = String::new();
    for piece in dom.split("<script") {
        match piece.split_once("</script>") {
            Some((_, after)) => text += &format!("<script></script>{after}"),
            None => text += piece,
        }
    }
    Some(text)
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
        .args(["--virtual-time-budget=4000", "--dump-dom"])
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
