// Lengths to compare, as elements of the page.
function bars(figure) {
  const known = (bar) => (bar && number(bar.value) ? { ...bar, value: Math.max(0, bar.value) } : null);
  const stacked = figure.form === "stacked";
  const { unit } = figure.quantity;
  const rows = figure.rows.map((name, row) => ({
    name,
    bars: figure.parts.map((part) => known(part.values[row])),
  }));
  if (!rows.some((row) => row.bars.some(Boolean))) return [paragraph("remark", NOTHING)];
  const hidden = new Set();
  const grid = el("div", { class: `bars ${stacked ? "stacked" : ""}` });
  const reach = (bar) => Math.max(bar.value + (bar.spread ?? 0), bar.printed ?? 0);
  function fill() {
    const seen = (row) => row.bars.map((bar, n) => (hidden.has(n) ? null : bar));
    const longest =
      Math.max(
        ...rows.map((row) =>
          stacked
            ? seen(row).reduce((sum, bar) => sum + (bar?.value ?? 0), 0)
            : Math.max(0, ...seen(row).filter(Boolean).map(reach)),
        ),
      ) || 1;
    const percent = (value) => `${(100 * value) / longest}%`;
    const stackOf = (row) =>
      el(
        "div",
        { class: "track" },
        figure.parts.map((part, n) => {
          const bar = seen(row)[n];
          if (!bar) return null;
          const looks = tone(part.tone);
          return el(
            "i",
            {
              title: `${part.name}: ${text(unit, bar.value, bar.spread)}`,
              style: { width: percent(bar.value), background: css(looks), color: `var(--ink-${looks.on})` },
            },
            bar.value / longest > 0.06 ? text(unit, bar.value) : "",
          );
        }),
      );
    const single = (part, bar) => [
      el(
        "div",
        { class: "track", title: part.name },
        bar
          ? [
              el("i", { style: { width: percent(bar.value), background: css(tone(part.tone)) } }),
              bar.spread
                ? el("span", {
                    class: "off",
                    style: {
                      left: percent(Math.max(0, bar.value - bar.spread)),
                      width: percent(Math.min(bar.value, bar.spread) + bar.spread),
                    },
                  })
                : null,
              number(bar.printed)
                ? el("span", {
                    class: "printed",
                    title: `printed ${text(unit, bar.printed)}`,
                    style: { left: percent(bar.printed) },
                  })
                : null,
            ]
          : [],
      ),
      el("span", {}, bar ? text(unit, bar.value, bar.spread) : "not known"),
    ];
    grid.replaceChildren(
      ...rows.flatMap((row) => {
        const name = (span) =>
          el("span", { class: "name", style: { "grid-row": `span ${span}` } }, row.name);
        if (stacked)
          return [name(1), stackOf(row), el("span", {}, row.bars.some(Boolean) ? "" : "not known")];
        const parts = figure.parts
          .map((part, n) => [part, row.bars[n], n])
          .filter(([, , n]) => !hidden.has(n));
        return [
          name(matchMedia("(max-width:700px)").matches ? 1 : Math.max(1, parts.length)),
          ...parts.flatMap(([part, bar]) => single(part, bar)),
          el("span", { class: "gap" }),
        ];
      }),
    );
  }
  fill();
  repaint.push(fill);
  const entry = (part, n) => {
    const button = el(
      "button",
      {
        type: "button",
        "aria-pressed": "true",
        onclick: () => {
          if (!hidden.delete(n)) hidden.add(n);
          button.setAttribute("aria-pressed", String(!hidden.has(n)));
          fill();
        },
      },
      swatch("fill", () => ink(tone(part.tone).ink, tone(part.tone).opacity), [], null),
      part.name,
    );
    return button;
  };
  const printed = rows.some((row) => row.bars.some((bar) => number(bar?.printed)));
  const legend = el(
    "div",
    { class: "legend" },
    figure.parts.length > 1 || stacked ? figure.parts.map(entry) : null,
    printed
      ? el(
          "span",
          {},
          swatch("mark", () => ink("text"), [], 6),
          "printed in the paper",
        )
      : null,
  );
  return [legend, el("div", { class: "axis-name" }, axisName(figure.quantity)), grid];
}
function barNumbers({ rows, parts, quantity: { unit } }) {
  const cell = (bar) =>
    bar && number(bar.value)
      ? text(unit, bar.value, bar.spread) +
        (number(bar.printed) ? ` (printed ${text(unit, bar.printed)})` : "")
      : MISSING;
  return {
    head: ["", ...parts.map((part) => part.name)],
    rows: rows.map((name, row) => ({ name, cells: parts.map((part) => cell(part.values[row])) })),
  };
}
