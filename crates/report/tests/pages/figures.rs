//! The page with every kind of figure: its structure, whatever the texts and the numbers.

use crate::every_figure;
use proptest::prelude::*;
use report::figures::{
    Areas, Bar, BarPart, Bars, Bucket, Cell, Figure, Form, HeatMap, Labels, Layer, Lengths, Limit, Lines,
    Panel, Point, Quantity, Series, Style, Tone, Unit,
};
use std::path::Path;

#[test]
fn the_page_is_kept_for_eyes() {
    // The part that a test cannot see: `target/tmp/every-figure.html` in a browser, on a light page
    // and on a dark one.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("every-figure.html");
    std::fs::write(path, every_figure::page(7).html()).unwrap();
}

#[test]
fn equal_pages_are_equal_bytes() {
    assert_eq!(every_figure::page(7).html(), every_figure::page(7).html());
}

#[test]
fn the_page_has_no_script_and_names_nothing_outside() {
    let html = every_figure::page(7).html();
    assert!(
        !html.contains("<script")
            && !html.contains("http:")
            && !html.contains("https:")
            && !html.contains("url(")
    );
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn every_drawing_has_a_title_for_those_who_do_not_see_it_and_its_numbers_below() {
    let html = every_figure::page(7).html();
    let figures: Vec<&str> =
        html.split("<figure>").skip(1).map(|rest| rest.split("</figure>").next().unwrap()).collect();
    assert_eq!(figures.len(), every_figure::FIGURES);
    for figure in &figures {
        assert!(figure.contains("<figcaption><strong>"), "{figure}");
        assert!(figure.contains("<svg") ^ figure.contains("There is nothing to draw"), "{figure}");
        if figure.contains("<svg") {
            assert!(figure.contains("role=\"img\" aria-label=\""), "{figure}");
        }
    }
    assert_eq!(
        figures.iter().filter(|figure| figure.contains("The numbers")).count(),
        every_figure::WITH_NUMBERS
    );
}

#[test]
fn what_is_no_number_is_a_gap_and_never_a_coordinate() {
    let html = every_figure::page(7).html();
    assert!(!html.contains("NaN") && !html.contains("inf\"") && !html.contains("inf,"));
    let broken = Lines {
        series: vec![exact("a", Style::Line, &[(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (3.0, 4.0)])],
        ..Lines::new("t", "", Quantity::new("x", Unit::Count), Quantity::new("y", Unit::Watts))
    };
    let whole = Lines {
        series: vec![exact("a", Style::Line, &[(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)])],
        ..broken.clone()
    };
    let inked = |lines: &Lines| lines.figure().drawing.unwrap().matches("ink-phase-1").count();
    // The legend's line and mark, four marks, one line; against three marks, one line, and a point
    // alone.
    assert_eq!((inked(&whole), inked(&broken)), (7, 7));
    assert_eq!(broken.figure().values.unwrap().rows[1].cells, ["-"]);
}

#[test]
fn a_paper_s_numbers_have_the_colour_of_their_contestant_and_another_form() {
    let mut lines = Lines::new("t", "", Quantity::new("x", Unit::Count), Quantity::new("y", Unit::Watts));
    lines.series = vec![
        exact("a", Style::Line, &[(0.0, 1.0), (1.0, 2.0)]),
        exact("b", Style::Line, &[(0.0, 3.0), (1.0, 4.0)]),
    ];
    let without = lines.figure().drawing.unwrap();
    lines.series.push(exact("b", Style::Printed, &[(0.5, 3.0)]));
    let with = lines.figure().drawing.unwrap();
    let count = |svg: &str, ink: &str| svg.matches(ink).count();
    assert_eq!(count(&with, "ink-phase-1"), count(&without, "ink-phase-1"));
    assert_eq!(count(&with, "ink-phase-2"), count(&without, "ink-phase-2") + 1, "the diamond's outline");
    assert!(with.contains("printed in the paper") && !without.contains("printed in the paper"));
    assert_eq!(lines.figure().values.unwrap().head, ["x", "a", "b", "b, printed"]);
}

#[test]
fn a_goal_far_above_everything_is_named_and_does_not_press_the_figure_flat() {
    let mut lines =
        Lines::new("t", "", Quantity::new("x", Unit::Count), Quantity::new("p99", Unit::Nanoseconds));
    lines.series = vec![series("a", Style::Line, &[(0.0, 10e3), (1.0, 12e3)])];
    lines.limit = Some(Limit { y: 20e3, name: "goal".into() });
    assert!(!lines.figure().drawing.unwrap().contains("beyond this scale"));
    lines.limit = Some(Limit { y: 1e6, name: "goal".into() });
    let far = lines.figure().drawing.unwrap();
    assert!(
        far.contains("goal (beyond this scale)") && far.contains("15 us") && !far.contains("1 ms"),
        "{far}"
    );
}

#[test]
fn an_unstable_cell_is_hatched_and_takes_no_part_in_the_scale() {
    let map = |cell: Cell| HeatMap {
        title: "t".into(),
        see: String::new(),
        x: Labels { name: "x".into(), values: vec!["1".into(), "2".into(), "3".into()] },
        y: Labels { name: "y".into(), values: vec!["1".into()] },
        quantity: Quantity::new("p", Unit::Watts),
        panels: vec![("a".into(), vec![vec![Cell::Value(10.0), Cell::Value(20.0), cell]])],
    };
    let unstable = map(Cell::Marked("unstable".into())).figure();
    let drawing = unstable.drawing.unwrap();
    assert!(drawing.contains("20.0 W") && drawing.contains("unstable"), "{drawing}");
    assert_eq!(unstable.values.unwrap().rows[0].cells, ["10.0 W", "20.0 W", "unstable"]);
    let missing = map(Cell::Missing).figure().drawing.unwrap();
    assert!(!missing.contains("unstable") && missing.contains(">\n-\n<"), "{missing}");
    let infinite = map(Cell::Value(f64::INFINITY)).figure().drawing.unwrap();
    assert!(infinite.contains("20.0 W") && !infinite.contains("inf"), "{infinite}");
}

fn exact(name: &str, style: Style, points: &[(f64, f64)]) -> Series {
    let points = points.iter().map(|&(x, y)| Point::new(x, Some(y)));
    Series { name: name.into(), style, points: points.collect() }
}

fn series(name: &str, style: Style, points: &[(f64, f64)]) -> Series {
    let points =
        points.iter().map(|&(x, y)| Point { x, y: Some(y), spread: Some(y / 9.0), spread_x: Some(x / 9.0) });
    Series { name: name.into(), style, points: points.collect() }
}

/// Figures of every kind with these numbers and texts.
fn figures(points: &[(f64, f64)], text: &str, unit: Unit, log: bool) -> Vec<Figure> {
    let text = || text.to_owned();
    let quantity = || {
        let quantity = Quantity::new(&text(), unit);
        if log { quantity.log() } else { quantity }
    };
    let mut figures = Vec::new();
    for style in [Style::Line, Style::Marks, Style::Steps] {
        let mut lines = Lines::new(&text(), &text(), quantity(), quantity().linear());
        lines.series = vec![series(&text(), style, points), series(&text(), Style::Printed, points)];
        lines.series.extend(points.iter().map(|&point| series(&text(), Style::Marks, &[point])));
        lines.limit = points.first().map(|&(y, _)| Limit { y, name: text() });
        figures.push(lines.figure());
        lines.x.names = points.iter().map(|_| text()).collect();
        figures.push(lines.figure());
    }
    for form in [Form::Grouped, Form::Stacked] {
        let bar = |&(value, spread): &(f64, f64)| {
            Some(Bar { value, spread: Some(spread), printed: Some(value / 2.0) })
        };
        let part = |tone: Tone| BarPart { name: text(), tone, values: points.iter().map(bar).collect() };
        let parts = vec![part(Tone::Busy), part(Tone::Idle(points.first().map_or(0.0, |point| point.0)))];
        let rows = points.iter().map(|_| text()).collect();
        figures.push(Bars { title: text(), see: text(), quantity: quantity(), rows, parts, form }.figure());
    }
    let bucket = |&(from_ns, share): &(f64, f64)| Bucket { from_ns, to_ns: from_ns * 2.0, share };
    let buckets = points.iter().map(bucket).collect();
    figures.push(
        Lengths { title: text(), see: text(), of: text(), share_of: text(), series: vec![(text(), buckets)] }
            .figure(),
    );
    let cell = |&(value, _): &(f64, f64)| if value < 0.0 { Cell::Marked(text()) } else { Cell::Value(value) };
    let rows = vec![points.iter().map(cell).collect(), points.iter().rev().map(cell).collect()];
    let labels = |count: usize| Labels { name: text(), values: (0..count).map(|_| text()).collect() };
    figures.push(
        HeatMap {
            title: text(),
            see: text(),
            x: labels(points.len()),
            y: labels(2),
            quantity: quantity(),
            panels: vec![(text(), rows.clone()), (text(), rows)],
        }
        .figure(),
    );
    let panel = || Panel {
        name: text(),
        x: points.iter().map(|point| point.0).collect(),
        layers: vec![points.iter().map(|point| point.1).collect()],
    };
    figures.push(
        Areas {
            title: text(),
            see: text(),
            x: quantity(),
            y: quantity(),
            layers: vec![Layer { name: text(), tone: Tone::Busy }],
            panels: vec![panel(), panel(), panel()],
        }
        .figure(),
    );
    figures
}

/// Every coordinate lies within the view box: nothing is clipped.
fn assert_within(svg: &str) {
    let mut edges = svg.split('"').nth(1).unwrap().split(' ').skip(2).map(|n| n.parse::<f64>().unwrap());
    let (width, height) = (edges.next().unwrap(), edges.next().unwrap());
    let within =
        |value: f64, limit: f64| assert!((0.0..=limit).contains(&value), "{value} of {limit}: {svg}");
    for (name, limit) in [(" x=\"", width), (" y=\"", height), (" cx=\"", width), (" cy=\"", height)] {
        for found in svg.split(name).skip(1) {
            within(found.split('"').next().unwrap().parse().unwrap(), limit);
        }
    }
    for points in svg.split(" points=\"").skip(1) {
        for point in points.split('"').next().unwrap().split_whitespace() {
            let (x, y) = point.split_once(',').unwrap();
            within(x.parse().unwrap(), width);
            within(y.parse().unwrap(), height);
        }
    }
}

/// Opening and closing tags, without their contents.
fn tags(page: &str) -> Vec<String> {
    let tag = |piece: &str| piece.split('>').next().unwrap().split([' ', '\n']).next().unwrap().to_owned();
    page.split('<').skip(1).map(tag).collect()
}

fn units() -> impl Strategy<Value = Unit> {
    prop::sample::select(vec![
        Unit::Nanoseconds,
        Unit::Seconds,
        Unit::Watts,
        Unit::Joules,
        Unit::PerSecond,
        Unit::Share,
        Unit::Megahertz,
        Unit::Count,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_numbers_are_drawn_within_the_sheet(
        points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..14),
        near in prop::collection::vec((0.0..1e6f64, -5.0..1e3f64), 0..14),
        unit in units(),
        log in any::<bool>(),
        text in ".{0,90}",
    ) {
        for points in [points, near] {
            for figure in figures(&points, &text, unit, log) {
                let Ok(svg) = figure.drawing else { continue };
                prop_assert!(!svg.contains("\"NaN") && !svg.contains("inf\""), "{}", svg);
                assert_within(&svg);
            }
        }
    }

    #[test]
    fn no_text_changes_the_structure_of_the_page(text in ".{1,40}", tail in "[<>&'\"/ a-z=-]{0,40}") {
        let text = format!("{text}{tail}");
        prop_assert_eq!(tags(&every_figure::page_of(&text).html()), tags(&every_figure::page_of("x").html()));
    }
}
