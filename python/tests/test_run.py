"""roost.run: its figures, its arguments."""

from __future__ import annotations

import json
import subprocess

import pandas as pd
import pytest
from conftest import REPOSITORY, scenario

import roost


@pytest.fixture(scope="module")
def result() -> roost.Result:
    return roost.run(scenario(requests=200_000))


def test_the_command_gives_the_same_figures(command: str, tmp_path) -> None:
    file = REPOSITORY / "scenarios" / "mmk.toml"
    keys = {"run.requests": 20_000, "run.samples": 16}
    flags = [f"--set={key}={value}" for key, value in keys.items()]
    done = subprocess.run(
        [command, "sim", "run", file, *flags, "--set=run.seed=7", "--policy=menu",
         "--policy=poll", "--json", "--out", tmp_path / "run"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stderr
    ours = roost.run(file, policies=["menu", "poll"], seed=7, set=keys, threads=2)
    assert json.loads(ours.to_json()) == json.loads(done.stdout)
    written = pd.read_csv(tmp_path / "run" / "summary.csv")
    # The last digit of a number is lost on the way of a reader that is fast and not exact.
    for column in written.columns:
        if ours.summary[column].dtype == float:
            pd.testing.assert_series_equal(
                ours.summary[column], written[column], check_dtype=False, rtol=1e-14
            )


def test_a_seed_decides_whatever_the_threads() -> None:
    one, two, other = (
        roost.run(scenario(), seed=seed, threads=threads)
        for seed, threads in [(3, 1), (3, 4), (4, 4)]
    )
    assert one.to_json() == two.to_json()
    assert one.to_json() != other.to_json()


def test_a_dict_a_path_and_a_text_are_the_same(tmp_path) -> None:
    text = (
        'policies = ["menu", "deep"]\n'
        '[machine]\npreset = "xeon-silver-4116"\nsockets = 1\ncores = 4\nthreads = 1\n'
        '[workload]\nrate = "100k"\nservice = { exponential = "10us" }\n'
        "[run]\nrequests = 20000\nsamples = 16\n"
    )
    path = tmp_path / "four.toml"
    path.write_text(text)
    frames = [roost.run(given).summary for given in (scenario(), text, path, str(path))]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frames[0], frame)


def test_typed_objects_are_dicts() -> None:
    typed = roost.Scenario(
        policies=["menu", "deep"],
        machine=roost.Machine(preset="xeon-silver-4116", sockets=1, cores=4, threads=1),
        workload=roost.Workload(rate="100k", service={"exponential": "10us"}),
        run=roost.Run(requests=20_000, samples=16),
    )
    assert typed == scenario()


def test_numbers_of_numpy_and_nothing_are_taken() -> None:
    import numpy as np

    given = scenario(goal=None)
    given["machine"]["cores"] = np.int64(4)
    given["run"] = {"requests": np.float64(20_000), "samples": np.int32(16)}
    with pytest.raises(roost.ScenarioError, match="requests = "):
        # A count is a whole number or a text.
        roost.run(given)
    given["run"]["requests"] = np.int64(20_000)
    pd.testing.assert_frame_equal(roost.run(given).summary, roost.run(scenario()).summary)


def test_the_tables_have_their_rows(result: roost.Result) -> None:
    assert list(result.summary["contestant"]) == ["menu", "deep"]
    assert (result.points.groupby("contestant").size() >= 16).all()
    assert list(result.residency["state"].unique()) == ["C1", "C1E", "C6"]
    assert set(result.differences["figure"]) >= {"mean_ns", "p99_ns", "cpu_watts"}
    assert (result.differences["contestant"] == "deep").all()
    lengths = result.idle_lengths
    assert (lengths["to_ns"] == 2 * lengths["from_ns"]).all()
    # All time of all CPUs is idle or active.
    for name in ["menu", "deep"]:
        tables = [
            pd.DataFrame(result.table(f"{kind}_lengths").to_pydict()) for kind in ("idle", "active")
        ]
        shares = [table[table["contestant"] == name]["time_share"].sum() for table in tables]
        assert sum(shares) == pytest.approx(1.0, abs=1e-3), shares
    with pytest.raises(KeyError, match="there are summary, points"):
        result.table("sumary")


def test_intervals_stand_around_their_estimates(result: roost.Result) -> None:
    for stem, unit in [("mean", "_ns"), ("p99", "_ns"), ("cpu_watts", "")]:
        estimate, low, high = (
            result.summary[f"{stem}{end}{unit}"] for end in ("", "_low", "_high")
        )
        assert ((low <= estimate) & (estimate <= high)).all(), stem


def test_a_contestant_that_cannot_serve_has_no_times() -> None:
    frame = roost.run(scenario(workload={"rate": "1M", "service": {"exponential": "10us"}})).summary
    assert list(frame["verdict"]) == ["unstable", "unstable"]
    assert frame["p99_ns"].isna().all()


def test_a_precision_is_reached_and_a_goal_judged() -> None:
    result = roost.run(
        scenario(goal="300us@p99"), policies="menu", precision="5%@mean", set={"run.requests": "2M"}
    )
    row = result.summary.iloc[0]
    assert row["verdict"] == "precise"
    assert row["mean_high_ns"] - row["mean_ns"] <= 0.05 * row["mean_ns"]
    assert row["goal"] == "300us@p99" and bool(row["goal_met"])


def test_another_reference_turns_the_difference_round() -> None:
    first, second = (roost.run(scenario(), against=name).differences for name in ("menu", "deep"))
    mean = [frame.set_index("figure").loc["mean_ns", "difference"] for frame in (first, second)]
    assert mean[0] == pytest.approx(-mean[1])


def test_a_shape_that_is_cut_short_is_told() -> None:
    given = scenario(
        workload={"rate": "100k", "shape": "diurnal", "service": {"exponential": "10us"}}
    )
    given["run"]["replications"] = 1
    with pytest.warns(UserWarning, match="workload.shape"):
        roost.run(given, policies="menu")


def test_a_notebook_shows_the_table_and_the_plot(result: roost.Result) -> None:
    html = result._repr_html_()
    assert "<table>" in html and "<svg" in html and html.count("<circle") == 2
    evil = roost.run(scenario(title="<script>alert(1)</script>"), policies="menu")._repr_html_()
    assert "<script>" not in evil
    unstable = scenario(workload={"rate": "1M", "service": {"exponential": "10us"}})
    assert "<svg" not in roost.run(unstable)._repr_html_()


def test_the_plot_has_a_point_for_each_contestant(result: roost.Result) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = result.plot()
    assert ax.get_xlabel() == "p99, us" and ax.get_ylabel() == "cpu power, W"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["menu", "deep"]
    with pytest.raises(KeyError, match="no figure is called `p42`"):
        result.plot(x="p42")


def test_the_page_is_the_commands(result: roost.Result, tmp_path) -> None:
    result.save_page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>".upper()) or page[:15].lower() == "<!doctype html>"
    assert "Everything here is simulated" in page
