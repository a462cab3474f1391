"""What the probe says of a node, and which problems it names."""

import os
import socket
from pathlib import Path

from tests.node.conftest import Node

from tokenpeak.node.engine import installed
from tokenpeak.node.machine.state import State
from tokenpeak.node.probe import probe
from tokenpeak.records import NodeFacts


def test_fields_are_the_raw_format(node: Node) -> None:
    """The answer without its declaration and its script's version is a NodeFacts."""
    answer = node.run("probe")
    answer.pop("declaration")
    answer.pop("script")

    probe = NodeFacts.model_validate({**answer, "node": "n", "source": "probed"})

    assert probe.engine_port_free
    assert probe.memory_bytes


def test_problems(node: Node, tmp_path: Path) -> None:
    """A missing engine, a missing model and a port in use are named, each with what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node.declare(
            port=port,
            engine={"command": ["/nonexistent/vllm", "serve"]},
            model={"name": "m", "path": str(tmp_path / "missing")},
        )
        answer = node.run("probe")

    engine, used, model = answer["problems"]
    assert "No engine at '/nonexistent/vllm'" in engine
    assert f"Port {port} on 127.0.0.1 is in use by" in used
    assert "is not on the node" in model
    assert answer["engine_version"] is None
    assert answer["engine_port_free"] is False
    assert answer["model_present"] is False


def test_nothing_secret_leaves(node: Node) -> None:
    """Environments of the declaration can hold tokens: they stay on the node."""
    node.declare(
        engine={"command": ["x"], "env": {"HF_TOKEN": "canary"}},
        production={"manager": "command", "url": "http://127.0.0.1:9", "process": {"env": {"A": "canary"}}},
    )

    assert "canary" not in str(node.run("probe"))


def board(index: int, name: str = "L4", used: int = 0, mig: str | None = None) -> dict[str, object]:
    return {
        "index": index,
        "name": name,
        "uuid": f"GPU-{index}",
        "vram_bytes": 100 << 30,
        "vram_used_bytes": used << 30,
        "mig": mig,
    }


def test_boards_that_cannot_be_used() -> None:
    """MIG, unlike boards, and VRAM that somebody else holds are problems."""
    holders = [{"gpu_uuid": "GPU-1", "pid": 7, "name": "jupyter", "vram_bytes": 60 << 30}]
    boards = [board(0, mig="Enabled"), board(1, name="A10", used=60)]

    problems = probe.gpu_problems(boards, holders, is_idle=True)

    assert ["MIG is on for GPU 0", "The GPUs differ (A10, L4)", "GPU 1 has 60.0 of 100.0 GiB in use"] == [
        problem.split(":")[0].split(" though")[0] for problem in problems
    ]
    assert "7 jupyter 61440 MiB" in problems[2]


def test_help_is_asked_once(tmp_path: Path) -> None:
    """The engine's flags come from its own help, which is kept until the installation changes."""
    program = tmp_path / "vllm"
    asked = tmp_path / "asked"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\necho "Config:"\necho "  --brand-new N         Words."\n')
    program.chmod(0o755)
    state = State.make(tmp_path / "state")

    lines = [installed.engine_help({}, {"command": [str(program), "serve"]}, "0.32.0", state) for _ in range(2)]
    os.utime(program, ns=(1, 1))
    installed.engine_help({}, {"command": [str(program), "serve"]}, "0.32.0", state)

    assert [["  --brand-new N         Words."]] * 2 == lines
    assert ["serve --help=all", "serve --help=all"] == asked.read_text().splitlines()
