"""The cost of calling the simulator from Python, beside the command.

    cargo build --release -p roost && scripts/python wheel
    scripts/python run pip install --force-reinstall --no-deps target/wheels/*.whl
    scripts/python run python python/bench.py --roost target/release/roost

On a machine that has nothing else to do. Two figures, as JSON with the machine's name:

- `ratio`: the median of pairs of runs of scenarios/mmk.toml, one by `roost.run` in a process that
  is up, one by `roost sim run`, in turns. The bar is 1.02. The command starts, and writes a folder.
- `use`: CPU time of a sweep of 1,000 runs of 20,000 requests by its length and the number of CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import roost
from roost import _roost

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "mmk.toml"


def by_command(command: str, requests: int, threads: int) -> float:
    """Seconds of `roost sim run`."""
    with tempfile.TemporaryDirectory() as place:
        call = [command, "sim", "run", str(SCENARIO), f"--set=run.requests={requests}", "--json",
                f"--threads={threads}", "--out", f"{place}/run"]  # fmt: skip
        began = time.perf_counter()
        subprocess.run(call, check=True, capture_output=True)
        return time.perf_counter() - began


def by_python(requests: int, threads: int) -> float:
    """Seconds of `roost.run` and of its tables."""
    began = time.perf_counter()
    result = roost.run(SCENARIO, set={"run.requests": requests}, threads=threads)
    _ = result.summary, result.differences, result.points
    return time.perf_counter() - began


def use_of_cpus(cells: int) -> float:
    """CPU time of a sweep by its length and the number of CPUs."""
    seeds = list(range(1, cells + 1))
    began, used = time.perf_counter(), time.process_time()
    roost.sweep(SCENARIO, {"run.seed": seeds}, "menu", set={"run.requests": 20_000})
    took, used = time.perf_counter() - began, time.process_time() - used
    return used / took / len(os.sched_getaffinity(0))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--roost", required=True, help="the command, of the same sources and profile"
    )
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--cells", type=int, default=1000)
    args = parser.parse_args()
    if _roost.IS_DEBUG:
        sys.exit(
            "bench: this package was built without optimising: `scripts/python wheel`, install"
        )
    threads = len(os.sched_getaffinity(0))
    by_python(20_000, threads)
    pairs = [
        (by_python(args.requests, threads), by_command(args.roost, args.requests, threads))
        for _ in range(args.pairs)
    ]
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    found = {
        "machine": platform.node(),
        "cpus": threads,
        "ratio": statistics.median(ratios),
        "ratio_least": ratios[0],
        "ratio_most": ratios[-1],
        "python_s": statistics.median(ours for ours, _ in pairs),
        "command_s": statistics.median(theirs for _, theirs in pairs),
        "use": use_of_cpus(args.cells),
        "cells": args.cells,
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
