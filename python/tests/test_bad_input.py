"""Bad input: an exception that names the key and the fix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import scenario

import roost


def with_key(key: str, value: object) -> dict[str, Any]:
    given: Any = scenario()
    *tables, last = key.split(".")
    place = given
    for name in tables:
        place = place.setdefault(name, {})
    place[last] = value
    return given


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "workload.servce",
            "memcached",
            r"workload\.servce: unknown field.*did you mean `service`\?",
        ),
        (
            "machine.preset",
            "xeon",
            r"machine\.preset: no machine is called `xeon`.*one of: xeon-e5-2670",
        ),
        ("machine.cores", "many", r"machine\.cores: invalid type"),
        ("machine.cores", 0, r"cores"),
        ("machine.cores", 2**70, r"machine\.cores = .*64 bits"),
        ("workload.rate", -5, r"rate"),
        ("workload.rate", float("nan"), r"rate"),
        (
            "workload.service",
            {1, 2},
            r"workload\.service: a value of the type `set`.*write a number",
        ),
        ("workload.service", object(), r"workload\.service: a value of the type `object`"),
        ("workload.service", {5: "10us"}, r"workload\.service: the key 5 is no text"),
        ("run.requests", 1.5, r"requests = 1\.5.*such as 200k"),
        ("run.precision", "1%", r"precision"),
        ("policies", ["mnu"], r"no policy is called `mnu`.*did you mean `menu`\?"),
        ("policies", ["menu", "menu"], r"two contestants called `menu`"),
        ("params", {"menu": {"x": 1}}, r"menu"),
        ("fleet", {"servers": 2, "fanout": 2}, r"roost\.fleet"),
        ("workload", {"trace": "nowhere.csv"}, r"nowhere\.csv"),
    ],
)
def test_the_key_and_the_fix_are_named(key: str, value: object, said: str) -> None:
    with pytest.raises(roost.ScenarioError) as caught:
        roost.run(with_key(key, value))
    assert re.search(said, str(caught.value), re.DOTALL), str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"policies": "mnu"}, "did you mean `menu`"),
        ({"policies": []}, "leave it out"),
        ({"policies": [1]}, "each is a text"),
        ({"seed": -1}, r"run\.seed=-1"),
        ({"precision": "fast"}, "write it as 1%@p99"),
        ({"set": {"workload.rte": 1}}, "did you mean `rate`"),
        ({"set": {"": 1}}, "the key is empty"),
        ({"set": {"params.teo.bins": 3}}, "teo"),
        ({"against": "x"}, "there are menu, deep"),
        ({"threads": 0}, "from 1 on"),
        ({"threads": 1.5}, "from 1 on"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(roost.ScenarioError, match=said):
        roost.run(scenario(), **arguments)


def test_a_scenario_of_another_type_is_refused() -> None:
    for given in (5, None, ["menu"], b"policies"):
        with pytest.raises((TypeError, roost.ScenarioError)) as caught:
            roost.run(given)  # type: ignore[arg-type]
        assert "scenario" in str(caught.value), given


def test_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(roost.ScenarioError, match=r"nowhere\.toml: No such file"):
        roost.run(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[machine\n")
    with pytest.raises(roost.ScenarioError, match=r"broken\.toml: TOML parse error at line 1"):
        roost.run(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(roost.ScenarioError, match=r"broken\.toml"):
        roost.run(broken)


def test_a_dict_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = scenario()
    endless["machine"]["cap"] = endless
    with pytest.raises(roost.ScenarioError, match="does one of them hold itself"):
        roost.run(endless)


def test_the_hint_is_apart() -> None:
    with pytest.raises(roost.ScenarioError) as caught:
        roost.run(scenario(), policies="mnu")
    assert caught.value.hint.startswith("did you mean `menu`?")
    assert "hint" not in caught.value.problem
    assert isinstance(caught.value, ValueError)
