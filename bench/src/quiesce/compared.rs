//! Blocks with and without, compared pair by pair.

use super::{Block, CHAIN_BAR, IDLE_BAR, NOISE, RESPONSE_BAR, Results};
use crate::table::Table;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    pub(super) load_percent: u8,
    pub(super) rounds: usize,
    /// Medians over rounds, with lowest and highest.
    pub(super) mean_ms: [Spread; 2],
    pub(super) p99_ms: [Spread; 2],
    pub(super) all_idle: [Spread; 2],
    pub(super) updater: [Spread; 2],
    /// Median over rounds of the ratio of means, with and without.
    pub(super) response_ratio: Spread,
    /// Of p50, of p99, and of responses per second.
    pub(super) p50_ratio: Spread,
    pub(super) p99_ratio: Spread,
    pub(super) throughput_ratio: Spread,
    /// The time until the trial of freezing was settled, in blocks with it, and p99 meanwhile, of
    /// that without.
    pub(super) settled_s: Spread,
    pub(super) until_settled_p99: Spread,
    /// Of the difference, in percentage points.
    pub(super) all_idle_gain: Spread,
    /// Share of the updater's work that is lost.
    pub(super) updater_lost: Spread,
    pub(super) own_share: Spread,
    /// Power with and without, less one; modelled or measured, as the results say.
    pub(super) energy_change: Option<Spread>,
    /// CPU time of others, of one CPU: the most in any block.
    pub(super) others_most: Option<f64>,
    /// It was found to pay in so many of the blocks with it.
    pub(super) pays: usize,
    pub(super) frozen: Spread,
}

/// The median, and the lowest and highest.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread(pub(super) f64, pub(super) f64, pub(super) f64);

impl Compared {
    pub(super) fn of(blocks: &[Block], load: u8) -> Option<Self> {
        let of = |quiesces: bool| -> Vec<&Block> {
            let mut blocks: Vec<&Block> = blocks
                .iter()
                .filter(|block| block.load_percent == load && block.quiesces == quiesces)
                .collect();
            blocks.sort_by_key(|block| block.round);
            blocks
        };
        let (off, on) = (of(false), of(true));
        if off.is_empty() {
            return None;
        }
        let both = |value: &dyn Fn(&Block) -> f64| {
            [&off, &on].map(|blocks| Spread::of(blocks.iter().map(|block| value(block)).collect()))
        };
        let pairs = |value: &dyn Fn(&Block, &Block) -> f64| {
            Spread::of(off.iter().zip(&on).map(|(off, on)| value(off, on)).collect())
        };
        let of_on = |value: &dyn Fn(&Block) -> f64| Spread::of(on.iter().map(|block| value(block)).collect());
        Some(Self {
            load_percent: load,
            rounds: off.len(),
            mean_ms: both(&mean),
            p99_ms: both(&|block| quantile(&block.responses_ms, 0.99)),
            all_idle: both(&|block| block.all_idle_share),
            updater: both(&|block| block.updater_share),
            response_ratio: pairs(&|off, on| mean(on) / mean(off)),
            p50_ratio: pairs(&|off, on| quantile(&on.responses_ms, 0.5) / quantile(&off.responses_ms, 0.5)),
            p99_ratio: pairs(&|off, on| quantile(&on.responses_ms, 0.99) / quantile(&off.responses_ms, 0.99)),
            throughput_ratio: pairs(&|off, on| throughput(on) / throughput(off)),
            settled_s: of_on(&|block| block.settled_s.unwrap_or(f64::NAN)),
            until_settled_p99: pairs(&|off, on| {
                quantile(&on.until_settled_ms, 0.99) / quantile(&off.responses_ms, 0.99)
            }),
            all_idle_gain: pairs(&|off, on| (on.all_idle_share - off.all_idle_share) * 100.0),
            updater_lost: pairs(&|off, on| 1.0 - on.updater_share / off.updater_share),
            own_share: of_on(&|block| block.own_share),
            energy_change: off
                .iter()
                .zip(&on)
                .map(|(off, on)| Some(on.watts? / off.watts? - 1.0))
                .collect::<Option<Vec<f64>>>()
                .map(Spread::of),
            others_most: off.iter().chain(&on).filter_map(|block| block.others_share).max_by(f64::total_cmp),
            pays: on.iter().filter(|block| block.pays == Some(true)).count(),
            frozen: of_on(&|block| block.frozen_share),
        })
    }
}

impl Compared {
    /// Critical work is as it is without, to within the bar of the chain.
    pub(super) fn is_unharmed(&self) -> bool {
        self.p50_ratio.0 <= 1.0 + CHAIN_BAR
            && self.p99_ratio.0 <= 1.0 + CHAIN_BAR
            && self.throughput_ratio.0 >= 1.0 - CHAIN_BAR
    }
}

fn throughput(block: &Block) -> f64 {
    // Of whole ones: where a block begins and ends is chance.
    block.responses_ms.len() as f64 / block.span_s
}

fn mean(block: &Block) -> f64 {
    block.responses_ms.iter().sum::<f64>() / block.responses_ms.len() as f64
}

fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.first().copied(), values.last().copied());
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => f64::NAN,
            length if length % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Self(median, low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN))
    }

    fn text(self, factor: f64, digits: usize) -> String {
        let Self(median, low, high) = self;
        format!("{:.digits$} ({:.digits$}..{:.digits$})", median * factor, low * factor, high * factor)
    }
}

