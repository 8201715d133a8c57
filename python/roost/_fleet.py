"""`roost.fleet`: servers behind a root, whose tail is that of the slowest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from . import _pictures, _ray, _roost
from ._calls import AnyScenario, Policies, asked
from ._progress import Progress, watched
from ._tables import Tables

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FleetResult", "fleet"]


def fleet(
    scenario: AnyScenario,
    policies: Policies = None,
    *,
    servers: int | None = None,
    fanout: int | None = None,
    seed: int | None = None,
    sample: int | None = None,
    set: Mapping[str, Any] | None = None,
    threads: int | None = None,
    on: Literal["ray"] | None = None,
    progress: Progress = None,
) -> FleetResult:
    """Simulate many servers behind a root that asks several for each request.

    Every server is simulated in full, under its own policies, with its share of the root's
    requests; a request is answered when the slowest of those asked has. The figures are those of
    ``roost sim fleet``, bit for bit, whatever the number of threads. Ctrl-C ends the runs at once.

    :param scenario: a dict (``roost.Scenario`` completes its keys), the path of a TOML file,
        or its text. ``run.requests`` counts requests of the root.
    :param policies: a fleet for each line, such as ``["menu", "peafowl + teo"]``; without it, the
        scenario's, whose ``fleet.policies`` may mix servers.
    :param servers: how many; the scenario's if left out.
    :param fanout: how many of them each request asks; with ``servers`` alone, all.
    :param sample: simulate only so many of the servers, and let them stand for all: for fleets of
        10,000 servers and more. With five times ``fanout`` each figure was within half a percent;
        docs/scenarios.md has the errors.
    :param seed: everything random follows from it; the scenario's, or 1.
    :param set: other keys of the scenario by dotted name.
    :param threads: servers at the same time; one for each CPU if left out.
    :param on: ``"ray"``, as of ``roost.sweep``: each fleet of the call is a task.
    :param progress: as of ``roost.run``.
    :raises roost.ScenarioError: bad input; the message names the key and the fix.
    """
    keys = dict(set or {})
    given = {"servers": servers, "fanout": fanout, "sample": sample}
    given = {key: value for key, value in given.items() if value is not None}
    if servers is not None:
        # Together: a fleet has both.
        given.setdefault("fanout", servers)
        own = scenario.get("fleet") if isinstance(scenario, Mapping) else None
        keys["fleet"] = {**(own or {}), **given}
    else:
        keys |= {f"fleet.{key}": value for key, value in given.items()}
    call = asked(scenario, policies, seed, None, keys, threads)
    make = _ray.fleet if _ray.check(on, threads) else _roost.fleet
    with watched(progress) as watch:
        return FleetResult(make(call, watch))


class FleetResult(Tables):
    """The figures of fleets. Units and intervals are as in ``roost.Result``."""

    _compiled: _roost.Fleet

    def __init__(self, compiled: _roost.Fleet) -> None:
        super().__init__(compiled)

    @property
    def summary(self) -> pd.DataFrame:
        """One row a fleet: the root's response times, the power of all servers.

        ``contestant``, ``seed``, ``verdict``, ``replications``, ``servers``, ``sample`` (servers
        that stand for all), ``fanout``, ``requests``, ``length_s``, ``goal``, ``goal_met``,
        ``throughput`` (answers of the root a second); ``mean_ns``, ``p50_ns``, ``p95_ns``,
        ``p99_ns``, ``p999_ns``, ``cpu_watts`` with intervals; ``core_watts``, ``uncore_watts``,
        ``server_watts``; ``joules_per_request`` of the root.
        """
        return self._frame("summary")

    @property
    def fanouts(self) -> pd.DataFrame:
        """One row a fleet and number of ``leaves`` waited for: response times with intervals."""
        return self._frame("fanouts")

    @property
    def groups(self) -> pd.DataFrame:
        """One row a fleet and line of policies: servers, one leaf's response times, power."""
        return self._frame("groups")

    @property
    def points(self) -> pd.DataFrame:
        """The time series, one row a fleet and stretch; ``until_s`` is the end in seconds."""
        return self._frame("points")

    def __repr__(self) -> str:
        names = ", ".join(self.summary["contestant"])
        return f"<roost.FleetResult: {self.title}: {names}>"

    def _repr_html_(self) -> str:
        return _pictures.html(self.title, self.summary, "p99", "cpu_watts")
