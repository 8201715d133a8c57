//! The page of a run: bars, tables, and the CPU sleeps paper's figures 1 and 2 beside ours.
//!
//! The paper's curves are not in its text. It prints two points of figure 1, and the range of the
//! kernels' lengths in figure 2. These are drawn, and marked as the paper's, of its machine.

use super::verdict::{PartVerdict, gap};
use super::{Block, Means, Part, Way};
use crate::harness::Header;
use crate::harness::figure::{Row as Figure, number};
use report::figures::{
    Basis, Card, Lines, Page, Part as Piece, Point, Quantity, Row, Section, Series, Style, Table, Unit,
};

const METHOD: [&str; 4] = [
    "Three ways take turns in blocks: stock (the machine as it is), anticipatory (events are \
     announced or foreseen), always awake (the CPUs may not halt). A \
     figure is the median of its blocks' own.",
    "Gap closed is (stock - anticipatory) / (stock - always awake). A latency is from the moment \
     at which something woke the waiting thread until that thread read the \
     clock; a read's is that of the whole read.",
    "Time awake is all time less the CPU's halted time, from the kernel's cpu_idle events; the \
     needed time is the calibrated p99 of waking and the time that the stock \
     blocks were awake for, which is the event's own work.",
    "Repeated runs are a thread's that stands in for a device; the oracle knows the law of their \
     lengths and not the next draw. Disk reads are foreseen from the \
     kernel's events: the program that reads says nothing.",
];

/// The paper's figure 1, as its text tells it: the gap before a read, and how much slower it is
/// than with all sleeps disabled.
const PAPER_GAP_S: f64 = 1e-3;
const PAPER_SLOWDOWN: [(&str, f64); 2] = [("stock", 1.01), ("anticipatory", 0.37)];

/// The paper's figure 2: a kernel's middle and how far most are off, in us.
const PAPER_K_MEANS: (f64, f64) = (540.0, 25.0);
const PAPER_STREAM_CLUSTER: (f64, f64) = (500.0, 50.0);

pub fn page(
    header: &Header,
    means: &Means,
    rows: &[Figure],
    measured: &[PartVerdict],
    blocks: &[Block],
) -> Page {
    let mut sections = vec![results(measured)];
    sections.extend(measured.iter().filter_map(slowdown));
    let lengths: Vec<Piece> = measured.iter().filter_map(|part| lengths(part, blocks)).collect();
    if !lengths.is_empty() {
        sections.push(Section {
            title: "Repeated runs, and the paper's figure 2".to_owned(),
            text: "A thread of ours stands in for the device and draws its lengths from the law \
                   that the paper's text tells, with outliers and a drift; so \
                   that they lie where the paper's do shows only that the law is the paper's. The \
                   measured accuracy of the predictions is below."
                .to_owned(),
            parts: lengths,
        });
        sections.push(foreseen(measured));
    }
    let mut page = Page {
        name: format!("bench-wake-{}", header.started.replace(" UTC", "").replace([' ', ':'], "-")),
        title: "CPUs woken just before the event: what it wins back, and what it costs".to_owned(),
        summary: format!(
            "CPUs were woken by {} and kept awake by {}; a {} build; load before {}. All latencies \
             and times are measured.",
            means.alarm, means.act, header.build, header.load_before
        ),
        facts: vec![header.started.clone(), format!("Roost {}", env!("CARGO_PKG_VERSION"))],
        notes: METHOD.map(str::to_owned).to_vec(),
        basis: Some(Basis::Measured),
        command: crate::run_folder::command(),
        cards: cards(rows),
        sections,
        sources: vec![(
            "the paper's figures".to_owned(),
            vec![
                "CPU sleeps (HotOS), section 2: two sockets of Intel E5-2620 v3, Samsung 850 PRO, \
                  Linux 3.12.13; of GPUs it names the AMD A10-6800K"
                    .to_owned(),
            ],
        )],
        folded: vec![("What waking took when the planner started".to_owned(), means.calibration.text())],
        ..Page::default()
    };
    page.facts.extend(header.machine.cpu_model.clone());
    page
}

fn cards(rows: &[Figure]) -> Vec<Card> {
    let card = |row: &Figure| {
        let interval = row.interval.map(|(low, high)| format!("{} to {}, ", number(low), number(high)));
        Some(Card {
            what: format!("{}: {}", row.case, row.metric.replace('_', " ")),
            figure: format!("{} {}", number(row.value?), row.unit).trim_end().to_owned(),
            remark: format!("{}{}", interval.unwrap_or_default(), row.target.as_ref()?),
            met: row.met,
        })
    };
    rows.iter().filter_map(card).collect()
}

