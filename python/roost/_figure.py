"""`roost.figure`: a paper's figure simulated, beside the printed numbers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _roost
from ._progress import Progress, watched
from ._tables import Tables
from .errors import ScenarioError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FigureResult", "figure"]


def figure(
    *names: str,
    papers: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    short: bool = False,
    quick: bool = False,
    threads: int | None = None,
    progress: Progress = None,
) -> FigureResult:
    """Simulate figures of the papers as ``roost-papers`` does, and judge the papers' claims.

    :param names: such as ``"carb/4"``, ``"peafowl"`` (all of a paper), or several.
    :param papers: the repository's folder ``papers``; that of the working directory or one above it
        if left out.
    :param out: a folder that keeps each run as it finishes, and gets the page. Without it nothing
        is kept.
    :param short: a tenth of the requests, a third of the repetitions: wider intervals.
    :param quick: so few requests that no figure can be trusted: to see that all is in place.
    :param threads: runs at the same time; one for each CPU if left out.
    :param progress: as of ``roost.run``; the number of all runs is told as 0.
    :raises roost.ScenarioError: no such figure, or no such folder.
    """
    if not names:
        raise ScenarioError('no figure was named\n\nhint: such as roost.figure("carb/4")')
    library = None if papers is None else os.fspath(papers)
    place = None if out is None else os.fspath(out)
    with watched(progress) as watch:
        return FigureResult(
            _roost.figure(list(names), library, place, short, quick, threads, watch)
        )


class FigureResult(Tables):
    """The runs of a paper's figures, and its claims beside ours: tables ``claims`` and ``runs``."""

    _compiled: _roost.Figures

    def __init__(self, compiled: _roost.Figures) -> None:
        super().__init__(compiled)

    @property
    def claims(self) -> pd.DataFrame:
        """One row a claim.

        ``figure``, ``headline`` (or only a printed number), ``id``, ``says`` in words; the numbers
        ``paper`` and ``ours``, ``half_width`` of ours (95 %), ``deviation`` of ours as a share;
        ``verdict``: ``met``, ``missed``, ``refuted``, ``not-reproducible``, ``check``.
        """
        return self._frame("claims")

    @property
    def runs(self) -> pd.DataFrame:
        """One row a run: the axes' values as texts, ``contestant``, ``policies``, ``verdict``.

        Then the figures of ``Result.summary``, with their intervals.
        """
        return self._frame("runs")

    def __str__(self) -> str:
        return self._compiled.text()

    def __repr__(self) -> str:
        counts = f"{len(self.runs)} runs, {len(self.claims)} claims"
        return f"<roost.FigureResult: {self.title}: {counts}>"

    def _repr_html_(self) -> str:
        shown = self.claims[["figure", "says", "paper", "ours", "half_width", "verdict"]]
        return str(shown.to_html(index=False, float_format="{:.4g}".format, na_rep="-"))
