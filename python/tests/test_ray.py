"""Sweeps and fleets on a Ray cluster of two nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import LONG, Enough, scenario

import roost
from roost import _ray

# All of Ray on 127.0.0.1, as on systems where it makes no clusters; else it looks for this
# machine's address in the network.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "roost-sim[ray]"')

SEEDS = {"run.seed": list(range(1, 41))}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    # Two nodes are no two machines: each has the memory for its one task.
    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    made.add_node(**node)
    made.wait_for_nodes()
    # Classes of this file are not on the nodes.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def killed_after(cells: int, node: Any) -> Callable[[int, int, str], None]:
    """A progress that ends a node with SIGKILL once so many cells are made."""
    is_open = threading.Lock()

    def tell(done: int, total: int, last: str) -> None:
        if done >= cells and is_open.acquire(blocking=False):
            (raylet,) = node.all_processes["raylet"]
            os.kill(raylet.process.pid, signal.SIGKILL)

    return tell


def test_the_cells_are_those_of_threads_bit_for_bit(cluster: Any) -> None:
    axes = {**SEEDS, "machine.cores": [2, 4]}
    told: list[tuple[int, int]] = []
    ours = roost.sweep(
        scenario(), axes, on="ray", progress=lambda done, total, _: told.append((done, total))
    )
    threads = roost.sweep(scenario(), axes)
    assert json.loads(ours.to_json()) == json.loads(threads.to_json())
    pd.testing.assert_frame_equal(ours.cells, threads.cells, check_exact=True)
    assert told[-1] == (160, 160)


def test_a_node_that_is_killed_takes_no_cell_with_it(cluster: Any, tmp_path: Path) -> None:
    _, worker = cluster.list_all_nodes()
    progress = killed_after(10, worker)
    place = tmp_path / "sweep"
    # Long enough that the node has tasks when it ends.
    longer = scenario(requests=200_000)
    ours = roost.sweep(longer, SEEDS, "menu", on="ray", out=place, progress=progress)
    alive = [node for node in ray.nodes() if node["Alive"]]
    deadline = time.monotonic() + 60
    while len(alive) > 1 and time.monotonic() < deadline:
        time.sleep(0.2)
        alive = [node for node in ray.nodes() if node["Alive"]]
    assert len(alive) == 1
    threads = roost.sweep(longer, SEEDS, "menu")
    pd.testing.assert_frame_equal(ours.cells, threads.cells, check_exact=True)
    assert len((place / "cells.jsonl").read_text().splitlines()) == 40


def test_a_sweep_that_was_cut_short_goes_on_in_its_folder(cluster: Any, tmp_path: Path) -> None:
    def enough(done: int, total: int, last: str) -> None:
        if done >= 5:
            raise Enough

    place = tmp_path / "sweep"
    with pytest.raises(Enough):
        roost.sweep(scenario(), SEEDS, on="ray", out=place, progress=enough)
    kept = len((place / "cells.jsonl").read_text().splitlines())
    assert 5 <= kept < 80
    told: list[int] = []
    roost.sweep(
        scenario(), SEEDS, on="ray", out=place, progress=lambda done, total, _: told.append(total)
    )
    assert told[-1] == 80 - kept
    ours = roost.sweep(scenario(), SEEDS, out=place)
    pd.testing.assert_frame_equal(
        ours.cells, roost.sweep(scenario(), SEEDS).cells, check_exact=True
    )


def test_an_error_cancels_the_open_tasks_while_its_traceback_lives(cluster: Any) -> None:
    def enough(done: int, total: int, last: str) -> None:
        if done >= 1:
            raise Enough

    axes = {"run.requests": [1000, LONG, LONG + 1]}
    with pytest.raises(Enough) as raised:
        roost.sweep(scenario(), axes, "menu", on="ray", progress=enough)
    deadline = time.monotonic() + 60
    while ray.available_resources().get("CPU", 0) < 2:
        assert time.monotonic() < deadline, "tasks of hours go on"
        time.sleep(0.2)
    assert raised.traceback


class Half(roost.Policy):
    """Half of the cores."""

    def on_epoch(self, reading: roost.Reading) -> roost.Commands:
        if self.knobs.workers == 3:
            raise ValueError("an odd machine")
        return roost.Commands(cores=self.knobs.workers // 2)


def test_policies_of_ones_own_go_along_and_a_fault_ends_one_cell(cluster: Any) -> None:
    axes = {"machine.cores": [2, 3, 4]}
    with pytest.warns(UserWarning, match="1 of 3 cells"):
        ours = roost.sweep(scenario(), axes, "half + menu", own={"half": Half}, on="ray")
    with pytest.warns(UserWarning, match="1 of 3 cells"):
        threads = roost.sweep(scenario(), axes, "half + menu", own={"half": Half})
    pd.testing.assert_frame_equal(ours.cells, threads.cells, check_exact=True)
    (fault,) = ours.faults.itertuples()
    assert fault.cell == "machine.cores=3 half + menu" and "an odd machine" in fault.problem


class Crash(roost.Policy):
    """Ends its process."""

    def on_epoch(self, reading: roost.Reading) -> None:
        os._exit(1)


def test_a_task_that_ends_its_process_again_and_again_is_told(cluster: Any) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)lost a task 6 times.*out=DIR"):
        roost.sweep(
            scenario(), {"machine.cores": [2]}, "crash + menu", own={"crash": Crash}, on="ray"
        )


def test_another_version_on_a_node_is_refused() -> None:
    with pytest.raises(roost.ScenarioError, match=r"(?s)the caller 9\.9.*roost-sim==9\.9"):
        _ray._check_version("9.9")


def test_fleets_are_those_of_threads_bit_for_bit(cluster: Any) -> None:
    asked: dict[str, Any] = {"servers": 8, "fanout": 4, "seed": 3}
    ours = roost.fleet(scenario(requests=2000), on="ray", **asked)
    threads = roost.fleet(scenario(requests=2000), **asked)
    assert list(ours.summary["contestant"]) == ["menu", "deep"]
    assert json.loads(ours.to_json()) == json.loads(threads.to_json())


def test_files_of_a_scenario_are_found_from_its_folder(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0,a,1ms\n1,a,1ms\n2,b,1ms\n")
    file = tmp_path / "of-a-trace.toml"
    file.write_text(
        'policies = ["menu"]\n[machine]\npreset = "xeon-silver-4116"\n'
        '[workload]\ntrace = "trace.csv"\n[run]\nlength = "4s"\nreplications = 2\n'
    )
    axes = {"machine.cores": [2, 4]}
    ours = roost.sweep(file, axes, on="ray")
    assert json.loads(ours.to_json()) == json.loads(roost.sweep(file, axes).to_json())
    # The driver looks for it as well, so it is told at once.
    (tmp_path / "trace.csv").rename(tmp_path / "gone.csv")
    with pytest.raises(roost.ScenarioError, match=r"trace\.csv"):
        roost.sweep(file, axes, on="ray")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(roost.ScenarioError, match=r"ray\.init"):
        roost.sweep(scenario(), SEEDS, on="ray")
    with pytest.raises(roost.ScenarioError, match="no cluster"):
        roost.fleet(scenario(), servers=4, on="ray")
    with pytest.raises(roost.ScenarioError, match="threads"):
        roost.sweep(scenario(), SEEDS, on="ray", threads=2)
    with pytest.raises(roost.ScenarioError, match="on = 'dask'"):
        roost.sweep(scenario(), SEEDS, on="dask")  # type: ignore[arg-type]
