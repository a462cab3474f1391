"""Structured answers and tools against a real vLLM: what it takes, and that answers follow the schema."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cpu_vllm import NEEDED, counted, served

pytestmark = [pytest.mark.e2e, NEEDED]

SCHEMA = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
SCHEMA |= {"additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
CHAT = {"kind": "synthetic", "name": "formed", "endpoint": "chat", "input_tokens": 32, "output_tokens": 64}


TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
FLAGS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
# A small model would fill its answer with spaces, which a schema allows between all else.
WITHOUT_SPACES = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real engine that reads calls of tools."""
    with served(tmp_path_factory.mktemp("engine") / "log", *FLAGS, *WITHOUT_SPACES) as url:
        yield url


def loaded(url: str, folder: Path, **form: Any) -> dict[str, Any]:
    """The record of a load of 40 requests in this form."""
    (folder / "workload.json").write_text(json.dumps({**CHAT, **form}))
    load = [TOKENPEAK, "load", url, "--workload", str(folder / "workload.json"), "--format", "json"]
    amount = ["--concurrency", "2", "--requests", "40"]
    done = subprocess.run([*load, *amount], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def ended(url: str, why: str) -> float:
    """How many requests ended for this reason, by the engine's own count."""
    return counted(url, "request_success_total", f'finished_reason="{why}"')


@pytest.mark.parametrize("form", ["structured", "tools"])
def test_the_engine_takes_such_requests(url: str, form: str, tmp_path: Path) -> None:
    """None fails. Structured answers end by their grammar, all others at their length.

    A call of a tool may be followed by another, which this small model makes until its answer's length.
    """
    path = tmp_path / "form.json"
    path.write_text(json.dumps(SCHEMA if form == "structured" else TOOLS))
    choice = {"choice": "required"} if form == "tools" else {}
    before = {why: ended(url, why) for why in ("stop", "length")}
    record = loaded(url, tmp_path, **{form: {"file": str(path), "share": 0.5, **choice}})
    grown = {why: ended(url, why) - count for why, count in before.items()}

    assert (40, 0) == (record["summary"]["requests_ok"], record["summary"]["requests_failed"])
    assert 40 == sum(grown.values())
    assert (10 <= grown["stop"] <= 30) if form == "structured" else not grown["stop"]
