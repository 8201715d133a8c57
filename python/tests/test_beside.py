"""Simulations beside Python: signals, other threads, progress."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
from conftest import LONG, ended_by_progress, scenario

import roost
from roost import _progress

PROGRAM = """
import signal
import time
import roost

# A shell has its background jobs ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

begun = []

def tell(done, total, last):
    # The runs have begun when progress is told for the first time.
    if not begun:
        begun.append(True)
        print("begun", flush=True)

try:
    {call}
except KeyboardInterrupt:
    print(time.monotonic())
"""


def interrupted(call: str) -> float:
    """Seconds from Ctrl-C until `call` has ended with KeyboardInterrupt, in its own process."""
    program = [sys.executable, "-c", PROGRAM.format(call=call)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        # Linux has one monotonic clock for all processes.
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return float(said) - sent


def test_ctrl_c_ends_a_run_of_hours() -> None:
    took = interrupted(f"roost.run({scenario(requests=LONG)!r}, threads=2, progress=tell)")
    # Some 0.1 s; a busy machine takes its time.
    assert took < 30.0, took


def test_an_error_of_progress_ends_the_run() -> None:
    ended_by_progress(lambda tell: roost.run(scenario(requests=LONG), progress=tell))


def test_other_threads_go_on() -> None:
    counted, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            counted[0] += 1

    marks: list[int] = []

    def tell(ended: int, total: int, last: str) -> None:
        # Twenty times a second; between two calls the lock is the other thread's.
        marks.append(counted[0])
        if len(marks) == 5:
            raise KeyboardInterrupt

    other = threading.Thread(target=count)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            roost.run(scenario(requests=LONG), threads=1, progress=tell)
    finally:
        done.set()
        other.join()
    assert all(later > earlier + 100 for earlier, later in pairwise(marks)), marks


def test_runs_on_two_threads_at_once_are_what_they_are_alone() -> None:
    alone = roost.run(scenario(), seed=5).to_json()
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(roost.run(scenario(), seed=5).to_json()))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int, str]] = []
    roost.run(scenario(), progress=lambda done, total, last: told.append((done, total, last)))
    assert told[-1][:2] == (2, 2) and told[-1][2] in ("menu", "deep")


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_a_bar_is_drawn_and_taken_away(with_tqdm: bool, capsys, monkeypatch) -> None:
    if with_tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setattr(_progress, "_tqdm", lambda total: None)
    roost.run(scenario(), progress=True)
    assert "2" in capsys.readouterr().err
    # Of so many runs that the number is not known before.
    with _progress.watched(True) as bar:
        assert bar is not None
        bar(1, 0, "menu")
    assert "run" in capsys.readouterr().err
    roost.run(scenario(), progress=False)
    assert capsys.readouterr().err == ""


def test_a_failed_check_of_the_simulator_is_an_exception() -> None:
    from roost import _roost

    with pytest.raises(
        roost.InternalError, match="please report it with the scenario and the seed"
    ):
        _roost._fail_a_check()
