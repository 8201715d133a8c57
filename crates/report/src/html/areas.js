// How a whole is divided, over something: a plot for each contestant.
function areas(figure) {
  const panels = figure.panels.filter((panel) => panel.x.some(number));
  if (!panels.length) return [paragraph("remark", NOTHING)];
  const tones = figure.layers.map((layer) => tone(layer.tone));
  const legend = el(
    "div",
    { class: "legend" },
    figure.layers.map((layer, n) =>
      el(
        "span",
        {},
        swatch("fill", () => ink(tones[n].ink, tones[n].opacity), [], null),
        layer.name,
      ),
    ),
  );
  const drawn = figure.panels.map((panel) => {
    const name = el("p", { class: "panel-name" }, panel.name);
    if (!panel.x.some(number)) return [name, paragraph("remark", "not known")];
    const known = panel.x.map((x, n) => n).filter((n) => number(panel.x[n]));
    // Each share holds as far to both sides of its place as to the middle between it and the next.
    const xs = known.map((n, at) => (at === 0 ? panel.x[n] : (panel.x[known[at - 1]] + panel.x[n]) / 2));
    xs.push(panel.x[known[known.length - 1]] || 1);
    const ground = new Array(known.length).fill(0);
    const layers = panel.layers.map((shares) =>
      known.map((n, at) => (ground[at] += Math.max(0, Math.min(1, shares[n] ?? 0)))),
    );
    const data = [xs, ...layers.map((layer) => [...layer, layer[layer.length - 1]]).reverse()];
    const paths = uPlot.paths.stepped({ align: 1 });
    const series = [...tones.slice(0, layers.length)]
      .reverse()
      .map((of, n) => ({
        scale: "y",
        paths,
        points: { show: false },
        stroke: "transparent",
        width: 0,
        fill: n === layers.length - 1 ? () => ink(of.ink, of.opacity) : undefined,
      }));
    const bands = layers
      .slice(1)
      .map((_, n) => ({
        series: [n + 1, n + 2],
        fill: () => ink(tones[layers.length - 1 - n].ink, tones[layers.length - 1 - n].opacity),
      }));
    const box = el("div", { role: "img", "aria-label": `${figure.title}: ${panel.name}` });
    const [left, right] = stacks.get(stack(figure.x)) ?? [xs[0], xs[xs.length - 1]];
    place(
      box,
      {
        width: 1000,
        height: 130,
        legend: { show: false },
        cursor: { y: false, points: { show: false }, sync: { key: stack(figure.x), scales: ["x", null] } },
        scales: {
          x: {
            time: false,
            range: (u, low, high) =>
              low === xs[0] && high === xs[xs.length - 1] ? [left, right] : [low, high],
          },
          y: { range: () => [0, 1] },
        },
        axes: [
          axis({ size: 28, values: (u, values) => ticks(figure.x.unit, values), incrs: SECONDS }),
          axis({ scale: "y", size: 66, values: (u, values) => ticks("share", values) }),
        ],
        series: [{}, ...series],
        bands,
      },
      data,
      () => 130,
    );
    return [name, box];
  });
  return [
    legend,
    drawn.flat(),
    el("div", { class: "axis-name", style: { "text-align": "center" } }, axisName(figure.x)),
  ].flat();
}
