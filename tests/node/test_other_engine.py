"""An engine that is not vLLM on a node: its probe, its start until it answers, and its model's file."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.engine import installed, launch, models
from tokenpeak.node.engine.builds import engine_build
from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol.requests import LaunchRequest

STANDIN = Path(__file__).parents[1] / "llama_standin.py"
COMMAND = [sys.executable, str(STANDIN), "--port={port}", "--model={model}", "--alias={served_model}"]


@pytest.fixture
def other(node: Node, tmp_path: Path) -> tuple[Node, dict[str, Any]]:
    """A node with a build of another server, and a request that launches it with a model's file."""
    node.declare(engines=[{"name": "llama", "build": {"server": "llama.cpp", "command": COMMAND}}])
    file = tmp_path / "tiny.Q4_0.gguf"
    file.write_bytes(b"GGUF")
    argv = [*COMMAND[:2], f"--port={node.declaration['port']}", f"--model={file}", "--alias=tiny"]
    return node, node.launch_request(argv=argv, engine="llama", model=str(file))


@pytest.mark.parametrize("options", [[], ["--python"]])
def test_it_is_ready_when_it_answers(other: tuple[Node, dict[str, Any]], options: list[str]) -> None:
    """By /health, or where there is none by its list of models, and then by a real completion; production is back."""
    node, request = other
    node.serve()
    launched = node.run("launch", {**request, "argv": [*request["argv"], *options]})
    finished = node.run("finish", node.finish_request())

    assert launched["ready"], launched["message"]
    assert "llama.cpp" == launched["engine_version"]
    assert launched["model_digest"].startswith("sha256:")
    assert "prod" == finished["restoration"]["model"]


def test_model_that_is_not_there(other: tuple[Node, dict[str, Any]]) -> None:
    """A file that is missing is said before production is stopped."""
    node, request = other
    launched = node.run("launch", {**request, "model": "/models/none.gguf"})

    assert ("model_missing", False) == (launched["failure_phase"], launched["ready"])
    assert "/models/none.gguf is not on the node" in launched["message"]


def test_probe_asks_it_nothing(other: tuple[Node, dict[str, Any]]) -> None:
    """Its build has the name of its server for a version, and no flags; one whose program is missing says so."""
    node, _ = other
    there = node.run("probe")["engines"][0]
    missing = {"server": "llama.cpp", "command": ["/opt/none/llama-server", "{port}", "{model}"]}
    node.declare(engines=[{"name": "llama", "build": missing}])
    gone = node.run("probe")["engines"][0]

    assert ("llama.cpp", None, [], None) == tuple(there[name] for name in ("version", "installed", "help", "problem"))
    assert "install llama.cpp there" in gone["problem"]


def test_trial_key_goes_to_it(other: tuple[Node, dict[str, Any]]) -> None:
    """It gets the trial's key by the variables that llama.cpp's servers read, and vLLM by its own."""
    node, request = other
    given = LaunchRequest(**request)
    own, vllm = engine_build(node.declaration, "llama"), {"command": ["vllm", "serve"], "version": None}

    assert {"LLAMA_API_KEY": "k", "API_KEY": "k"} == launch.environment(node.declaration, given, "k", own)
    assert {"VLLM_API_KEY": "k"} == launch.environment(node.declaration, given, "k", vllm)


def test_file_in_a_mount(tmp_path: Path) -> None:
    """A container finds a model's file in what is mounted."""
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    build = {"image": "llama:1", "server": "llama.cpp", "mounts": [f"{tmp_path}:/models:ro"]}

    assert models.model_problem(build, "/models/tiny.gguf", {}, (), None) is None
    assert "is not at" in str(models.model_problem(build, "/models/none.gguf", {}, (), None))


def test_image_is_not_asked(tmp_path: Path) -> None:
    """Nothing is run in an image of another server to hear its version or its flags."""
    build = {"image": "llama:1", "server": "llama.cpp", "version": "llama.cpp", "command": ["/app/llama-server"]}
    state = State(tmp_path)

    assert installed.engine_version({}, build, state) is None
    assert [] == installed.engine_help({}, build, None, state)
