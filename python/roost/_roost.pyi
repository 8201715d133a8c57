"""The compiled part of roost. The package's functions are the way to call it."""

from collections.abc import Callable, Mapping
from typing import Any

_Asked = Mapping[str, Any]
_Watch = Callable[[int, str], object] | None

class Table:
    """A table that Arrow's consumers take without a copy.

    ``polars.DataFrame(table)``, ``pyarrow.table(table)``, ``duckdb.sql("select * from table")``.
    """

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
    @property
    def column_types(self) -> list[str]:
        """Of each: ``text``, ``count`` (unsigned, 64 bits), ``number`` (a double) or ``truth``."""
    def __len__(self) -> int: ...
    def to_pydict(self) -> dict[str, list[Any]]:
        """The columns as lists; a cell that is not known is None."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

class Run:
    @property
    def title(self) -> str: ...
    @property
    def assumptions(self) -> list[str]: ...
    @property
    def tables(self) -> list[str]: ...
    def table(self, name: str) -> Table: ...
    def to_json(self) -> str: ...
    def page(self) -> str | None: ...

def run(asked: _Asked, against: str | None, progress: _Watch) -> Run: ...
def look_at_run(asked: _Asked) -> tuple[int, str | None]: ...
