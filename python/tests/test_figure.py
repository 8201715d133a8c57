"""roost.figure: the papers' figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REPOSITORY, ended_by_progress

import roost

PAPERS = REPOSITORY / "papers"


def test_a_figure_has_its_runs_and_claims(tmp_path: Path) -> None:
    result = roost.figure("carb/1", papers=PAPERS, quick=True, out=tmp_path / "carb")
    assert set(result.runs["figure"]) == {"carb/1"} and len(result.runs) > 1
    assert result.runs["cpu_watts"].notna().any()
    document = json.loads(result.to_json())
    claims = [c for kind in ("headlines", "printed") for c in document["figures"][0][kind]]
    assert [c["id"] for c in claims] == list(result.claims["id"])
    assert "<table" in result._repr_html_() and "carb/1" in repr(result)
    assert (tmp_path / "carb" / "report.html").exists()
    # All its runs are kept: nothing is simulated again.
    told: list[tuple[int, int, str]] = []
    again = roost.figure(
        "carb/1",
        papers=PAPERS,
        quick=True,
        out=tmp_path / "carb",
        progress=lambda *far: told.append(far),
    )
    assert again.to_json() == result.to_json() and told[-1][0] == 0


def test_an_error_of_progress_ends_it() -> None:
    ended_by_progress(lambda tell: roost.figure("carb/4", papers=PAPERS, progress=tell))


def test_a_figure_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(roost.ScenarioError, match="carb/99"):
        roost.figure("carb/99", papers=PAPERS)
    with pytest.raises(roost.ScenarioError, match="no figure was named"):
        roost.figure(papers=PAPERS)
    with pytest.raises(roost.ScenarioError, match=f"{tmp_path}: no folder of papers"):
        roost.figure("carb/1", papers=tmp_path)
