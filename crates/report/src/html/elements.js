// Elements and inks: roles, not colours, so that one drawing suits a light page and a dark one.
// Texts become text nodes, never markup.
const page = JSON.parse(document.getElementById("page").textContent);
/** More points than this on a line are shown as their rolling median in a band from lowest to highest. */
const MANY = 200;
/** More marks than this on a line hide it. */
const MARKS_MAX = 40;
/** More rows than this are for a file, not for a reader. */
const ROWS_MAX = 60;
const COLUMNS_MAX = 14;
/** A limit that is farther from all values than this is named, not drawn. */
const FAR = 4;
const NOTHING = "There is nothing to draw: no value is known.";

/** An element; children that are null are left out. */
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== ""),
  );
  return element;
}
const paragraph = (style, content) => (content ? el("p", { class: style }, content) : null);
const number = (value) => typeof value === "number" && Number.isFinite(value);

const inks = new Map();
function ink(name, opacity) {
  if (!inks.has(name))
    inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--ink-${name}`).trim());
  const alpha =
    opacity === undefined
      ? ""
      : Math.round(255 * Math.max(0, Math.min(1, opacity)))
          .toString(16)
          .padStart(2, "0");
  return inks.get(name) + alpha;
}
/** How the contestant with this place looks in all figures: the twelve first can be told apart. */
const look = (place) => ({
  ink: `phase-${(place % 6) + 1}`,
  dash: Math.floor(place / 6) % 2 ? [6, 4] : [],
  shape: (place + Math.floor(place / 6)) % 6,
});
function tone(of) {
  if (of === "busy") return { ink: "busy", opacity: 1, on: "card" };
  if (of.contestant !== undefined) return { ink: look(of.contestant).ink, opacity: 0.85, on: "card" };
  const opacity = 0.2 + 0.8 * Math.max(0, Math.min(1, of.idle ?? 0));
  return { ink: "idle", opacity, on: opacity < 0.6 ? "text" : "on-idle" };
}
const css = (of) => `color-mix(in srgb,var(--ink-${of.ink}) ${of.opacity * 100}%,transparent)`;

/** Disc, square, triangle, wedge, plus, cross; 6 is the outline of a square on its tip. */
function shape(context, kind, x, y, size) {
  const r = size / 2;
  const corners = [
    null,
    [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ],
    [
      [0, -1.1],
      [1.1, 0.9],
      [-1.1, 0.9],
    ],
    [
      [0, 1.1],
      [1.1, -0.9],
      [-1.1, -0.9],
    ],
    null,
    null,
    [
      [0, -1.3],
      [1.3, 0],
      [0, 1.3],
      [-1.3, 0],
    ],
  ][kind];
  context.beginPath();
  if (kind === 0) context.arc(x, y, r, 0, 7);
  else if (corners) corners.forEach(([dx, dy]) => context.lineTo(x + dx * r, y + dy * r));
  else if (kind === 4)
    for (const [dx, dy] of [
      [1, 0],
      [0, 1],
    ])
      (context.moveTo(x - dx * r, y - dy * r), context.lineTo(x + dx * r, y + dy * r));
  else for (const s of [1, -1]) (context.moveTo(x - r, y - s * r), context.lineTo(x + r, y + s * r));
  if (corners) context.closePath();
  if (kind < 4) context.fill();
  else context.stroke();
}

/** The sample of a legend's entry. */
function swatch(style, stroke, dash, kind) {
  const canvas = el("canvas", {
    width: 48,
    height: 26,
    style: { width: "24px", height: "13px", flex: "none" },
  });
  repaint.push(() => {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, 48, 26);
    context.strokeStyle = context.fillStyle = stroke();
    if (style === "fill") return context.fillRect(0, 0, 48, 26);
    context.lineWidth = 4;
    context.setLineDash(dash.map((length) => 2 * length));
    context.beginPath();
    context.moveTo(0, 13);
    context.lineTo(48, 13);
    if (style === "line") context.stroke();
    context.setLineDash([]);
    if (kind !== null) shape(context, kind, 24, 13, 18);
  });
  return canvas;
}
/** Painted now, and anew when the colours change. */
const repaint = [];
const plots = [];
