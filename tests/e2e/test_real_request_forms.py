"""Structured answers and tools against a real vLLM: what it takes, and that answers follow the schema."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cpu_vllm import NEEDED, counted
from tests.e2e.test_real_prefix_hits import TOKENPEAK, url

__all__ = ["url"]

pytestmark = [pytest.mark.e2e, NEEDED]

SCHEMA = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
SCHEMA |= {"additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
CHAT = {"kind": "synthetic", "name": "formed", "endpoint": "chat", "input_tokens": 32, "output_tokens": 64}


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
def test_the_engine_ends_such_answers_itself(url: str, form: str, tmp_path: Path) -> None:
    """Those of the share end by their grammar, the others at their length, and none has failed."""
    path = tmp_path / "form.json"
    path.write_text(json.dumps(SCHEMA if form == "structured" else TOOLS))
    choice = {"choice": "required"} if form == "tools" else {}
    before = {why: ended(url, why) for why in ("stop", "length")}
    record = loaded(url, tmp_path, **{form: {"file": str(path), "share": 0.5, **choice}})
    grown = {why: ended(url, why) - count for why, count in before.items()}

    assert (40, 0) == (record["summary"]["requests_ok"], record["summary"]["requests_failed"])
    assert 40 == sum(grown.values())
    assert 10 <= grown["stop"] <= 30
