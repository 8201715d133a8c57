"""results.json as a page's figures, the paper's beside ours; `roost report page.json` draws it.
docs/formats.md has the format."""

import simulate

CELLS = ["low-1x", "mix-1x", "high-1x", "low-3x", "mix-3x", "high-3x"]
MODELLED = "modelled in the simulator, fed with measured in-function times"

# By the paper, tuned Hurry-up uses so much less than ondemand: sections V-F (once the load) and V-G
# (three times; high misses its deadline).
PAPER_SAVES = {"mix-1x": 0.02, "high-1x": 0.17, "low-3x": 0.28, "mix-3x": 0.22}
# Tables III and IV: seconds (headed ms there) and kJ in 1200 s.
PAPER_SECONDS = {
    "threshold": {"low": [0.373, 0.438, 0.525, 0.453], "high": [0.705, 0.8, 0.9, 0.9]},
    "sleep": {"low": [0.455, 0.438, 0.408, 0.518, 0.518], "high": [0.85, 0.8, 0.825, 0.825, 0.85]},
}
PAPER_KJ = {
    "threshold": {"low": [20.85, 19.41, 18.48, 19.32], "high": [39.3, 37.07, 34.63, 32.34]},
    "sleep": {"low": [19.66, 19.41, 19.65, 18.1, 18.09], "high": [36.46, 37.07, 36.44, 35.69, 35.8]},
}


def page(results):
    saves = {cell: saved(results, cell, "stretched", "hurry-up-paper") for cell in CELLS}
    best = max(CELLS, key=lambda cell: saves[cell])
    recorded = [saved(results, cell, "recorded", "hurry-up-paper") for cell in CELLS]
    ours = [saved(results, cell, "recorded", "hurry-up") for cell in CELLS]
    return {
        "title": "Hurry-up on a real Elasticsearch 6.5.4",
        "summary": (
            f"{sum(cell['calls'] for cell in results['cells'].values())} queries were sent to a real"
            " Elasticsearch and the time that each spent in the hot function was recorded. Played in the"
            " simulator and stretched to the paper's times, Hurry-up as the paper tuned it saves"
            f" {percent(saves[best])} of ondemand's energy at best ({best}); the paper says 28 % (low, three"
            " times the load). As short as they really are, the paper's flowchart saves"
            f" {percent(min(recorded))} to {percent(max(recorded))} and ours {percent(min(ours))} to"
            f" {percent(max(ours))} (less than nothing: costs more). Times are measured on this machine;"
            f" frequencies, and so energy, are {MODELLED}: no clock was changed for this page. That clocks do"
            " change as decided is proved on kernels with cpufreq in the lab (lab/run)."
        ),
        "facts": [
            results["date"],
            results["machine"],
            f"seed {results['seed']}",
            f"{results['paragraphs']} paragraphs",
            f"{results['seconds']} s a cell",
        ],
        "alarms": alarms(results),
        "cards": [card(cell, saves[cell]) for cell in CELLS if cell in PAPER_SAVES],
        "sections": [
            measured(results),
            played(results, "stretched"),
            played(results, "recorded"),
            sensitivity(results),
            frequencies(results),
        ],
        "notes": [
            (
                "In-function times: the agent's event ring, one pair of events for each call of"
                " SearchService::executeQueryPhase; a call's time runs from its enter to its exit on the"
                " monotonic clock. On a busy machine it has the time in it that the thread waited for a CPU."
                " A second of warm-up is in the calls and not in the latencies."
            ),
            (
                "Latency: roost load, open loop, from the instant a request was due. `took` is"
                " Elasticsearch's own word, in whole milliseconds."
            ),
            (
                f"Energy: cores and uncore for each request, {MODELLED}. The simulated machine is the paper's"
                f" (Gold 6126, 12 cores); calls come {simulate.CORES / results['cpus']:g} times as fast as"
                f" recorded on {results['cpus']} CPUs, so that the load of a core is the recorded one."
            ),
            (
                f"One time the load: {results['rate']:.1f} queries a second, which keeps as large a share of"
                " this machine in the hot function as four queries a second kept of the paper's (calibrated:"
                f" {results['calibrated_ms']:.2f} ms for a query of the mix)."
            ),
            (
                f"Our calls take {results['scale']:.4f} of the paper's times (the light queries' p99 in the"
                " hot function, once the load, against its 0.357 s under ondemand): 450 ms would never fire"
                " here. So calls are played stretched to the paper's times with its own settings, and as"
                " recorded with its settings scaled down."
            ),
        ],
        "assumptions": [
            (
                "a call's recorded time is work at the nominal clock; papers/estimates.toml says which part"
                " of it a clock does not shorten (hurryup.memory)"
            ),
            (
                "words of queries follow Zipf's law of exponent 1 over the index's own words; Faban's list of"
                " words is not published"
            ),
            "the corpus is Debian's manuals and dictionaries (corpus.txt), not Wikipedia of 2020",
        ],
        "command": [str(word) for word in results["command"]],
    }


