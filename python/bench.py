"""The cost of calling the simulator from Python, beside the command.

    cargo build --release -p roost && scripts/python wheel
    scripts/python run pip install --force-reinstall --no-deps target/wheels/*.whl
    scripts/python run python -P python/bench.py --roost target/release/roost

On a machine that has nothing else to do. Two figures, as JSON with the machine's name:

- `ratio`: the median of pairs of runs of scenarios/mmk.toml, one by `roost.run` in a process that
  is up, one by `roost sim run`, in turns. The bar is 1.02. The command starts, and writes a folder.
- `use`: CPU time of a sweep of 1,000 runs of 20,000 requests by its length and the number of CPUs.

With `--ray 10000` instead, and `pip install -r python/requirements-ray.txt`, a sweep of so many
cells of 50 ms on a Ray cluster of this machine's CPUs. `ray_use` is the time that the cells take
alone, on threads, by the sweep's length and the number of CPUs; the bar is 0.85.
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
from typing import Any

import roost
from roost import _roost
from roost._calls import asked

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "mmk.toml"


def by_command(command: str, requests: int, threads: int) -> float:
    """Seconds of `roost sim run`."""
    with tempfile.TemporaryDirectory() as place:
        call = ["taskset", "-c", f"0-{threads - 1}", command, "sim", "run", str(SCENARIO),
                f"--set=run.requests={requests}", "--json", "--out", f"{place}/run"]  # fmt: skip
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


def on_ray(cells: int, cell_s: float = 0.05) -> dict[str, float]:
    """The use of the CPUs by a sweep on a Ray cluster of this machine."""
    import ray

    cpus = len(os.sched_getaffinity(0))

    def swept(cells: int, requests: int, **more: Any) -> float:
        began = time.perf_counter()
        seeds = list(range(1, cells + 1))
        roost.sweep(SCENARIO, {"run.seed": seeds}, "menu", set={"run.requests": requests}, **more)
        return time.perf_counter() - began

    def core_s(requests: int) -> float:
        # With all CPUs at work, as on the cluster: they share caches, or are one core's threads.
        return swept(200 * cpus, requests, threads=cpus) / 200

    # As many requests as take so long, then their true time, before and after.
    requests = int(100_000 * cell_s / core_s(100_000))
    before = core_s(requests)
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    # Worker processes start with their first task.
    swept(20 * cpus, 1000, on="ray")
    used = time.process_time()
    took = swept(cells, requests, on="ray")
    used = time.process_time() - used
    ray.shutdown()
    alone = (before + core_s(requests)) / 2
    call = asked(SCENARIO, "menu", None, None, {"run.requests": requests}, None)
    begun = _roost.Elsewhere(call, {"run.seed": [1]}, None)
    path, text = begun.scenario()
    return {
        "cells": cells,
        "cell_s": alone,
        "cell_s_before": before,
        "ray_s": took,
        "ray_use": cells * alone / took / cpus,
        "driver_ms_per_cell": 1e3 * used / cells,
        "bytes_per_cell": len(_roost.cells_at(path, text, [0], {})),
        "scenario_bytes": len(text),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--roost", help="the command, of the same sources and profile")
    parser.add_argument("--ray", type=int, metavar="CELLS", help="measure a Ray cluster instead")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--cells", type=int, default=1000)
    args = parser.parse_args()
    if _roost.IS_DEBUG:
        sys.exit(
            "bench: this package was built without optimising: `scripts/python wheel`, install"
        )
    threads = len(os.sched_getaffinity(0))
    if args.ray is not None:
        found = {"machine": platform.node(), "cpus": threads, **on_ray(args.ray)}
        print(json.dumps(found, indent=1))
        return
    if args.roost is None:
        parser.error("--roost or --ray")
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
