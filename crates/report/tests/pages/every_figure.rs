//! A page with every kind of figure, and with the hard cases: gaps, one point, no point, twelve
//! contestants, long names, values that are no numbers.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use report::figures::{
    Areas, Bar, BarPart, Bars, Basis, Bucket, Card, Cell, Form, HeatMap, Labels, Layer, Lengths, Limit,
    Lines, Page, Panel, Part, Point, Quantity, Row, Section, Series, Style, Table, Tone, Unit,
};

pub fn page(seed: u64) -> Page {
    let mut random = StdRng::seed_from_u64(seed);
    Page {
        name: "sim-memcached-2026-11-20-20-15-00".into(),
        title: "memcached on two sockets: what each policy would do".into(),
        summary: "Peafowl with TEO and Pegasus uses the least power that keeps the goal: 38.2 W at a p99 \
                  of 182 us, 31 % less than menu."
            .into(),
        facts: ["2026-11-20 20:15:00 UTC", "Roost 0.1.0", "seed 1", "modelled, not measured"]
            .map(str::to_owned)
            .to_vec(),
        alarms: vec!["At 900k requests/s `deep` is unstable: more comes than it can do.".into()],
        cards: cards(),
        sections: vec![
            section("Lines", lines(&mut random)),
            section("Marks", marks(&mut random)),
            section("Bars", bars()),
            section("Lengths", vec![lengths(5), lengths(1)]),
            section("Layers", vec![areas(5), areas(1)]),
            section("Heat maps", heat_maps()),
            section("Nothing", vec![over_time(&mut random, 0, "no contestant")]),
            Section {
                title: "Table".into(),
                parts: vec![Part::Table(table()), Part::Text("A remark.".into())],
                ..Section::default()
            },
        ],
        assumptions: vec!["one queue per worker".into()],
        estimates: vec!["carb.service.mean = 30 us".into()],
        notes: vec!["Intervals are 95 % confidence intervals.".into()],
        sources: vec![(
            "xeon-silver-4116".into(),
            vec!["C6: Peafowl, Figure 8".into(), "uncore: ESTIMATE".into()],
        )],
        folded: vec![("Scenario in force".into(), "[machine]\npreset = \"xeon-silver-4116\"\n".into())],
        basis: Some(Basis::Modelled),
        command: ["roost", "sim", "run", "x.toml", "--policy", "carb + teo"].map(str::to_owned).to_vec(),
    }
}

/// So many figures are on the page.
pub const FIGURES: usize = 23;
/// So many of them have nothing to draw.
pub const EMPTY: usize = 2;

/// A page with `text` wherever one may stand.
pub fn page_of(text: &str) -> Page {
    let text = || text.to_owned();
    let quantity = || Quantity::new(&text(), Unit::Watts);
    let mut lines = Lines::new(&text(), &text(), quantity(), quantity());
    lines.limit = Some(Limit::level(text(), 2.0));
    let points = vec![Point::new(1.0, Some(2.0)), Point::new(2.0, Some(3.0))];
    lines.series = vec![
        Series { name: text(), style: Style::Line, points: points.clone() },
        Series { name: text(), style: Style::Printed, points },
    ];
    let part = BarPart { name: text(), tone: Tone::Busy, values: vec![Some(Bar::new(1.0))] };
    let bars = Bars {
        title: text(),
        see: text(),
        quantity: quantity(),
        rows: vec![text()],
        parts: vec![part.clone(), part],
        form: Form::Grouped,
    };
    let nothing = Lines::new(&text(), &text(), quantity(), quantity());
    let row = Row { name: text(), remark: text(), cells: vec![text()], look: Some(1) };
    let table = Table { title: text(), head: vec![text(), text()], rows: vec![row] };
    let figures = [lines.part(), bars.part(), nothing.part()];
    Page {
        name: text(),
        title: text(),
        summary: text(),
        facts: vec![text(), text()],
        alarms: vec![text()],
        cards: vec![Card { what: text(), figure: text(), remark: text(), met: Some(true) }],
        sections: vec![Section {
            title: text(),
            text: text(),
            parts: figures.into_iter().chain([Part::Table(table), Part::Text(text())]).collect(),
        }],
        assumptions: vec![text()],
        estimates: vec![text()],
        notes: vec![text()],
        sources: vec![(text(), vec![text()])],
        folded: vec![(text(), text())],
        command: vec![text(), text()],
        basis: Some(Basis::Measured),
    }
}