def alarms(results):
    said = [
        f"{name}: {reason}" for name, cell in results["cells"].items() for reason in cell["invalid_because"]
    ]
    said += [f"the agent counted {count} {what}" for what, count in results["failures"].items() if count]
    unsettled = [
        f"{name} under {policy}"
        for name, cell in results["cells"].items()
        for policy, found in cell["recorded"].items()
        if found["verdict"] == "unstable"
    ]
    return said + ([f"more than the simulated machine can do: {', '.join(unsettled)}"] if unsettled else [])


def card(cell, saves):
    return {
        "what": f"{cell}, stretched to the paper's times: energy saved, {MODELLED}",
        "figure": percent(saves),
        "remark": f"paper: {percent(PAPER_SAVES[cell])}",
    }


def measured(results):
    rows = []
    for name in CELLS:
        cell = results["cells"][name]
        inside, latency, counts = cell["inside_ms"], cell["latency_ms"], cell["counts"]
        wrong = (
            counts["answered"]
            - counts.get("good", 0)
            + counts["lost"]
            + counts["unanswered"]
            + counts.get("timed_out", 0)
        )
        cells = [
            f"{cell['rate']:.1f}/s",
            str(cell["calls"]),
            ms(inside["mean"]),
            ms(inside["p50"]),
            ms(inside["p99"]),
            ms(latency["p50"]),
            ms(latency["p99"]),
            ms(cell["took_ms"]["p50"]),
            str(wrong),
        ]
        rows.append({"name": name, "cells": cells, "remark": "" if cell["valid"] else "INVALID: see above"})
    numbers = sorted(results["keywords"], key=int)
    bars = lambda name, key, place: {
        "name": name,
        "tone": {"contestant": place},
        "values": [{"value": results["keywords"][k][key] * 1e6} for k in numbers],
    }
    return {
        "title": "Measured on this machine",
        "text": (
            "Low is 3 to 4 keywords, mix 1 to 18 (95 % up to 8), high 12 to 18. Nothing here is modelled. The"
            " generator, on the server's own CPUs: "
            + results["generator"]
            + "."
        ),
        "parts": [
            {
                "table": {
                    "title": "Each cell",
                    "head": [
                        "cell",
                        "asked",
                        "calls",
                        "inside, mean",
                        "inside, p50",
                        "inside, p99",
                        "latency, p50",
                        "latency, p99",
                        "took, p50",
                        "errors",
                    ],
                    "rows": rows,
                }
            },
            {
                "bars": {
                    "title": "Time in the hot function by number of keywords",
                    "see": (
                        "More keywords need more time (the paper's Observation 2): one client, one query at a"
                        " time."
                    ),
                    "quantity": {"name": "time in the hot function, measured", "unit": "nanoseconds"},
                    "rows": [f"{k} keywords" for k in numbers],
                    "parts": [bars("p50", "p50", 0), bars("p99", "p99", 1)],
                }
            },
        ],
    }


def played(results, kind):
    cells = results["cells"]

    def bars(title, see, quantity, unit, key):
        parts = []
        for place, policy in enumerate(simulate.POLICIES):
            values = [
                None if key == "p99_s" and keeps_growing(cell, policy) else cells[cell][kind][policy][key]
                for cell in CELLS
            ]
            scale = 1e9 if unit == "nanoseconds" else 1
            parts.append({
                "name": policy,
                "tone": {"contestant": place},
                "values": [None if value is None else {"value": value * scale} for value in values],
            })
        return {
            "bars": {
                "title": title,
                "see": see,
                "quantity": {"name": quantity, "unit": unit},
                "rows": CELLS,
                "parts": parts,
            }
        }

    # Such a queue has no 99th percentile, only a length of the run; drawn, it would hide all
    # others.
    keeps_growing = lambda cell, policy: (
        cells[cell][kind][policy]["p99_s"] or 0
    ) > 10 * simulate.DEADLINE * (1 if kind == "stretched" else results["scale"])
    grown = [
        f"{policy} in {cell} ({cells[cell][kind][policy]['p99_s']:.0f} s)"
        for cell in CELLS
        for policy in simulate.POLICIES
        if keeps_growing(cell, policy)
    ]
    overloaded = f" Not drawn, for the queue grows until the run ends: {', '.join(grown)}." if grown else ""

    rows, late = [], []
    for cell in CELLS:
        found = cells[cell][kind]
        saves = [
            percent(saved(results, cell, kind, policy))
            for policy in ("hurry-up-paper", "hurry-up", "performance", "powersave")
        ]
        printed = (
            percent(PAPER_SAVES[cell])
            if cell in PAPER_SAVES
            else "not printed" if cell == "low-1x" else "misses its deadline"
        )
        rows.append({"name": cell, "cells": [saves[0], printed, *saves[1:]]})
        late.append(
            {"name": cell, "cells": [percent(found[policy]["missed"]) for policy in simulate.POLICIES]}
        )
    scale = 1 if kind == "stretched" else results["scale"]
    settings = [
        ms(seconds * scale * 1e3) for seconds in (simulate.THRESHOLD, simulate.SLEEP, simulate.DEADLINE)
    ]
    title = {"stretched": "stretched to the paper's times", "recorded": "as recorded"}[kind]
    return {
        "title": f"Ondemand, performance, powersave and Hurry-up: calls {title}",
        "text": (
            f"Energy and response times are {MODELLED}. hurry-up-paper is the paper's flowchart as it was"
            f" tuned: threshold {settings[0]}, sleep {settings[1]}, its thread's work included. hurry-up is"
            f" ours: event-driven, its threshold learned. The deadline is {settings[2]}."
        ),
        "parts": [
            {
                "table": {
                    "title": "Energy saved against ondemand",
                    "head": [
                        "cell",
                        "hurry-up-paper",
                        "the paper's figure",
                        "hurry-up",
                        "performance",
                        "powersave",
                    ],
                    "rows": rows,
                }
            },
            {
                "table": {
                    "title": "Requests after the deadline",
                    "head": ["cell", *simulate.POLICIES],
                    "rows": late,
                }
            },
            bars(
                "Energy for each request",
                "Cores and uncore of the simulated socket. Shorter is better.",
                f"energy, {MODELLED}",
                "joules",
                "joules",
            ),
            bars(
                "Response times",
                "The 99th percentile of what the same requests would have taken." + overloaded,
                "p99, modelled",
                "nanoseconds",
                "p99_s",
            ),
        ],
    }


