//! The figures at the top of the page: one card per verdict, then the table.

use crate::run::{Frame, Phase, Summary, times};
use crate::text::{MISSING, escape, grouped, or_missing};
use machine::{Duration, EnergySource};
use std::fmt::Write as _;

/// One card per bar, and one for the served requests.
pub fn cards(page: &mut String, summary: &Summary) {
    let served: Option<u64> = summary.phases.iter().map(|phase| phase.requests).sum();
    if summary.verdicts.is_empty() && served.is_none_or(|served| served == 0) {
        return;
    }
    page.push_str("<div class=\"cards\">\n");
    for verdict in &summary.verdicts {
        let (class, sign) = match verdict.met {
            Some(true) => ("met", "\u{2713} "),
            Some(false) => ("missed", "\u{2717} "),
            None => ("open", ""),
        };
        let word = format!("{sign}{}", verdict.mark());
        let interval = verdict.found.find(" (").unwrap_or(verdict.found.len());
        let (figure, interval) = verdict.found.split_at(interval);
        let _ = writeln!(
            page,
            "<div class=\"card {class}\"><p>{}</p><strong>{}</strong><p class=\"interval\">{}</p><p>{}</p>\
             <p class=\"verdict\">{word}</p></div>",
            escape(&verdict.figure),
            escape(figure),
            escape(interval.trim_start()),
            escape(&verdict.bar)
        );
    }
    if let Some(served) = served.filter(|&served| served > 0) {
        let errors: Option<u64> = summary.phases.iter().map(|phase| phase.errors).sum();
        let errors =
            errors.map_or_else(|| "errors not counted".to_owned(), |n| format!("{} errors", grouped(n)));
        let _ = writeln!(
            page,
            "<div class=\"card\"><p>requests answered</p><strong>{}</strong><p>{errors}</p></div>",
            grouped(served)
        );
    }
    page.push_str("</div>\n");
}

/// One card per figure of the moment, while a phase runs.
pub fn now(page: &mut String, frame: &Frame) {
    let awake = frame.workers_awake().map(|awake| format!("{awake} of {}", frame.workers.len()));
    let energy = frame.energy.as_ref();
    let cards = [
        ("answered now", or_missing(frame.achieved), format!("offered {}", or_missing(frame.offered))),
        ("workers awake now", or_missing(awake), worker_seconds(frame.awake)),
        ("p99 now", or_missing(frame.p99), format!("p50 {}", or_missing(frame.p50))),
        (
            "energy so far",
            or_missing(energy.map(|energy| energy.used)),
            energy.map_or_else(String::new, |energy| energy.source.to_string()),
        ),
    ];
    page.push_str("<div class=\"cards\" id=\"now\">\n");
    for (what, figure, remark) in cards {
        let _ = writeln!(
            page,
            "<div class=\"card\"><p>{}: {what}</p><strong>{figure}</strong><p>{}</p></div>",
            escape(&frame.phase),
            escape(&remark)
        );
    }
    page.push_str("</div>\n");
}

