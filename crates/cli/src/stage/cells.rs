//! A proxy's figures, as rows of cells: the page and the terminal show the same tables.

use ::proxy::Status;
use machine::Duration;

pub struct Cells {
    /// Heads of the columns, that of the names first.
    pub head: Vec<String>,
    /// Rows, each with its name first.
    pub rows: Vec<Vec<String>>,
}

/// The outcomes of the requests of each class.
pub fn classes(status: &Status) -> Cells {
    let head = ["class", "came", "answered", "late", "p50", "p99", "p99.9", "longest", "held, mean", "left"];
    let rows = status.classes.iter().map(|class| {
        let (counts, times) = (class.counts, class.latency);
        let numbers = [counts.arrived, counts.answered, counts.late].map(|count| count.to_string());
        // Without an answer there is no time, which is not a time of zero.
        let said = |time: Duration| if times.count == 0 { "-".to_owned() } else { time.to_string() };
        let times = [times.p50, times.p99, times.p999, times.max, class.held.mean].map(said);
        let all = [class.name.clone()].into_iter().chain(numbers).chain(times);
        all.chain([counts.gone.to_string()]).collect()
    });
    Cells { head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
}

/// The figures of each server's stage.
pub fn servers(status: &Status) -> Cells {
    let head = [
        "server",
        "bursts",
        "by period",
        "by deadline",
        "full",
        "gave way",
        "in time",
        "held and late",
        "failures",
    ];
    let rows = status.servers.iter().map(|server| {
        let record = server.stage;
        let numbers = [
            server.bursts,
            record.by_period,
            record.by_deadline,
            record.by_full,
            record.by_giving_way,
            record.in_time,
            record.held_and_missed,
            server.failures,
        ];
        [server.name.clone()].into_iter().chain(numbers.map(|number| number.to_string())).collect()
    });
    Cells { head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
}
