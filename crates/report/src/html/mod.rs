//! The page: `report.html` of a run, and the body of the live page while the run goes on.
//!
//! The problem: a report is mailed, archived, opened in a year on a machine without a network, and
//! it shows unvetted texts (configuration, host names, phase names). So the page is one file that
//! asks for nothing: its style is inside, its charts are inline SVG, it has no script, and a
//! content security policy forbids it to fetch anything, whatever a text may try. Every text passes
//! `escape` on its way in.
//!
//! The page reads from the top: the run, whether the bars were met, the figures, the charts with
//! their messages, and at the end the source of every figure.
//!
//! The live page has the same body, pushed anew as the run goes on, so the view during the run is
//! the later report.

mod figures;

use crate::charts;
use crate::drawing::canvas;
use crate::run::{Frame, Run, RunInfo, Summary};
use crate::text::escape;
use std::fmt::Write as _;

/// The self-contained page of `run`.
pub fn page(run: &Run) -> String {
    let empty = Summary::default();
    let summary = run.summary.as_ref().unwrap_or(&empty);
    let mut body = String::new();
    header(&mut body, &run.info);
    notes(&mut body, summary, &run.remarks);
    findings(&mut body, &run.frames, summary);
    provenance(&mut body, &run.info);
    document(&run.info.name, STATIC, &body, "")
}

/// The policy of a page that fetches nothing and runs nothing.
pub(crate) const STATIC: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The live page of a run: the frame into which its script puts the server's pushes. `nonce` names
/// that one script to the browser, so that no other can run.
pub fn live_page(info: &RunInfo, nonce: &str) -> String {
    let mut body = String::new();
    header(&mut body, info);
    body.push_str("<p id=\"state\" role=\"status\">connecting</p>\n<div id=\"live\"></div>\n");
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'nonce-{}'",
        escape(nonce)
    );
    let script = format!("<script nonce=\"{}\">{}</script>\n", escape(nonce), include_str!("live.js"));
    document(&info.name, &policy, &body, &script)
}

/// The live page's view of a run so far: figures, table, charts.
pub fn live_body(frames: &[Frame], summary: &Summary) -> String {
    let mut body = String::new();
    notes(&mut body, summary, &[]);
    // The running phase is not in the table yet: its present state stands above.
    if let Some(now) = frames.last()
        && !summary.phases.iter().any(|phase| phase.name == now.phase)
    {
        figures::now(&mut body, now);
    }
    findings(&mut body, frames, summary);
    body
}

/// A whole page around `body`, which is HTML already.
pub(crate) fn document(name: &str, policy: &str, body: &str, script: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} - Roost</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n{script}</body>\n</html>\n",
        escape(name),
        canvas::style_sheet(),
        include_str!("style.css"),
    )
}

fn header(page: &mut String, info: &RunInfo) {
    let place = [info.machine.host.as_deref(), info.machine.cpu_model.as_deref()];
    let place: Vec<String> = place.into_iter().flatten().map(escape).collect();
    let mut facts = vec![escape(&info.started), format!("Roost {}", escape(&info.version))];
    facts.extend(place);
    let _ = write!(
        page,
        "<header>\n<p class=\"run\">{}</p>\n<h1>{}</h1>\n<p class=\"facts\">{}</p>\n</header>\n",
        escape(&info.name),
        escape(&info.title),
        facts.join(" &middot; ")
    );
}

fn notes(page: &mut String, summary: &Summary, remarks: &[String]) {
    if let Some(why) = &summary.invalid {
        let _ = writeln!(
            page,
            "<p class=\"alarm\"><strong>This measurement is invalid.</strong> {}</p>",
            escape(why)
        );
    }
    for remark in remarks {
        let _ = writeln!(page, "<p class=\"remark\">{}</p>", escape(remark));
    }
}

fn findings(page: &mut String, frames: &[Frame], summary: &Summary) {
    figures::cards(page, summary);
    figures::compared(page, summary);
    figures::table(page, summary);
    for chart in charts::all(frames, summary) {
        let _ = write!(
            page,
            "<section class=\"chart\" id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
            chart.id, chart.title, chart.see
        );
        match chart.drawing {
            Ok(svg) => page.push_str(&svg),
            Err(why) => {
                let _ = writeln!(page, "<p class=\"remark\">{why}</p>");
            }
        }
        page.push_str("</section>\n");
    }
}

fn provenance(page: &mut String, info: &RunInfo) {
    page.push_str("<section>\n<h2>How each figure was got</h2>\n<ul>\n");
    for sentence in &info.method {
        let _ = writeln!(page, "<li>{}</li>", escape(sentence));
    }
    page.push_str(
        "<li>A dash stands where a figure was not recorded. Ratios compare with the first phase.</li>\n</ul>\n</section>\n",
    );
    page.push_str("<section>\n<h2>Machine</h2>\n<dl>\n");
    let machine = &info.machine;
    let facts = [
        ("host", machine.host.clone()),
        ("CPU", machine.cpu_model.clone()),
        ("CPUs online", machine.cpus.map(|cpus| cpus.to_string())),
        (
            "memory",
            machine.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)),
        ),
        ("kernel", machine.kernel.clone()),
        ("hypervisor", machine.hypervisor.clone()),
        ("idle driver", machine.idle_driver.clone()),
        ("idle states", (!machine.idle_states.is_empty()).then(|| machine.idle_states.join(", "))),
    ];
    for (name, value) in facts {
        let value = value.as_deref().map_or_else(|| crate::text::MISSING.to_owned(), escape);
        let _ = writeln!(page, "<dt>{name}</dt><dd>{value}</dd>");
    }
    page.push_str("</dl>\n</section>\n<section>\n<h2>Configuration in force</h2>\n");
    let command: Vec<String> = info.command.iter().map(|argument| shell_word(argument)).collect();
    let _ = writeln!(page, "<pre>{}</pre>\n<dl>", escape(&command.join(" ")));
    let mut settings = Vec::new();
    flatten("", &info.config, &mut settings);
    for (key, value) in settings {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(&key), escape(&value));
    }
    page.push_str("</dl>\n</section>\n");
}

