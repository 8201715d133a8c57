"""Traces: Parquet files, and published formats by the scenario's key."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import REPOSITORY, scenario

import roost
from roost import traces

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_a_parquet_file_is_replayed(tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": [5.0, 5.001, 5.001, 5.004],
            "cpu": [1e-4, 2e-4, 1e-4, 1e-4],
            "op": ["get", "set", "get", "get"],
            "client": [7, 8, 7, 7],
        }
    )
    parquet.write_table(table, tmp_path / "day.parquet")
    out = tmp_path / "day.csv"
    rows = traces.from_parquet(
        tmp_path / "day.parquet", out, time="at", service="cpu", kind="op", connection="client"
    )
    assert rows == 4
    assert out.read_text().splitlines() == [
        "time,class,service,connection",
        "0ns,get,100000ns,7",
        "1000000ns,set,200000ns,8",
        "1000000ns,get,100000ns,7",
        "4000000ns,get,100000ns,7",
    ]
    result = roost.run(scenario(workload={"trace": str(out)}), "menu")
    classes = result.table("classes").to_pydict()
    assert classes["class"] == ["get", "set"] and classes["requests"] == [3, 1]


def test_wrong_files_name_row_and_column(tmp_path: Path) -> None:
    def write(**columns: list[object]) -> Path:
        parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
        return tmp_path / "x.parquet"

    out = tmp_path / "x.csv"
    with pytest.raises(ValueError, match="has no column 'service': there are time, cpu"):
        traces.from_parquet(write(time=[1.0], cpu=[1.0]), out)
    with pytest.raises(ValueError, match="row 2: time falls"):
        traces.from_parquet(write(time=[1.0, 0.5], service=[1.0, 1.0]), out)
    with pytest.raises(ValueError, match="row 1: service is missing"):
        traces.from_parquet(write(time=[1.0], service=[None]), out)
    with pytest.raises(ValueError, match="unit = 'h'"):
        traces.from_parquet(write(time=[1.0], service=[1.0]), out, unit="h")


def test_a_published_trace_is_named_by_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = REPOSITORY / "testdata" / "traces" / "twitter.csv"
    workload = {"trace": f"twitter:{file}", "service": {"exponential": "10us"}}
    result = roost.run(scenario(workload=workload), "menu")
    assert result.summary["requests"][0] == 4
    with pytest.raises(roost.ScenarioError, match="no published format is called `tweets`"):
        roost.run(scenario(workload={"trace": "tweets:x"}), "menu")
