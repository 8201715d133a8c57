//! The cost of the runs, by figure, so that a slow one is seen.
//!
//! A run's cost is the time of a core that its thread used, whatever else the machine did. Runs of an
//! earlier command are counted and cost nothing here. A run that several figures show stands with the
//! first of them.

use super::runs::Runs;
use report::table::Table;
use std::collections::BTreeSet;
use std::time::Duration;
use study::grid::Planned;

/// The question that a run is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Own,
    /// Roost's own policy beside the paper's.
    Ours,
    /// An ESTIMATE is 30 % more or less.
    Varied,
    /// One of the corrections is left out.
    Undone,
}

const PARTS: [Part; 4] = [Part::Own, Part::Ours, Part::Varied, Part::Undone];

#[derive(Clone, Debug, Default)]
pub struct Cost {
    figures: Vec<Figure>,
    seen: BTreeSet<String>,
    /// Runs that were made, and those that earlier commands had made.
    made: usize,
    earlier: usize,
    /// By the clock on the wall.
    wall: Duration,
}

#[derive(Clone, Debug, Default)]
struct Figure {
    name: String,
    runs: usize,
    took: [Duration; PARTS.len()],
}

impl Cost {
    pub fn new(names: Vec<String>) -> Self {
        let figure = |name| Figure { name, ..Figure::default() };
        Self { figures: names.into_iter().map(figure).collect(), ..Self::default() }
    }

    /// Adds runs of a figure, those that were not seen before.
    pub fn add<'a>(
        &mut self,
        figure: usize,
        part: Part,
        planned: impl IntoIterator<Item = &'a Planned>,
        runs: &Runs,
    ) {
        for planned in planned {
            if self.seen.insert(planned.key.scenario.clone()) && runs.of(planned).is_some() {
                self.count(figure, part, runs.took(planned));
            }
        }
    }

    fn count(&mut self, figure: usize, part: Part, took: Option<Duration>) {
        match took {
            Some(took) => {
                let figure = &mut self.figures[figure];
                self.made += 1;
                figure.runs += 1;
                figure.took[part as usize] += took;
            }
            None => self.earlier += 1,
        }
    }

    pub fn end(&mut self, wall: Duration) {
        self.wall = wall;
    }

    /// Figures with runs that were made, the slowest first, and all together.
    pub fn text(&self) -> String {
        let mut figures: Vec<&Figure> = self.figures.iter().filter(|figure| figure.runs > 0).collect();
        figures.sort_by_key(|figure| std::cmp::Reverse(figure.all()));
        let heading = ["core-minutes", "runs", "own", "ours", "varied", "undone", "all"];
        let mut table = Table::new(1, heading.map(str::to_owned).to_vec());
        for figure in &figures {
            let parts = figure.took.iter().copied().chain([figure.all()]).map(minutes);
            table.row([figure.name.clone(), figure.runs.to_string()].into_iter().chain(parts).collect());
        }
        let all: Duration = figures.iter().map(|figure| figure.all()).sum();
        let table = if figures.is_empty() { String::new() } else { table.text() };
        let (made, earlier, wall) = (self.made, self.earlier, minutes(self.wall));
        format!(
            "{table}{made} runs in {wall} minutes by the clock and {} of cores; {earlier} of earlier \
             commands\n",
            minutes(all)
        )
    }
}

impl Figure {
    fn all(&self) -> Duration {
        self.took.iter().sum()
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_figure_stands_first_and_earlier_runs_apart() {
        let mut cost = Cost::new(["carb/1", "peafowl/7", "carb/2"].map(str::to_owned).to_vec());
        let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
        cost.count(0, Part::Own, minutes(1));
        cost.count(1, Part::Own, minutes(4));
        cost.count(1, Part::Undone, minutes(8));
        cost.count(2, Part::Own, None);
        cost.end(Duration::from_secs(390));
        let text = cost.text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["peafowl/7", "2", "4.0", "0.0", "0.0", "8.0", "12.0"], "{text}");
        assert_eq!(lines[2], ["carb/1", "1", "1.0", "0.0", "0.0", "0.0", "1.0"], "{text}");
        let last = "3 runs in 6.5 minutes by the clock and 13.0 of cores; 1 of earlier commands";
        assert_eq!(text.lines().last(), Some(last), "{text}");
        assert!(!text.contains("carb/2"), "it made no run: {text}");
    }
}
