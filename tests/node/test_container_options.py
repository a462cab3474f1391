"""Options that an engine's container is made with: boards, mounts, user, limits, environment."""

from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine import container
from tokenpeak.node.engine.builds import engine_builds
from tokenpeak.node.machine.error import ScriptError


def build(**keys: Any) -> dict[str, Any]:
    """A declared build of an image, as the node script reads it."""
    declared = {"name": "box", "build": {"image": "vllm/vllm-openai:v0.32.0", **keys}}
    return engine_builds({"engines": [declared]})["box"]


@pytest.mark.parametrize(
    ("keys", "chosen", "maker", "options"),
    [
        ({}, None, "nvidia", ["--gpus", "all"]),
        ({}, ("2", "3"), "nvidia", ["--gpus", '"device=2,3"']),
        ({"runtime": "podman"}, None, "nvidia", ["--device", "nvidia.com/gpu=all"]),
        ({"runtime": "podman"}, ("0", "GPU-9"), "nvidia",
         ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=GPU-9"]),
        ({}, ("1",), "amd", ["--device", "/dev/kfd", "--device", "/dev/dri"]),
        ({}, None, None, []),
        ({"devices": []}, None, "nvidia", []),
        ({"devices": ["nvidia.com/gpu=1"]}, None, "nvidia", ["--device", "nvidia.com/gpu=1"]),
    ],
    ids=["docker all", "docker some", "podman all", "podman some", "amd", "none there", "none wanted", "declared"],
)  # fmt: skip
def test_boards_of_a_container(keys: Any, chosen: Any, maker: str | None, options: list[str]) -> None:
    """Those that trials use: Docker takes them as a field of CSV, Podman by their CDI names."""
    assert options == container.device_options(build(**keys), chosen, maker)


def test_chosen_boards_are_counted_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container that has boards 2 and 3 alone counts them as 0 and 1, so no variable names them otherwise."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {"CUDA_VISIBLE_DEVICES": "2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "VLLM_X": "1"}
    chosen = {"gpus": ["2", "3"]}

    monkeypatch.setenv("PATH", str(tmp_path))
    renumbered = container.container_environment(build(), chosen, env)
    monkeypatch.setenv("PATH", "/nonexistent")
    kept = container.container_environment(build(), chosen, env)

    assert {"CUDA_DEVICE_ORDER", "VLLM_X"} == set(renumbered)
    assert env == kept


def test_variables_of_a_container() -> None:
    """A line each; a value of several lines is refused, for it would be several variables."""
    assert b"A=b c=d\nE=\n" == container.environment_file({"A": "b c=d", "E": ""})
    with pytest.raises(ScriptError, match="KEY has a value of several lines"):
        container.environment_file({"KEY": "a\nLD_PRELOAD=/x"})
