//! A page of figures that needs nothing but a browser.
//!
//! It reads from the top: question and result in a paragraph; verdicts; the figures, each with its
//! message; and at the end the sources: assumptions, ESTIMATEs, the machine's sources, the
//! scenario, the command to have it again. One file, no script, nothing from outside, and every
//! text passes `escape`.

use super::{Bars, Figure, Table};
use crate::html;
use crate::text::escape;
use serde::Deserialize;
use std::fmt::Write as _;

/// A page. Empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    pub name: String,
    pub title: String,
    /// The results, in a paragraph.
    pub summary: String,
    /// Short facts below the title: version, date, seed.
    pub facts: Vec<String>,
    /// The reasons that make some of it worthless, or worth less.
    pub alarms: Vec<String>,
    /// Verdicts and the figures that matter most.
    pub cards: Vec<Card>,
    pub sections: Vec<Section>,
    pub assumptions: Vec<String>,
    /// Unpublished numbers that were estimated, each with its value.
    pub estimates: Vec<String>,
    pub notes: Vec<String>,
    /// Machines and other things with sources: a name, and the sources.
    pub sources: Vec<(String, Vec<String>)>,
    /// Long texts that most readers skip, each with its name.
    pub folded: Vec<(String, String)>,
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Card {
    pub what: String,
    pub figure: String,
    pub remark: String,
    /// Whether that is met; `None` if nothing is held against it.
    pub met: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    pub title: String,
    /// The message of all of them; nothing if empty.
    pub text: String,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Written")]
pub enum Part {
    Figure(Figure),
    Table(Table),
    Text(String),
}

/// A piece of a section as it is written in a page's JSON.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Written {
    Bars(Bars),
    Table(Table),
    Text(String),
}

impl From<Written> for Part {
    fn from(written: Written) -> Self {
        match written {
            Written::Bars(bars) => Self::Figure(bars.figure()),
            Written::Table(table) => Self::Table(table),
            Written::Text(text) => Self::Text(text),
        }
    }
}

impl Page {
    /// A page that a script wrote as JSON: the fields' names are the keys, and `docs/formats.md`
    /// has an example.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    pub fn html(&self) -> String {
        let mut body = String::new();
        self.header(&mut body);
        for alarm in &self.alarms {
            let _ = writeln!(body, "<p class=\"alarm\">{}</p>", escape(alarm));
        }
        self.verdicts(&mut body);
        for section in &self.sections {
            write_section(&mut body, section);
        }
        self.foundations(&mut body);
        let name = if self.name.is_empty() { &self.title } else { &self.name };
        html::document(name, html::STATIC, &body, "")
    }

    fn header(&self, body: &mut String) {
        let facts: Vec<String> = self.facts.iter().map(|fact| escape(fact)).collect();
        body.push_str("<header>\n");
        paragraph(body, "run", &self.name);
        let _ = writeln!(body, "<h1>{}</h1>", escape(&self.title));
        if !facts.is_empty() {
            let _ = writeln!(body, "<p class=\"facts\">{}</p>", facts.join(" &middot; "));
        }
        paragraph(body, "lead", &self.summary);
        body.push_str("</header>\n");
    }

    fn verdicts(&self, body: &mut String) {
        if self.cards.is_empty() {
            return;
        }
        body.push_str("<div class=\"cards\">\n");
        for card in &self.cards {
            let (class, verdict) = match card.met {
                Some(true) => (" met", "<p class=\"verdict\">\u{2713} met</p>"),
                Some(false) => (" missed", "<p class=\"verdict\">\u{2717} missed</p>"),
                None => ("", ""),
            };
            let [what, figure, remark] = [&card.what, &card.figure, &card.remark].map(|text| escape(text));
            let _ = writeln!(
                body,
                "<div \
                 class=\"card{class}\"><p>{what}</p><strong>{figure}</strong><p>{remark}</p>{verdict}</div>"
            );
        }
        body.push_str("</div>\n");
    }

    fn foundations(&self, body: &mut String) {
        body.push_str("<section>\n<h2>What this rests on</h2>\n");
        list(body, "How the figures were got", &self.notes);
        list(body, "Assumptions", &self.assumptions);
        list(body, "ESTIMATEs: numbers that no source prints", &self.estimates);
        for (name, sources) in &self.sources {
            list(body, &format!("Sources of {name}"), sources);
        }
        for (name, text) in &self.folded {
            let text: Vec<String> = text.lines().map(escape).collect();
            let _ = writeln!(
                body,
                "<details><summary>{}</summary><pre>{}</pre></details>",
                escape(name),
                text.join("\n")
            );
        }
        if !self.command.is_empty() {
            let command: Vec<String> =
                self.command.iter().map(|argument| html::shell_word(argument)).collect();
            let _ = writeln!(body, "<h3>Command</h3>\n<pre>{}</pre>", escape(&command.join(" ")));
        }
        body.push_str("</section>\n");
    }
}

