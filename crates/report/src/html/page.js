// The page, from its first line to its last.
function table({ title, head, rows }) {
  const cell = (content, n) => {
    const [figure, off] = content.split(" \u00b1", 2);
    return el(
      "td",
      { "data-head": head[n + 1] ?? "" },
      el("span", {}, figure, off === undefined ? null : el("small", {}, ` \u00b1${off}`)),
    );
  };
  const row = ({ name, remark, cells, look: place }) =>
    el(
      "tr",
      number(place) ? { style: { "--look": `var(--ink-${look(place).ink})` } } : {},
      el("th", { scope: "row" }, name, remark ? el("small", {}, remark) : null),
      cells.map(cell),
    );
  return el(
    "table",
    { class: "rows" },
    title ? el("caption", {}, title) : null,
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el("tbody", {}, rows.map(row)),
  );
}
const FIGURES = {
  lines: { draw: lines, quantity: (figure) => figure.y, numbers: lineNumbers },
  bars: { draw: bars, quantity: (figure) => figure.quantity, numbers: barNumbers },
  areas: { draw: areas, quantity: (figure) => figure.y },
  heat_map: { draw: heatMap, quantity: (figure) => figure.quantity, numbers: heatNumbers },
  flame: { draw: flame },
};
function part(written) {
  const [[kind, content]] = Object.entries(written);
  if (kind === "text") return paragraph("remark", content);
  if (kind === "table") return table(content);
  const { draw, quantity, numbers } = FIGURES[kind];
  const basis = quantity?.(content).basis ?? page.basis;
  const values = numbers?.(content);
  return el(
    "figure",
    {},
    el(
      "figcaption",
      {},
      el("strong", {}, content.title, basis ? el("span", { class: "basis" }, basis) : null),
      content.see,
    ),
    draw(content),
    values && values.rows.length && values.rows.length <= ROWS_MAX && values.head.length <= COLUMNS_MAX
      ? el("details", {}, el("summary", {}, "The numbers"), table(values))
      : null,
  );
}
function card({ what, figure, remark, met }) {
  const verdict = met === true ? "\u2713 met" : met === false ? "\u2717 missed" : "";
  return el(
    "div",
    { class: `card ${met === true ? "met" : met === false ? "missed" : ""}` },
    el("p", {}, what),
    el("strong", {}, figure),
    paragraph("", remark),
    paragraph("verdict", verdict),
  );
}
const list = (title, items) =>
  items.length
    ? [
        el("h3", {}, title),
        el(
          "ul",
          {},
          items.map((item) => el("li", {}, item)),
        ),
      ]
    : [];
/** An argument as one could type it. */
const word = (argument) =>
  /^[\w\-=./:,@%+]+$/.test(argument) ? argument : `'${argument.replaceAll("'", String.raw`'\''`)}'`;

for (const { lines, areas } of page.sections.flatMap((section) => section.parts)) {
  const own = lines
    ? ends(lines, drawable(lines))
    : areas
      ? ends(
          { ...areas },
          areas.panels.map((panel) => ({ known: panel.x.filter(number).map((x) => ({ x, across: 0 })) })),
        )
      : null;
  const key = own && stack((lines ?? areas).x);
  if (key)
    stacks.set(
      key,
      stacks.has(key) ? [Math.min(own[0], stacks.get(key)[0]), Math.max(own[1], stacks.get(key)[1])] : own,
    );
}
document.getElementById("main").replaceChildren(
  el(
    "header",
    {},
    paragraph("run", page.name),
    el("h1", {}, page.title),
    page.facts.length ? el("p", { class: "facts" }, page.facts.join(" \u00b7 ")) : "",
    page.summary ? el("p", { class: "lead" }, page.summary) : "",
  ),
  ...page.alarms.map((alarm) => el("p", { class: "alarm" }, alarm)),
  ...(page.cards.length ? [el("div", { class: "cards" }, page.cards.map(card))] : []),
  ...page.sections.map((section) =>
    el("section", {}, el("h2", {}, section.title), paragraph("", section.text), section.parts.map(part)),
  ),
  el(
    "section",
    {},
    el("h2", {}, "What this rests on"),
    list("How the figures were got", page.notes),
    list("Assumptions", page.assumptions),
    list("ESTIMATEs: numbers that no source prints", page.estimates),
    page.sources.flatMap(([name, sources]) => list(`Sources of ${name}`, sources)),
    page.folded.map(([name, content]) =>
      el("details", {}, el("summary", {}, name), el("pre", {}, content)),
    ),
    page.command.length ? [el("h3", {}, "Command"), el("pre", {}, page.command.map(word).join(" "))] : null,
  ),
);

for (const paint of repaint) paint();
function recolour() {
  inks.clear();
  for (const paint of repaint) paint();
  for (const { plot } of plots) plot.redraw();
}
matchMedia("(prefers-color-scheme:dark)").addEventListener("change", recolour);
matchMedia("(max-width:700px)").addEventListener("change", recolour);
// On paper: light, and as wide as a sheet.
for (const [event, printing] of [
  ["beforeprint", true],
  ["afterprint", false],
]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("printing", printing);
    for (const { plot, box, height } of plots)
      plot.setSize({ width: printing ? 680 : box.clientWidth, height: height() });
    recolour();
  });
}
