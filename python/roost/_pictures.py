"""Tables and the trade-off plot: HTML for notebooks without any library, and matplotlib's axes."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd

#: Figures of the table in a notebook, where the summary has them.
SHOWN = ["mean", "p50", "p99", "p999", "cpu_watts", "server_watts", "awake_cores"]
#: Colours that colour-blind readers tell apart: Okabe and Ito, https://jfly.uni-koeln.de/color/.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]


class Axis(NamedTuple):
    """A figure of every contestant, in a unit that people read."""

    label: str
    values: list[float]
    lows: list[float]
    highs: list[float]


def axis(summary: pd.DataFrame, name: str) -> Axis:
    """The column that a figure's name means: ``p99`` is ``p99_ns``."""
    column = name if name in summary.columns else f"{name}_ns"
    if column not in summary.columns:
        known = [
            c
            for c in summary.columns
            if "_low" not in c and "_high" not in c and summary[c].dtype == float
        ]
        raise KeyError(f"no figure is called `{name}`: there are {', '.join(known)}")
    stem = column.removesuffix("_ns")
    unit = column[len(stem) :]
    values = [float(value) for value in summary[column]]
    ends = []
    for end in ("low", "high"):
        other = f"{stem}_{end}{unit}"
        found = summary[other] if other in summary.columns else summary[column]
        # Without an interval the estimate stands alone.
        ends.append(
            [v if math.isnan(e) else e for v, e in zip(values, map(float, found), strict=True)]
        )
    if unit != "_ns":
        return Axis(stem.replace("_watts", " power, W").replace("_", " "), values, *ends)
    largest = max((v for v in values if not math.isnan(v)), default=0.0)
    scale, short = next(
        (s, u)
        for s, u in ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
        if largest >= s or s == 1
    )
    scaled = [[v / scale for v in numbers] for numbers in (values, *ends)]
    return Axis(f"{stem}, {short}", *scaled)


def trade_off(summary: pd.DataFrame, x: str, y: str, ax: Any) -> matplotlib.axes.Axes:
    """One point a contestant with its intervals, on axes of matplotlib."""
    across, up = axis(summary, x), axis(summary, y)
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(6, 4)).add_subplot()
    for at, name in enumerate(summary["contestant"]):
        errors = [[[a.values[at] - a.lows[at]], [a.highs[at] - a.values[at]]] for a in (across, up)]
        ax.errorbar(
            across.values[at], up.values[at], xerr=errors[0], yerr=errors[1],
            marker="o", capsize=2, linestyle="none", color=COLOURS[at % len(COLOURS)], label=name,
        )  # fmt: skip
    ax.set_xlabel(across.label)
    ax.set_ylabel(up.label)
    ax.legend()
    drawn: matplotlib.axes.Axes = ax
    return drawn


def over(cells: pd.DataFrame, axes: list[str], x: str, y: str, ax: Any) -> matplotlib.axes.Axes:
    """A figure over the axis `x`: a line for each contestant at each place of the other axes."""
    if x not in axes:
        raise KeyError(f"no axis is called `{x}`: there are {', '.join(axes)}")
    up = axis(cells, y)
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(6, 4)).add_subplot()
    places = {value: place for place, value in enumerate(dict.fromkeys(cells[x]))}
    lines: dict[str, list[int]] = {}
    for at, row in enumerate(cells[[key for key in axes if key != x]].itertuples(index=False)):
        others = [
            f"{key}={value}"
            for key, value in zip(cells[[k for k in axes if k != x]], row, strict=True)
        ]
        lines.setdefault(" ".join([cells["contestant"].iloc[at], *others]), []).append(at)
    for number, (name, rows) in enumerate(lines.items()):
        errors = [
            [up.values[at] - up.lows[at] for at in rows],
            [up.highs[at] - up.values[at] for at in rows],
        ]
        ax.errorbar(
            [places[cells[x].iloc[at]] for at in rows], [up.values[at] for at in rows], yerr=errors,
            marker="o", capsize=2, color=COLOURS[number % len(COLOURS)], label=name,
        )  # fmt: skip
    ax.set_xticks(list(places.values()), list(places))
    ax.set_xlabel(x)
    ax.set_ylabel(up.label)
    ax.legend()
    drawn: matplotlib.axes.Axes = ax
    return drawn


#: More rows of a table are left out in a notebook.
ROWS_SHOWN = 100


def html(title: str, summary: pd.DataFrame, x: str, y: str) -> str:
    """A table of the main figures and the trade-off plot."""
    picture = svg(axis(summary, x), axis(summary, y), list(summary["contestant"]))
    return f"<div>{table(title, summary, ['contestant'])}{picture}</div>"


