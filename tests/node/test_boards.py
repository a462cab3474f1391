"""Trials on some boards of a node: from the probe to memory and samples, by the simulator's nvidia-smi."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.sim.install import install

MIXED = """#!/bin/sh
case "$*" in
*--query-gpu=index,name*)
  echo '0, NVIDIA T4, GPU-aaa, 570.1, 15360, 15000, 70, 7.5, Disabled'
  echo '1, NVIDIA L4, GPU-bbb, 570.1, 23034, 1, 72, 8.9, Disabled'
  ;;
*) exit 1 ;;
esac
"""
"""A node with two kinds of boards, of which the first is busy."""


@pytest.fixture
def four(node: Node, tmp_path: Path) -> Node:
    """A node with four simulated boards, and no production."""
    tools = tmp_path / "tools"
    install(tools, {"TOKENPEAK_SIM_GPU": "NVIDIA A100-SXM4-80GB", "TOKENPEAK_SIM_GPU_COUNT": "4"})
    node.declare(tools=str(tools), simulated=True)
    return node


@pytest.mark.integration
@pytest.mark.parametrize(
    "declared",
    [
        {"gpus": [1, "3"]},
        {"engine": {"command": [sys.executable], "isolation": "process", "env": {"CUDA_VISIBLE_DEVICES": "1,3"}}},
    ],
)
def test_chosen_boards_from_probe_to_samples(four: Node, declared: dict[str, Any]) -> None:
    """The probe has them alone, the engine sees them in nvidia-smi's order, and samples are of no other."""
    four.declare(**declared)
    said = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER']); time.sleep(2)"
    request = {**four.launch_request(), "argv": [sys.executable, "-c", said]}

    probed = four.run("probe")
    launched = four.run("launch", request)
    finished = four.run("finish", four.finish_request())

    assert [1, 3] == [gpu["index"] for gpu in probed["gpus"]]
    assert "1,3 PCI_BUS_ID" in launched["log_tail"]
    sampled = {match[1] for name in finished["telemetry"]["columns"] if (match := re.match(r"gpu(\d+)_", name))}
    assert {"1", "3"} == sampled


@pytest.mark.integration
def test_config_chooses_no_other_boards(four: Node) -> None:
    """What would be measured then is of boards that no trial uses; without a choice a config may make its own."""
    request = four.launch_request(env={"CUDA_VISIBLE_DEVICES": "0"})
    free = "CUDA_VISIBLE_DEVICES" in four.run("probe")["engine_env_allowed"]
    four.declare(gpus=[1, 3])

    assert free
    assert "CUDA_VISIBLE_DEVICES" not in four.run("probe")["engine_env_allowed"]
    assert "CUDA_VISIBLE_DEVICES chooses boards" in four.run("launch", request)["error"]["text"]


def test_chosen_board_that_is_not_there(four: Node) -> None:
    """The node is not used, and the boards that there are are named."""
    four.declare(gpus=[0, 7])

    assert any("GPU 7 is chosen" in one and "has 0, 1, 2, 3" in one for one in four.run("probe")["problems"])


@pytest.mark.parametrize(("chosen", "complaints"), [(None, 2), ([1], 0), (["GPU-bbb"], 0), ([0], 1)])
def test_mixed_and_busy_boards(node: Node, tmp_path: Path, chosen: list[Any] | None, complaints: int) -> None:
    """Boards of two kinds, one of them busy: choosing the other makes the node usable."""
    program = tmp_path / "nvidia-smi"
    program.write_text(MIXED)
    program.chmod(0o755)
    node.declare(tools=str(tmp_path), gpus=chosen)

    said = [one for one in node.run("probe")["problems"] if "GPU" in one]

    assert complaints == len(said), said