fn flatten(prefix: &str, table: &toml::Table, settings: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, settings),
            toml::Value::String(text) => settings.push((key, text.clone())),
            other => settings.push((key, other.to_string())),
        }
    }
}

/// An argument as one could type it.
pub(crate) fn shell_word(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Compared, Machine, Phase, StateShare, Verdict};
    use machine::{Duration, EnergyReading, EnergySource, Microjoules, Ratio};
    use proptest::prelude::*;

    fn run_with(text: &str) -> Run {
        let text = text.to_owned();
        let mut config = toml::Table::new();
        config.insert(text.clone(), toml::Value::String(text.clone()));
        config.insert("array".to_owned(), toml::Value::Array(vec![toml::Value::String(text.clone())]));
        let source = EnergySource::Modelled(text.clone());
        let phase = Phase {
            name: text.clone(),
            what: text.clone(),
            residency: Some(vec![StateShare { state: text.clone(), share: Ratio::new(0.4) }]),
            energy: Some(EnergyReading { used: Microjoules(5_000_000), source: source.clone() }),
            ..Phase::default()
        };
        let frame = Frame {
            phase: text.clone(),
            at: Duration::from_secs(1),
            p99: Some(Duration::from_micros(300)),
            ..Frame::default()
        };
        let verdict = Verdict {
            figure: text.clone(),
            found: text.clone(),
            bar: text.clone(),
            met: Some(false),
            within_noise: false,
        };
        let compared = Compared {
            phase: text.clone(),
            figure: text.clone(),
            first: text.clone(),
            value: text.clone(),
            ratio: 0.5,
            low: 0.4,
            high: 0.6,
        };
        Run {
            info: RunInfo {
                format: RunInfo::FORMAT,
                name: text.clone(),
                title: text.clone(),
                command: vec![text.clone()],
                version: text.clone(),
                started: text.clone(),
                method: vec![text.clone()],
                machine: Machine {
                    host: Some(text.clone()),
                    idle_states: vec![text.clone()],
                    ..Machine::default()
                },
                config,
            },
            frames: vec![frame],
            summary: Some(Summary {
                phases: vec![phase],
                verdicts: vec![verdict],
                compared: vec![compared],
                remarks: vec![text.clone()],
                invalid: Some(text.clone()),
            }),
            remarks: vec![text],
        }
    }

    /// The page with the texts of `text` must have the very same tags as the page of a harmless
    /// one.
    fn tags(page: &str) -> Vec<String> {
        let mut tags = Vec::new();
        for piece in page.split('<').skip(1) {
            let tag = piece.split('>').next().unwrap();
            tags.push(tag.split([' ', '\n']).next().unwrap().to_owned());
        }
        tags
    }

    #[test]
    fn a_script_in_a_name_stays_a_text() {
        let hostile = "<script>alert(1)</script><img src=http://x onerror=\"a\">'\"&";
        let run = run_with(hostile);
        for html in
            [page(&run), live_page(&run.info, "n"), live_body(&run.frames, run.summary.as_ref().unwrap())]
        {
            assert!(!html.contains("<script>") && !html.contains("<img"), "{html}");
            assert!(html.contains("&lt;script&gt;"), "it is shown");
        }
    }

    #[test]
    fn the_report_has_no_script_and_names_nothing_outside() {
        let html = page(&run_with("plain"));
        assert!(!html.contains("<script"));
        assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("url("), "{html}");
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn a_run_cut_short_is_reported_as_such() {
        let run = Run {
            frames: Vec::new(),
            summary: None,
            remarks: vec!["The run was cut short: there is no summary.json.".to_owned()],
            ..run_with("x")
        };
        let html = page(&run);
        assert!(html.contains("cut short"));
        assert!(!html.contains("<svg"));
    }

    #[test]
    fn settings_are_shown_by_dotted_key_and_the_command_can_be_typed() {
        let mut run = run_with("x");
        run.info.config = "top = 1\n[load]\nrate = \"50k\"\n[load.shape]\nbase = 0.5".parse().unwrap();
        run.info.command = ["roost", "demo", "--title", "it's"].map(str::to_owned).to_vec();
        let html = page(&run);
        for row in [
            "<dt>top</dt><dd>1</dd>",
            "<dt>load.rate</dt><dd>50k</dd>",
            "<dt>load.shape.base</dt><dd>0.5</dd>",
        ] {
            assert!(html.contains(row), "{row} in {html}");
        }
        assert!(html.contains("<pre>roost demo --title &#39;it&#39;\\&#39;&#39;s&#39;</pre>"), "{html}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_text_changes_the_structure_of_the_page(text in ".{1,40}", tail in "[<>&'\"/ a-z=-]{0,40}") {
            let html = page(&run_with(&format!("{text}{tail}")));
            prop_assert_eq!(tags(&html), tags(&page(&run_with("x"))));
        }
    }
}
