// Values over something, with uPlot: one column of its data for a series, more for its band.
/** Figures with the same quantity along the bottom have the same ends there, one cursor and one zoom. */
const stacks = new Map();
const stack = (x) => (x.names?.length ? null : `${x.name}|${x.unit}|${x.scale}`);
const shows = (quantity, value) => number(value) && (quantity.scale !== "log" || value > 0);

/** The series with their looks and the points that can be drawn; a gap is a point with y null. */
function drawable(figure) {
  const own = figure.series.filter((series) => series.style !== "printed").map((series) => series.name);
  let next = 0;
  return figure.series.map((series) => {
    const style = series.style ?? "line";
    const printed = style === "printed";
    const place = printed ? own.indexOf(series.name) : next++;
    const looks = printed ? { ink: place < 0 ? "text" : look(place).ink, dash: [], shape: 6 } : look(place);
    const marks = style === "marks" || printed;
    const aside =
      figure.x.names?.length && marks
        ? (Math.max(0, own.indexOf(series.name)) - (own.length - 1) / 2) * Math.min(0.7 / own.length, 0.08)
        : 0;
    let points = series.points.filter(([x]) => shows(figure.x, x));
    if (!marks) points = [...points].sort((a, b) => a[0] - b[0]);
    points = points.map(([x, y, spread, across]) => ({
      x: x + aside,
      y: shows(figure.y, y) ? y : null,
      spread: number(spread) ? Math.abs(spread) : 0,
      across: number(across) ? Math.abs(across) : 0,
    }));
    const known = points.filter((point) => point.y !== null);
    return {
      ...looks,
      name: series.name,
      style,
      points,
      known,
      marks: marks || (style === "line" && known.length <= MARKS_MAX),
      smooth: style === "line" && known.length > MANY,
    };
  });
}

function ends(figure, all) {
  const known = all.flatMap((series) => series.known);
  if (!known.length) return null;
  const log = figure.x.scale === "log";
  let low = known.reduce(
    (low, point) =>
      Math.min(low, shows(figure.x, point.x - point.across) ? point.x - point.across : point.x),
    Infinity,
  );
  let high = known.reduce((high, point) => Math.max(high, point.x + point.across), -Infinity);
  if (figure.x.names?.length) return [-0.5, figure.x.names.length - 0.5];
  if (figure.x.scale === "from_zero") low = Math.min(low, 0);
  if (low === high)
    return log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  if (log || !all.some((series) => series.marks)) return [low, high];
  const room = 0.025 * (high - low);
  return [low < 0 || low >= room ? low - room : low, high + room];
}

/** The rolling median with the lowest and the highest around it. */
function rolling(points) {
  const half = Math.ceil((2 * points.length) / MANY);
  return points.map((point, at) => {
    if (point.y === null) return { x: point.x, middle: null, low: null, high: null };
    const near = points
      .slice(Math.max(0, at - half), at + half + 1)
      .map((other) => other.y)
      .filter((y) => y !== null)
      .sort((a, b) => a - b);
    return { x: point.x, middle: near[near.length >> 1], low: near[0], high: near[near.length - 1] };
  });
}

/** The page says once how a median is opened. */
let isHinted = false;