def sensitivity(results):
    parts = []
    for axis, values in (("threshold", simulate.THRESHOLDS), ("sleep", simulate.SLEEPS)):
        rows = []
        for cell in ("low", "high"):
            found = results["sensitivity"][axis][cell]
            base = found[values[values.index(0.300 if axis == "threshold" else 0.010)]]["joules"]
            printed = PAPER_KJ[axis][cell][values.index(0.300 if axis == "threshold" else 0.010)]
            rows.append({
                "name": f"{cell}: p99",
                "cells": ["-" if found[v]["p99_s"] is None else ms(found[v]["p99_s"] * 1e3) for v in values],
            })
            rows.append({
                "name": f"{cell}: p99, the paper's",
                "cells": [f"{seconds:g} s" for seconds in PAPER_SECONDS[axis][cell]],
            })
            rows.append({
                "name": f"{cell}: energy",
                "remark": MODELLED,
                "cells": [f"{found[v]['joules'] / base:.3f}" for v in values],
            })
            rows.append({
                "name": f"{cell}: energy, the paper's",
                "remark": "measured there (RAPL)",
                "cells": [f"{kj / printed:.3f}" for kj in PAPER_KJ[axis][cell]],
            })
        head = [axis] + [f"{v * 1e3:g} ms" for v in values]
        parts.append({"table": {"title": f"By {axis}", "head": head, "rows": rows}})
    return {
        "title": "Sensitivity: threshold and sleep (the paper's Tables III and IV)",
        "text": (
            "One time the load. Energies are shares of the one at a threshold of 300 ms and a sleep of 10 ms,"
            " as the paper varied one with the other at that. Calls stretched to the paper's times."
        ),
        "parts": parts,
    }


def frequencies(results):
    rows = []
    for cell in CELLS:
        for policy in ("ondemand", "hurry-up-paper", "hurry-up"):
            gears = results["cells"][cell]["stretched"][policy]["gears"]
            of = lambda low, high: sum(share for ghz, share in gears.items() if low <= float(ghz) <= high)
            rows.append({
                "name": f"{cell}, {policy}",
                "cells": [
                    percent(of(0, 1.05)),
                    percent(of(1.05, 1.95)),
                    percent(of(1.95, 2.05)),
                    percent(of(2.05, 2.55)),
                    percent(of(2.55, 9)),
                ],
            })
    head = ["share of working time", "1.0 GHz", "between", "2.0 GHz", "between", "2.6 GHz and turbo"]
    return {
        "title": "Where the clock was (the paper's Figures 9 and 12)",
        "text": (
            "The paper: ondemand works mostly at 2.6 GHz, Hurry-up mostly at 2.0 GHz and only its heavy"
            " queries at 2.6. Modelled; calls stretched to the paper's times."
        ),
        "parts": [{"table": {"title": "", "head": head, "rows": rows}}],
    }


def saved(results, cell, kind, policy):
    """The share of ondemand's energy that a policy does not use."""
    found = results["cells"][cell][kind]
    return 1 - found[policy]["joules"] / found["ondemand"]["joules"]


def percent(share):
    # Without the minus of a rounded zero.
    return f"{round(share * 100, 1) + 0:.1f} %"


def ms(value):
    return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"
