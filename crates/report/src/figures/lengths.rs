//! Where time goes, by the length of periods: the share of all time that is spent in periods of
//! each length.
//!
//! Weighted by time, not counted: ten thousand sleeps of 10 us save nothing, one of 100 ms does,
//! and a count would show the former. This is the form of Figure 7 of the Tradeoffs paper.

use super::{Lines, Part, Point, Quantity, Series, Style, Unit};

/// Shares of time by length, for several contestants.
#[derive(Clone, Debug, PartialEq)]
pub struct Lengths {
    pub title: String,
    pub see: String,
    pub of: String,
    /// The whole of the shares: `all CPU time`.
    pub share_of: String,
    pub series: Vec<(String, Vec<Bucket>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// From this length on, in nanoseconds.
    pub from_ns: f64,
    pub to_ns: f64,
    /// Share of time spent in them.
    pub share: f64,
}

impl Bucket {
    fn is_known(&self) -> bool {
        self.share.is_finite() && self.from_ns > 0.0 && self.to_ns > self.from_ns && self.to_ns.is_finite()
    }
}

impl Lengths {
    /// As steps over a logarithmic axis.
    pub fn part(&self) -> Part {
        let x = Quantity::new(&format!("length of the {}", self.of), Unit::Nanoseconds).log();
        let y = Quantity::new(&format!("share of {}", self.share_of), Unit::Share);
        let series = self.series.iter().map(|(name, buckets)| Series {
            name: name.clone(),
            style: Style::Steps,
            points: outline(buckets),
        });
        Lines { series: series.collect(), ..Lines::new(&self.title, &self.see, x, y) }.into()
    }
}

/// Less than this share of the time is less than a line is thick.
const SEEN: f64 = 1e-4;

/// From the ground up to the first share, from step to step, and down again.
fn outline(buckets: &[Bucket]) -> Vec<Point> {
    let known = || buckets.iter().filter(|bucket| bucket.is_known());
    let used = |bucket: &&Bucket| bucket.share > SEEN;
    let (Some(first), Some(last)) = (known().find(used), known().rfind(used)) else { return Vec::new() };
    let within = known().filter(|bucket| bucket.from_ns >= first.from_ns && bucket.to_ns <= last.to_ns);
    let ground = |x: f64| Point::new(x, Some(0.0));
    let mut points = vec![ground(first.from_ns)];
    let mut reached = first.from_ns;
    for bucket in within {
        if bucket.from_ns > reached {
            points.push(ground(reached));
        }
        points.push(Point::new(bucket.from_ns, Some(bucket.share)));
        reached = bucket.to_ns;
    }
    points.push(ground(reached));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from_ns: f64, to_ns: f64, share: f64) -> Bucket {
        Bucket { from_ns, to_ns, share }
    }

    #[test]
    fn the_outline_begins_and_ends_on_the_ground_and_skips_what_is_empty_outside() {
        let buckets = [
            bucket(1.0, 2.0, 0.0),
            bucket(2.0, 4.0, 0.1),
            bucket(4.0, 8.0, 0.0),
            bucket(16.0, 32.0, 0.3),
            bucket(32.0, 64.0, 0.0),
            bucket(64.0, 128.0, f64::NAN),
        ];
        let points: Vec<(f64, f64)> =
            outline(&buckets).iter().map(|point| (point.x, point.y.unwrap())).collect();
        assert_eq!(points, [(2.0, 0.0), (2.0, 0.1), (4.0, 0.0), (8.0, 0.0), (16.0, 0.3), (32.0, 0.0)]);
    }

    #[test]
    fn nothing_known_is_no_point() {
        let lengths = Lengths {
            title: "t".into(),
            see: String::new(),
            of: "idle period".into(),
            share_of: "all CPU time".into(),
            series: vec![("menu".into(), vec![bucket(1.0, 2.0, 0.0)])],
        };
        let Part::Lines(lines) = lengths.part() else { panic!("steps are lines") };
        assert!(lines.series[0].points.is_empty());
    }
}