const NAMES: [&str; 12] = [
    "menu",
    "teo",
    "shallow",
    "peafowl + teo + pegasus",
    "poll",
    "carb + menu + sensitivity + staged, with a name far too long",
    "rubik",
    "udpm",
    "dynsleep",
    "powernap",
    "hurry-up",
    "joint",
];

fn section(title: &str, figures: Vec<Part>) -> Section {
    let text = "Bands and bars are 95 % confidence intervals.".to_owned();
    Section { title: title.into(), text, parts: figures }
}

fn cards() -> Vec<Card> {
    let card = |what: &str, figure: &str, remark: &str, met| Card {
        what: what.into(),
        figure: figure.into(),
        remark: remark.into(),
        met,
    };
    vec![
        card("least power that keeps the goal", "38.2 W", "peafowl + teo + pegasus", Some(true)),
        card("dynamic p95", "-11 %", "the paper: -26 %", Some(false)),
        card("requests simulated", "12,000,000", "in 5 runs", None),
    ]
}

fn over_time(random: &mut StdRng, count: usize, title: &str) -> Part {
    let y = Quantity::new("power of cores and uncore", Unit::Watts);
    let mut lines =
        Lines::new(title, "A gap is a stretch without requests.", Quantity::new("time", Unit::Seconds), y);
    for (place, name) in NAMES.iter().take(count).enumerate() {
        let mut level = 40.0 + 4.0 * place as f64;
        let points = (0..256).map(|n| {
            level += random.random_range(-1.5..1.5);
            let gap = (100..110).contains(&n) && place == 1;
            Point::new(f64::from(n) * 0.04, (!gap).then_some(level.max(1.0)))
        });
        lines.series.push(Series { name: (*name).into(), style: Style::Line, points: points.collect() });
    }
    lines.part()
}

fn swept(random: &mut StdRng, count: usize, x: Quantity, title: &str) -> Part {
    let y = Quantity::new("p99", Unit::Nanoseconds).log();
    let mut lines = Lines::new(title, "Where a line ends, the queue is unstable.", x, y);
    lines.limit = Some(Limit::level("goal: 300 us", 300e3));
    for (place, name) in NAMES.iter().take(count).enumerate() {
        let points = (1..=8).map(|n| {
            let x = 10e3 * 1.9f64.powi(n);
            let y = (60e3 + 20e3 * place as f64)
                * (1.0 + 1.0 / (9.2 - f64::from(n)))
                * random.random_range(0.95..1.05);
            let unstable = place == 2 && n > 6;
            Point { x, y: (!unstable).then_some(y), spread: Some(y * 0.01 * f64::from(n)), spread_x: None }
        });
        lines.series.push(Series { name: (*name).into(), style: Style::Line, points: points.collect() });
        if place == 1 {
            let printed = [(19e3, 120e3), (130.3e3, 170e3), (470e3, 240e3)];
            let points = printed.map(|(x, y)| Point::new(x, Some(y))).to_vec();
            lines.series.push(Series { name: (*name).into(), style: Style::Printed, points });
        }
    }
    lines.part()
}

fn named(title: &str) -> Part {
    let names = ["same", "spread", "active", "a long name of a category"].map(str::to_owned).to_vec();
    let see = "Categories have no distances.";
    let y = Quantity::new("p95", Unit::Nanoseconds);
    let mut lines = Lines::new(title, see, Quantity::named("nic.on", names), y);
    for (place, name) in NAMES.iter().take(4).enumerate() {
        let point = |n: usize| {
            let y = 2e5 + 1e4 * (n + place) as f64;
            Point { x: n as f64, y: (n != place).then_some(y), spread: Some(2e4), spread_x: None }
        };
        let points = (0..4).map(point).collect();
        lines.series.push(Series { name: (*name).into(), style: Style::Marks, points });
    }
    lines.part()
}

fn edge(title: &str, points: &[(f64, f64)], log: bool) -> Part {
    let (x, y) = (Quantity::new("load", Unit::PerSecond), Quantity::new("energy", Unit::Joules));
    let (x, y) = if log { (x.log(), y.log()) } else { (x, y) };
    let mut lines = Lines::new(title, "", x, y);
    let points = points.iter().map(|&(x, y)| Point { x, y: Some(y), spread: Some(y / 3.0), spread_x: None });
    lines.series.push(Series { name: "menu".into(), style: Style::Line, points: points.collect() });
    lines.part()
}

