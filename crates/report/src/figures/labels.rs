//! Names beside marks: each where it covers nothing, or nowhere. The legend has it in any case.

use crate::drawing::axis::{LABEL_SIZE, Panel};
use crate::drawing::canvas::width_of;
use crate::drawing::sheet::WIDTH;

pub type Area = [f64; 4];

/// The area of `name` if it begins at `left` and has its middle at this height.
pub fn area(name: &str, (left, middle): (f64, f64)) -> Area {
    [left, middle - LABEL_SIZE / 2.0, left + width_of(name, LABEL_SIZE), middle + LABEL_SIZE / 2.0]
}

/// Where `name` can begin beside a mark, whose width and height `mark` has, without touching the
/// `taken` areas.
pub fn free_place(panel: &Panel<'_>, name: &str, mark: [Area; 2], taken: &[Area]) -> Option<(f64, f64)> {
    let [across, up] = mark;
    let (x, y) = ((up[0] + up[2]) / 2.0, (across[1] + across[3]) / 2.0);
    let wide = width_of(name, LABEL_SIZE);
    let (above, below) = (up[1] - LABEL_SIZE / 2.0 - 2.0, up[3] + LABEL_SIZE / 2.0 + 2.0);
    let (closely_above, closely_below) = (across[1] - LABEL_SIZE / 2.0, across[3] + LABEL_SIZE / 2.0);
    let places = [
        (across[2] + 4.0, y),
        (across[0] - 4.0 - wide, y),
        (x - wide / 2.0, above),
        (x - wide / 2.0, below),
        (up[2] + 2.0, closely_above),
        (up[2] + 2.0, closely_below),
        (up[0] - 2.0 - wide, closely_above),
        (up[0] - 2.0 - wide, closely_below),
    ];
    places.into_iter().find(|&place| {
        let covers = area(name, place);
        let inside = covers[0] >= panel.left
            && covers[2] <= f64::from(WIDTH)
            && covers[1] >= panel.top
            && covers[3] <= panel.top + panel.height;
        inside && taken.iter().all(|other| apart(other, &covers))
    })
}

fn apart(a: &Area, b: &Area) -> bool {
    a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::axis::Axis;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_name_covers_a_mark_or_another_name(
            marks in prop::collection::vec((60.0..1000.0f64, 30.0..280.0f64, 0.0..60.0f64), 1..14),
            name in "[a-z +]{1,28}",
        ) {
            let (x, y) = (Axis::rows(1, ""), Axis::rows(1, ""));
            let panel = Panel { left: 50.0, top: 20.0, width: 1000.0, height: 270.0, x: &x, y: &y };
            let covered: Vec<[Area; 2]> = marks
                .iter()
                .map(|&(x, y, reach)| {
                    [[x - 5.0 - reach, y - 5.0, x + 5.0 + reach, y + 5.0], [x - 5.0, y - 5.0 - reach, x + 5.0, y + 5.0 + reach]]
                })
                .collect();
            let mut taken: Vec<Area> = covered.iter().flatten().copied().collect();
            for mark in covered {
                if let Some(place) = free_place(&panel, &name, mark, &taken) {
                    let covers = area(&name, place);
                    prop_assert!(taken.iter().all(|other| apart(other, &covers)));
                    prop_assert!(covers[0] >= 0.0 && covers[2] <= f64::from(WIDTH));
                    taken.push(covers);
                }
            }
        }
    }
}
