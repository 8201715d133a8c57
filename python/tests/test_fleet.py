"""roost.fleet: servers behind a root."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import LONG, REPOSITORY, ended_by_progress, scenario

import roost


def test_the_tail_grows_with_the_leaves() -> None:
    result = roost.fleet(scenario(requests=3000), servers=10)
    assert list(result.summary["contestant"]) == ["menu", "deep"]
    assert set(result.summary["fanout"]) == {10}
    menu = result.fanouts[result.fanouts["contestant"] == "menu"]
    assert list(menu["leaves"]) == [1, 10] and menu["mean_ns"].is_monotonic_increasing
    assert list(result.groups["servers"]) == [10, 10]
    assert len(result.points) == 2 * 16
    with pytest.raises(KeyError, match="there are summary, fanouts"):
        result.table("cells")


def test_the_command_gives_the_same_fleet(command: str, tmp_path: Path) -> None:
    file = REPOSITORY / "scenarios" / "mmk.toml"
    done = subprocess.run(
        [command, "sim", "fleet", file, "--set=run.requests=2000", "--policy=menu", "--json",
         "--set=fleet={servers=3,fanout=2}", "--out", tmp_path / "fleet"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = roost.fleet(file, "menu", servers=3, fanout=2, set={"run.requests": 2000})
    assert json.loads(ours.to_json()) == json.loads(done.stdout)
    loaded = roost.load_run(tmp_path / "fleet").result
    assert isinstance(loaded, roost.FleetResult) and loaded.to_json() == ours.to_json()


def test_servers_of_a_scenario_may_be_mixed_and_changed() -> None:
    mixed = scenario(
        requests=2000, policies=[], fleet={"servers": 4, "fanout": 4, "policies": ["menu", "deep"]}
    )
    assert list(roost.fleet(mixed).groups["servers"]) == [2, 2]
    assert list(roost.fleet(mixed, servers=6, fanout=2).groups["servers"]) == [3, 3]
    assert set(roost.fleet(mixed, fanout=1).summary["fanout"]) == {1}
    assert list(roost.fleet(mixed, "menu").groups["policies"]) == ["menu"]


def test_a_sample_of_the_servers_stands_for_all() -> None:
    told: list[int] = []
    sampled = roost.fleet(
        scenario(requests=200_000),
        "menu",
        servers=10_000,
        fanout=5,
        sample=50,
        progress=lambda done, total, _: told.append(total),
    )
    row = sampled.summary.iloc[0]
    assert (row["servers"], row["sample"], told[-1]) == (10_000, 50, 50)
    assert list(sampled.groups["servers"]) == [10_000]
    assert roost.fleet(scenario(requests=2000), "menu", servers=5).summary["sample"].isna().all()
    with pytest.raises(roost.ScenarioError, match=r"fleet\.sample: 4"):
        roost.fleet(scenario(), servers=10, fanout=5, sample=4)


def test_an_error_of_progress_ends_the_fleet() -> None:
    total = ended_by_progress(
        lambda tell: roost.fleet(scenario(requests=50_000_000), servers=100, progress=tell)
    )
    assert total == 2 * 100


def test_a_fleet_is_checked() -> None:
    with pytest.raises(roost.ScenarioError, match="the scenario has no fleet"):
        roost.fleet(scenario())
    with pytest.raises(roost.ScenarioError, match=r"fleet\.fanout"):
        roost.fleet(scenario(), servers=2, fanout=3)
    with pytest.raises(roost.ScenarioError, match=r"run\.requests"):
        roost.fleet(scenario(requests=LONG), servers=2)