fn lines(random: &mut StdRng) -> Vec<Part> {
    let rate = || Quantity::new("offered load", Unit::PerSecond);
    vec![
        over_time(random, 3, "Power over time"),
        over_time(random, 12, "Power over time, twelve contestants"),
        swept(random, 4, rate(), "Tail against load"),
        swept(random, 12, rate().log(), "Tail against load, twelve contestants, both axes logarithmic"),
        named("Tail by category"),
        edge("One point", &[(10e3, 0.004)], false),
        edge("All equal", &[(10e3, 0.004), (20e3, 0.004), (30e3, 0.004)], false),
        edge("Huge and tiny", &[(1e-3, 1e-9), (1e9, 1e9)], true),
        edge("No numbers", &[(f64::NAN, 1.0), (1.0, f64::INFINITY)], false),
    ]
}

fn marks(random: &mut StdRng) -> Vec<Part> {
    let x = Quantity::new("power of cores and uncore", Unit::Watts).linear();
    let y = Quantity::new("p99", Unit::Nanoseconds).log();
    let figures = [3, 12].map(|count| {
        let see = "Further left costs less, further down answers faster.";
        let mut lines = Lines::new(&format!("Power and tail of {count}"), see, x.clone(), y.clone());
        lines.limit = Some(Limit::level("goal: 300 us", 300e3));
        for (place, name) in NAMES.iter().take(count).enumerate() {
            let (x, y) = (40.0 + 3.0 * random.random_range(0.0..6.0), 9e4 * (1.0 + place as f64).sqrt());
            let point = Point { x, y: Some(y), spread: Some(y * 0.03), spread_x: Some(0.3) };
            lines.series.push(Series { name: (*name).into(), style: Style::Marks, points: vec![point] });
        }
        lines.part()
    });
    figures.to_vec()
}

fn bars() -> Vec<Part> {
    let states = [("working", Tone::Busy), ("waking", Tone::Contestant(0)), ("polling", Tone::Contestant(1))];
    let idle = [("C1", 0.0), ("C1E", 0.5), ("C6", 1.0)].map(|(name, depth)| (name, Tone::Idle(depth)));
    let shares = [0.31, 0.04, 0.02, 0.13, 0.2, 0.3];
    let parts =
        states.into_iter().chain(idle).zip(shares).enumerate().map(|(place, ((name, tone), share))| {
            BarPart {
                name: name.into(),
                tone,
                values: (0..6)
                    .map(|row| {
                        (row != 4 || place > 9)
                            .then(|| Bar::new(if row == 5 { [1.0, 0.0][place.min(1)] } else { share }))
                    })
                    .collect(),
            }
        });
    let residency = Bars {
        title: "Where the CPUs spent their time".into(),
        see: "The fuller the green, the deeper the sleep.".into(),
        quantity: Quantity::new("share of CPU time", Unit::Share),
        rows: NAMES.iter().take(6).map(|name| (*name).into()).collect(),
        parts: parts.collect(),
        form: Form::Stacked,
    };
    let part = |place: usize, name: &str| BarPart {
        name: name.into(),
        tone: Tone::Contestant(place),
        values: (0..3)
            .map(|row| {
                let value = 30.0 + 7.0 * f64::from(row) * (place as f64 - 0.5);
                let bar = Bar { value, spread: Some(1.5), printed: (row == 1).then_some(value * 1.1) };
                (row != 2 || place != 1).then_some(bar)
            })
            .collect(),
    };
    let grouped = Bars {
        title: "Energy of a run".into(),
        see: "Diamonds are the paper's figures.".into(),
        quantity: Quantity::new("energy", Unit::Joules),
        rows: ["low", "mix", "high"].map(str::to_owned).to_vec(),
        parts: vec![part(0, "ondemand"), part(1, "hurry-up"), part(2, "performance")],
        form: Form::Grouped,
    };
    let single = Bars { title: "One part".into(), parts: vec![part(0, "ondemand")], ..grouped.clone() };
    [residency, grouped, single].map(Bars::part).to_vec()
}

