//! The table that a terminal shows.

use super::GAP_NAMES;
use super::verdict::{BOOKS_BAR, BYSTANDER_BAR, Verdict};
use std::fmt::Write as _;

impl Verdict {
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let [stock, ours, always] = part.p50_us;
            let [stock_tail, our_tail, always_tail] = part.p99_us;
            let _ = writeln!(
                text,
                "{:?}, {} rounds (medians; stock, anticipatory, always awake)",
                part.part, part.rounds
            );
            let _ = writeln!(
                text,
                "  p50   {stock:8.1} {ours:8.1} {always:8.1} us   {}",
                gap(part.gap_closed_p50)
            );
            let _ = writeln!(
                text,
                "  p99   {stock_tail:8.1} {our_tail:8.1} {always_tail:8.1} us   {}",
                gap(part.gap_closed_p99)
            );
            let [stock, ours, always] = part.awake_us;
            let _ = writeln!(text, "  awake {stock:8.1} {ours:8.1} {always:8.1} us an event");
            if let Some(predicted) = part.predicted {
                let share = |count: u64, of: u64| 100.0 * count as f64 / of.max(1) as f64;
                let _ = writeln!(
                    text,
                    "  predicted within a tenth {:.1} % of {}, in the window {:.1} %{}",
                    share(predicted.within_tenth, predicted.predicted),
                    predicted.predicted,
                    share(predicted.in_window, predicted.predicted),
                    if predicted.runs == 0 {
                        " (by the kernel's events; the program says nothing)".to_owned()
                    } else {
                        let oracle = share(predicted.oracle_within_tenth, predicted.runs);
                        format!("; the oracle {oracle:.1} % (a thread stands in for the device)")
                    }
                );
            }
            if let Some([stock, ours, _]) = part.run_us {
                let _ = writeln!(
                    text,
                    "  a run and its wake-up {stock:.1} us stock, {ours:.1} us anticipatory: \
                     {:+.1} % speed (the paper's: about +10 %)",
                    100.0 * (stock / ours - 1.0)
                );
            }
            if let Some(slowdown) = part.slowdown_by_gap {
                for (gap, [stock, ours]) in GAP_NAMES.iter().zip(slowdown) {
                    let _ = writeln!(
                        text,
                        "  after {gap:10} slower than always awake by {:4.0} % stock, {:4.0} % ours",
                        100.0 * stock,
                        100.0 * ours
                    );
                }
                let _ = writeln!(
                    text,
                    "  the paper, its own disk and kernel: by 101 % stock, 37 % anticipatory at 1 \
                     ms (its figure 1)"
                );
            }
            for (bar, met) in &part.bars {
                let _ = writeln!(text, "  {bar}: {}", if *met { "met" } else { "MISSED" });
            }
        }
        if let Some((mean, (low, high))) = self.bystander {
            let met = if high <= BYSTANDER_BAR { "met" } else { "MISSED" };
            let _ = writeln!(
                text,
                "bystander: {mean:.4}x, {low:.4} to {high:.4} ({} pairs of blocks); upper 95 % end \
                 <= {BYSTANDER_BAR}x: {met}",
                self.pairs
            );
        }
        if let Some(books) = self.books {
            let met = if books.percent <= BOOKS_BAR { "met" } else { "MISSED" };
            let _ = writeln!(
                text,
                "accounts against cpuidle: {:.3} % of all time apart (independent: {}); <= \
                 {BOOKS_BAR} %: {met}",
                books.percent, books.is_independent
            );
        }
        text
    }
}

pub(super) fn gap(closed: Option<f64>) -> String {
    closed.map_or("no gap to close".to_owned(), |closed| format!("gap closed {:.0} %", 100.0 * closed))
}
