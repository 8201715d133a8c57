"""The table of experiments/wake-gpu/run. Usage: table.py OUT

Of each kernel and way: the wait from the launch until the host had the result, and the CPU time of
the process, medians of the blocks; and the wait against *interrupt* of the same round, with a
bootstrap interval of the median ratio. Then the planner's predictions by their own records.
"""

import json
import random
import statistics
import sys
from collections import defaultdict
from pathlib import Path

OUT = Path(sys.argv[1])
WAYS = ["interrupt", "anticipatory", "callback", "awake", "busy"]


def lines(name):
    return [json.loads(line) for line in (OUT / name).read_text().splitlines() if line.strip()]


def interval(values):
    """A 95% bootstrap interval of the median."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def main():
    blocks = defaultdict(dict)
    for line in lines("blocks.jsonl"):
        blocks[line["kernel"], line["way"]][line["round"]] = line
    print((OUT / "machine.txt").read_text().strip().replace("\n", "; "))
    print(
        "\n| kernel | way | length, p5 to p95 us | wait p50 us | mean us | p99 us | CPU us "
        "| mean wait / interrupt |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kernel in sorted({kernel for kernel, _ in blocks}):
        stock = blocks[kernel, "interrupt"]
        for way in WAYS:
            found = blocks[kernel, way]
            if not found:
                continue

            def middle(of):
                return statistics.median(of(line) for line in found.values())

            def quantile(name, part):
                return middle(lambda line: sorted(line[name])[int(part * (len(line[name]) - 1))])

            ratios = [
                statistics.fmean(line["waits_us"]) / statistics.fmean(stock[number]["waits_us"])
                for number, line in found.items()
                if number in stock
            ]
            least, most = interval(ratios)
            print(
                f"| {kernel} | {way} "
                f"| {quantile('lengths_us', 0.05):.0f} to {quantile('lengths_us', 0.95):.0f} "
                f"| {quantile('waits_us', 0.5):.1f} "
                f"| {middle(lambda line: statistics.fmean(line['waits_us'])):.1f} "
                f"| {quantile('waits_us', 0.99):.1f} | {middle(lambda line: line['cpu_us']):.1f} "
                f"| {statistics.median(ratios):.4f} ({least:.4f} to {most:.4f}) |"
            )
    totals = defaultdict(lambda: defaultdict(int))
    for status in lines("planner.jsonl"):
        for predictor in status.get("predictors", []):
            for name, value in predictor["record"].items():
                if isinstance(value, (int, float)):
                    totals[predictor["name"]][name] += value
    for name, record in totals.items():
        print(f"\n{name}: " + ", ".join(f"{key} {value:,}" for key, value in record.items()))


main()
