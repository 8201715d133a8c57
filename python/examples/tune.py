"""The constants with which `carb-goal` needs the least power within a goal, found by Optuna on Ray.

    pip install "roost-sim[ray]" optuna
    python python/examples/tune.py

Each round asks Optuna for a handful of trials, and Ray simulates them side by side, on this machine
or on a cluster (`RAY_ADDRESS`). Trials share arrivals, services and noise, so the differences are
those of the constants; the best are told again with other seeds, since chance favours the best of
many.
"""

from __future__ import annotations

import argparse
from typing import Any

import optuna
import ray

import roost

GOAL_NS = 300_000
SCENARIO = roost.Scenario(
    goal="300us@p99",
    machine=roost.Machine(preset="xeon-silver-4116", sockets=1, cores=10, threads=1),
    # A rise, and a fall, within the run.
    workload=roost.Workload(rate="400k", shape="diurnal", service={"exponential": "10us"}),
    run=roost.Run(length="20s", requests=100_000_000, replications=1),
)


@ray.remote(num_cpus=1)
def simulated(constants: dict[str, Any], seed: int) -> tuple[float, float]:
    """Watts and the tail in ns with these constants."""
    keys = {f"params.carb-goal.{name}": value for name, value in constants.items()}
    row = roost.run(SCENARIO, "carb-goal + menu", seed=seed, set=keys, threads=1).summary.iloc[0]
    return float(row["cpu_watts"]), float(row["p99_ns"])


def cost(watts: float, tail_ns: float) -> float:
    """Watts; beyond the goal, more than any machine draws."""
    return watts if tail_ns <= GOAL_NS else 1000.0 * tail_ns / GOAL_NS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=48)
    trials = parser.parse_args().trials
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, constant_liar=True))
    at_once = max(2, int(ray.available_resources()["CPU"]))  # type: ignore[no-untyped-call]
    for _ in range(0, trials, at_once):
        asked = [search.ask() for _ in range(at_once)]
        constants = [
            {
                "epoch": f"{trial.suggest_int('epoch_ms', 20, 2000, log=True)}ms",
                "room": trial.suggest_float("room", 0.3, 0.95),
                "patience": trial.suggest_int("patience", 1, 6),
                "busiest": trial.suggest_float("busiest", 0.5, 0.95),
            }
            for trial in asked
        ]
        found = ray.get([simulated.remote(values, 1) for values in constants])
        for trial, values, (watts, tail) in zip(asked, constants, found, strict=True):
            trial.set_user_attr("constants", values)
            search.tell(trial, cost(watts, tail))
    best = search.best_trial.user_attrs["constants"]
    seeds = range(2, 5)
    tuned = ray.get([simulated.remote(best, seed) for seed in seeds])
    default = ray.get([simulated.remote({}, seed) for seed in seeds])
    print(f"best of {len(search.trials)} trials: {best}")
    for seed, ours, theirs in zip(seeds, tuned, default, strict=True):
        print(
            f"seed {seed}: {ours[0]:.1f} W, p99 {ours[1] / 1e3:.0f} us; "
            f"defaults {theirs[0]:.1f} W, {theirs[1] / 1e3:.0f} us"
        )


if __name__ == "__main__":
    main()
