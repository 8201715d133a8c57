"""Python that documentation prints runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import REPOSITORY


@pytest.mark.parametrize("name", ["README.md", "python/README.md"])
def test_the_printed_lines_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", Path(REPOSITORY, name).read_text(), re.DOTALL)
    assert blocks, f"{name} has no Python"
    monkeypatch.chdir(REPOSITORY)
    pytest.importorskip("matplotlib").use("Agg")
    for block in blocks:
        exec(compile(block, name, "exec"), {})
