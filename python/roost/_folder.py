"""`roost.load_run`: the folder of a run, live or simulated."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _roost
from ._fleet import FleetResult
from ._frames import frame
from ._run import Result
from .errors import ScenarioError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RunFolder", "load_run"]


def load_run(folder: str | os.PathLike[str]) -> RunFolder:
    """Read the folder that a run has left: `roost demo`, `load`, `observe`, `prove`, `sim run`, ...

    :param folder: such as ``"runs/demo-2026-11-26-10-00-00"``.
    :raises roost.ScenarioError: no run's folder, a file that is broken, or one of another version;
        the message names the file and the line.
    """
    place = Path(folder)
    return RunFolder(place, _roost.load_run(os.fspath(place)))


class RunFolder:
    """The content of a run's folder; docs/formats.md explains each file.

    A run that was cut short reads as well. A figure that could not be measured is
    missing, never zero.
    """

    def __init__(self, place: Path, compiled: _roost.Folder) -> None:
        self.place = place
        self._compiled = compiled

    @cached_property
    def info(self) -> dict[str, Any]:
        """``run.toml``: ``command``, ``version``, ``started``, ``machine``, ``config`` in force."""
        found: dict[str, Any] = json.loads(self._compiled.info())
        return found

    @property
    def remarks(self) -> list[str]:
        """Sentences on parts that are missing, such as those of a run that was cut short."""
        return self._compiled.remarks

    @property
    def files(self) -> list[str]:
        """Names of the folder's files; ``read`` takes those that end in .json, .jsonl, .csv."""
        return sorted(path.name for path in self.place.iterdir() if path.is_file())

    def table(self, name: str) -> _roost.Table:
        """With Arrow's interface: ``frames``, ``workers``, ``cpus``, ``phases`` or ``verdicts``."""
        return self._compiled.table(name)

    @cached_property
    def frames(self) -> pd.DataFrame:
        """One row a moment, about every 200 ms; empty where nothing was recorded over time.

        ``phase``; ``at_ns`` since it began; ``offered_per_s``, ``achieved_per_s`` (requests),
        ``p50_ns``, ``p99_ns``, ``p999_ns`` (from the intended send time) since the row before;
        ``workers_awake``; ``transfers``, ``awake_ns``, ``joules`` since the phase began;
        ``energy_source``: modelled or measured, and by which table or meter.
        """
        return frame(self.table("frames"))

    @cached_property
    def workers(self) -> pd.DataFrame:
        """One row a moment and worker of the store.

        ``phase``, ``at_ns``, ``worker``, ``cpu``, ``active``, ``load_per_s``, ``limit_per_s``
        (requests), ``busy`` (share of the interval), ``residents``, ``guests`` (connections).
        """
        return frame(self.table("workers"))

    @cached_property
    def cpus(self) -> pd.DataFrame:
        """One row a moment and CPU: ``busy`` and ``residency.STATE`` as shares of the interval."""
        return frame(self.table("cpus"))

    @cached_property
    def phases(self) -> pd.DataFrame:
        """One row a phase; the first is the baseline. Empty in a run that was cut short.

        ``phase``, ``treatment``, ``length_ns``, ``offered_per_s``, ``achieved_per_s``,
        ``requests``, ``errors``, ``p50_ns``, ``p99_ns``, ``p999_ns``, ``max_ns``, ``awake_ns``,
        ``transfers``, ``late`` (share of sends), ``joules``, ``energy_source``.
        """
        return frame(self.table("phases"))

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """One row a verdict: ``figure``, ``found``, ``bar``, ``met`` (missing: not judged)."""
        return frame(self.table("verdicts"))

    @cached_property
    def result(self) -> Result | FleetResult | None:
        """The result of `roost sim run` or `roost sim fleet`; None in any other run's folder."""
        run = self._compiled.simulated()
        if run is not None:
            return Result(run)
        fleets = self._compiled.fleets()
        return None if fleets is None else FleetResult(fleets)

    @cached_property
    def cells(self) -> pd.DataFrame | None:
        """The finished cells of a sweep as they finished; None in any other run's folder."""
        found = self._compiled.cells()
        return None if found is None else frame(found[1])

    def read(self, name: str) -> Any:
        """A file as it stands: .json parsed, .jsonl and .csv as a data frame.

        Tables in a line's fields become columns with dotted names, such as ``energy.used``.
        """
        import pandas as pd

        if "/" in name or name not in self.files:
            raise FileNotFoundError(
                f"{self.place}: no file {name}: there are {', '.join(self.files)}"
            )
        path = self.place / name
        if path.suffix == ".csv":
            return pd.read_csv(path)
        try:
            if path.suffix == ".json":
                return json.loads(path.read_text(encoding="utf-8"))
            if path.suffix == ".jsonl":
                # A line without an end was being written when the run ended.
                whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
                return pd.json_normalize([json.loads(line) for line in whole.splitlines() if line])
        except ValueError as error:
            raise ScenarioError(f"{path}: {error}") from error
        raise ValueError(f"{name}: neither .json nor .jsonl nor .csv")

    def __repr__(self) -> str:
        return f"<roost.RunFolder: {self.place}: {self.info['title']}>"
