// A flame graph: sampled stacks, the outermost function at the bottom.
function flame(figure) {
  const root = { name: "all", weight: 0, callees: new Map() };
  for (const [frames, weight] of figure.stacks) {
    root.weight += weight;
    let at = root;
    for (const name of frames.slice(0, 160)) {
      if (!at.callees.has(name)) at.callees.set(name, { name, weight: 0, callees: new Map() });
      at = at.callees.get(name);
      at.weight += weight;
    }
  }
  if (!root.weight) return [paragraph("remark", "There is nothing to draw: no stack was sampled.")];
  const box = el("div", { class: "flame" });
  /** The calls below one function, as wide as the figure. */
  function from(top, above) {
    const boxes = [];
    let deepest = 0;
    const put = (node, left, width, depth, callers) => {
      if (width < 0.001) return;
      deepest = Math.max(deepest, depth);
      const share = `${node.name} (${((100 * node.weight) / root.weight).toFixed(1)} %)`;
      boxes.push([
        el(
          "button",
          {
            type: "button",
            title: share,
            class: node.name === figure.marked ? "marked" : "",
            style: { left: `${100 * left}%`, width: `${100 * width}%` },
            onclick: () =>
              node === top && callers.length
                ? from(callers[callers.length - 1], callers.slice(0, -1))
                : from(node, callers),
          },
          el("bdi", {}, node.name),
        ),
        depth,
      ]);
      let at = left;
      for (const callee of [...node.callees.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const wide = (width * callee.weight) / node.weight;
        put(callee, at, wide, depth + 1, [...callers, node]);
        at += wide;
      }
    };
    put(top, 0, 1, 0, above);
    for (const [element, depth] of boxes) element.style.top = `${(deepest - depth) * 17}px`;
    box.style.height = `${(deepest + 1) * 17}px`;
    box.replaceChildren(...boxes.map(([element]) => element));
  }
  from(root, []);
  return [
    paragraph(
      "remark hint",
      "Click a function to see only its calls; click it again to go back to its caller.",
    ),
    box,
  ];
}
