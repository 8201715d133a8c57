"""Tables as other libraries take them."""

from __future__ import annotations

import sys

import pandas as pd
import pytest
from conftest import scenario

import roost
from roost._frames import frame


@pytest.fixture(scope="module")
def result() -> roost.Result:
    # A goal in one contestant only, so that cells are missing in texts and truths as well.
    variants = [
        {"name": "goal", "policies": "menu", "set": {"goal": "300us@p99"}},
        {"name": "none", "policies": "menu"},
        {"name": "flood", "policies": "menu", "set": {"workload.rate": "1M"}},
    ]
    return roost.run(scenario(policies=[], variant=variants), seed=2**63 - 1)


def cells(table: roost.Table) -> dict[str, list[object]]:
    return table.to_pydict()


def test_pyarrow_takes_the_capsule(result: roost.Result) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for name in result.tables:
        table = result.table(name)
        assert pyarrow.table(table).to_pydict() == cells(table), name
        assert pyarrow.schema(table).names == table.column_names, name


def test_pyarrow_does_not_copy(result: roost.Result) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = result.table("points")
    first, second = (pyarrow.table(table)["until_s"].chunk(0).buffers()[1] for _ in range(2))
    assert first.address == second.address


def test_polars_takes_the_capsule(result: roost.Result) -> None:
    polars = pytest.importorskip("polars")
    for name in result.tables:
        table = result.table(name)
        assert polars.DataFrame(table).to_dict(as_series=False) == cells(table), name


def test_duckdb_takes_the_capsule(result: roost.Result) -> None:
    duckdb = pytest.importorskip("duckdb")
    points = result.table("points")
    expected = sorted(pd.DataFrame(points.to_pydict()).groupby("contestant").size().items())
    found = duckdb.sql(
        "select contestant, count(*) from points group by all order by all"
    ).fetchall()
    assert found == expected


def test_a_frame_is_the_same_with_and_without_pyarrow(result: roost.Result, monkeypatch) -> None:
    pytest.importorskip("pyarrow")
    for name in result.tables:
        table = result.table(name)
        with_pyarrow = frame(table)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "pyarrow", None)
            pd.testing.assert_frame_equal(with_pyarrow, frame(table))


def test_types_of_columns(result: roost.Result) -> None:
    types = result.summary.dtypes.astype(str)
    expected = {"seed": "int64", "requests": "int64", "p99_ns": "float64", "goal_met": "boolean"}
    assert {name: types[name] for name in expected} == expected
    assert result.summary["goal"].isna().tolist() == [False, True, True]
    assert result.summary["goal_met"].isna().tolist() == [False, True, True]


def test_a_table_outlives_its_result() -> None:
    table = roost.run(scenario(), policies="menu").table("points")
    pyarrow = pytest.importorskip("pyarrow")
    taken = pyarrow.table(table)
    del table
    assert taken.num_rows >= 16 and taken["cpu_watts"].to_pylist()[0] > 0
