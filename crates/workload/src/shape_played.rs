//! How much of a load's shape a run plays.
//!
//! A shape has times of its own: a day, ninety minutes. A run that is shorter plays its beginning,
//! which may be a level line; nothing about the figures would tell.

use crate::Shape;
use machine::Duration;

/// A run that ends before its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Short {
    run: Duration,
    shape: Duration,
    /// By which the whole shape is played in this run.
    compression: f64,
}

/// The remark on a run of this length, if there is one.
pub fn short(shape: &Shape, run: Duration, compression: f64) -> Option<Short> {
    let whole = shape.length(compression).filter(|&whole| whole > run && !run.is_zero())?;
    let factor = whole.as_secs_f64() / run.as_secs_f64();
    // A level line is the same however long it is played, and so is a shape that repeats within the
    // run.
    Some(Short { run, shape: whole, compression: compression * factor })
}

impl Short {
    /// In words; `key` is how the compression is asked for.
    pub fn text(&self, key: &str) -> String {
        let share = 100.0 * self.run.as_secs_f64() / self.shape.as_secs_f64();
        let digits = match share {
            1.0.. => 0,
            0.01.. => 2,
            _ => 5,
        };
        // Rounded up, so that all of it is played.
        let compression = (self.compression * 1000.0 - 1e-6).ceil() / 1000.0;
        format!(
            "the first {share:.digits$} % of the shape is played: it takes {}, the run {}; \
             {key}{compression} plays all of it",
            self.shape, self.run
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_shorter_than_its_shape_says_how_much_it_plays_and_what_plays_all() {
        let day: Shape = "diurnal:1000..9000".parse().unwrap();
        let minute = Duration::from_secs(60);
        let text = short(&day, minute, 1.0).unwrap().text("--compress ");
        assert!(text.contains("0.07 %") && text.contains("--compress 1440 plays all"), "{text}");
        assert_eq!(short(&day, minute, 1440.0), None);
        let text = short(&day, minute, 144.0).unwrap().text("--compress ");
        assert!(text.contains("10 %") && text.contains("--compress 1440 "), "{text}");
        assert_eq!(short(&"ramp:1k..2k".parse().unwrap(), minute, 1.0), None, "it stretches over any run");
        assert_eq!(short(&Shape::constant(), minute, 1.0), None);
    }
}
