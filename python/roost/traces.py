"""Traces as files that `workload.trace` of a scenario replays.

    rows = roost.traces.from_parquet("day.parquet", "day.csv", service="cpu_s")
    roost.run(scenario, "peafowl", set={"workload.trace": "day.csv"})

Published traces need no step of their own: ``workload.trace = "twitter:FILE"`` reads them, see
docs/scenarios.md.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["from_parquet"]


def from_parquet(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    time: str = "time",
    service: str = "service",
    kind: str | None = None,
    connection: str | None = None,
    unit: str = "s",
) -> int:
    """Write a Parquet file of requests as a trace, batch by batch, and return their number.

    Needs ``pip install roost-sim[arrow]``.

    :param path: the Parquet file, by rising time.
    :param out: the trace; an existing file is replaced once all rows are right.
    :param time: the column of arrival times.
    :param service: the column of service times at the nominal clock.
    :param kind: the column of classes' names; without one all requests are of the class ``all``.
    :param connection: the column of connections' numbers.
    :param unit: of both times: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
    :raises ValueError: a column that is not there, a time that falls, a value that is missing.
    """
    import pyarrow.parquet

    nanoseconds = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
    if unit not in nanoseconds:
        raise ValueError(f"unit = {unit!r}: write one of {', '.join(nanoseconds)}")
    scale = nanoseconds[unit]
    named = [name for name in (time, service, kind, connection) if name is not None]
    file = pyarrow.parquet.ParquetFile(path)
    if missing := [name for name in named if name not in file.schema_arrow.names]:
        there = ", ".join(file.schema_arrow.names)
        raise ValueError(f"{os.fspath(path)} has no column {missing[0]!r}: there are {there}")
    count, first, before = 0, None, 0
    part = f"{os.fspath(out)}.part"
    with open(part, "w", encoding="utf-8") as trace:
        trace.write("time,class,service" + (",connection" if connection else "") + "\n")
        for batch in file.iter_batches(columns=named):
            columns = batch.to_pydict()
            for row in range(batch.num_rows):
                values: dict[str, Any] = {name: columns[name][row] for name in named}
                count += 1
                if empty := [name for name in named if values[name] is None]:
                    raise ValueError(f"row {count}: {empty[0]} is missing")
                at = round(values[time] * scale)
                first = at if first is None else first
                if at < before and count > 1:
                    raise ValueError(f"row {count}: {time} falls: sort the file by it")
                before = at
                fields = [f"{at - first}ns", str(values[kind]) if kind else "all"]
                fields.append(f"{round(values[service] * scale)}ns")
                if connection:
                    fields.append(str(values[connection]))
                trace.write(",".join(fields) + "\n")
    os.replace(part, out)
    return count