fn name(part: Part) -> &'static str {
    match part {
        Part::Cross => "woken by another CPU after 10 ms",
        Part::Jitter => "the same, announced with \u{b1}20 %, one in ten never coming",
        Part::PingPong => "ping-pong over the loopback",
        Part::KMeans => "runs like K-means'",
        Part::StreamCluster => "runs like StreamCluster's",
        Part::Bystander => "a program that asks for nothing",
        Part::Disk => "4 KB reads past the page cache",
    }
}

/// Of the three ways, in microseconds; and further remarks.
type Cells = ([f64; 3], Option<String>);

fn results(measured: &[PartVerdict]) -> Section {
    let table = |title: &str, last: Option<&str>, cells: &dyn Fn(&PartVerdict) -> Cells| {
        let row = |part: &PartVerdict| {
            let (of_ways, last) = cells(part);
            let times = of_ways.map(|us| Unit::Seconds.text(us / 1e6));
            let cells = times.into_iter().chain(last).collect();
            Row { name: name(part.part).to_owned(), cells, ..Row::default() }
        };
        let head = ["", "stock", "anticipatory", "always awake"].into_iter().chain(last);
        Piece::Table(Table {
            title: title.to_owned(),
            head: head.map(str::to_owned).collect(),
            rows: measured.iter().map(row).collect(),
        })
    };
    let gap_head = Some("between stock and always awake");
    Section {
        title: "What came of it".to_owned(),
        text: String::new(),
        parts: vec![
            table("Latency, p50", gap_head, &|part| (part.p50_us, Some(gap(part.gap_closed_p50)))),
            table("Latency, p99", gap_head, &|part| (part.p99_us, Some(gap(part.gap_closed_p99)))),
            table("Time awake for each event", None, &|part| (part.awake_us, None)),
        ],
    }
}

/// The paper's figure 1.
fn slowdown(part: &PartVerdict) -> Option<Section> {
    let by_gap = part.slowdown_by_gap?;
    let mut lines = Lines::new(
        "Reads of 4 KB, slower than with CPUs that never sleep",
        "Lines: measured here, at the middle of each range of gaps. Empty marks: the two figures \
         that the paper's text has at 1 ms, of its own disk and machine; \
         its curve is not in the text. How much there is to lose depends on what waking costs \
         beside the read.",
        Quantity::new("idle time before the read", Unit::Seconds).log(),
        Quantity::new("slower than always awake", Unit::Share),
    );
    for (nth, (name, paper)) in PAPER_SLOWDOWN.into_iter().enumerate() {
        // Half decades from 0.1 ms on; their middles, on a logarithmic scale.
        let middle = |place: usize| 1e-4 * 10_f64.powf(0.25 + 0.5 * place as f64);
        let points =
            by_gap.iter().enumerate().map(|(place, both)| Point::new(middle(place), Some(both[nth])));
        lines.series.push(Series { name: name.to_owned(), style: Style::Line, points: points.collect() });
        let printed = vec![Point::new(PAPER_GAP_S, Some(paper))];
        lines.series.push(Series { name: name.to_owned(), style: Style::Printed, points: printed });
    }
    Some(Section {
        title: "Disk reads, and the paper's figure 1".to_owned(),
        text: String::new(),
        parts: vec![lines.part()],
    })
}

/// The paper's figure 2.
fn lengths(part: &PartVerdict, blocks: &[Block]) -> Option<Piece> {
    let (title, (middle, off)) = match part.part {
        Part::KMeans => ("K-means: how long each run took", PAPER_K_MEANS),
        Part::StreamCluster => ("StreamCluster: how long each run took", PAPER_STREAM_CLUSTER),
        _ => return None,
    };
    let ours = blocks.iter().find(|block| {
        (block.part, block.way) == (part.part, Way::Anticipatory) && !block.lengths_us.is_empty()
    })?;
    let mut lines = Lines::new(
        title,
        &format!(
            "Marks: the first anticipatory block here. Band: where the paper's text has its \
             kernels, {middle} us \u{b1}{off}, but for a few."
        ),
        Quantity::new("run", Unit::Count),
        Quantity::new("length", Unit::Seconds),
    );
    let points = ours.lengths_us.iter().enumerate().map(|(nth, us)| Point::new(nth as f64, Some(us / 1e6)));
    let here = Series { name: "here, a stand-in".to_owned(), style: Style::Marks, points: points.collect() };
    let at = |x: usize| Point { spread: Some(off / 1e6), ..Point::new(x as f64, Some(middle / 1e6)) };
    let paper = vec![at(0), at(ours.lengths_us.len())];
    lines.series.extend([
        here,
        Series { name: "the paper's GPU kernels".to_owned(), style: Style::Line, points: paper },
    ]);
    Some(lines.part())
}

