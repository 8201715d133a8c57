//! `report.html`: the one template of all pages.
//!
//! The problem: a report is mailed, archived, opened in a year on a machine without a network, and
//! it shows unvetted texts (configuration, names of hosts, services and threads). So the page is
//! one file that asks for nothing: its data is JSON within it, and its script, which draws with
//! uPlot (`uplot/`), is within it too. A content security policy names the two scripts by their
//! hashes and forbids everything else, to run or to fetch. No text of a run becomes markup: in the
//! JSON no `<` is left, and the script makes text nodes only.

use crate::figures::Page;
use crate::text::escape;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;

impl Page {
    pub fn html(&self) -> String {
        let plot =
            format!("/*\n{}*/\n{}", include_str!("uplot/LICENSE"), include_str!("uplot/uPlot.iife.min.js"));
        let script = concat!(
            "\"use strict\";\n",
            include_str!("units.js"),
            include_str!("elements.js"),
            include_str!("lines.js"),
            include_str!("areas.js"),
            include_str!("bars.js"),
            include_str!("heat_map.js"),
            include_str!("flame.js"),
            include_str!("page.js"),
        );
        let mut policy = "default-src 'none'; style-src 'unsafe-inline'; script-src".to_owned();
        for script in [plot.as_str(), script] {
            let hash = BASE64_STANDARD.encode(digest(&SHA256, script.as_bytes()));
            let _ = write!(policy, " 'sha256-{hash}'");
        }
        let style = concat!(include_str!("uplot/uPlot.min.css"), include_str!("page.css"));
        let title = escape(if self.name.is_empty() { &self.title } else { &self.name });
        let data = self.json().replace('<', "\\u003c");
        let mut html = String::new();
        let mut rest = include_str!("page.html");
        // One pass: a text that looks like a place of the template stays a text.
        while let Some((before, after)) = rest.split_once("{{") {
            let (place, after) = after.split_once("}}").expect("the template closes its places");
            html.push_str(before);
            html.push_str(match place {
                "policy" => &policy,
                "title" => &title,
                "style" => style,
                "data" => &data,
                "plot" => &plot,
                "script" => script,
                place => unreachable!("the template has no place {place}"),
            });
            rest = after;
        }
        html + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(text: &str) -> Page {
        Page {
            name: text.to_owned(),
            title: text.to_owned(),
            alarms: vec![text.to_owned()],
            ..Page::default()
        }
    }

    /// Opening and closing tags, without their contents, and the policy.
    fn structure(html: &str) -> (usize, usize) {
        (
            html.matches('<').count(),
            html.matches('>').count()
                - html.split("id=\"page\">").nth(1).unwrap().split('<').next().unwrap().matches('>').count(),
        )
    }

    #[test]
    fn a_script_in_a_name_stays_a_text() {
        let hostile = "</script><script>alert(1)</script><!--<img src=http://x onerror=\"a\">'{{script}}";
        let html = page(hostile).html();
        assert_eq!(html.matches("<script").count(), page("x").html().matches("<script").count());
        assert!(!html.contains("<img") && html.contains("&lt;/script&gt;"));
        assert!(html.contains(r#""alarms":["\u003c/script>\u003cscript>alert(1)"#), "it is shown");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_text_changes_the_structure_of_the_page(text in ".{1,40}", tail in "[<>&'\"/ a-z=-]{0,40}") {
            let text = format!("{text}{tail}");
            prop_assert_eq!(structure(&page(&text).html()), structure(&page("x").html()));
        }
    }
}
