"""The scenario and the command of the tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def scenario(requests: int = 20_000, **keys: object) -> dict[str, object]:
    """Four cores at a load of about a quarter, some milliseconds of computing."""
    return {
        "policies": ["menu", "deep"],
        "machine": {"preset": "xeon-silver-4116", "sockets": 1, "cores": 4, "threads": 1},
        "workload": {"rate": "100k", "service": {"exponential": "10us"}},
        "run": {"requests": requests, "samples": 16},
        **keys,
    }


#: Hours of computing.
LONG = 100_000_000_000


class Enough(Exception):
    """An error of progress."""


def ended_by_progress(call: Callable[[Callable[[int, int, str], None]], object]) -> int:
    """`call` takes long, and its progress raises: it ends soon. The number of runs that it told."""
    totals: list[int] = []

    def tell(done: int, total: int, last: str) -> None:
        totals.append(total)
        raise Enough

    began = time.monotonic()
    with pytest.raises(Enough):
        call(tell)
    assert time.monotonic() - began < 10
    return totals[0]


@pytest.fixture(scope="session")
def command() -> str:
    """The path of the command, of the same sources."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    named = os.environ.get("ROOST")
    for path in (
        [Path(named)] if named else [target / "debug" / "roost", target / "release" / "roost"]
    ):
        if path.is_file():
            return str(path)
    pytest.skip(
        "no command to compare with: ROOST is not set, and cargo build -p roost has made none"
    )