fn paragraph(body: &mut String, class: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(body, "<p class=\"{class}\">{}</p>", escape(text));
    }
}

fn list(body: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(body, "<h3>{}</h3>\n<ul>", escape(title));
    for line in lines {
        let _ = writeln!(body, "<li>{}</li>", escape(line));
    }
    body.push_str("</ul>\n");
}

fn write_section(body: &mut String, section: &Section) {
    let _ = writeln!(body, "<section>\n<h2>{}</h2>", escape(&section.title));
    if !section.text.is_empty() {
        let _ = writeln!(body, "<p>{}</p>", escape(&section.text));
    }
    for part in &section.parts {
        match part {
            Part::Figure(figure) => write_figure(body, figure),
            Part::Table(table) => table.write(body),
            Part::Text(text) => paragraph(body, "remark", text),
        }
    }
    body.push_str("</section>\n");
}

fn write_figure(body: &mut String, figure: &Figure) {
    body.push_str("<figure>\n");
    let _ = writeln!(
        body,
        "<figcaption><strong>{}</strong>{}</figcaption>",
        escape(&figure.title),
        escape(&figure.see)
    );
    match &figure.drawing {
        Ok(svg) => body.push_str(svg),
        Err(why) => paragraph(body, "remark", why),
    }
    if let Some(values) = &figure.values {
        body.push_str("<details><summary>The numbers</summary>\n");
        values.write(body);
        body.push_str("</details>\n");
    }
    body.push_str("</figure>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_be_written_in_json() {
        let page = Page::read(
            r#"{"title": "Speed & <b>", "cards": [{"what": "p99", "figure": "12 ms", "met": true}], "sections": [{"title": "Ours",
                "parts": [{"text": "a paragraph"}, {"table": {"head": ["policy", "p99"], "rows": [{"name": "x", "cells": ["1"]}]}},
                {"bars": {"title": "Energy", "quantity": {"name": "energy", "unit": "joules"}, "rows": ["low"],
                          "parts": [{"name": "hurry-up", "tone": {"contestant": 0}, "values": [{"value": 2.5, "printed": 3.0}, null]}]}}]}]}"#,
        )
        .unwrap();
        assert_eq!(page.sections[0].parts.len(), 3);
        let html = page.html();
        for text in ["Speed &amp; &lt;b&gt;", "12 ms", "a paragraph", "<svg", "hurry-up"] {
            assert!(html.contains(text), "{text} is not in {html}");
        }
    }

    #[test]
    fn what_is_no_page_is_refused_with_its_key() {
        for (json, key) in [
            (r#"{"titel": "x"}"#, "titel"),
            (r#"{"sections": [{"parts": [{"pie": 1}]}]}"#, "pie"),
            (
                r#"{"sections": [{"parts": [{"bars": {"title": "x", "quantity": {"name": "y", "unit": "furlongs"}}}]}]}"#,
                "furlongs",
            ),
        ] {
            let message = Page::read(json).unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }
}
