"""Data frames of compiled tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ._roost import Table


def frame(table: Table) -> pd.DataFrame:
    """A table as a data frame of pandas.

    With pyarrow, columns of numbers without a missing cell are the table's own memory. Types are
    the same without it: ``float64``, ``int64``, ``bool`` and text; ``Int64`` and ``boolean``, which
    know a missing cell, where there is one.
    """
    try:
        import pyarrow
    except ImportError:
        made = pd.DataFrame(
            {name: _series(cells) for name, cells in table.to_pydict().items()},
            columns=table.column_names,
        )
    else:
        made = pyarrow.table(table).to_pandas(split_blocks=True)
    kinds = zip(table.column_names, table.column_types, strict=True)
    return pd.DataFrame({name: _typed(made[name], kind) for name, kind in kinds}, copy=False)


def _series(cells: list[object]) -> pd.Series:
    is_text = any(isinstance(cell, str) for cell in cells)
    # pandas 3 has a type of its own for text, which knows a missing cell.
    return pd.Series(
        cells, dtype="str" if is_text and int(pd.__version__.partition(".")[0]) >= 3 else None
    )


def _typed(column: pd.Series, kind: str) -> pd.Series:
    if kind == "text":
        return column
    missing = bool(column.isna().any())
    if kind == "truth":
        return column.astype("boolean" if missing or column.empty else "bool")
    if kind == "number":
        return column if column.dtype == "float64" else column.astype("float64")
    if missing:
        return column.astype("Int64")
    # Seeds may need the last bit.
    return column if column.empty or column.max() > 2**63 - 1 else column.astype("int64")
