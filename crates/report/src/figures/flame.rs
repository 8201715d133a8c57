//! A flame graph (Gregg): sampled stacks, the outermost function at the bottom, each as wide as the
//! share of samples it is in.
//!
//! It is SVG written by hand, since a box has to carry its whole name (as a title that appears
//! where the pointer rests), and there is no script. A box too narrow to be seen is left out, and
//! the gap above its caller shows it.

use super::Figure;
use crate::text::escape;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Stacks, outermost first, with how often each was met.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flame {
    pub title: String,
    pub see: String,
    pub stacks: Vec<(Vec<String>, u64)>,
    /// A function to be told apart: its boxes have another colour and a frame.
    pub marked: Option<String>,
}

#[derive(Default)]
struct Node<'a> {
    weight: u64,
    callees: BTreeMap<&'a str, Node<'a>>,
}

impl Flame {
    pub fn figure(&self) -> Figure {
        let mut root = Node::default();
        for (frames, weight) in &self.stacks {
            root.weight = root.weight.saturating_add(*weight);
            let mut at = &mut root;
            for frame in frames.iter().take(DEPTH_MAX) {
                at = at.callees.entry(frame).or_default();
                at.weight = at.weight.saturating_add(*weight);
            }
        }
        let drawing = match root.weight {
            0 => Err("There is nothing to draw: no stack was sampled.".to_owned()),
            _ => Ok(self.drawing(&root)),
        };
        Figure { title: self.title.clone(), see: self.see.clone(), drawing, values: None }
    }

    fn drawing(&self, root: &Node<'_>) -> String {
        let whole = root.weight as f64;
        let mut boxes = String::new();
        let rows = 1 + deepest(root, whole);
        let height = rows as f64 * ROW;
        let mut pending = vec![("all", root, 0.0, 0usize)];
        while let Some((name, node, left, depth)) = pending.pop() {
            let width = node.weight as f64 / whole * WIDTH;
            let top = height - (depth + 1) as f64 * ROW;
            let share = 100.0 * node.weight as f64 / whole;
            let is_marked = self.marked.as_deref() == Some(name);
            let (fill, stroke) = match (is_marked, depth % 2) {
                (true, _) => {
                    ("var(--ink-phase-2,#b34a00)", " stroke=\"var(--ink-text,#111)\" stroke-width=\"2\"")
                }
                (false, 0) => ("var(--ink-idle,#2f6fb0)", ""),
                (false, _) => ("var(--ink-phase-1,#1b5fa8)", ""),
            };
            let _ = write!(
                boxes,
                "<g><title>{} ({share:.1}%)</title><rect x=\"{left:.2}\" y=\"{top:.1}\" width=\"{:.2}\" \
                 height=\"{:.1}\" fill=\"{fill}\" fill-opacity=\"{}\"{stroke}/>",
                escape(name),
                (width - 0.4).max(0.4),
                ROW - 1.0,
                if is_marked { 0.6 } else { 0.28 },
            );
            let room = (width / LETTER) as usize;
            if room > 3 {
                let short: String = if name.chars().count() <= room {
                    name.to_owned()
                } else {
                    // The end of a name tells more than its package.
                    let skipped = name.chars().count() + 1 - room;
                    std::iter::once('\u{2026}').chain(name.chars().skip(skipped)).collect()
                };
                let _ = write!(
                    boxes,
                    "<text x=\"{:.2}\" y=\"{:.1}\" font-size=\"11\" fill=\"var(--ink-text,#111)\">{}</text>",
                    left + 3.0,
                    top + ROW - 5.0,
                    escape(&short)
                );
            }
            boxes.push_str("</g>\n");
            let mut at = left;
            for (name, callee) in &node.callees {
                if is_seen(callee, whole) {
                    pending.push((name, callee, at, depth + 1));
                }
                at += callee.weight as f64 / whole * WIDTH;
            }
        }
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n{boxes}</svg>\n",
            escape(&self.title)
        )
    }
}

fn is_seen(node: &Node<'_>, whole: f64) -> bool {
    node.weight as f64 / whole * WIDTH >= NARROWEST
}

/// Rows above this one that have a box.
fn deepest(node: &Node<'_>, whole: f64) -> usize {
    node.callees
        .values()
        .filter(|callee| is_seen(callee, whole))
        .map(|callee| 1 + deepest(callee, whole))
        .max()
        .unwrap_or(0)
}

/// CSS pixels.
const WIDTH: f64 = 1080.0;
const ROW: f64 = 17.0;
const NARROWEST: f64 = 1.0;
const LETTER: f64 = 6.4;
const DEPTH_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn flame(stacks: &[(&[&str], u64)]) -> Flame {
        let stacks = stacks
            .iter()
            .map(|(frames, weight)| (frames.iter().map(|&frame| frame.to_owned()).collect(), *weight))
            .collect();
        Flame { title: "t".into(), stacks, marked: Some("hot".into()), ..Flame::default() }
    }

    #[test]
    fn a_box_is_as_wide_as_its_share_and_the_marked_one_is_told() {
        let svg = flame(&[(&["loop", "hot"], 75), (&["loop", "<other>"], 25)]).figure().drawing.unwrap();
        assert!(svg.contains("hot (75.0%)") && svg.contains("width=\"809.60\""), "{svg}");
        assert!(svg.contains("&lt;other&gt; (25.0%)") && !svg.contains("<other>"), "{svg}");
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 1);
    }

    #[test]
    fn what_is_too_narrow_is_left_out_and_nothing_is_said_to_be_nothing() {
        let svg = flame(&[(&["a"], 100_000), (&["b"], 1)]).figure().drawing.unwrap();
        assert!(!svg.contains("<title>b "));
        assert!(flame(&[]).figure().drawing.is_err());
    }

    #[test]
    fn a_very_deep_stack_is_cut() {
        let frames: Vec<String> = (0..5000).map(|depth| depth.to_string()).collect();
        let flame = Flame { stacks: vec![(frames, 1)], ..Flame::default() };
        assert_eq!(flame.figure().drawing.unwrap().matches("<rect").count(), DEPTH_MAX + 1);
    }
}
