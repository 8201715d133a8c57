"""The arguments that all simulations have, as the compiled part takes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._policy import Own
from .errors import ScenarioError
from .scenario import Scenario

#: A dict (`roost.Scenario` helps to write it), the path of a TOML file, or the text of one.
AnyScenario = Scenario | Mapping[str, Any] | str | os.PathLike[str]

#: One line of policies, such as ``"peafowl + teo"``, or several.
Policies = str | Iterable[str] | None


def asked(
    scenario: AnyScenario,
    policies: Policies,
    seed: int | None,
    precision: str | None,
    changes: Mapping[str, Any] | None,
    threads: int | None,
    own: Own | None = None,
) -> dict[str, Any]:
    """One mapping of all of them; the seed and the precision are keys of the scenario."""
    keys = dict(changes or {})
    for name, value in (("seed", seed), ("precision", precision)):
        if value is not None:
            keys[f"run.{name}"] = value
    if policies is None:
        lines: list[str] = []
    else:
        lines = [policies] if isinstance(policies, str) else list(policies)
        if not all(isinstance(line, str) for line in lines):
            raise ScenarioError(
                'policies: each is a text\n\nhint: such as policies=["menu", "peafowl + teo"]'
            )
        if not lines:
            raise ScenarioError("policies: none\n\nhint: leave it out for the scenario's own")
    if not isinstance(own, Mapping | None):
        raise TypeError('own: give a dict from names to classes, such as own={"mine": Mine}')
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or threads < 1
    ):
        raise ScenarioError(
            f"threads = {threads!r}\n\nhint: a whole number from 1 on; None for all CPUs"
        )
    return {
        "scenario": scenario,
        "policies": lines,
        "set": keys,
        "threads": threads,
        "own": dict(own or {}),
    }
