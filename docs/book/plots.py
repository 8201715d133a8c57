#!/usr/bin/env python3
"""Makes docs/images/concept-*.svg: docs/book/plots.py [ROOST], about a minute."""
import json, pathlib, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parents[2]
ROOST = sys.argv[1] if len(sys.argv) > 1 else str(HERE / "target/release/roost")
COLOURS = ["#c2410c", "#1d4ed8", "#047857", "#7e22ce"]
WIDTH, HEIGHT = 300, 200


def sweep(scenario, **sets):
    words = [ROOST, "sim", "sweep", str(HERE / "scenarios" / scenario), "--json"]
    words += [word for key, value in sets.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
    found = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(found.stdout)["cells"]


def lines(cells, axis, value):
    """By contestant, the points that rise with the axis."""
    found = {}
    for cell in cells:
        at = cell["key"]["axes"][axis]
        at = float(at.removesuffix("k"))
        found.setdefault(cell["key"]["contestant"], []).append((at, value(cell["run"])))
    return {name: sorted(points) for name, points in found.items()}


def ticks(top):
    """Four to ten round numbers up to the top."""
    steps = [digit * 10**power for power in range(-3, 6) for digit in (1, 2, 5)]
    step = next(step for step in steps if top / step < 8)
    return [step * at for at in range(int(top / step) + 1)]


def chart(title, x_title, series, left):
    points = [point for every in series.values() for point in every]
    right, top = max(x for x, _ in points), max(y for _, y in points) * 1.05
    place = lambda x, y: (40 + x / right * (WIDTH - 60), HEIGHT - 30 - y / top * (HEIGHT - 60))
    parts = [f'<g transform="translate({left} 0)">', f'<text x="40" y="16" font-weight="bold">{title}</text>']
    for tick in ticks(top):
        _, y = place(0, tick)
        parts.append(f'<path d="M40 {y:.1f}H{WIDTH - 20}" stroke="#8884"/>'
                     f'<text x="36" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(right):
        x, _ = place(tick, 0)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{tick:.3g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 2}" text-anchor="middle">{x_title}</text>')
    for (name, every), colour in zip(series.items(), COLOURS):
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in every)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "".join(parts) + "</g>"


def write(name, charts, series):
    legend = "".join(f'<text x="{40 + 150 * at}" y="{HEIGHT + 20}" fill="{colour}">{key}</text>'
                     for at, (key, colour) in enumerate(zip(series, COLOURS)))
    body = "".join(chart(*one, left=at * WIDTH) for at, one in enumerate(charts))
    box = f"0 0 {WIDTH * len(charts)} {HEIGHT + 30}"
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="#fff"/>{body}{legend}</svg>\n')
    (HERE / "docs/images" / f"concept-{name}.svg").write_text(text)


def watts(run):
    return run["power"]["cpu_watts"]


def p99_us(run):
    return run["responses"]["p99_ns"]["value"] / 1e3


def main():
    loads = "0.02,0.05,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9"
    cells = sweep("mmk.toml", run__utilisation=loads, run__requests="400000")
    cells = [cell for cell in cells if cell["key"]["contestant"] in ("poll", "shallow", "menu", "deep")]
    axis = "run.utilisation"
    power, tail = lines(cells, axis, watts), lines(cells, axis, p99_us)
    write("idle", [("Power of the processor, W (modelled)", "load", power), ("p99, us", "load", tail)], power)
    rates = "20k,40k,80k,120k,160k,240k,320k,400k"
    cells = sweep("memcached.toml", workload__rate=rates, run__requests="400000")
    cells = [cell for cell in cells if cell["key"]["contestant"] in ("menu", "peafowl + menu")]
    power, tail, awake = (lines(cells, "workload.rate", figure) for figure in
                          (watts, p99_us, lambda run: run["awake"]))
    write("cores", [("Power of the processor, W (modelled)", "thousand requests/s", power),
                    ("p99, us", "thousand requests/s", tail), ("Cores awake", "thousand requests/s", awake)], power)


if __name__ == "__main__":
    main()
