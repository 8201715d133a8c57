"""Results whose tables are made by the compiled part."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from ._frames import frame

if TYPE_CHECKING:
    import pandas as pd

    from ._roost import Table


class _Compiled(Protocol):
    @property
    def title(self) -> str: ...
    def to_json(self) -> str: ...
    def table(self, name: str) -> Table: ...


class Tables:
    """The base of results: tables by name, each made once."""

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled
        self._frames: dict[str, pd.DataFrame] = {}

    @property
    def title(self) -> str:
        """The scenario's title, or its file; the names of a paper's figures."""
        return self._compiled.title

    def table(self, name: str) -> Table:
        """A table with Arrow's interface, as in ``polars.DataFrame(result.table("summary"))``."""
        return self._compiled.table(name)

    def to_json(self) -> str:
        """The document that the command prints with ``--json``."""
        return self._compiled.to_json()

    def _frame(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            self._frames[name] = frame(self.table(name))
        return self._frames[name]


def save(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
