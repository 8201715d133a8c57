"""The typed dicts have the keys that a scenario has, and no others."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import pytest
from conftest import scenario

import roost

#: Where each of them stands in a scenario, and the keys that it needs beside.
PLACES: list[tuple[type, str, dict[str, Any]]] = [
    (roost.Scenario, "", {}),
    (roost.Machine, "machine", {}),
    (roost.Server, "server", {}),
    (roost.Stealing, "server.stealing", {"cost": "1us"}),
    (roost.Shards, "server.shards", {"count": 2}),
    (roost.Threads, "server.threads", {"count": 2}),
    (roost.Noise, "server.noise.0", {}),
    (roost.Nic, "server.nic", {"receive": "1us", "transmit": "1us"}),
    (roost.Device, "server.device", {"latency": {"deterministic": "1us"}, "interrupt": "1us"}),
    (roost.Clients, "server.clients", {}),
    (roost.Workload, "workload", {}),
    (roost.RequestClass, "workload.class.0", {"name": "a"}),
    (roost.Run, "run", {}),
    (roost.Variant, "variant.0", {"name": "a"}),
    (roost.Fleet, "fleet", {"servers": 1, "fanout": 1}),
]

#: Keys that are taken out before a scenario has types.
BEFORE = {"base", "shared"}


@pytest.mark.parametrize(
    ("kind", "place", "beside"), PLACES, ids=lambda value: getattr(value, "__name__", None)
)
def test_the_keys_are_those_of_a_scenario(kind: type, place: str, beside: dict[str, Any]) -> None:
    given: Any = scenario()
    table = given
    names = [name for name in place.split(".") if name]
    for name, after in zip(names, [*names, ""][1:], strict=True):
        if name == "0":
            table.append({})
            table = table[0]
        else:
            table = table.setdefault(name, [] if after == "0" else {})
    table.update(beside)
    table["no_such_key"] = 1
    with pytest.raises(roost.ScenarioError, match="unknown field `no_such_key`") as caught:
        roost.run(given)
    known = set(re.findall(r"`(\w+)`", caught.value.problem.partition("expected")[2]))
    assert set(get_type_hints(kind)) - BEFORE == known
