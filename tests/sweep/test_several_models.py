"""A sweep of two nodes that serve a model each, within one budget, through the command line."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from driven_home import MODEL, OTHER_MODEL, Home

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def swept(home: Home) -> tuple["subprocess.CompletedProcess[str]", Path]:
    """What the sweep said, and its archive."""
    said = home.run("sweep", "--inventory", "models", "--sweep", "share", "--no-report")
    return said, home.archives()[-1]


@pytest.fixture(scope="module")
def trials(swept: tuple[object, Path]) -> list[dict[str, Any]]:
    """The raw records of its trials."""
    return [json.loads(path.read_text()) for path in sorted(swept[1].glob("trials/*.json"))]


def test_each_node_tunes_its_own_model(
    swept: tuple["subprocess.CompletedProcess[str]", Path], trials: list[dict[str, Any]]
) -> None:
    """The engines were started with the model of their node, and each model has its own recommended command."""
    said = swept[0].stdout
    served = {(trial["node"], trial["argv"][trial["argv"].index("serve") + 1]) for trial in trials}

    assert 0 == swept[0].returncode, said
    assert {("one", MODEL), ("two", OTHER_MODEL)} == served
    assert {"ok"} == {trial["status"] for trial in trials}
    assert f"vllm serve {OTHER_MODEL} --served-model-name qwen" in said
    assert f"vllm serve {MODEL}" in said


def test_both_share_one_budget(
    swept: tuple["subprocess.CompletedProcess[str]", Path], trials: list[dict[str, Any]]
) -> None:
    """Five trials were asked for and made, two or three of each model; the plan said so before."""
    made = [sum(trial["node"] == node for trial in trials) for node in ("one", "two")]

    assert [2, 3] == sorted(made)
    assert (
        "one budget for all, to begin with 3 trials for 1x NVIDIA L4 serving Llama-3.1-8B-Instruct; " in swept[0].stdout
    )
    assert "0 trials recorded, about 5 in all" in swept[0].stdout
