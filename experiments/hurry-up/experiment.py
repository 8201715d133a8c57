#!/usr/bin/env python3
"""Hurry-up's experiment with a real Elasticsearch 6.5.4: low, mixed and high numbers of keywords,
once and three times the load.

Usage: experiment.py [--seconds 60] [--documents 1000000] [--seed 1]
                     [--out runs/hurry-up-DATE] [--keep]

1. starts Elasticsearch with the agent on its hot function and the event ring on; indexes the
   corpus; writes its word list
2. calibrates: how long a query of the mix stays in the hot function, and so which rate loads this
   machine as the paper's was
3. loads it in six cells (open loop, `roost load`), and once for each number of keywords, reading
   every call's time from the ring (while it warms up, and in one cell more at the end, `roost
   govern hurry-up --dry-run` shows live which threads are hot and each CPU's clock)
4. plays the recorded calls in the simulator under ondemand, performance, powersave and Hurry-up,
   with the paper's tables of sensitivity
5. writes report.html, stops Elasticsearch and removes its files in /dev/shm

Everything lies in --out: words.txt, recorded calls, traces, simulated outcomes, results.json,
page.json, report.html. Needs `make build java` (make hurry-up does that).
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time

import page
import simulate
import slots
from engine import BODY, Engine

ROOT = simulate.ROOT
HERE = simulate.HERE
ROOST = simulate.ROOST
VERSION = "6.5.4"
SLOTS = f"/dev/shm/roost-es-{VERSION}/slots"
# A second of the paper's fastest load has a few hundred events here.
RING = 1 << 20
CLASSES = {"low": "light", "mix": "paper", "high": "heavy"}
# Of the paper's cores at four queries a second (12 cores; 16 ms and 39 ms a keyword, 2.8 keywords
# in the mean of its mix: estimates of papers/estimates.toml, hurryup.base and hurryup.per_keyword):
# the share that one time the load keeps busy.
BUSY = 4 * (0.016 + 0.039 * 2.8) / 12
NUMBERS = [1, 2, 3, 4, 6, 8, 10, 12, 15, 18]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60, help="of each cell")
    parser.add_argument("--documents", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave Elasticsearch running")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    options.prompt = PROMPT if may_be_prompt() else []
    began = datetime.datetime.now(datetime.timezone.utc)
    out = options.out or ROOT / f"runs/hurry-up-{began:%Y%m%d-%H%M%S}"
    out.mkdir(parents=True, exist_ok=True)
    # A signal ends it as an exception does: the started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        server("start")
        results = measure(options, out)
    finally:
        if not options.keep:
            server("stop")
    results["date"] = f"{began:%Y-%m-%d %H:%M} UTC"
    play(results, out)
    (out / "results.json").write_text(json.dumps(results, indent=1))
    (out / "page.json").write_text(json.dumps(page.page(results), indent=1))
    subprocess.run([ROOST, "report", out / "page.json"], check=True)


def server(what):
    subprocess.run(
        [HERE / "elasticsearch", what, VERSION], check=True, env=dict(os.environ, EVENTS=str(RING))
    )


def measure(options, out):
    """Everything that needs the server."""
    engine = Engine(int((ROOT / f"target/elasticsearch/{VERSION}/port").read_text()))
    count, words = engine.index(options.documents)
    (out / "words.txt").write_text("".join(f"{word} {number}\n" for word, number in words))
    cpus = len(os.sched_getaffinity(0))
    results = {
        "machine": machine(),
        "cpus": cpus,
        "seconds": options.seconds,
        "seed": options.seed,
        "generator": "at real-time priority 1" if options.prompt else "an ordinary process: it may be late",
        "paragraphs": count,
        "command": sys.argv,
        "cells": {},
        "keywords": {},
    }
    # HotSpot compiles the search in the first thousands of queries; they are not measured.
    say("warming up the JVM, 20 s; the levels are those that the scheduler asks for, and none is set")
    load(
        engine, out, options, ["--arrivals", "closed", "--connections", "2"], 20, Governor(out / "live.jsonl")
    )
    _, calls = load(engine, out, options, ["--arrivals", "closed", "--connections", "1"], 10)
    usual = statistics.fmean(inside for _, inside, _ in calls) / 1e9
    rate = BUSY * cpus / usual
    results |= {"calibrated_ms": usual * 1e3, "rate": rate}
    say(
        f"a query of the mix stays {usual * 1e3:.2f} ms in the hot function: one time the load is {rate:.1f}"
        " queries a second"
    )
    left = len(NUMBERS) * 4 + 7 * options.seconds
    say(f"measuring for {left / 60:.0f} minutes")
    for number in NUMBERS:
        _, calls = load(
            engine, out, options, ["--arrivals", "closed", "--connections", "1", "--keywords", str(number)], 4
        )
        results["keywords"][number] = figures([inside / 1e6 for _, inside, _ in calls])
    cells = [(times, cell, keywords) for times in (1, 3) for cell, keywords in CLASSES.items()]
    for number, (times, cell, keywords) in enumerate(cells, 1):
        say(
            f"cell {number} of {len(cells)}: {cell}, {times}x: {times * rate:.1f} queries a second of"
            f" {keywords} keywords, {options.seconds} s"
        )
        outcome, calls = load(
            engine, out, options, ["--rate", f"{times * rate:.3f}", "--keywords", keywords], options.seconds
        )
        name = f"{cell}-{times}x"
        (out / f"{name}.calls.json").write_text(json.dumps(calls))
        (out / f"{name}.load.json").write_text(json.dumps(outcome, indent=1))
        results["cells"][name] = {
            "rate": times * rate,
            "calls": len(calls),
            "inside_ms": figures([inside / 1e6 for _, inside, _ in calls]),
            "latency_ms": {key: outcome["latency"][f"{key}_ns"] / 1e6 for key in ("mean", "p50", "p99")},
            "took_ms": {key: outcome["took"][f"{key}_ns"] / 1e6 for key in ("mean", "p50", "p99")},
            "counts": outcome["counts"],
            "valid": outcome["valid"],
            "invalid_because": outcome["invalid_because"],
        }
    # Apart from the measurement: a governor takes a share of these CPUs, and has each exit read the
    # clock.
    say(f"once more with the scheduler deciding live: mix, 3x, {options.seconds} s")
    governor = Governor(out / "live.jsonl")
    load(
        engine,
        out,
        options,
        ["--rate", f"{3 * rate:.3f}", "--keywords", CLASSES["mix"]],
        options.seconds,
        governor,
    )
    results["live"] = governor.last
    results["failures"] = slots.read(SLOTS)[1]
    return results


# The generator shares its CPUs with the server: it sends when a query is due, and not when a search
# happens to end. It sleeps between two queries, and the kernel leaves ordinary threads their share
# whatever it does (sched_rt_runtime_us).
PROMPT = ["chrt", "--fifo", "1"]


def may_be_prompt():
    """Whether this user may: root, or CAP_SYS_NICE."""
    return subprocess.run([*PROMPT, "true"], stderr=subprocess.DEVNULL).returncode == 0


def load(engine, out, options, more, seconds, view=None):
    """Queries for so long: the figures of `roost load`, and the calls that the ring recorded
    while it measured."""
    command = [
        *options.prompt,
        ROOST,
        "load",
        engine.search_url,
        "--body",
        BODY,
        "--words",
        out / "words.txt",
        "--seed",
        str(options.seed),
    ]
    command += ["--for", f"{seconds}s", "--warmup", "1s", "--json", *more]
    since = slots.next_event(SLOTS)
    with view or Watch():
        asked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # 1: a request failed; 6: the generator was late. Both are told on the page.
    if asked.returncode not in (0, 1, 6) or not asked.stdout:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{asked.stderr}")
    return json.loads(asked.stdout), slots.calls(SLOTS, since)


class Governor(threading.Thread):
    """`roost govern hurry-up` on the very slots, touching nothing: shows once a second who is hot,
    and each CPU's level. All it says is kept."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.last, self.shown = path, {}, 0.0

    def __enter__(self):
        command = [ROOST, "govern", "hurry-up", "--slots", SLOTS, "--dry-run", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.start()
        return self

    def run(self):
        with open(self.path, "a") as kept:
            for line in self.process.stdout:
                kept.write(line)
                self.last = json.loads(line)
                # Lines come as things change; of those too fast to read one is shown a second,
                # preferably with a thread inside.
                if self.last["hot"] and time.monotonic() >= self.shown + 1:
                    self.shown = time.monotonic()
                    say("  live: " + picture(self.last))

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait() != 0:
            raise SystemExit("roost govern hurry-up --dry-run failed: run it by hand to see why")
        self.join()


def picture(status):
    """A line: each CPU's level, then who is inside."""
    cpus = "  ".join(f"CPU {cpu['cpu']} {cpu['level']}" for cpu in status["cpus"])
    hot = ", ".join(
        f"thread {hot['thread']}"
        f" {'on CPU ' + str(hot['cpu']) if hot['runs'] and hot['cpu'] is not None else 'waits'} for"
        f" {hot['for_us'] / 1e3:.1f} ms: {hot['level']}"
        for hot in status["hot"]
    )
    return f"{cpus} | heavy after {status['threshold_us'] / 1e3:.1f} ms | {hot}"


class Watch(threading.Thread):
    """Shows, while a load goes on, which threads are in the hot function and for how long."""

    def __enter__(self):
        self.ended = threading.Event()
        super().__init__(daemon=True)
        self.start()

    def run(self):
        while not self.ended.wait(1):
            now = time.monotonic_ns()
            inside = [(now - slot[4], slot[0]) for slot in slots.read(SLOTS)[2] if slot[1] % 2]
            hot = ", ".join(
                f"thread {tid} for {max(0, age) / 1e6:.1f} ms" for age, tid in sorted(inside, reverse=True)
            )
            print(f"  hot: {hot or 'nobody'}", file=sys.stderr, flush=True)

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def play(results, out):
    """The recorded calls in the simulator."""
    (out / "estimates.toml").write_bytes((ROOT / "papers/estimates.toml").read_bytes())
    cpus, cells = results["cpus"], results["cells"]
    # The paper's low class has a p99 of 0.357 s under ondemand (Table I): its settings of time are
    # scaled by how ours compares.
    scale = cells["low-1x"]["inside_ms"]["p99"] / 1e3 / 0.357
    results["scale"] = scale
    say(f"simulating; our calls take {scale:.4f} of the paper's times")
    for name, cell in cells.items():
        calls = json.loads((out / f"{name}.calls.json").read_text())
        # As recorded, the paper's settings scaled; and stretched to the paper's times, with its own
        # settings.
        for kind, stretch, settings in (("recorded", 1, scale), ("stretched", 1 / scale, 1)):
            trace = f"{name}-{kind}"
            simulate.write_trace(out / f"{trace}.csv", calls, stretch)
            played = simulate.simulate(out, trace, trace, cpus, settings)
            cell[kind] = {policy: told(found) for policy, found in played.items()}
    results["sensitivity"] = {"threshold": {}, "sleep": {}}
    for cell in ("low", "high"):
        for axis, values in (("threshold", simulate.THRESHOLDS), ("sleep", simulate.SLEEPS)):
            rows = results["sensitivity"][axis].setdefault(cell, {})
            for value in values:
                # The paper varies one with the other at its first setting (section V-F).
                settings = {"threshold": 0.300, "sleep": 0.010} | {axis: value}
                name, trace = f"{cell}-1x-{axis}-{value * 1e3:.0f}ms", f"{cell}-1x-stretched"
                played = simulate.simulate(out, name, trace, cpus, 1, ["hurry-up-paper"], **settings)
                rows[value] = told(played["hurry-up-paper"])


def told(found):
    """The page's figures of a simulated run."""
    (query,) = found["classes"]
    return {
        "joules": simulate.energy(found),
        "p99_s": simulate.p99(found),
        "missed": query["missed"] / query["requests"],
        "gears": simulate.shares(found),
        "verdict": found["verdict"],
    }


def figures(values):
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "max": values[-1],
    }


def machine():
    """This machine in a line."""
    models = [
        line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")
    ]
    cpufreq = "with" if os.path.exists("/sys/devices/system/cpu/cpu0/cpufreq") else "without"
    return (
        f"{len(models)} CPUs, {models[0] if models else 'unknown'}, Linux {os.uname().release}, {cpufreq}"
        " cpufreq"
    )


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
