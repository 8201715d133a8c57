"""`roost.run`: every contestant once, side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _pictures, _roost
from ._calls import AnyScenario, Policies, asked
from ._policy import Own
from ._progress import Progress, watched
from ._tables import Tables, save

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd

__all__ = ["Result", "run"]


def run(
    scenario: AnyScenario,
    policies: Policies = None,
    *,
    seed: int | None = None,
    precision: str | None = None,
    set: Mapping[str, Any] | None = None,
    own: Own | None = None,
    against: str | None = None,
    threads: int | None = None,
    progress: Progress = None,
) -> Result:
    """Simulate one server under every contestant, all with the same arrivals, services and noise.

    The figures are those of ``roost sim run`` with the same scenario and seed, bit for bit,
    whatever the number of threads. Other threads of Python go on meanwhile; Ctrl-C ends the runs at
    once.

    :param scenario: a dict (``roost.Scenario`` completes its keys), the path of a TOML file,
        or its text.
    :param policies: contestants instead of the scenario's: a line such as ``"peafowl + teo"``, or
        several.
    :param seed: everything random follows from it; the scenario's, or 1.
    :param precision: go on until this half-width is reached, such as ``"1%@p99"``.
    :param set: other keys of the scenario by dotted name, such as ``{"workload.rate": "50k"}``.
    :param own: policies of one's own: names that ``policies`` may use, and their classes (see
        ``roost.Policy``), such as ``own={"mine": Mine}, policies=["carb", "mine + teo"]``.
    :param against: the contestant that the others are compared with; the first if left out.
    :param threads: runs at the same time; one for each CPU if left out.
    :param progress: True shows a bar, False none, None shows one on runs of more than two seconds
        where a person looks on; or a function of the runs that are over, all runs, and the name of
        the last.
    :raises roost.ScenarioError: bad input; the message names the key and the fix.
    :raises roost.PolicyError: a policy of one's own cannot decide any more.
    """
    call = asked(scenario, policies, seed, precision, set, threads, own)
    with watched(progress) as watch:
        return Result(_roost.run(call, against, watch))


class Result(Tables):
    """The figures of some contestants in one scenario.

    Units end the columns' names: ``_ns`` nanoseconds, ``_s`` seconds, ``_watts``, ``_per_s`` events
    a second, ``khz``, ``mhz``. A share has no unit and lies between 0 and 1. ``NAME_low`` and
    ``NAME_high`` (before the unit) are the ends of a 95 % confidence interval. A cell that is not
    known is missing, never zero: the times of a contestant that was flooded, an
    interval of too short a run.

    Each table is a data frame of pandas here; ``table`` gives the same to polars, DuckDB and
    pyarrow without a copy.
    """

    _compiled: _roost.Run

    def __init__(self, compiled: _roost.Run) -> None:
        super().__init__(compiled)

    @property
    def assumptions(self) -> list[str]:
        """The scenario's assumptions, in sentences."""
        return self._compiled.assumptions

    @property
    def tables(self) -> list[str]:
        """Names that ``table`` takes."""
        return self._compiled.tables

    @property
    def summary(self) -> pd.DataFrame:
        """One row a contestant.

        How it was made: ``contestant``, ``policies``, ``machine``, ``seed``, ``verdict``
        (``complete``, ``precise``, ``imprecise``, ``unstable``, ``unsettled``), ``replications``,
        ``requests``, ``length_s``, ``goal``, ``goal_met``. Response times with intervals:
        ``mean_ns``, ``p50_ns``, ``p95_ns``, ``p99_ns``, ``p999_ns``. Power in watts:
        ``core_watts``, ``uncore_watts``, ``cpu_watts`` (both, with its interval), ``server_watts``;
        ``joules_per_request``. ``throughput`` in answers a second. ``awake_cores``,
        ``active_cores``: mean numbers of CPUs. Shares of CPU time: ``working``, ``waking``,
        ``polling``, ``residency.STATE``; of sleeps: ``premature``, ``missed_deep``; of working
        time: ``frequency.KHZ``; of answers: ``missed`` (too late).
        """
        return self._frame("summary")

    @property
    def points(self) -> pd.DataFrame:
        """The time series, one row a contestant and stretch; ``until_s`` is the end in seconds.

        ``throughput`` (answers a second), ``mean_ns``, ``p99_ns``, ``cpu_watts``, ``active_cores``,
        ``awake_cores``, ``mhz`` (mean clock of working CPUs), ``residency.STATE``.
        """
        return self._frame("points")

    @property
    def residency(self) -> pd.DataFrame:
        """One row a contestant and idle state, shallow to deep: ``share`` of all CPU time,
        ``sleeps_per_s``, and of these sleeps the shares ``premature`` (shorter than the state's
        target residency) and ``missed_deep`` (long enough for a deeper state)."""
        return self._frame("residency")

    @property
    def idle_lengths(self) -> pd.DataFrame:
        """One row a contestant and doubling of an idle period's length.

        From ``from_ns`` to ``to_ns``: ``per_s`` such periods a second of all CPUs, ``time_share``
        of all CPU time. The first row holds all shorter ones.
        """
        return self._frame("idle_lengths")

    @property
    def differences(self) -> pd.DataFrame:
        """One row a contestant and figure: how much more it has than ``against``, on one chance.

        ``difference`` in the figure's unit, ``relative`` as a share of the reference, both with
        intervals; ``pairs`` and ``of`` say on how many pairs it rests, and of which kind. Empty
        with one contestant.
        """
        return self._frame("differences")

    def save_page(self, path: str | os.PathLike[str]) -> None:
        """Write the page of ``roost sim run``, one HTML file that needs nothing but a browser."""
        page = self._compiled.page()
        if page is None:
            raise ValueError("a result that was loaded has no page: the folder has its report.html")
        save(page, path)

    def plot(
        self, x: str = "p99", y: str = "cpu_watts", ax: matplotlib.axes.Axes | None = None
    ) -> matplotlib.axes.Axes:
        """The trade-off: one point a contestant, its response time across, its power up, with 95 %
        intervals. Needs matplotlib (``pip install roost-sim[plot]``).

        :param x: a response time such as ``"p99"``, ``"mean"``, or any column of ``summary``.
        :param y: a power such as ``"cpu_watts"``, or any column of ``summary``.
        """
        return _pictures.trade_off(self.summary, x, y, ax)

    def __repr__(self) -> str:
        names = ", ".join(self.summary["contestant"])
        return f"<roost.Result: {self.title}: {names}>"

    def _repr_html_(self) -> str:
        return _pictures.html(self.title, self.summary, "p99", "cpu_watts")
