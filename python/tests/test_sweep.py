"""roost.sweep: cells, axes, folders that are gone on with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import LONG, REPOSITORY, scenario

import roost

AXES: dict[str, list[Any]] = {"workload.rate": ["50k", "100k"], "machine.cores": [2, 4]}


def test_every_value_with_every_other_and_every_contestant() -> None:
    result = roost.sweep(scenario(), AXES)
    cells = result.cells
    assert len(cells) == 2 * 2 * 2 and result.axes == ["machine.cores", "workload.rate"]
    keys = list(cells[["machine.cores", "workload.rate", "contestant"]].itertuples(index=False))
    assert keys[0] == ("2", "50k", "menu") and keys[-1] == ("4", "100k", "deep")
    assert (cells["verdict"] == "complete").all()
    # A cell is the run that it would be alone.
    alone = roost.run(scenario(), set={"workload.rate": "50k", "machine.cores": 2}).summary
    pd.testing.assert_series_equal(cells["p99_ns"][:2], alone["p99_ns"])


def test_the_command_gives_the_same_cells(command: str, tmp_path: Path) -> None:
    file = REPOSITORY / "scenarios" / "mmk.toml"
    done = subprocess.run(
        [command, "sim", "sweep", file, "--set=run.requests=5000", "--policy=menu", "--json",
         "--set=run.utilisation=0.2,0.4", "--out", tmp_path / "sweep"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    axes = {"run.utilisation": [0.2, 0.4]}
    ours = roost.sweep(file, axes, policies="menu", set={"run.requests": 5000})
    assert json.loads(ours.to_json()) == json.loads(done.stdout)
    loaded = roost.load_run(tmp_path / "sweep").cells
    assert loaded is not None
    # The folder has them in the order in which they finished.
    loaded = loaded.sort_values("run.utilisation", ignore_index=True)
    pd.testing.assert_frame_equal(loaded, ours.cells)


def test_a_folder_is_gone_on_with(tmp_path: Path) -> None:
    place = tmp_path / "sweep"
    first = roost.sweep(scenario(), {"machine.cores": [2]}, out=place)
    told: list[tuple[int, int, str]] = []
    both = roost.sweep(
        scenario(),
        {"machine.cores": [2, 4]},
        out=place,
        progress=lambda *how_far: told.append(how_far),
    )
    # Two contestants of one new value are simulated, and no other.
    assert told[-1][:2] == (2, 2)
    assert len(first.cells) == 2 and len(both.cells) == 4
    assert (place / "cells.csv").exists() and (place / "report.html").exists()
    pd.testing.assert_frame_equal(
        both.cells, roost.sweep(scenario(), {"machine.cores": [2, 4]}).cells
    )
    with pytest.raises(roost.ScenarioError, match=r"cells of another scenario: .*workload\.rate"):
        roost.sweep(scenario(), {"machine.cores": [2]}, set={"workload.rate": "1k"}, out=place)


def test_a_sweep_that_was_ended_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "sweep"
    # The second value would take hours.
    axes = {"run.requests": [1000, LONG]}

    class Enough(Exception):
        pass

    def tell(done: int, total: int, last: str) -> None:
        if done == 2:
            raise Enough

    with pytest.raises(Enough):
        roost.sweep(scenario(), axes, out=place, threads=1, progress=tell)
    cells = roost.load_run(place).cells
    assert cells is not None and set(cells["run.requests"]) == {"1000"}


def test_the_scenarios_own_axes_are_kept() -> None:
    given = scenario(sweep={"machine.cores": [2, 4], "workload.rate": ["1k", "2k"]})
    result = roost.sweep(given, {"workload.rate": ["50k"]}, policies="menu")
    assert list(result.cells["machine.cores"]) == ["2", "4"]
    assert set(result.cells["workload.rate"]) == {"50k"}
    set_one = roost.sweep(given, policies="menu", set={"machine.cores": 4})
    assert set_one.axes == ["workload.rate"]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({}, "axes: none"),
        ({"workload.rate": "10k"}, "one value"),
        ({"workload.rate": []}, "no values"),
        ({"workload.rate": ["10k", "10k"]}, "twice"),
        ({"workload.rte": ["10k"]}, "did you mean `rate`"),
        ({"machine.cores": [4, "many"]}, "invalid type"),
    ],
)
def test_axes_are_checked(axes: dict[str, Any], said: str) -> None:
    with pytest.raises(roost.ScenarioError, match=said):
        roost.sweep(scenario(), axes)


def test_a_notebook_shows_the_cells_and_a_plot_has_lines() -> None:
    result = roost.sweep(scenario(), AXES)
    assert result._repr_html_().count("<tr>") == 1 + 8
    pytest.importorskip("matplotlib").use("Agg")
    ax = result.plot("p99", x="workload.rate")
    # A line for each contestant and value of the other axis.
    assert len(ax.get_legend().get_texts()) == 4
    with pytest.raises(KeyError, match="no axis is called"):
        result.plot(x="workload.shape")


def test_the_page_is_the_commands(tmp_path: Path) -> None:
    result = roost.sweep(scenario(), AXES, policies="menu")
    result.save_page(tmp_path / "page.html")
    assert "Over the axes" in (tmp_path / "page.html").read_text()
