#!/usr/bin/env python3
"""Staged bursts before a real search engine: Elasticsearch 6.5.4, asked 100 times a second, held
250 ms and not held.

Usage: search.py [--documents 60000] [--rate 100] [--rounds 4] [--for 104s] [--out
runs/stage-search-DATE]

1. starts Elasticsearch, indexes the corpus of experiments/hurry-up, puts the server into a cgroup
   of its own (version 2; without leave to do that, its process is named instead)
2. warms it up, and measures its service times: one query at a time, directly; more than 12 ms in
   the mean is too much for the bar
3. `roost-bench stage --only bursts --server`: the same queries through the proxy, held and not held
   by turns
4. stops Elasticsearch and removes the cgroup

In --out: words.txt, service.json (its service times), stage.jsonl (every round, verdicts). Exit
code: that of the bench. Needs `cargo build --release -p roost -p roost-bench`."""

import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINES = ROOT / "experiments/hurry-up"
sys.path.insert(0, str(ENGINES))

from engine import INDEX, Engine  # noqa: E402: it lies beside the other experiment

VERSION = "6.5.4"
HOME = ROOT / f"target/elasticsearch/{VERSION}"
# The bar's limit of the mean, in milliseconds.
MEAN_MAX = 12
WARM_S = 15
CALIBRATE_S = 10


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--rate", default="100", help="queries a second")
    parser.add_argument("--rounds", default="4")
    parser.add_argument(
        "--for", dest="length", default="104s", help="of holding, all rounds together; not held, half of it"
    )
    parser.add_argument("--roost", type=pathlib.Path, default=ROOT / "target/release/roost")
    parser.add_argument("--roost-bench", type=pathlib.Path, default=ROOT / "target/release/roost-bench")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    out = (
        options.out
        or ROOT / f"runs/stage-search-{datetime.datetime.now(datetime.timezone.utc):%Y%m%d-%H%M%S}"
    )
    out.mkdir(parents=True, exist_ok=True)
    # A signal ends it as an exception does: the started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    group = None
    try:
        server("start")
        group = own_group(int((HOME / "pid").read_text()))
        sys.exit(measure(options, out, group))
    finally:
        server("stop")
        if group:
            group.rmdir()


def server(what):
    subprocess.run([ENGINES / "elasticsearch", what, VERSION], check=True, env=dict(os.environ, AGENT="off"))


def own_group(pid):
    """A new cgroup of version 2 with this process in it; None where that may not be."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    places = [pathlib.Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    if not places:
        return None
    # A killed run's leftovers are empty by now.
    for left in places[0].glob("roost-search-*"):
        if not (left / "cgroup.procs").read_text():
            left.rmdir()
    group = places[0] / f"roost-search-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
        return group
    except OSError as cause:
        say(f"no cgroup of its own ({cause}); its process is watched instead")
        if group.is_dir():
            group.rmdir()
        return None


def measure(options, out, group):
    """The bench's exit code."""
    engine = Engine(int((HOME / "port").read_text()))
    words = engine.index_once(options.documents)
    (out / "words.txt").write_text("".join(f"{word}\n" for word in words))
    url = f"http://127.0.0.1:{engine.port}/{INDEX}/_search?request_cache=false&size=10&df=text&q={{words}}"
    say(f"warming up the JVM, {WARM_S} s, and then its service times, {CALIBRATE_S} s")
    alone = ["--arrivals", "closed", "--connections", "1"]
    load(options, out, url, ["--arrivals", "closed", "--connections", "2"], WARM_S)
    service = load(options, out, url, alone, CALIBRATE_S)
    (out / "service.json").write_text(json.dumps(service, indent=1))
    times = {key: service["latency"][f"{key}_ns"] / 1e6 for key in ("mean", "p50", "p99")}
    say("service times, one query at a time: " + ", ".join(f"{key} {ms:.2f} ms" for key, ms in times.items()))
    if times["mean"] > MEAN_MAX:
        raise SystemExit(f"more than {MEAN_MAX} ms in the mean: index fewer paragraphs with --documents")
    whose = ["--cgroup", group] if group else ["--process", (HOME / "pid").read_text().strip()]
    command = [options.roost_bench, "stage", "--only", "bursts", "--server", url]
    command += ["--words", out / "words.txt", *whose]
    command += ["--rate", options.rate, "--rounds", options.rounds, "--for", options.length, "--out", out]
    return subprocess.run(command).returncode


def load(options, out, url, more, seconds):
    """The figures of `roost load` over so many seconds."""
    command = [
        options.roost,
        "load",
        url,
        "--words",
        out / "words.txt",
        "--for",
        f"{seconds}s",
        "--json",
        *more,
    ]
    asked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # 6: the generator was late, which a closed loop cannot be; the blocks here have no schedule.
    if asked.returncode not in (0, 6) or not asked.stdout:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{asked.stderr}")
    return json.loads(asked.stdout)


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