pub fn table(page: &mut String, summary: &Summary) {
    let Some(first) = summary.phases.first() else { return };
    page.push_str(
        "<div class=\"wide\"><table id=\"figures\">\n<thead><tr><th>phase</th><th>requests/s</th><th>p50</th>\
         <th>p99</th><th>p99.9</th><th>max</th><th>errors</th><th>awake</th><th>energy</th><th>moved</th>\
         </tr></thead>\n<tbody>\n",
    );
    for (place, phase) in summary.phases.iter().enumerate() {
        // A ratio without an interval beside one that has it would be believed as much.
        let is_against = place > 0 && summary.compared.is_empty();
        let against = |value: Option<f64>, baseline: Option<f64>| match (is_against, value.zip(baseline)) {
            (true, Some((value, baseline))) if baseline > 0.0 => {
                format!(" <small>{:.2}x</small>", value / baseline)
            }
            _ => String::new(),
        };
        let tail = |length: Option<Duration>, baseline: Option<Duration>| {
            let ratio = against(length.map(Duration::as_secs_f64), baseline.map(Duration::as_secs_f64));
            format!("{}{ratio}", or_missing(length))
        };
        let joules = |phase: &Phase| phase.energy.as_ref().map(|energy| energy.used.as_joules());
        let energy = phase.energy.as_ref().map_or_else(
            || MISSING.to_owned(),
            |energy| {
                let kind = match energy.source {
                    EnergySource::Measured(_) => "measured",
                    EnergySource::Modelled(_) => "modelled",
                };
                let ratio = against(joules(phase), joules(first));
                format!(
                    "<span title=\"{}\">{} {kind}</span>{ratio}",
                    escape(&energy.source.to_string()),
                    energy.used
                )
            },
        );
        let cells = [
            format!("{} <small>{}</small>", escape(&phase.name), escape(&phase.what)),
            or_missing(phase.achieved),
            tail(phase.p50, first.p50),
            tail(phase.p99, first.p99),
            tail(phase.p999, first.p999),
            or_missing(phase.max),
            phase.errors.map_or_else(|| MISSING.to_owned(), grouped),
            awake(phase, first, is_against),
            energy,
            phase.transfers.map_or_else(|| MISSING.to_owned(), grouped),
        ];
        let [name, rest @ ..] = cells;
        let _ = write!(page, "<tr class=\"phase-{}\"><th>{name}</th>", place % 6 + 1);
        for cell in rest {
            let _ = write!(page, "<td>{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    page.push_str(
        "<p class=\"remark\">Latency counts from when a request should have been sent. Awake is the time that workers \
         were active, summed over the workers. Ratios compare with the first phase.</p>\n",
    );
}

/// Each phase beside the first, with intervals, and its remark.
pub fn compared(page: &mut String, summary: &Summary) {
    let Some(first) = summary.phases.first() else { return };
    if !summary.compared.is_empty() {
        let _ = writeln!(
            page,
            "<div class=\"wide\"><table id=\"compared\">\n<thead><tr><th>against {0}</th><th>{0}</th><th>phase</th>\
             <th>ratio<small>99 % interval</small></th></tr></thead>\n<tbody>",
            escape(&first.name)
        );
        for row in &summary.compared {
            let place = summary.phases.iter().position(|phase| phase.name == row.phase).unwrap_or(0);
            let noise = if row.is_within_noise() { "<small>within noise</small>" } else { "" };
            let _ = writeln!(
                page,
                "<tr class=\"phase-{}\"><th>{}<small>{}</small></th><td>{}</td><td>{}</td>\
                 <td><strong>{}</strong><small>{} to {}</small>{noise}</td></tr>",
                place % 6 + 1,
                escape(&row.figure),
                escape(&row.phase),
                escape(&row.first),
                escape(&row.value),
                times(row.ratio),
                times(row.low),
                times(row.high),
            );
        }
        page.push_str("</tbody></table></div>\n");
    }
    for remark in &summary.remarks {
        let _ = writeln!(page, "<p class=\"remark told\">{}</p>", escape(remark));
    }
}

fn worker_seconds(awake: Option<Duration>) -> String {
    awake.map_or_else(String::new, |awake| format!("{:.1} worker-seconds so far", awake.as_secs_f64()))
}

fn awake(phase: &Phase, first: &Phase, is_against: bool) -> String {
    let Some(awake) = phase.awake.map(Duration::as_secs_f64) else { return MISSING.to_owned() };
    let ratio = first.awake.map(Duration::as_secs_f64).filter(|&baseline| is_against && baseline > 0.0);
    let ratio =
        ratio.map_or_else(String::new, |baseline| format!(" <small>{:.2}x</small>", awake / baseline));
    format!("{awake:.1} s{ratio}")
}
