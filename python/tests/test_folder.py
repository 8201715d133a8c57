"""roost.load_run: folders of live commands and of simulations."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from conftest import REPOSITORY

import roost

RUN = """
format = 1
name = "demo"
title = "a run made by hand"
command = ["roost", "demo"]
version = "0.1.0"
started = "2026-11-26 10:00:00 UTC"
method = []
[machine]
[config]
workers = 2
"""

FRAMES = [
    {
        "phase": "stock", "at_ns": 200_000_000, "offered_per_s": 1000.0, "achieved_per_s": 990.0,
        "p99_ns": 250_000, "transfers": 0, "awake_ns": 400_000_000,
        "energy": {"used": 2_000_000, "source": {"modelled": "skylake-sp"}},
        "workers": [
            {"worker": 0, "cpu": 0, "active": True, "load_per_s": 600.0, "busy": 0.25,
             "residents": 3, "guests": 0},
            {"worker": 1, "cpu": 1, "active": False, "load_per_s": 0.0,
             "residents": 0, "guests": 0},
        ],
        "cpus": [{"cpu": 0, "busy": 0.25, "limit": "none",
                  "residency": [{"state": "C1", "share": 0.5}, {"state": "C6", "share": 0.25}]}],
    },
    {"phase": "stock", "at_ns": 400_000_000},
]  # fmt: skip

SUMMARY = {
    "phases": [{"name": "stock", "what": "all workers", "length_ns": 400_000_000, "requests": 396}],
    "verdicts": [{"figure": "awake", "found": "0.6x", "bar": "at most 0.75x", "met": True},
                 {"figure": "p99", "found": "?", "bar": "at most 1.1x"}],
}  # fmt: skip


@pytest.fixture
def live(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(RUN)
    lines = "".join(json.dumps(frame) + "\n" for frame in FRAMES)
    # The last line was being written when the run was killed.
    (tmp_path / "frames.jsonl").write_text(lines + '{"phase": "sto')
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    return tmp_path


def test_a_live_run_has_frames_workers_cpus_phases(live: Path) -> None:
    run = roost.load_run(live)
    assert run.info["title"] == "a run made by hand" and run.info["config"] == {"workers": 2}
    assert any("was being written" in remark for remark in run.remarks)
    frames = run.frames
    assert list(frames["at_ns"]) == [200_000_000, 400_000_000]
    assert frames["joules"][0] == 2.0 and "skylake-sp" in frames["energy_source"][0]
    # Missing is missing, never zero.
    assert frames.loc[1, ["p99_ns", "joules", "transfers", "workers_awake"]].isna().all()
    assert list(run.workers["active"]) == [True, False] and run.workers["busy"].isna()[1]
    assert run.cpus.loc[0, "residency.C6"] == 0.25
    assert list(run.phases["requests"]) == [396]
    assert run.verdicts["met"].isna().tolist() == [False, True]
    assert run.result is None and run.cells is None
    pytest.importorskip("polars").DataFrame(run.table("frames"))


def test_a_run_without_frames_lacks_nothing(live: Path) -> None:
    (live / "frames.jsonl").unlink()
    (live / "summary.json").unlink()
    run = roost.load_run(live)
    assert run.remarks == [] and len(run.frames) == 0 and len(run.phases) == 0


def test_other_files_are_read_as_they_stand(live: Path) -> None:
    run = roost.load_run(live)
    assert run.files == ["frames.jsonl", "run.toml", "summary.json"]
    assert run.read("summary.json") == SUMMARY
    read = run.read("frames.jsonl")
    assert len(read) == 2 and read["energy.used"][0] == 2_000_000
    for name in ("no.json", "../run.toml"):
        with pytest.raises(FileNotFoundError, match=r"there are frames\.jsonl"):
            run.read(name)
    with pytest.raises(ValueError, match="neither"):
        run.read("run.toml")


def test_a_folder_that_is_none_or_broken_is_told(live: Path, tmp_path: Path) -> None:
    with pytest.raises(roost.ScenarioError, match="nowhere"):
        roost.load_run(tmp_path / "nowhere")
    (live / "frames.jsonl").write_text('{"phase": 1}\n')
    with pytest.raises(roost.ScenarioError, match=r"frames\.jsonl.*1"):
        roost.load_run(live)
    (live / "run.toml").write_text(RUN.replace("format = 1", "format = 99"))
    with pytest.raises(roost.ScenarioError, match="format 99"):
        roost.load_run(live)


def test_a_simulation_is_loaded_as_it_was(command: str, tmp_path: Path) -> None:
    file = REPOSITORY / "scenarios" / "mmk.toml"
    done = subprocess.run(
        [command, "sim", "run", file, "--set=run.requests=200k", "--policy=menu", "--policy=teo",
         "--against=teo", "--json", "--out", tmp_path / "run"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = roost.load_run(tmp_path / "run").result
    assert isinstance(result, roost.Result)
    assert json.loads(result.to_json()) == json.loads(done.stdout)
    assert list(result.differences["against"].unique()) == ["teo"]
    ours = roost.run(file, ["menu", "teo"], set={"run.requests": "200k"}, against="teo")
    for name in ours.tables:
        assert result.table(name).to_pydict() == ours.table(name).to_pydict(), name
    written = pd.read_csv(tmp_path / "run" / "differences.csv")
    assert list(written["figure"]) == list(result.differences["figure"])
    with pytest.raises(ValueError, match=r"report\.html"):
        result.save_page(tmp_path / "page.html")
