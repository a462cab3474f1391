"""Every shipped sweep planned on every shipped inventory, as `tokenpeak plan` does."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from commands import typed
from tokenpeak.cli import plan
from tokenpeak.spec.sweep import sweep_names
from tokenpeak.sweep.inventory.nodes import inventory_names

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def each_inventory_is_read_once() -> Iterator[None]:
    """Ansible takes a second for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "read_inventory", cache(plan.read_inventory))
        yield


@pytest.mark.parametrize("sweep", sweep_names())
def test_sweep_is_planned_on_every_inventory(sweep: str) -> None:
    """A plan counts every config of its matrix, feasible or dropped; what cannot be planned is a sentence."""
    for inventory in inventory_names():
        done = typed("plan", "--inventory", inventory, "--sweep", sweep, "--format", "json")
        if done.returncode:
            assert done.stderr.startswith("tokenpeak: "), f"{inventory}: {done.stderr}"
            assert "defect" not in done.stderr, f"{inventory}: {done.stderr}"
            continue
        document = json.loads(done.stdout)
        assert document["theoretical"] == len(document["feasible"]) + len(document["dropped"]) > 0, inventory


def test_a_model_and_an_axis_over_checkpoints_are_planned(tmp_path: Path) -> None:
    """The baseline serves the spec's own model, which no alternative of the axis does."""
    sweep = tmp_path / "checkpoints.yml"
    sweep.write_text(
        "{model: {name: mistralai/Mistral-7B-Instruct-v0.2}, axes: {weights: ["
        "{name: awq, model: {name: TheBloke/Mistral-7B-Instruct-v0.2-AWQ}}, "
        "{name: v3, model: {name: mistralai/Mistral-7B-Instruct-v0.3}}]}, workloads: [{workload: "
        "{kind: synthetic, name: s, input_tokens: 100, output_tokens: 50}, levels: [{concurrency: 8, requests: 64}]}]}"
    )
    done = typed("plan", "--inventory", "t4", "--sweep", str(sweep), "--format", "json")

    assert 0 == done.returncode, done.stderr
    assert json.loads(done.stdout)["theoretical"] > 2
