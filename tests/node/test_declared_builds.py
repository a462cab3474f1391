"""Declared engine builds on a node: what is started by name, and that nothing else is."""

import sys
from typing import Any

import pytest
from tests.node.conftest import STANDIN, Node

BUILDS: list[dict[str, Any]] = [
    {"name": "old", "build": {"version": "0.24.0", "command": [sys.executable, str(STANDIN), "serve"]}},
    {"name": "new", "build": {"command": ["/nonexistent/vllm", "serve"]}},
]


def test_build_that_is_not_declared_is_refused(node: Node) -> None:
    """Before production is touched; the answer has the names that there are."""
    node.serve()
    node.declare(engines=BUILDS)

    answer = node.run("launch", node.launch_request(engine="newest"))

    assert "no engine build 'newest', but old, new" in answer["error"]["text"]
    assert node.run("status")["production"]["running"]
    assert node.read("record.json") is None


@pytest.mark.parametrize(
    ("engine", "refused"),
    [(None, False), ("old", False), ("new", True)],
)
def test_limited_command_starts_the_named_build_alone(node: Node, engine: str | None, refused: bool) -> None:
    """The command line of one build does not come through under another's name, nor that of no build."""
    from tokenpeak.node import installation
    from tokenpeak.node.machine.error import ScriptError
    from tokenpeak.node.protocol.requests import LaunchRequest, parse

    node.declare(engines=BUILDS)
    given = node.launch_request(engine=engine)
    stranger = {**given, "argv": ["/bin/sh", "-c", "id"]}

    def check(request: dict[str, Any]) -> None:
        installation.check_launch(node.declaration, parse(LaunchRequest, request))

    with pytest.raises(ScriptError, match="starts"):
        check(stranger)
    if refused:
        with pytest.raises(ScriptError, match="nonexistent"):
            check(given)
    else:
        check(given)


@pytest.mark.parametrize(
    ("reports", "failed"), [("0.24.0", None), ("0.24.0+cpu", None), ("0.23.1", "wrong_engine"), (None, None)]
)
def test_engine_that_reports_another_version(node: Node, reports: str | None, failed: str | None) -> None:
    """It is not ready, and both versions are named; one that reports none is left to its log."""
    options = ("--reports", reports) if reports else ()
    answer = node.run("launch", node.launch_request(*options, engine_version="0.24.0"))

    assert (failed is None, failed, reports) == (answer["ready"], answer["failure_phase"], answer["engine_version"])
    if failed:
        assert "vLLM 0.24.0 was asked for, and the engine that was started reports 0.23.1." == answer["message"]


def test_probe_says_each_build(node: Node, tmp_path: Any) -> None:
    """One build that is missing makes no node unusable; its reason is kept with it."""
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\necho 0.24.0\n")
    program.chmod(0o755)
    there = {"name": "old", "build": {"version": "0.24.0", "command": [str(program), "serve"]}}
    node.declare(engines=[there, BUILDS[1]])

    answer = node.run("probe")
    node.declare(engines=[BUILDS[1]])
    alone = node.run("probe")

    assert [("old", "0.24.0"), ("new", None)] == [(one["name"], one["installed"]) for one in answer["engines"]]
    assert "/nonexistent/vllm" in answer["engines"][1]["problem"]
    assert not any("/nonexistent/vllm" in problem for problem in answer["problems"])
    assert any("/nonexistent/vllm" in problem for problem in alone["problems"])


def test_engine_is_no_longer_what_was_probed(node: Node) -> None:
    """A launch that asks for another file than is there now is a failed trial, and production serves on."""
    node.serve()
    digest = node.run("launch", node.launch_request())["engine_digest"]
    node.run("finish", node.finish_request())

    same = node.run("launch", node.launch_request(engine_digest=digest))
    node.run("finish", node.finish_request())
    other = node.run("launch", node.launch_request(engine_digest="sha256:0123"))

    assert same["ready"]
    assert (False, "wrong_engine", digest) == (other["ready"], other["failure_phase"], other["engine_digest"])
    assert "was sha256:0123 when the sweep began" in other["message"]
    assert node.read("record.json") is None
    assert node.run("status")["production"]["running"]