fn lengths(count: usize) -> Part {
    let series = NAMES.iter().take(count).enumerate().map(|(place, name)| {
        let buckets = (9..26).map(|n| {
            let from_ns = f64::from(1u32 << n);
            let distance = (f64::from(n) - 13.0 - 1.5 * place as f64) / 2.5;
            Bucket { from_ns, to_ns: 2.0 * from_ns, share: 0.14 * (-distance * distance).exp() }
        });
        ((*name).to_owned(), buckets.collect())
    });
    Lengths {
        title: "How long CPUs were idle".into(),
        see: "Deep states pay from about 1 ms on.".into(),
        of: "idle period".into(),
        share_of: "all CPU time".into(),
        series: series.collect(),
    }
    .part()
}

fn areas(count: usize) -> Part {
    let panel = |(place, name): (usize, &&str)| {
        let awake = |n: u32| 0.3 + 0.1 * place as f64 + 0.2 * (f64::from(n) / 9.0).sin();
        let share = |n: u32, part: f64| part * (1.0 - awake(n));
        Panel {
            name: (*name).into(),
            x: if place == 2 { Vec::new() } else { (0..60).map(|n| Some(f64::from(n) * 30.0)).collect() },
            layers: vec![
                (0..60).map(|n| Some(awake(n))).collect(),
                (0..60).map(|n| Some(share(n, 0.2))).collect(),
                (0..60).map(|n| Some(share(n, 0.8))).collect(),
            ],
        }
    };
    let layer = |(name, tone): (&str, Tone)| Layer { name: name.into(), tone };
    Areas {
        title: "Sleep".into(),
        see: "The fuller the green, the deeper the sleep.".into(),
        x: Quantity::new("simulated time", Unit::Seconds),
        y: Quantity::new("share of all CPU time", Unit::Share),
        layers: [("awake", Tone::Busy), ("C1", Tone::Idle(0.0)), ("C6", Tone::Idle(1.0))].map(layer).to_vec(),
        panels: NAMES.iter().take(count).enumerate().map(panel).collect(),
    }
    .part()
}

fn heat_maps() -> Vec<Part> {
    let grid = |columns: usize, rows: usize, shift: f64| -> Vec<Vec<Cell>> {
        let cell = |x: usize, y: usize| match (x, y) {
            (x, y) if x + 1 == columns && y < 2 => Cell::Marked("unstable".into()),
            (0, 1) => Cell::Missing,
            (x, y) => Cell::Value(30.0 + shift + 5.0 * x as f64 / columns as f64 * (rows - y) as f64),
        };
        (0..rows).map(|y| (0..columns).map(|x| cell(x, y)).collect()).collect()
    };
    let labels = |name: &str, count: usize, unit: &str| Labels {
        name: name.into(),
        values: (1..=count).map(|n| format!("{}{unit}", n * 10)).collect(),
    };
    let map = |title: &str, columns: usize, rows: usize, names: &[&str]| {
        HeatMap {
            title: title.into(),
            see: "Hatched cells have no value.".into(),
            x: labels("workload.rate", columns, "k"),
            y: labels("server.workers", rows, ""),
            quantity: Quantity::new("power of cores and uncore", Unit::Watts),
            panels: names
                .iter()
                .enumerate()
                .map(|(n, name)| ((*name).into(), grid(columns, rows, 4.0 * n as f64)))
                .collect(),
        }
        .part()
    };
    vec![
        map("Power, few cells", 5, 4, &NAMES[..4]),
        map("Power, one grid", 8, 5, &NAMES[..1]),
        map("Power, many cells", 60, 40, &NAMES[..1]),
        map("Power, one cell", 1, 1, &NAMES[..1]),
    ]
}

fn table() -> Table {
    let row = |place: usize, name: &str| Row {
        name: name.into(),
        remark: "idle states of menu, all cores awake".into(),
        cells: vec![
            Unit::Watts.text_with(42.1, Some(0.2)),
            Unit::Nanoseconds.text_with(152e3, Some(1.8e3)),
            Unit::Nanoseconds.text_with(f64::NAN, Some(1.0)),
        ],
        look: Some(place),
    };
    Table {
        title: "All figures".into(),
        head: ["contestant", "power", "p99", "p99.9"].map(str::to_owned).to_vec(),
        rows: NAMES.iter().take(4).enumerate().map(|(place, name)| row(place, name)).collect(),
    }
}
