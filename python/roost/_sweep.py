"""`roost.sweep`: every contestant in each cell of a grid."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _pictures, _ray, _roost
from ._calls import AnyScenario, Policies, asked
from ._policy import Own
from ._progress import Progress, watched
from ._tables import Tables, save

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd

__all__ = ["SweepResult", "sweep"]


def sweep(
    scenario: AnyScenario,
    axes: Mapping[str, Sequence[Any]] | None = None,
    policies: Policies = None,
    *,
    seed: int | None = None,
    precision: str | None = None,
    set: Mapping[str, Any] | None = None,
    own: Own | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    on: Literal["ray"] | None = None,
    progress: Progress = None,
) -> SweepResult:
    """Simulate every contestant in each cell of a grid over any keys of a scenario.

    The figures are those of ``roost sim sweep``, bit for bit, whatever the number of threads. Other
    threads of Python go on meanwhile; Ctrl-C ends the runs at once.

    :param scenario: a dict (``roost.Scenario`` completes its keys), the path of a TOML file,
        or its text. Its own axes (``sweep``) are kept beside those of the call.
    :param axes: dotted keys and the values that each takes, such as ``{"workload.rate": ["20k",
        "40k"], "machine.cores": [4, 10]}``; every value with every other.
    :param policies: contestants instead of the scenario's: a line such as ``"peafowl + teo"``, or
        several.
    :param seed: everything random follows from it; the scenario's, or 1.
    :param precision: go on until this half-width is reached, such as ``"1%@p99"``.
    :param set: other keys of the scenario by dotted name.
    :param own: policies of one's own, as of ``roost.run``. One that raises ends its own cell, which
        ``faults`` lists. A folder does not keep their cells.
    :param out: a folder that keeps each cell as it finishes. A sweep that was cut short goes on
        there, with new values of an axis as well, and ``roost report`` and ``roost sim sweep`` read
        it. Without it all is in memory.
    :param threads: runs at the same time; one for each CPU if left out.
    :param on: ``"ray"`` makes the cells on a Ray cluster: the one that ``ray.init`` has connected
        to, else the one of ``RAY_ADDRESS`` or of this machine. Every node has this version of the
        package, and the files that the scenario names. The figures are the same, bit for bit. Cells
        that are lost with a node are made again; ``out`` is a folder of this machine.
    :param progress: as of ``roost.run``.
    :raises roost.ScenarioError: bad input; the message names the key and the fix.
    :raises roost.PolicyError: a policy of one's own cannot decide any more, in every cell.
    """
    call = asked(scenario, policies, seed, precision, set, threads, own)
    make = _ray.sweep if _ray.check(on, threads) else _roost.sweep
    with watched(progress) as watch:
        place = None if out is None else os.fspath(out)
        result = SweepResult(make(call, axes or {}, place, watch))
    if faults := len(result.table("faults")):
        all_cells = faults + len(result.table("cells"))
        warnings.warn(f"{faults} of {all_cells} cells ended by a fault: see faults", stacklevel=2)
    return result


class SweepResult(Tables):
    """The figures of every cell of a grid."""

    _compiled: _roost.Sweep

    def __init__(self, compiled: _roost.Sweep) -> None:
        super().__init__(compiled)

    @property
    def axes(self) -> list[str]:
        """The dotted keys of the axes."""
        return self._compiled.axes

    @property
    def cells(self) -> pd.DataFrame:
        """One row a cell: the axes' values as texts, then the columns of ``Result.summary``."""
        return self._frame("cells")

    @property
    def faults(self) -> pd.DataFrame:
        """One row a cell that a policy's fault ended: its name and the problem."""
        return self._frame("faults")

    def save_page(self, path: str | os.PathLike[str]) -> None:
        """Write the page of ``roost sim sweep``, one HTML file that needs nothing but a browser."""
        save(self._compiled.page(), path)

    def plot(
        self, y: str = "p99", x: str | None = None, ax: matplotlib.axes.Axes | None = None
    ) -> matplotlib.axes.Axes:
        """A figure over an axis, a line a contestant with its 95 % intervals; needs matplotlib.

        :param y: a response time such as ``"p99"``, a power such as ``"cpu_watts"``, or any column
            of ``cells``.
        :param x: the key of an axis; the first if left out. Cells of other axes' values are lines
            of their own.
        """
        return _pictures.over(self.cells, self.axes, x or self.axes[0], y, ax)

    def __repr__(self) -> str:
        return f"<roost.SweepResult: {self.title}: {len(self.cells)} cells over {self.axes}>"

    def _repr_html_(self) -> str:
        cells = self.cells
        return _pictures.table(self.title, cells, [*self.axes, "contestant"])