function lines(figure) {
  const all = drawable(figure);
  const own = ends(figure, all);
  if (!own) return [paragraph("remark", NOTHING)];
  const key = stack(figure.x);
  const [left, right] = (key && stacks.get(key)) ?? own;
  const log = figure.y.scale === "log";
  const heights = all.flatMap((series) => series.known.map((point) => point.y));
  const top = heights.reduce((a, b) => Math.max(a, b), -Infinity);
  const bottom = heights.reduce((a, b) => Math.min(a, b), Infinity);
  const limit = figure.limit;
  const bounds = limit ? [[left, limit.y ?? null], ...(limit.changes ?? [])] : [];
  const drawnBounds = bounds.filter(([, y]) => shows(figure.y, y));
  const near =
    drawnBounds.length > 0 &&
    drawnBounds.every(([, y]) => y <= Math.max(top, 0) * FAR && y >= bottom / FAR);

  // The columns of the plot: a series' own, and those of its band.
  const columns = [],
    bands = [],
    tracks = [];
  const column = (entries, options) => columns.push({ entries, options });
  const plain = { points: { show: false } };
  for (const series of all) {
    const colour = () => ink(series.ink);
    const line = { ...plain, scale: "y", stroke: colour, width: 2, dash: series.dash };
    if (series.style === "steps") line.paths = uPlot.paths.stepped({ align: 1 });
    if (series.style === "marks" || series.style === "printed") line.paths = () => null;
    const track = { series, first: columns.length + 1, hidden: false };
    const ys = (of) => series.points.map((point) => [point.x, of(point)]);
    column(
      ys((point) => point.y),
      { ...line, show: !series.smooth },
    );
    const edge = { ...plain, scale: "y", stroke: "transparent", width: 0 };
    if (series.smooth) {
      const rolled = rolling(series.points);
      column(
        rolled.map((at) => [at.x, at.middle]),
        line,
      );
      column(
        rolled.map((at) => [at.x, at.high]),
        edge,
      );
      column(
        rolled.map((at) => [at.x, at.low]),
        edge,
      );
      bands.push({ series: [track.first + 2, track.first + 3], fill: () => ink(series.ink, 0.22) });
    } else if (series.known.some((point) => point.spread)) {
      column(
        ys((point) => (point.y === null ? null : point.y + point.spread)),
        edge,
      );
      column(
        ys((point) =>
          point.y === null
            ? null
            : shows(figure.y, point.y - point.spread)
              ? point.y - point.spread
              : log
                ? point.y / 10
                : point.y,
        ),
        edge,
      );
      if (series.style === "line" && series.known.length > 1)
        bands.push({ series: [track.first + 1, track.first + 2], fill: () => ink(series.ink, 0.18) });
    }
    track.last = columns.length;
    tracks.push(track);
  }
  if (near) {
    column([...bounds, [right, bounds[bounds.length - 1][1]]], {
      ...plain,
      scale: "y",
      stroke: () => ink("text"),
      width: 1.5,
      dash: [6, 4],
      paths: uPlot.paths.stepped({ align: 1 }),
    });
  }
  const xs = [...new Set([left, right, ...columns.flatMap(({ entries }) => entries.map(([x]) => x))])]
    .filter((x) => x >= left && x <= right)
    .sort((a, b) => a - b);
  const at = new Map(xs.map((x, place) => [x, place]));
  const data = [
    xs,
    ...columns.map(({ entries }) => {
      // Not there is undefined, and a line goes on; null is a gap.
      const ys = new Array(xs.length);
      for (const [x, y] of entries) if (at.has(x)) ys[at.get(x)] = y;
      return ys;
    }),
  ];

  const box = el("div", { role: "img", "aria-label": figure.title });
  const readout = el("span", {}, "");
  const buttons = all.map((series, place) => {
    const value = el("b", {});
    const sample = swatch(
      series.style === "marks" || series.style === "printed" ? "mark" : "line",
      () => ink(series.ink),
      series.dash,
      series.marks ? series.shape : null,
    );
    const name =
      series.name +
      (series.style === "printed" ? ", printed in the paper" : "") +
      (series.known.length ? "" : " (no value)");
    const button = el(
      "button",
      {
        type: "button",
        "aria-pressed": "true",
        onclick: () => {
          const track = tracks[place];
          track.hidden = !track.hidden;
          button.setAttribute("aria-pressed", String(!track.hidden));
          show(plot);
        },
      },
      sample,
      el("span", {}, name),
      value,
    );
    return { button, value };
  });
  const bound =
    limit && drawnBounds.length
      ? el(
          "span",
          {},
          swatch("line", () => ink("text"), [6, 4], null),
          limit.name + (near ? "" : " (beyond this scale)"),
        )
      : null;
  const hint =
    all.some((series) => series.smooth) && !isHinted
      ? paragraph(
          "remark hint",
          "Lines of many points are their rolling median, in a band from the lowest to the highest; " +
            "drag over a stretch to see each point of it, double-click to see all.",
        )
      : null;
  isHinted ||= hint !== null;

  /** Which columns of each series are seen: single points once few are in view. */
  function show(u) {
    for (const { series, first, last, hidden } of tracks) {
      const { min, max } = u.scales.x;
      const closely =
        series.smooth && series.known.filter((point) => point.x >= min && point.x <= max).length <= MANY;
      for (let n = first; n <= last; n++) {
        const seen = !hidden && (!series.smooth || (n === first) === closely);
        if (u.series[n].show !== seen) u.setSeries(n, { show: seen });
      }
    }
  }
  function marks(u) {
    const { ctx: context, bbox } = u;
    const ratio = devicePixelRatio;
    context.save();
    context.beginPath();
    context.rect(bbox.left - 8, bbox.top - 8, bbox.width + 16, bbox.height + 16);
    context.clip();
    context.setLineDash([]);
    context.textAlign = "left";
    const taken = [];
    const seen = tracks.filter(({ series, hidden }) => series.marks && !hidden).map(({ series }) => series);
    for (const series of seen) {
      context.strokeStyle = context.fillStyle = ink(series.ink);
      for (const point of series.known) {
        const [x, y] = [u.valToPos(point.x, "x", true), u.valToPos(point.y, "y", true)];
        context.lineWidth = 1.5 * ratio;
        context.beginPath();
        for (const [dx, dy] of [
          [0, series.style === "line" ? 0 : point.spread],
          [point.across, 0],
        ]) {
          if (!dx && !dy) continue;
          const low = point.y - dy;
          context.moveTo(
            u.valToPos(point.x - dx, "x", true),
            shows(figure.y, low) ? u.valToPos(low, "y", true) : bbox.top + bbox.height,
          );
          context.lineTo(u.valToPos(point.x + dx, "x", true), u.valToPos(point.y + dy, "y", true));
        }
        context.stroke();
        context.lineWidth = 2 * ratio;
        shape(context, series.shape, x, y, 9 * ratio);
        taken.push([x - 7 * ratio, y - 7 * ratio, x + 7 * ratio, y + 7 * ratio]);
      }
    }
    // Names beside lone marks, where they cover nothing; the legend has them in any case.
    context.font = `${12.5 * ratio}px system-ui,sans-serif`;
    context.textBaseline = "middle";
    context.fillStyle = ink("text");
    for (const series of seen.filter((series) => series.style === "marks" && series.known.length === 1)) {
      const [x, y] = [u.valToPos(series.known[0].x, "x", true), u.valToPos(series.known[0].y, "y", true)];
      const [wide, high] = [context.measureText(series.name).width, 14 * ratio];
      const places = [
        [x + 9 * ratio, y],
        [x - 9 * ratio - wide, y],
        [x - wide / 2, y - high],
        [x - wide / 2, y + high],
      ];
      const free = places
        .map(([x, y]) => [x, y - high / 2, x + wide, y + high / 2])
        .find(
          (area) =>
            area[0] > bbox.left &&
            area[2] < bbox.left + bbox.width &&
            area[1] > bbox.top &&
            area[3] < bbox.top + bbox.height &&
            taken.every(
              (other) =>
                other[2] <= area[0] || area[2] <= other[0] || other[3] <= area[1] || area[3] <= other[1],
            ),
        );
      if (!free) continue;
      context.fillText(series.name, free[0], (free[1] + free[3]) / 2);
      taken.push(free);
    }
    context.restore();
  }
  /** The nearest place at which the series has something to say. */
  function nearest(u, n, place) {
    for (let far = 0; far < xs.length; far++) {
      for (const index of [place - far, place + far]) if (data[n][index] !== undefined) return index;
    }
    return place;
  }
  function read(u) {
    const over = u.cursor.idx !== null && u.cursor.left >= 0;
    const x = over ? xs[u.cursor.idx] : null;
    const at = figure.x.names?.[Math.round(x)] ?? ticks(figure.x.unit, [x], true)[0];
    readout.textContent = over ? `at ${at}` : "";
    tracks.forEach(({ series, first }, place) => {
      const n = series.smooth && !u.series[first].show ? first + 1 : first;
      const index = over ? nearest(u, n, u.cursor.idx) : null;
      const value = index === null ? null : data[n][index];
      const point = value === null ? null : series.known.find((point) => point.x === xs[index]);
      buttons[place].value.textContent = over
        ? text(figure.y.unit, value, series.smooth ? undefined : point?.spread || undefined)
        : "";
    });
  }
  const height = () => (box.clientWidth < 600 ? 220 : 270);
  const options = {
    width: 1000,
    height: 270,
    legend: { show: false },
    cursor: {
      dataIdx: nearest,
      drag: { x: true, y: false },
      sync: key ? { key, scales: ["x", null] } : undefined,
      points: {
        show: (u, n) =>
          tracks.some(({ series, first }) => n === first + (series.smooth && !u.series[first].show ? 1 : 0))
            ? el("div", {})
            : null,
        size: 7,
      },
    },
    scales: {
      x: { time: false, distr: figure.x.scale === "log" ? 3 : 1, range: (u, low, high) => [low, high] },
      y: { distr: log ? 3 : 1, range: (u, low, high) => range(figure.y.scale, low, high) },
    },
    axes: [
      axis({
        ...(figure.x.scale === "log" ? LOG : {}),
        size: 28,
        space: 70,
        values: (u, values) =>
          figure.x.names?.length
            ? values.map((value) => figure.x.names[value] ?? "")
            : ticks(figure.x.unit, values, figure.x.scale === "log"),
        ...(figure.x.names?.length ? { splits: () => figure.x.names.map((_, place) => place) } : {}),
        incrs: figure.x.unit === "seconds" ? SECONDS : undefined,
      }),
      axis({
        ...(log ? LOG : {}),
        scale: "y",
        size: 66,
        values: (u, values) => ticks(figure.y.unit, values, log),
      }),
    ],
    series: [{}, ...columns.map(({ options }) => options)],
    bands,
    hooks: {
      draw: [marks],
      setCursor: [read],
      setScale: [(u, scale) => scale === "x" && queueMicrotask(() => show(u))],
    },
  };
  const plot = place(box, options, data, height);
  return [
    el(
      "div",
      { class: "legend" },
      buttons.map(({ button }) => button),
      bound,
      readout,
    ),
    hint,
    el("div", { class: "axis-name" }, axisName(figure.y)),
    box,
    el("div", { class: "axis-name", style: { "text-align": "center" } }, axisName(figure.x)),
  ];
}

