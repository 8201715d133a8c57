#!/usr/bin/env python3
"""What the hook costs a real Elasticsearch: on against off inside one JVM, by the slot file's enable word.

Usage: overhead.py SLOTS [--port 9200] [--blocks 60] [--seconds 4] [--out raw.jsonl]

Method. Blocks come in pairs, one off and one on, the order drawn by a seed. Both blocks of a pair send the very same
queries, one after the other on one connection, so that a pair differs by the hook alone. A block lasts as many queries as
fit into --seconds, fixed for all blocks before the first. The figure is the ratio of a pair's two mean service times; its
interval is from 10,000 bootstrap samples of whole pairs. All blocks are kept and written to --out. Three JVM starts are
better than one, and an idle machine is needed: this one judges its own noise by the spread of the off blocks.
"""

import argparse
import json
import random
import statistics
import time

from engine import INDEX, Engine
from slots import enable, read


def query(random_source, ranked, weights):
    terms = random_source.choices(ranked, weights, k=random_source.choice([1, 2, 3, 4, 8, 12]))
    return json.dumps({"size": 10, "query": {"match": {"text": " ".join(terms)}}})


def block(engine, queries):
    """Mean service time in seconds."""
    total = 0
    for body in queries:
        began = time.monotonic_ns()
        engine.ask("POST", f"/{INDEX}/_search?request_cache=false", body)
        total += time.monotonic_ns() - began
    return total / len(queries) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slots")
    parser.add_argument("--port", type=int, default=9200)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--warm", type=float, default=20)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.blocks < 4:
        parser.error("--blocks must be at least 4: an interval needs more than one pair")
    engine, source = Engine(options.port), random.Random(options.seed)
    count, words = engine.index(options.documents)
    ranked = [word for word, _ in words]
    weights = [1 / (rank + 1) for rank in range(len(ranked))]
    print(f"{count} paragraphs, {len(ranked)} words", flush=True)

    enable(options.slots, 1)
    served, began = 0, time.monotonic()
    while time.monotonic() - began < options.warm:
        block(engine, [query(source, ranked, weights)])
        served += 1
    length = max(20, int(served / options.warm * options.seconds))
    before = sum(slot[1] for slot in read(options.slots)[2])
    pairs = []
    for number in range(options.blocks // 2):
        queries = [query(source, ranked, weights) for _ in range(length)]
        order = source.sample([0, 1], 2)
        times = {}
        for word in order:
            enable(options.slots, word)
            times[word] = block(engine, queries)
        pairs.append((times[0], times[1]))
        if options.out:
            with open(options.out, "a") as out:
                print(json.dumps({"pair": number, "first": order[0], "queries": length, "off_s": times[0], "on_s": times[1]}), file=out)
    enable(options.slots, 1)
    _, failures, slots = read(options.slots)
    calls = (sum(slot[1] for slot in slots) - before) // 2

    ratio = lambda sample: statistics.fmean(on for _, on in sample) / statistics.fmean(off for off, _ in sample)
    samples = sorted(ratio(source.choices(pairs, k=len(pairs))) for _ in range(10_000))
    spread = statistics.stdev(off for off, _ in pairs) / statistics.fmean(off for off, _ in pairs)
    print(f"{2 * len(pairs)} blocks of {length} queries; {calls} calls seen while on, {length * len(pairs)} sent; failures {sum(failures.values())}")
    print(f"service time off {statistics.fmean(off for off, _ in pairs) * 1e3:.3f} ms, spread between blocks {spread:.1%}")
    print(f"on / off {ratio(pairs):.4f} [{samples[250]:.4f}, {samples[9750]:.4f}] (95 %, pairs)")


if __name__ == "__main__":
    main()
