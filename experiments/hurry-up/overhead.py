#!/usr/bin/env python3
"""The cost of the hook to a real Elasticsearch: on against off inside one JVM, by the slot file's
enable word.

Usage: overhead.py SLOTS [--port 9200] [--quads 200] [--queries 200] [--out raw.jsonl]
       overhead.py --summarize raw.jsonl

Method. One query of three keywords is sent again and again on one connection, the next when the
last was answered, so that nothing differs between two blocks but the hook and the machine's noise.
Blocks of --queries come in fours: off on on off, or on off off on in turns, so that whatever drifts
steadily (a clock, a heap that fills) cancels within each four. How many there are is fixed before
the first; all are kept, in --out, to which a later run adds: so a long measurement can be made in
pieces.

Three figures, each the ratio on / off of the means of a four's two blocks of a kind, and
then the ratio of those means over all fours, with an interval from 10,000 bootstrap samples of
whole fours:
  service time   the mean of a block's answers, from asking to having it: the figure of the bar
  median         of a block's answers: one pause of the collector or the machine's host moves it
                 little
  CPU time       of the threads with a slot (those that search), by the kernel's schedstat: the
                 most that the hook itself can add
An idle machine is needed; the spread of the off blocks is told, and judges it.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time

from engine import INDEX, Engine
from slots import enable, read

# Words of this rank in the corpus: common enough that their query is a real search of a millisecond
# or two, and light in the paper's sense (III).
RANKS = [60, 180, 420]
ORDERS = [(0, 1, 1, 0), (1, 0, 0, 1)]
FIGURES = {"mean_s": "service time", "median_s": "median", "cpu_s": "CPU time"}


def cpu_seconds(tids):
    """CPU time of these threads, of whatever process."""
    return sum(int(pathlib.Path(f"/proc/{tid}/schedstat").read_text().split()[0]) for tid in tids) / 1e9


def block(engine, body, queries, tids):
    """One block's three figures, in seconds a query."""
    times, before = [], cpu_seconds(tids)
    for _ in range(queries):
        began = time.monotonic_ns()
        engine.ask("POST", f"/{INDEX}/_search?request_cache=false", body)
        times.append((time.monotonic_ns() - began) / 1e9)
    cpu = (cpu_seconds(tids) - before) / queries
    return {"mean_s": statistics.fmean(times), "median_s": statistics.median(times), "cpu_s": cpu}


def ratios(quads, figure):
    """On and off of each four, in the mean of its two blocks."""
    pick = lambda quad, kind: statistics.fmean(b[figure] for b in quad["blocks"] if b["on"] == kind)
    return [(pick(quad, 0), pick(quad, 1)) for quad in quads]


def interval(pairs, source):
    """The ratio on / off, and where 95 % of the bootstrap samples of whole fours lie."""
    ratio = lambda sample: sum(on for _, on in sample) / sum(off for off, _ in sample)
    samples = sorted(ratio(source.choices(pairs, k=len(pairs))) for _ in range(10_000))
    return ratio(pairs), samples[250], samples[9750]


def summarize(path):
    """Every four in the file, of however many runs."""
    quads = [json.loads(line) for line in open(path)]
    if len(quads) < 4:
        raise SystemExit(f"{path} has {len(quads)} fours: an interval needs 4 or more")
    source = random.Random(len(quads))
    sent = sum(quad["queries"] for quad in quads) * 4
    print(
        f"{len(quads)} fours, {sent} queries, {sum(quad['calls'] for quad in quads)} calls seen of"
        f" {sent // 2} while on"
    )
    for figure, name in FIGURES.items():
        pairs = ratios(quads, figure)
        off = [b[figure] for quad in quads for b in quad["blocks"] if not b["on"]]
        spread = statistics.stdev(off) / statistics.fmean(off)
        found, low, high = interval(pairs, source)
        print(
            f"{name:13} off {statistics.fmean(off) * 1e3:.3f} ms, blocks spread {spread:.1%}; on / off"
            f" {found:.4f} [{low:.4f}, {high:.4f}] (95 %)"
        )


def outside(slots):
    """Calls that have ended, over all threads."""
    return sum(slot[1] for slot in read(slots)[2]) // 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("slots", nargs="?")
    parser.add_argument("--port", type=int, default=9200)
    parser.add_argument("--quads", type=int, default=200)
    parser.add_argument("--queries", type=int, default=200, help="in a block")
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--warm", type=float, default=20, help="seconds before the first block")
    parser.add_argument("--out", help="raw figures, a line for each four; what is there is kept and counted")
    parser.add_argument("--summarize", metavar="RAW", help="only tell what a file has")
    options = parser.parse_args()
    if options.summarize:
        return summarize(options.summarize)
    if not options.slots:
        parser.error("name the slot file, as `elasticsearch start` prints it")
    if options.quads < 4:
        parser.error("--quads must be at least 4: an interval needs more than one four")
    out = options.out or f"overhead-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    engine = Engine(options.port)
    words = engine.index_once(options.documents)
    body = json.dumps({"size": 10, "query": {"match": {"text": " ".join(words[rank] for rank in RANKS)}}})
    enable(options.slots, 1)
    began = time.monotonic()
    while time.monotonic() - began < options.warm:
        engine.ask("POST", f"/{INDEX}/_search?request_cache=false", body)
    # Threads that search are there by now; one that came later would be seen in the calls, and not
    # in the CPU time.
    tids = [slot[0] for slot in read(options.slots)[2]]
    print(
        f"{len(tids)} threads search; {options.quads} fours of {options.queries} queries a block",
        file=sys.stderr,
        flush=True,
    )
    with open(out, "a") as file:
        for number in range(options.quads):
            blocks, before = [], outside(options.slots)
            for on in ORDERS[number % 2]:
                enable(options.slots, on)
                blocks.append({"on": on, **block(engine, body, options.queries, tids)})
            calls = outside(options.slots) - before
            print(
                json.dumps({"quad": number, "queries": options.queries, "calls": calls, "blocks": blocks}),
                file=file,
                flush=True,
            )
            if number % 50 == 49:
                print(f"{number + 1} of {options.quads} fours", file=sys.stderr, flush=True)
    enable(options.slots, 1)
    failures = {name: count for name, count in read(options.slots)[1].items() if count}
    print(f"failures {failures or 'none'}; raw figures in {out}")
    summarize(out)


if __name__ == "__main__":
    main()
