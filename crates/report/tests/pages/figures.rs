//! The page with every kind of figure as data: whatever its texts and numbers, it reads back, and
//! no text becomes markup.

use crate::{every_figure, sample};
use proptest::prelude::*;
use report::figures::{
    Areas, Bar, BarPart, Bars, Cell, Form, HeatMap, Labels, Layer, Limit, Lines, Page, Panel, Part, Point,
    Quantity, Section, Series, Style, Tone, Unit,
};
use std::path::Path;

#[test]
fn the_page_is_kept_for_eyes() {
    // The part that a test cannot see: the pages in `target/tmp` in a browser, on a light page and
    // on a dark one.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(folder.join("every-figure.html"), every_figure::page(7).html()).unwrap();
    std::fs::write(folder.join("phases.html"), sample::run(7).page().html()).unwrap();
}

#[test]
fn equal_pages_are_equal_bytes() {
    assert_eq!(every_figure::page(7).html(), every_figure::page(7).html());
}

#[test]
fn a_page_reads_back_from_its_json() {
    for page in [sample::run(7).page(), every_figure::page_of("</script>\u{2028}\"")] {
        assert_eq!(Page::read(&page.json()).unwrap(), page);
    }
    // NaN is not equal to itself.
    let page = every_figure::page(7);
    assert!(Page::read(&page.json()).unwrap().json() == page.json());
}

/// Figures of every kind with these numbers and this text.
fn page_with(points: &[(f64, f64)], text: &str, unit: Unit) -> Page {
    let text = || text.to_owned();
    let quantity = || Quantity::new(&text(), unit).log();
    let mut parts = Vec::new();
    for style in [Style::Line, Style::Marks, Style::Steps, Style::Printed] {
        let point = |&(x, y): &(f64, f64)| Point { x, y: Some(y), spread: Some(x), spread_x: Some(y) };
        let series = Series { name: text(), style, points: points.iter().map(point).collect() };
        let limit =
            points.first().map(|&(x, y)| Limit { changes: vec![(0.5, None)], ..Limit::level(text(), x + y) });
        parts.push(
            Lines { series: vec![series], limit, ..Lines::new(&text(), &text(), quantity(), quantity()) }
                .part(),
        );
    }
    let bar = |&(value, spread): &(f64, f64)| Some(Bar { value, spread: Some(spread), printed: Some(value) });
    let tone = Tone::Idle(points.first().map_or(0.0, |point| point.0));
    let part = BarPart { name: text(), tone, values: points.iter().map(bar).collect() };
    let rows = points.iter().map(|_| text()).collect();
    let (title, see) = (text(), text());
    let form = Form::Stacked;
    parts.push(Bars { title, see, quantity: quantity(), rows, parts: vec![part], form }.part());
    let cells: Vec<Cell> = points.iter().map(|&(value, _)| Cell::Value(value)).collect();
    let labels = || Labels { name: text(), values: points.iter().map(|_| text()).collect() };
    let panels = vec![(text(), vec![cells, vec![Cell::Marked(text()), Cell::Missing]])];
    let (title, see) = (text(), text());
    parts.push(HeatMap { title, see, x: labels(), y: labels(), quantity: quantity(), panels }.part());
    let numbers = |of: fn(&(f64, f64)) -> f64| points.iter().map(|point| Some(of(point))).collect();
    let panel = Panel { name: text(), x: numbers(|point| point.0), layers: vec![numbers(|point| point.1)] };
    let layers = vec![Layer { name: text(), tone: Tone::Busy }];
    let (title, see) = (text(), text());
    parts.push(Areas { title, see, x: quantity(), y: quantity(), layers, panels: vec![panel] }.part());
    parts.push(Part::Text(text()));
    Page { sections: vec![Section { title: text(), text: text(), parts }], ..Page::default() }
}

/// Opening and closing tags, without their contents.
fn tags(page: &str) -> Vec<String> {
    let tag = |piece: &str| piece.split('>').next().unwrap().split([' ', '\n']).next().unwrap().to_owned();
    page.split('<').skip(1).map(tag).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_numbers_read_back(
        points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..14),
        unit in prop::sample::select(vec![Unit::Nanoseconds, Unit::Share, Unit::Count]),
        text in ".{0,90}",
    ) {
        let json = page_with(&points, &text, unit).json();
        prop_assert!(Page::read(&json).unwrap().json() == json);
    }

    #[test]
    fn no_text_changes_the_structure_of_the_page(text in ".{1,40}", tail in "[<>&'\"/ a-z=!{}-]{0,40}") {
        let text = format!("{text}{tail}");
        prop_assert_eq!(tags(&every_figure::page_of(&text).html()), tags(&every_figure::page_of("x").html()));
    }
}
