// Values over two things, as a table.
function heatMap(figure) {
  const log = figure.quantity.scale === "log";
  const { unit } = figure.quantity;
  const shown = (cell) => shows(figure.quantity, cell);
  const cells = figure.panels.flatMap(([, rows]) => rows.flat());
  if (!cells.some((cell) => cell !== null) || !figure.x.values.length || !figure.y.values.length)
    return [paragraph("remark", NOTHING)];
  const values = cells.filter(shown);
  const [low, high] = [
    values.reduce((a, b) => Math.min(a, b), Infinity),
    values.reduce((a, b) => Math.max(a, b), -Infinity),
  ];
  const on = (value) => (log ? Math.log10(value) : value);
  const share = (value) =>
    high > low ? Math.max(0, Math.min(1, (on(value) - on(low)) / (on(high) - on(low)))) : 0.5;
  const dense = figure.x.values.length > 14;
  const every = Math.ceil(figure.x.values.length / 8);
  const cell = (value, title) => {
    if (!shown(value))
      return el(
        "td",
        { class: typeof value === "string" ? "marked" : "", title: `${title}: ${value ?? "not known"}` },
        typeof value === "string" ? value : MISSING,
      );
    const step = share(value) * 4;
    const under = Math.min(3, Math.floor(step));
    const [from, to] = [under + 1, under + 2].map((n) => `var(--ink-heat-${n})`);
    const colour = `color-mix(in srgb,${to} ${(step - under) * 100}%,${from})`;
    return el(
      "td",
      {
        title: `${title}: ${text(unit, value)}`,
        style: { background: colour, color: `var(--ink-on-${share(value) <= 0.5 ? "cool" : "hot"})` },
      },
      text(unit, value),
    );
  };
  const head = el(
    "thead",
    {},
    el(
      "tr",
      {},
      el("th", {}),
      figure.x.values.map((value, n) =>
        dense
          ? n % every
            ? null
            : el(
                "th",
                { colspan: Math.min(every, figure.x.values.length - n), style: { "text-align": "left" } },
                value,
              )
          : el("th", {}, value),
      ),
    ),
  );
  const panel = ([name, rows]) =>
    el(
      "div",
      {},
      el("p", { class: "panel-name" }, name),
      el(
        "table",
        { class: `heat ${dense ? "dense" : ""}` },
        head.cloneNode(true),
        el(
          "tbody",
          {},
          figure.y.values
            .map((value, up) =>
              el(
                "tr",
                {},
                el("th", {}, value),
                figure.x.values.map((across, n) =>
                  cell(rows[up]?.[n] ?? null, `${figure.x.name} ${across}, ${figure.y.name} ${value}`),
                ),
              ),
            )
            .reverse(),
        ),
      ),
    );
  const scale = values.length
    ? el(
        "span",
        {},
        figure.quantity.name,
        el("b", {}, text(unit, low)),
        el("span", { class: "scale" }),
        el("b", {}, text(unit, high)),
      )
    : null;
  return [
    el("div", { class: "legend" }, scale),
    el("div", { class: "axis-name" }, `up: ${figure.y.name}; across: ${figure.x.name}`),
    el(
      "div",
      { class: "heats", style: { "--least": `${dense ? 700 : 90 + 45 * figure.x.values.length}px` } },
      figure.panels.map(panel),
    ),
  ];
}
function heatNumbers({ x, y, panels, quantity }) {
  const cell = (value) =>
    shows(quantity, value) ? text(quantity.unit, value) : typeof value === "string" ? value : MISSING;
  return {
    head: [x.name, ...x.values],
    rows: panels.flatMap(([panel, rows]) =>
      y.values.map((value, up) => ({
        name: `${panel}, ${y.name} ${value}`,
        cells: x.values.map((_, across) => cell(rows[up]?.[across])),
      })),
    ),
  };
}