/** Steps of an axis of seconds: those of clocks from a minute on. */
const SECONDS = [
  ...[-9, -8, -7, -6, -5, -4, -3, -2, -1, 0].flatMap((e) => [1, 2, 5].map((n) => Number(`${n}e${e}`))),
  10,
  20,
  30,
  60,
  120,
  300,
  600,
  900,
  1800,
  3600,
  7200,
  14400,
  21600,
  43200,
  86400,
  172800,
  604800,
];

/** Marks at 1, 2 and 5 of each decade, at all nine or at few decades: as many as can be read. */
const LOG = {
  filter: (u, splits) => splits,
  splits: (u, axis, low, high) => {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const at = (digits, step) => {
      const marks = [];
      for (let decade = Math.ceil(first / step) * step; decade <= last; decade += step)
        marks.push(...digits.map((digit) => Number(`${digit}e${decade}`)));
      return marks.filter((mark) => mark >= low && mark <= high);
    };
    const choices = [
      at([1, 2, 3, 4, 5, 6, 7, 8, 9], 1),
      at([1, 2, 5], 1),
      at([1], 1),
      at([1], 2),
      at([1], 3),
      at([1], 6),
    ];
    // Along the bottom a mark needs room for its text.
    const most = axis === 0 ? Math.max(2, Math.min(9, u.width / 80)) : 7;
    if (choices[0].length >= 3) return choices.find((marks) => marks.length <= most) ?? choices[5];
    // Less than an octave: even steps.
    const rough = (high - low) / 4;
    const digit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * digit).find((step) => step >= rough);
    const from = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - from + 1 }, (_, n) => (from + n) * step);
  },
};
function range(scale, low, high) {
  if (low === null || high === null) return scale === "log" ? [1, 10] : [0, 1];
  if (scale === "log")
    return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  if (scale !== "linear") [low, high] = [Math.min(0, low), Math.max(0, high)];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === 0 ? 0 : low - room, high + room];
}
function axisName({ name, unit, scale }) {
  const notes = [unit === "per_second" ? "per second" : "", scale === "log" ? "log scale" : ""]
    .filter(Boolean)
    .join(", ");
  return notes ? `${name} (${notes})` : name;
}
const axis = (options) => ({
  stroke: () => ink("muted"),
  font: "12.5px system-ui,sans-serif",
  grid: { stroke: () => ink("grid"), width: 1 },
  ticks: { show: false },
  ...Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)),
});

