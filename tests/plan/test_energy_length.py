"""Runs too short for an energy figure: what a plan says of them, and that shipped sweeps have none."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_models import LLAMA, serving
from tokenpeak import paths
from tokenpeak.plan.matrix import served_models
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.records import Gpu, ModelName, NodeFacts
from tokenpeak.results.run_length import ShortEnergyRun, short_energy_runs
from tokenpeak.spec.sweep import SweepSpec, parse_spec, read_spec, sweep_names
from tokenpeak.sweep.sweep_plan import plan_nodes

H100 = NodeFacts(node="one", source="declared", gpus=(Gpu(index=0, name="NVIDIA H100 80GB HBM3"),))


def short_of(spec: SweepSpec, node: NodeFacts, model: ModelName) -> list[ShortEnergyRun]:
    planned = plan_nodes(spec, serving(model, node))
    models = served_models(planned.plans)
    return short_energy_runs(planned.spec, [(plan, node) for plan in planned.plans], models)


def spec_of(*levels: dict[str, object]) -> SweepSpec:
    workload = {"kind": "synthetic", "name": "short", "input_tokens": 128, "output_tokens": 64}
    return parse_spec({"workloads": [{"workload": workload, "levels": list(levels)}]}, Path("spec.yml"))


def test_a_short_run_is_named_with_the_length_that_would_do() -> None:
    """Two seconds on an H100, whose sensor looks a quarter of the time, need to be half as long again."""
    closed, rate, timed = short_of(
        spec_of(
            {"concurrency": 32, "requests": 64}, {"rate_per_s": 8, "requests": 16}, {"concurrency": 4, "duration_s": 2}
        ),
        H100,
        LLAMA,
    )

    assert 1 < closed.run_s < 2.5
    assert "level concurrency=32: a run of 1." in closed.words
    assert "Set requests: 24 (3 s)" in rate.words
    assert "a run of 2.0 s is too short for an energy figure within ±5%. Set duration_s: 3" in timed.words


def shipped() -> list[tuple[str, str]]:
    """Each shipped inventory with boards, and its sweeps: its own, `quick`, and those for its boards by their name."""
    found = []
    for folder in sorted(path for path in paths.INVENTORIES.iterdir() if path.is_dir()):
        declared = variables(folder.name)
        if any("gpus" in facts for facts in declared_facts(folder.name)):
            own = {name for name in sweep_names() if name.split("-")[0].split("x")[0] == folder.name}
            found += [(folder.name, name) for name in sorted({declared["tokenpeak_default_sweep"], "quick", *own})]
    return found


def variables(inventory: str) -> dict[str, Any]:
    return yaml.safe_load((paths.INVENTORIES / inventory / "group_vars" / "all.yml").read_text())  # type: ignore[no-any-return]


def declared_facts(inventory: str) -> list[dict[str, Any]]:
    """What the inventory declares of its nodes, for all of them or one by one."""
    everything = yaml.safe_load((paths.INVENTORIES / inventory / "hosts.yml").read_text())["all"]
    groups = [everything, *everything.get("children", {}).values()]
    hosts = [*chain.from_iterable((group.get("vars"), *group.get("hosts", {}).values()) for group in groups)]
    own = [facts["tokenpeak_facts"] for facts in hosts if facts and "tokenpeak_facts" in facts]
    return own or [variables(inventory).get("tokenpeak_facts") or {}]


@pytest.mark.parametrize(("inventory", "sweep"), shipped())
def test_shipped_sweeps_have_runs_long_enough(inventory: str, sweep: str) -> None:
    """On the boards of each shipped inventory, by what is predicted of its model."""
    given = variables(inventory)
    for facts in declared_facts(inventory):
        engine = str(given.get("tokenpeak_engine_version", "0.32.0"))
        node = NodeFacts.model_validate({"engine_version": engine, **facts, "node": "one", "source": "declared"})
        assert all(gpu_facts(gpu.name) for gpu in node.gpus)
        found = short_of(read_spec(sweep), node, ModelName.model_validate(given["tokenpeak_model"]))

        assert [] == [short.words for short in found]