def table(title: str, rows: pd.DataFrame, named_by: list[str]) -> str:
    """A table of the main figures, a row for each of `rows`, as HTML."""
    shown = rows.head(ROWS_SHOWN)
    axes = [
        axis(shown, name) for name in SHOWN if name in rows.columns or f"{name}_ns" in rows.columns
    ]
    heads = "".join(
        f"<th>{escape(name)}</th>" for name in [*named_by[:-1], "", *(a.label for a in axes)]
    )
    lines = []
    for at, verdict in enumerate(shown["verdict"]):
        *keys, name = [escape(str(shown[column].iloc[at])) for column in named_by]
        cells = "".join(f'<td style="white-space:nowrap">{_estimate(a, at)}</td>' for a in axes)
        remark = "" if verdict in ("complete", "precise") else f" ({escape(verdict)})"
        # Rows that are contestants have the colours of the plot.
        mark = "" if keys else f'<span style="color:{COLOURS[at % len(COLOURS)]}">&#9679;</span> '
        first = "".join(f"<td>{key}</td>" for key in keys)
        head = f'<th style="text-align:left">{mark}{name}{remark}</th>'
        lines.append(f"<tr>{first}{head}{cells}</tr>")
    more = f"<p>and {len(rows) - len(shown)} rows more</p>" if len(rows) > len(shown) else ""
    return (
        f"<p><b>{escape(title)}</b>, intervals of 95 %</p><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{more}"
    )


def _estimate(figure: Axis, at: int) -> str:
    value, half = figure.values[at], (figure.highs[at] - figure.lows[at]) / 2
    if math.isnan(value):
        return "-"
    off = f" &plusmn;{100 * half / abs(value):.2g} %" if half and value else ""
    return f"{value:.4g}{off}"


WIDTH, HEIGHT, LEFT, BELOW = 480, 300, 60, 45
FLOOR = HEIGHT - BELOW


def svg(x: Axis, y: Axis, names: list[str]) -> str:
    """The trade-off plot as SVG; empty if no contestant has both figures."""
    found = enumerate(zip(x.values, y.values, strict=True))
    known = [at for at, pair in found if all(map(math.isfinite, pair))]
    if not known:
        return ""
    across = _Scale([n for at in known for n in (x.lows[at], x.highs[at])], LEFT, WIDTH - 15)
    up = _Scale([n for at in known for n in (y.lows[at], y.highs[at])], FLOOR, 15)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11" '
        f'aria-label="{escape(y.label)} against {escape(x.label)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<path d="M{LEFT} 10V{FLOOR}H{WIDTH - 10}" fill="none" stroke="#666"/>'
    ]
    parts += [_text(across(tick), FLOOR + 15, "middle", f"{tick:.4g}") for tick in across.ticks]
    parts += [_text(LEFT - 5, up(tick) + 4, "end", f"{tick:.4g}") for tick in up.ticks]
    for at in known:
        colour, name = COLOURS[at % len(COLOURS)], names[at]
        cx, cy = across(x.values[at]), up(y.values[at])
        level = f"M{across(x.lows[at]):.1f} {cy:.1f}H{across(x.highs[at]):.1f}"
        upright = f"M{cx:.1f} {up(y.lows[at]):.1f}V{up(y.highs[at]):.1f}"
        parts.append(
            f'<path d="{level}{upright}" stroke="{colour}"/>'
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="4" fill="{colour}">'
            f"<title>{escape(name)}</title></circle>"
        )
        parts.append(_text(min(cx + 7, WIDTH - 70), cy - 6, "start", name, f' fill="{colour}"'))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 8, "middle", x.label))
    turned = f' transform="rotate(-90 14 {FLOOR / 2})"'
    parts.append(_text(14, FLOOR / 2, "middle", y.label, turned) + "</svg>")
    return "".join(parts)


def _text(x: float, y: float, anchor: str, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


class _Scale:
    """Values as places between two ends, with a margin, and round ticks."""

    def __init__(self, values: list[float], begin: float, end: float) -> None:
        low, high = min(values), max(values)
        margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        self.low, self.high, self.begin, self.end = low - margin, high + margin, begin, end
        step = 10 ** math.floor(math.log10((self.high - self.low) / 2))
        step = next(
            step * m for m in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (step * m) <= 6
        )
        first = math.ceil(self.low / step)
        self.ticks = [n * step for n in range(first, math.floor(self.high / step) + 1)]

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)
