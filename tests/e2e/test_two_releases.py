"""Two releases of the real vLLM: the table of flags is that of each release's own parser and help."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.second_engine import FIRST, SECOND, NoEngineError, first_engine, second_engine

from tokenpeak.errors import PlanError
from tokenpeak.records import Config, ModelName
from tokenpeak.vllm.command import OURS, command_line
from tokenpeak.vllm.flags import FlagFacts, known_flags, parse_help

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("real engine")]

PARSER = Path(__file__).with_name("real_parser.py")
RELEASES = {"old": SECOND, "new": FIRST}


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """The program of each release."""
    try:
        return {"old": second_engine(), "new": first_engine()}
    except NoEngineError as error:
        pytest.skip(str(error))


def _values(facts: FlagFacts) -> Sequence[Any]:
    """Values of this flag that its release takes by the table."""
    some: dict[str, list[Any]] = {
        "switch": [True, False],
        "bool": [True, False],
        "bool_value": [True, False],
        "bool_or_str": ["x"],
        "int": [4],
        "float": [0.5],
        "size": ["4k"],
        "size_or_auto": ["auto", "4k"],
        "json": ["{}"],
        "list": ["1"],
        "append": ["1"],
    }
    return facts.choices or some.get(facts.kind, [])


TAKEN_AWAY = {("all2all_backend", "passthrough")}
"""A choice that the engine takes away while it builds its parser."""


@pytest.mark.parametrize("name", RELEASES)
def test_real_parser_takes_each_flag(programs: dict[str, Path], name: str) -> None:
    """Every flag of the table with its choices, in the words of the release, passes that release's own parser."""
    lines: list[list[str]] = []
    asked: list[tuple[str, Any]] = []
    for flag, facts in known_flags(RELEASES[name]).items():
        # Of these, values are objects of more than one shape.
        for value in () if flag in OURS or flag in ("lora_modules", "collect_detailed_traces") else _values(facts):
            config = Config(
                config_id="0" * 12, name=flag, model=ModelName(name="m", served_name="m"), flags={flag: value}
            )
            try:
                lines.append(["m", *command_line(config, RELEASES[name]).arguments])
            except PlanError as error:
                pytest.fail(f"{flag}={value!r}: {error}")
            asked.append((flag, value))
    python = programs[name].with_name("python")
    done = subprocess.run(
        [python, PARSER], input=json.dumps(lines), capture_output=True, text=True, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr
    refused = {one: said for one, said in zip(asked, json.loads(done.stdout), strict=True) if said}

    assert len(lines) > 400
    assert {} == {one: said for one, said in refused.items() if one not in TAKEN_AWAY}


@pytest.mark.parametrize("name", RELEASES)
def test_real_help_has_the_table_s_flags(programs: dict[str, Path], name: str) -> None:
    """The engine's own help and the table of its release have the same flags, no more and no less."""
    done = subprocess.run([programs[name], "serve", "--help=all"], capture_output=True, text=True, cwd="/", check=True)

    assert set(known_flags(RELEASES[name])) == set(parse_help(done.stdout, RELEASES[name]))
