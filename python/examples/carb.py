"""CARB's search (section 3 of the paper, as printed) as a policy of one's own.

    python python/examples/carb.py

It decides as the built-in `carb-paper` does on the same readings, so the figures of both are the
same. The first epoch is measured only; then S0 *holds* until rate or tail change, S1 scales *up*
and S2 *down* step by step, and a rise of the rate beyond a threshold wakes all cores.
"""

from __future__ import annotations

import roost

STEP_RATE = 5_000.0
JUMP_RATE = 20_000.0
STEP_TAIL = 0.1
MIN_ACTIVE = 2


class Carb(roost.Policy):
    epoch = "1s"
    quantile = 0.95

    def __init__(self, knobs: roost.Knobs) -> None:
        super().__init__(knobs)
        self.active = knobs.workers
        self.state = "down"
        self.before: roost.Reading | None = None

    def on_epoch(self, reading: roost.Reading) -> roost.Commands:
        before, self.before = self.before, reading
        if before is not None:
            if reading.rate_per_s - before.rate_per_s > JUMP_RATE:
                self.active, self.state = self.knobs.workers, "down"
            else:
                self.search(reading, before)
        return roost.Commands(cores=self.active)

    def search(self, now: roost.Reading, before: roost.Reading) -> None:
        rose = exceeds = False
        if now.tail_ns is not None and before.tail_ns is not None:
            mean = before.tail_ns if now.mean_ns is None else now.mean_ns
            bound = before.tail_ns + int(mean * STEP_TAIL)
            rose, exceeds = now.tail_ns >= bound, now.tail_ns > bound
        if self.state == "hold":
            if now.rate_per_s > before.rate_per_s + STEP_RATE:
                self.step("up")
            elif now.rate_per_s + STEP_RATE < before.rate_per_s:
                self.step("down")
            elif exceeds:
                self.step("up")
        elif not rose:
            self.step(self.state)
        else:
            self.step("down" if self.state == "up" else "up")
            self.state = "hold"

    def step(self, towards: str) -> None:
        wanted = self.active + (1 if towards == "up" else -1)
        if min(MIN_ACTIVE, self.knobs.workers) <= wanted <= self.knobs.workers:
            self.active, self.state = wanted, towards
        else:
            # A step that the bounds forbid settles instead.
            self.state = "hold"


def main() -> None:
    scenario = roost.Scenario(
        machine=roost.Machine(preset="xeon-silver-4116", sockets=1, cores=10, threads=1),
        workload=roost.Workload(rate="100k", service={"exponential": "20us"}),
        run=roost.Run(requests="3M"),
    )
    policies = ["menu", "carb-paper", "mine"]
    result = roost.run(scenario, policies=policies, own={"mine": Carb})
    print(result.summary[["contestant", "active_cores", "p99_ns", "cpu_watts"]])


if __name__ == "__main__":
    main()