/** Puts a plot into its box when the box has its width. */
function place(box, options, data, height) {
  const plot = new uPlot(options, data, box);
  plots.push({ plot, box, height });
  new ResizeObserver(() => {
    if (box.clientWidth > 0 && box.clientWidth !== plot.width)
      plot.setSize({ width: box.clientWidth, height: height() });
  }).observe(box);
  return plot;
}

/** The numbers of lines, where they are few. */
function lineNumbers({ series, x, y }) {
  const name = (of) => of.name + (of.style === "printed" ? ", printed" : "");
  const value = (point) => (point ? text(y.unit, point[1], point[2] ?? undefined) : MISSING);
  if (series.every((of) => of.style === "marks" && of.points.length <= 1)) {
    return {
      head: ["", x.name, y.name],
      rows: series.flatMap((of) =>
        of.points.map((point) => ({
          name: of.name,
          cells: [text(x.unit, point[0], point[3]), value(point)],
        })),
      ),
    };
  }
  const xs = [...new Set(series.flatMap((of) => of.points.map(([x]) => x)))]
    .filter(number)
    .sort((a, b) => a - b);
  return {
    head: [x.name, ...series.map(name)],
    rows: xs.map((at) => ({
      name: x.names?.[at] ?? text(x.unit, at),
      cells: series.map((of) => value(of.points.find(([x]) => x === at))),
    })),
  };
}
