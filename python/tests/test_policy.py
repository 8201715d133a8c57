"""Policies of one's own: decisions, combinations, faults, endless calls."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY, ended_by_progress, scenario

import roost


class Half(roost.Policy):
    """Half of the cores, always."""

    epoch = "5ms"

    def on_epoch(self, reading: roost.Reading) -> roost.Commands:
        return roost.Commands(cores=self.knobs.workers // 2)


def figures(result: roost.Result, contestant: str) -> dict[str, object]:
    """All figures of a contestant, without its names."""
    summary = result.summary.set_index("contestant").drop(columns=["policies"])
    return dict(summary.loc[contestant].dropna())


def test_carb_in_python_decides_as_the_built_in_one() -> None:
    module = runpy.run_path(str(REPOSITORY / "python" / "examples" / "carb.py"))
    loaded = scenario(2_000_000)
    result = roost.run(
        loaded, policies=["carb-paper", "mine", "menu"], own={"mine": module["Carb"]}
    )
    built_in = figures(result, "carb-paper")
    assert figures(result, "mine") == built_in
    assert figures(result, "menu") != built_in


def test_a_module_in_webassembly_is_a_word_of_a_line() -> None:
    carb = str(REPOSITORY / "crates" / "wasm" / "examples" / "carb.wasm")
    result = roost.run(scenario(600_000), policies=["carb-paper + teo", f"{carb} + teo"])
    assert figures(result, f"{carb} + teo") == figures(result, "carb-paper + teo")
    with pytest.raises(roost.ScenarioError, match="cannot read .*nowhere.wasm"):
        roost.run(scenario(1_000), policies=["nowhere.wasm"])


def test_it_is_combined_with_built_in_policies_and_repeats_exactly() -> None:
    lines = ["half", "half + teo", "half + powersave", "menu"]
    own = {"half": Half}
    first = roost.run(scenario(60_000), policies=lines, own=own, threads=1)
    again = roost.run(scenario(60_000), policies=lines, own=own, threads=3)
    assert first.to_json() == again.to_json()
    active = first.summary.set_index("contestant")["active_cores"]
    assert active["menu"] == 4 and active["half"] == pytest.approx(2, abs=0.2)
    rows = [figures(first, line) for line in lines]
    assert all(a != b for i, a in enumerate(rows) for b in rows[:i])


def test_what_it_is_told_of_machine_and_epochs() -> None:
    knobs: list[roost.Knobs] = []
    readings: list[roost.Reading] = []

    class Watches(roost.Policy):
        epoch = "10ms"
        quantile = 0.9

        def on_epoch(self, reading: roost.Reading) -> None:
            knobs.append(self.knobs)
            readings.append(reading)

    result = roost.run(scenario(goal="300us@p99"), policies="watches", own={"watches": Watches})
    told = knobs[0]
    assert told.workers == 4 and told.clocks_khz == sorted(told.clocks_khz)
    latencies = [latency for _, latency in told.idle_states]
    assert latencies == sorted(latencies) and len(set(latencies)) > 1
    assert (told.goal_ns, told.goal_quantile) == (300_000, 0.99)
    assert len(readings) == int(result.summary["length_s"][0] / 0.010)
    for number, reading in enumerate(readings, start=1):
        assert (reading.now_ns, reading.span_ns) == (number * 10_000_000, 10_000_000)
        assert reading.requests == pytest.approx(1000, rel=0.5)
        assert reading.rate_per_s == reading.requests * 100
        assert reading.mean_ns is not None and reading.tail_ns is not None
        assert 10_000 < reading.mean_ns < reading.tail_ns
        assert reading.active == 4 and sum(reading.working) == pytest.approx(1, rel=0.5)
    assert "requests=" in repr(readings[0])


def test_clock_and_idle_limit_are_obeyed() -> None:
    class Slow(roost.Policy):
        epoch = "1ms"

        def on_epoch(self, reading: roost.Reading) -> roost.Commands:
            return roost.Commands(clock_khz=self.knobs.clocks_khz[0], idle_limit_ns=0)

    result = roost.run(scenario(60_000), policies=["menu", "slow"], own={"slow": Slow})
    summary = result.summary.set_index("contestant")
    assert summary["polling"]["menu"] == 0 and summary["polling"]["slow"] > 0.3
    assert summary["mean_ns"]["slow"] > 1.5 * summary["mean_ns"]["menu"]


def raises(reading: roost.Reading) -> None:
    if reading.now_ns > 20_000_000:
        raise KeyError("gone")


FAULTS: dict[str, tuple[Callable[[roost.Reading], object], type[Exception] | None, str]] = {
    "raises": (raises, KeyError, "KeyError: 'gone' (test_policy.py, line"),
    "wild": (lambda reading: roost.Commands(cores=5), None, "5 cores are none of the machine's"),
    "number": (lambda reading: 3, TypeError, "on_epoch returned 3: return Commands, or None"),
    "zero": (lambda reading: roost.Commands(cores=0), roost.ScenarioError, "cores = 0"),
}


def policy(decide: Callable[[roost.Reading], object], **traits: object) -> type[roost.Policy]:
    own = {"epoch": "5ms", "on_epoch": lambda _, reading: decide(reading), **traits}
    return type("Made", (roost.Policy,), own)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_the_line_and_keeps_the_exception(name: str) -> None:
    decide, cause, problem = FAULTS[name]
    with pytest.raises(roost.PolicyError) as error:
        roost.run(scenario(), policies=["menu", f"{name} + teo"], own={name: policy(decide)})
    told = str(error.value)
    assert f"policies: `{name} + teo`: " in told and problem in told
    assert type(error.value.__cause__) is (cause or type(None))


def test_a_policy_that_cannot_be_made() -> None:
    class Broken(roost.Policy):
        def __init__(self, knobs: roost.Knobs) -> None:
            raise OSError("no table")

    for made, problem in [
        (Broken, "OSError: no table"),
        (lambda knobs: object(), "object has no method on_epoch"),
        (policy(raises, epoch="soon"), "soon"),
        (policy(raises, epoch=5), 'a text with a unit, such as "100ms"'),
        (policy(raises, epoch="1us"), "from 10.0us on"),
        (policy(raises, quantile=99), "quantile = 99"),
        (policy(raises, time_limit_s=math.inf), "time_limit_s = inf"),
    ]:
        with pytest.raises(roost.PolicyError, match="broken") as error:
            roost.run(scenario(), policies="broken", own={"broken": made})  # type: ignore[dict-item]
        assert problem in str(error.value)


def test_a_fault_ends_its_cell_and_not_the_sweep() -> None:
    class Small(roost.Policy):
        epoch = "5ms"

        def on_epoch(self, reading: roost.Reading) -> roost.Commands:
            return roost.Commands(cores=3)

    axes = {"machine.cores": [2, 4]}
    with pytest.warns(UserWarning, match="1 of 4 cells ended by a fault"):
        result = roost.sweep(scenario(), axes, policies=["menu", "small"], own={"small": Small})
    rows = list(result.cells[["machine.cores", "contestant"]].itertuples(index=False))
    assert rows == [("2", "menu"), ("4", "menu"), ("4", "small")]
    assert list(result.faults["cell"]) == ["machine.cores=2 small"]
    assert "3 cores are none of the machine's: order 1 to 2" in result.faults["problem"][0]
    with pytest.raises(roost.PolicyError, match=r"machine\.cores=1 small"):
        roost.sweep(scenario(), {"machine.cores": [1]}, policies="small", own={"small": Small})


def endless(reading: roost.Reading) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:
            pass


def test_an_endless_call_is_ended() -> None:
    own = {"endless": policy(endless, time_limit_s=0.2)}
    with pytest.raises(roost.PolicyError, match="TookTooLong: on_epoch lasted longer"):
        roost.run(scenario(), policies=["menu", "endless"], own=own)


def test_progress_that_raises_ends_an_endless_call() -> None:
    own = {"endless": policy(endless)}
    ended_by_progress(
        lambda progress: roost.run(scenario(), policies="endless", own=own, progress=progress)
    )


def test_a_name_is_one_class_at_a_time() -> None:
    def on_other_class(reading: roost.Reading) -> None:
        roost.run(scenario(), policies="twice", own={"twice": Half})

    own = {"twice": policy(on_other_class)}
    with pytest.raises(roost.PolicyError, match="twice is another class's name in a run"):
        roost.run(scenario(), policies="twice", own=own)
    with pytest.raises(roost.PolicyError, match="twice was a name in another call"):
        roost.run(scenario(), policies="twice")
    # It is free again.
    assert len(roost.run(scenario(), policies="twice", own={"twice": Half}).summary) == 1


def test_bad_arguments_name_the_fix(tmp_path: Path) -> None:
    for own, problem, hint in [
        ({"menu": Half}, "menu is a policy of roost", "another name"),
        ({"No Name": Half}, "`No Name` is no name", "lowercase letters"),
        ({"half": 3}, "half is of the type `int`", "give a class"),
    ]:
        with pytest.raises(roost.ScenarioError) as error:
            roost.run(scenario(), own=own)  # type: ignore[arg-type]
        assert problem in error.value.problem and hint in error.value.hint
    with pytest.raises(TypeError, match="a dict from names to classes"):
        roost.run(scenario(), own=[Half])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a name is a text"):
        roost.run(scenario(), own={3: Half})  # type: ignore[dict-item]
    with pytest.raises(roost.ScenarioError, match="no policy is called `unheard-of`"):
        roost.run(scenario(), policies="unheard-of", own={"half": Half})
    place = tmp_path / "cells"
    axes = {"machine.cores": [2]}
    with pytest.raises(roost.ScenarioError, match="out: a folder cannot know"):
        roost.sweep(scenario(), axes, policies="half", own={"half": Half}, out=place)


def test_commands_are_checked_and_compared() -> None:
    commands = roost.Commands(cores=3, idle_limit_ns=math.inf, clock_khz=2_100_000)
    assert (commands.cores, commands.idle_limit_ns, commands.clock_khz) == (3, math.inf, 2_100_000)
    assert commands == roost.Commands(cores=3, idle_limit_ns=math.inf, clock_khz=2_100_000)
    assert commands != roost.Commands()
    assert repr(roost.Commands(cores=3)) == "Commands(cores=3, idle_limit_ns=None, clock_khz=None)"
    for wrong in [
        {"cores": -1},
        {"cores": 70_000},
        {"idle_limit_ns": -1},
        {"idle_limit_ns": math.nan},
        {"clock_khz": 0},
        {"clock_khz": math.inf},
    ]:
        with pytest.raises(roost.ScenarioError):
            roost.Commands(**wrong)  # type: ignore[arg-type]