/// The predictions and gains, beside the paper's.
fn foreseen(measured: &[PartVerdict]) -> Section {
    let share = |count: u64, of: u64| format!("{:.1} %", 100.0 * count as f64 / of.max(1) as f64);
    let row = |part: &PartVerdict| {
        let predicted = part.predicted.filter(|predicted| predicted.runs > 0)?;
        let [stock, ours, _] = part.run_us?;
        let [_, awake, always] = part.awake_us;
        Some(Row {
            name: name(part.part).to_owned(),
            cells: vec![
                share(predicted.within_tenth, predicted.predicted),
                share(predicted.oracle_within_tenth, predicted.runs),
                share(predicted.in_window, predicted.predicted),
                format!("{:+.1} %", 100.0 * (stock / ours - 1.0)),
                format!("{:.0} % less time awake", 100.0 * (1.0 - awake / always)),
            ],
            ..Row::default()
        })
    };
    let mut rows: Vec<Row> = measured.iter().filter_map(row).collect();
    rows.push(Row {
        name: "the paper's, on a GPU".to_owned(),
        remark: "CPU sleeps, section 2: power is measured there, and time awake here".to_owned(),
        cells: ["about 87 %", "-", "-", "about +10 %", "about 56 % less power than busy-waiting"]
            .map(str::to_owned)
            .to_vec(),
        ..Row::default()
    });
    let head = [
        "",
        "predicted within a tenth",
        "the oracle",
        "in the window",
        "speed against stock",
        "beside always awake",
    ];
    Section {
        title: "How well they were predicted, and what that won".to_owned(),
        text: String::new(),
        parts: vec![Piece::Table(Table {
            title: String::new(),
            head: head.map(str::to_owned).to_vec(),
            rows,
        })],
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GAPS, Predicted};
    use super::*;
    use daemon::wake::{Act, Alarm, Calibration};
    use machine::CpuId;

    fn block(part: Part, way: Way, us: f64) -> Block {
        let kernel = part == Part::KMeans;
        let ours = way == Way::Anticipatory;
        Block {
            part,
            way,
            events: 3,
            p50_us: us,
            p99_us: 2.0 * us,
            mean_us: us,
            awake_us: us,
            other_awake_us: us,
            predicted: (kernel && ours).then_some(Predicted {
                predicted: 200,
                within_tenth: 190,
                in_window: 180,
                oracle_within_tenth: 199,
                runs: 200,
            }),
            by_gap_us: (part == Part::Disk).then_some([us; GAPS]),
            run_us: kernel.then_some(540.0 + us),
            lengths_us: if kernel && ours { vec![541.0, 539.5, 612.0] } else { Vec::new() },
        }
    }

    #[test]
    fn the_papers_figures_stand_beside_ours_and_are_said_to_be_the_papers() {
        let ways = [(Way::Stock, 60.0), (Way::Anticipatory, 10.0), (Way::Always, 5.0)];
        let parts = [Part::Cross, Part::KMeans, Part::Disk];
        let blocks: Vec<Block> =
            parts.iter().flat_map(|&part| ways.map(|(way, us)| block(part, way, us))).collect();
        let means = Means { calibration: Calibration::default(), act: Act::Polling, alarm: Alarm::Thread };
        let measured = PartVerdict::all(&blocks, &means.calibration, CpuId(1));
        let page = page(&Header::now("wake", 1).unwrap(), &means, &[], &measured, &blocks);
        let json = page.json();
        for words in [
            "gap closed 91 %",
            "polling (pm_qos)",
            "Samsung 850 PRO",
            // Figure 2.
            "here, a stand-in",
            "540 us \u{b1}25",
            "95.0 %",
            "about 87 %",
            // 600 against 550 us.
            "+9.1 %",
        ] {
            assert!(json.contains(words), "{words}: {json}");
        }
        // Figure 1: stock reads here are twelve times as slow as awake ones, and the paper's twice.
        let parts = page.sections.iter().flat_map(|section| &section.parts);
        let drawn: Vec<String> = parts
            .filter_map(|part| if let Piece::Lines(lines) = part { Some(lines) } else { None })
            .flat_map(|lines| lines.series.iter().flat_map(|series| &series.points))
            .filter_map(|point| point.y.map(|y| Unit::Share.text(y)))
            .collect();
        for share in ["1100 %", "101 %", "37.0 %"] {
            assert!(drawn.iter().any(|text| text == share), "{share}: {drawn:?}");
        }
    }
}