pub(super) fn table(results: &Results) -> String {
    let head = [
        "updater",
        "rounds",
        "",
        "response ms",
        "p99 ms",
        "all idle %",
        "updater %",
        "frozen %",
        "own CPU %",
        "power %",
    ];
    let mut table = Table::new(3, head.map(str::to_owned).to_vec());
    for compared in &results.compared {
        for (at, word) in ["without", "with"].into_iter().enumerate() {
            let is_on = at == 1;
            let load = format!("{} %", compared.load_percent);
            table.row(vec![
                if is_on { String::new() } else { load },
                if is_on { String::new() } else { compared.rounds.to_string() },
                word.to_owned(),
                compared.mean_ms[at].text(1.0, 2),
                compared.p99_ms[at].text(1.0, 2),
                compared.all_idle[at].text(100.0, 1),
                compared.updater[at].text(100.0, 1),
                if is_on { compared.frozen.text(100.0, 1) } else { String::new() },
                if is_on { compared.own_share.text(100.0, 2) } else { String::new() },
                String::new(),
            ]);
        }
        table.row(vec![
            String::new(),
            String::new(),
            "change".to_owned(),
            format!("x {}", compared.response_ratio.text(1.0, 4)),
            String::new(),
            format!("+{} pp", compared.all_idle_gain.text(1.0, 1)),
            format!("-{} %", compared.updater_lost.text(100.0, 0)),
            format!("pays in {} of {}", compared.pays, compared.rounds),
            String::new(),
            compared.energy_change.map_or(String::new(), |change| change.text(100.0, 1)),
        ]);
    }
    let mut text = format!("load before: {}; median (lowest..highest) over rounds\n", results.load_before);
    text += &table.text();
    text += &format!(
        "power is {}; the paper, measured on a phone: 6 % less energy, no visible slowdown\n",
        results.energy
    );
    let word = |met: bool| if met { "met" } else { "MISSED" };
    if results.is_chain {
        for compared in &results.compared {
            text += &chain(compared);
        }
        return text;
    }
    for (number, compared) in results.compared.iter().enumerate() {
        let (response, idle) = (compared.response_ratio.0, compared.all_idle_gain.0);
        // At the other loads the bar is that no process is worse off.
        let bar = if number == 0 { IDLE_BAR } else { -NOISE };
        text += &format!(
            "at {} %: responses x {response:.4}, bar {RESPONSE_BAR}: {}; all idle {idle:+.1} \
             percentage points, bar {bar:+}: {}\n",
            compared.load_percent,
            word(response <= RESPONSE_BAR),
            word(idle >= bar)
        );
    }
    text
}

fn chain(compared: &Compared) -> String {
    format!(
        "at {} %: pays in {} of {}, settled after {} s, p99 until then x {}; after it p50 x {}, \
         p99 x {}, throughput x {}, bar {CHAIN_BAR}: {}\n",
        compared.load_percent,
        compared.pays,
        compared.rounds,
        compared.settled_s.text(1.0, 1),
        compared.until_settled_p99.text(1.0, 2),
        compared.p50_ratio.text(1.0, 4),
        compared.p99_ratio.text(1.0, 4),
        compared.throughput_ratio.text(1.0, 4),
        if compared.is_unharmed() { "met" } else { "MISSED" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(round: u32, quiesces: bool, response_ms: f64, idle: f64, updater: f64) -> Block {
        Block {
            load_percent: 30,
            round,
            quiesces,
            seconds: 1.0,
            responses_ms: vec![response_ms; 4],
            span_s: 0.4,
            all_idle_share: idle,
            all_idle_per_s: 1.0,
            updater_share: updater,
            own_share: 0.001,
            frozen_share: 0.7,
            freezes: 3,
            cost_us: 30.0,
            others_share: Some(0.01),
            watts: Some(if quiesces { 9.0 } else { 10.0 }),
            pays: quiesces.then_some(true),
            is_trying: false,
            why: None,
            settled_s: quiesces.then_some(9.0),
            until_settled_ms: vec![response_ms * 2.0; 4],
        }
    }

    #[test]
    fn rounds_are_compared_pair_by_pair_whatever_their_order() {
        let blocks = [
            block(0, false, 100.0, 0.5, 0.3),
            block(0, true, 101.0, 0.7, 0.1),
            block(1, true, 202.0, 0.9, 0.15),
            block(1, false, 200.0, 0.6, 0.3),
        ];
        let compared = Compared::of(&blocks, 30).unwrap();
        assert!((compared.response_ratio.0 - 1.01).abs() < 1e-9);
        assert!(
            (compared.all_idle_gain.0 - 25.0).abs() < 1e-9 && (compared.all_idle_gain.2 - 30.0).abs() < 1e-9
        );
        assert!((compared.updater_lost.1 - 0.5).abs() < 1e-9);
        assert!((compared.energy_change.unwrap().0 + 0.1).abs() < 1e-9 && compared.pays == 2);
        assert!(Compared::of(&blocks, 40).is_none());
    }

    #[test]
    fn the_chain_is_unharmed_only_if_all_three_are_within_the_bar() {
        let with = |response_ms: f64, count: usize, slow_ms: f64| {
            let mut on = block(0, true, response_ms, 0.5, 0.3);
            on.responses_ms = vec![response_ms; count];
            on.responses_ms.push(slow_ms);
            Compared::of(&[block(0, false, 100.0, 0.5, 0.3), on], 30).unwrap()
        };
        assert!(with(101.0, 3, 101.0).is_unharmed());
        assert!(!with(103.0, 3, 103.0).is_unharmed(), "p50");
        assert!(!with(100.0, 3, 110.0).is_unharmed(), "p99");
        assert!(!with(100.0, 2, 100.0).is_unharmed(), "throughput");
        assert!((with(100.0, 3, 100.0).until_settled_p99.0 - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_spread_is_median_lowest_and_highest() {
        let Spread(median, low, high) = Spread::of(vec![3.0, 1.0, 2.0, 10.0]);
        assert_eq!((median, low, high), (2.5, 1.0, 10.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.99), 4.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
    }
}
