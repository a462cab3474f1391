"""Two releases of the real vLLM on this machine's CPU in one sweep, one of them in a container of a real Docker."""

import hashlib
import html
import json
import math
import re
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.docker_daemon import IMAGE, Daemon, daemon, why_no_docker
from tests.e2e.real_boxes import Boxes, in_container, trials_of
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


@pytest.fixture(scope="module")
def docker() -> Iterator[Daemon]:
    """A Docker daemon of this module's own."""
    if reason := why_no_docker():
        pytest.skip(reason)
    with daemon() as made:
        yield made


@pytest.fixture(scope="module")
def boxes(docker: Daemon, programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    """A home with both releases, and two builds more: a stale launcher, and the module that older images start by."""
    root, state = (tmp_path_factory.mktemp(name) for name in ("home", "state"))
    stale = root / "vllm"
    # What an upgrade leaves behind that forgot the launcher: it calls itself new and starts the old one.
    stale.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo {FIRST} && exit\nexec {programs["old"]} "$@"\n')
    stale.chmod(0o755)
    made = Boxes(root=root, state=state)
    module = [str(programs["old"].with_name("python")), "-m", "vllm.entrypoints.openai.api_server"]
    try:
        made.prepare(
            docker,
            {
                "old": {"version": SECOND, "command": [str(programs["old"]), "serve"]},
                "new": in_container(programs["new"], FIRST),
                "stale": {"version": FIRST, "command": [str(stale), "serve"]},
                "module": {"version": SECOND, "command": module},
            },
        )
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def swept(boxes: Boxes) -> Path:
    """The archive of a sweep over both releases, each config launched twice."""
    boxes.write_spec(
        "upgrade", axes={"engine": ["old", "new"]}, search={"baseline": [], "anchor_every": None, "replicates": 2}
    )
    return boxes.sweep("upgrade")


def test_both_releases_are_known_exactly(swept: Path, docker: Daemon, programs: dict[str, Path]) -> None:
    """By the version that each reports and what it was started from, in the records of launches and of the node."""
    trials = trials_of(swept)
    expected = {
        "old": (SECOND, f"sha256:{hashlib.sha256(programs['old'].read_bytes()).hexdigest()}"),
        "new": (FIRST, docker.docker("image", "inspect", "--format", "{{.Id}}", IMAGE).strip()),
    }
    (node,) = json.loads((swept / "sweep.json").read_text())["nodes"]

    assert ["ok"] * 4 == [trial["status"] for trial in trials], [trial["failure"] for trial in trials]
    for trial in trials:
        startup = trial["startup"]
        print(trial["config"]["engine"], startup["engine_version"], startup["engine_digest"][:19], startup["ready_s"])
        version = startup["engine_version"].partition("+")[0]
        assert expected[trial["config"]["engine"]] == (version, startup["engine_digest"])
        assert startup["kv_cache_tokens"]
        assert trial["restoration"]["restored"]
    assert expected == {
        build["name"]: (build["installed"], build["digest"]) for build in node["engines"] if build["name"] in expected
    }
    assert [] == docker.containers()


def test_page_says_whether_to_upgrade(swept: Path, boxes: Boxes, tmp_path: Path) -> None:
    """For the workload, with the ratio that the launches' own files give, and how each release starts."""
    boxes.run("report", str(swept), "--output", str(tmp_path / "site"))
    page = (tmp_path / "site" / swept.name / "index.html").read_text()
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    logs: dict[str, list[float]] = {name: [] for name in RELEASES}
    for trial in trials_of(swept):
        logs[trial["config"]["engine"]].append(math.log(trial["runs"][0]["summary"]["output_tok_per_s"]))
    ratio = math.exp(statistics.fmean(logs["new"]) - statistics.fmean(logs["old"]))
    pages = [path.read_text() for path in (tmp_path / "site").rglob("trials/0*.html")]

    said = re.search(
        rf"Under short, (?:whether )?new \(vLLM {re.escape(FIRST)}\) is (faster|slower|tied|not known|faster than old)"
        r".*?: ([+−]?[\d.]+)% output throughput",
        text,
    )
    assert said is not None, text[:3000]
    assert pytest.approx((ratio - 1) * 100, abs=0.06) == float(said[2].replace("−", "-"))
    assert f"(vLLM {SECOND})" in text
    assert "How each engine build starts" in text
    for name, release in RELEASES.items():
        assert 2 == sum(f"vLLM {release}, build {name}, sha256:" in each for each in pages)


def test_engine_of_another_release_is_a_wrong_engine(boxes: Boxes) -> None:
    """A launcher that was forgotten carries no load; the older module serves the model that is asked for."""
    boxes.write_spec("strange", axes={"engine": ["stale", "module"]})
    trials = {trial["config"]["engine"]: trial for trial in trials_of(boxes.sweep("strange"))}
    stale, module = trials["stale"], trials["module"]

    assert ("failed", "wrong_engine") == (stale["status"], (stale["failure"] or {}).get("cause"))
    expected = f"vLLM {FIRST} was asked for, and the engine that was started reports {SECOND}"
    assert expected in stale["failure"]["message"]
    assert ([], SECOND) == (stale["runs"], stale["startup"]["engine_version"])
    assert stale["restoration"]["restored"]
    assert ("ok", SECOND) == (module["status"], module["startup"]["engine_version"]), module["failure"]
    assert "--model" in module["argv"]


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
