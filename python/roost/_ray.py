"""Simulations as tasks of a Ray cluster.

The driver plans a sweep and keeps its cells; a task gets the scenario, which is put into the
cluster's store once, and the numbers of some points of the grid, and returns their cells as JSON.
Cells depend on nothing else, so a task that was lost with its node is made again, elsewhere, with
the same figures.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from . import _roost
from .errors import ScenarioError

if TYPE_CHECKING:
    from ._progress import Watch

#: Seconds of work in a task: one costs the driver and its node some milliseconds.
TASK_S = 0.5
#: The most points of a task: a lost node costs so many for each CPU.
MOST_POINTS = 256
#: So often is a task made again whose process or node was lost.
RETRIES = 5
#: Open tasks for each CPU of the cluster: one runs, the others wait beside it.
OPEN_FOR_EACH_CPU = 3
#: Seconds between two looks at progress and at Ctrl-C.
LOOK_EVERY_S = 0.05
#: Seconds between two looks at the cluster's size.
CPUS_EVERY_S = 5.0

_VERSION = version("roost-sim")


def check(on: object, threads: int | None) -> bool:
    """Whether the call is for a Ray cluster."""
    if on is None:
        return False
    if on != "ray":
        raise ScenarioError(f'on = {on!r}\n\nhint: "ray"; leave it out for threads of this process')
    if threads is not None:
        raise ScenarioError(
            "threads: of this process, and on='ray' makes no run here\n\nhint: leave one of them "
            "out; the cluster decides how many tasks go on at the same time"
        )
    return True


def sweep(
    call: Mapping[str, Any], axes: Mapping[str, Any], out: str | None, watch: Watch | None
) -> _roost.Sweep:
    """All missing cells of a sweep, each kept as it comes."""
    ray = _connected()
    cpus = _Cpus(ray)
    begun = _roost.Elsewhere(call, axes, out)
    path, text = begun.scenario()
    waiting = deque(begun.missing())
    total, done = sum(cells for _, cells in waiting), 0
    # Seconds a point takes; not known before the first task is over.
    pace: float | None = None
    shared = ray.put((_VERSION, os.fspath(path), text, call["own"]))

    def tasks() -> Iterator[tuple[tuple[Any, ...], int]]:
        while waiting:
            # The last tasks are shared among all CPUs.
            most = max(1, len(waiting) // (2 * cpus()))
            size = 1 if pace is None else min(MOST_POINTS, most, max(1, int(TASK_S / pace)))
            taken = [waiting.popleft() for _ in range(size)]
            yield (shared, [point for point, _ in taken]), sum(cells for _, cells in taken)

    # An error of this loop cancels the open tasks at once, not when its traceback is gone.
    with closing(_results(ray, _cells, tasks(), watch, lambda: (done, total))) as results:
        for (seconds, points, made), cells in results:
            last = begun.keep(made)
            done += cells
            pace = seconds / points if pace is None else 0.9 * pace + 0.1 * seconds / points
            if watch is not None:
                watch(done, total, last)
    return begun.end()


def fleet(call: Mapping[str, Any], watch: Watch | None) -> _roost.Fleet:
    """Each fleet of a call as a task."""
    ray = _connected()
    path, text, title, fleets = _roost.fleets_elsewhere(call)
    shared = ray.put((_VERSION, os.fspath(path), text))
    parts: dict[int, str] = {}
    tasks = (((shared, place), place) for place in range(fleets))
    with closing(_results(ray, _fleet, tasks, watch, lambda: (len(parts), fleets))) as results:
        for part, place in results:
            parts[place] = part
            if watch is not None:
                watch(len(parts), fleets, "")
    return _roost.fleets_joined(title, [parts[place] for place in range(fleets)])


def _cells(
    shared: tuple[str, str, str, Mapping[str, Any]], points: list[int]
) -> tuple[float, int, bytes]:
    """In a task: seconds, points, and their cells."""
    made_by, path, text, own = shared
    _check_version(made_by)
    began = time.perf_counter()
    made = _roost.cells_at(path, text, points, own)
    return time.perf_counter() - began, len(points), made


def _fleet(shared: tuple[str, str, str], place: int) -> str:
    """In a task: one fleet."""
    made_by, path, text = shared
    _check_version(made_by)
    return _roost.fleet_at(path, text, place)


def _check_version(made_by: str) -> None:
    if made_by != _VERSION:
        raise ScenarioError(
            f"a node of the cluster has roost-sim {_VERSION}, the caller {made_by}: figures may "
            f"differ\n\nhint: install the same version everywhere, such as by "
            f'ray.init(runtime_env={{"pip": ["roost-sim=={made_by}"]}})'
        )


def _connected() -> Any:
    """Ray, connected to a cluster."""
    try:
        import ray
    except ImportError:
        raise ScenarioError(
            'on = "ray": Ray is not installed\n\nhint: pip install "roost-sim[ray]"'
        ) from None
    if not ray.is_initialized():
        try:
            # One that runs: RAY_ADDRESS, or a node of this machine.
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError:
            raise ScenarioError(
                'on = "ray": no cluster is found\n\nhint: ray.init() begins one on this machine; '
                "`ray start --head` there and RAY_ADDRESS here name another"
            ) from None
    return ray


class _Cpus:
    """The number of the cluster's CPUs, asked for now and then: a question takes milliseconds."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.number, self.asked = 1, -math.inf

    def __call__(self) -> int:
        now = time.monotonic()
        if now - self.asked > CPUS_EVERY_S:
            self.number = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            self.asked = now
        return self.number


def _results(
    ray: Any,
    function: Callable[..., Any],
    tasks: Iterator[tuple[tuple[Any, ...], Any]],
    watch: Watch | None,
    how_far: Callable[[], tuple[int, int]],
) -> Generator[tuple[Any, Any], None, None]:
    """The tasks' results, as they come, each with its mark; few are open at a time."""
    cpus = _Cpus(ray)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(function)
    marks: dict[Any, Any] = {}
    left = True
    try:
        while left or marks:
            while left and len(marks) < OPEN_FOR_EACH_CPU * cpus():
                arguments, mark = next(tasks, (None, None))
                if arguments is None:
                    left = False
                else:
                    marks[task.remote(*arguments)] = mark
            ready, _ = ray.wait(list(marks), timeout=LOOK_EVERY_S) if marks else ([], [])
            if ready:
                # All that are there by now.
                ready, _ = ray.wait(list(marks), num_returns=len(marks), timeout=0)
            elif watch is not None:
                watch(*how_far(), "")
            for reference in ready:
                mark = marks.pop(reference)
                yield _got(ray, reference), mark
    finally:
        for reference in marks:
            # A task that is about to begin misses the gentle way, and might go on for hours.
            ray.cancel(reference, force=True)


def _got(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # As the task raised it, without Ray's text around it.
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(
            f"Ray has lost a task {RETRIES + 1} times: {error}\n\nhint: with out=DIR, the cells so "
            "far are kept there, and the same call goes on with the others"
        ) from error
