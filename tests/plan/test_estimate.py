from pathlib import Path

import pytest

from tokenpeak.plan.estimate import Estimate, estimate
from tokenpeak.plan.matrix import build_plan, model_facts_of
from tokenpeak.plan.spec import ModelSpec, parse_spec
from tokenpeak.records import Gpu, NodeFacts

MODEL = ModelSpec(name="meta-llama/Llama-3.1-8B-Instruct")


def cost(nodes: int = 1, gpu: str = "NVIDIA L4", *, simulated: bool = False, **keys: object) -> Estimate:
    raw = {
        "fixed": {"name": "fixed", "flags": {"max_model_len": 4096}},
        "axes": {"max_num_seqs": [8, 16], "enforce_eager": [True, False]},
        "workloads": [
            {
                "workload": {"kind": "synthetic", "name": "s", "input_tokens": 100, "output_tokens": 50},
                "levels": [{"concurrency": 8, "requests": 32}, {"rate_per_s": 0.5, "requests": 30}],
            }
        ],
        **keys,
    }
    spec = parse_spec(raw, Path("t.yml"))
    facts = [
        NodeFacts(node=f"n{i}", source="declared", gpus=(Gpu(index=0, name=gpu),), simulated=simulated)
        for i in range(nodes)
    ]
    (plan,) = build_plan(spec, facts, MODEL)
    return estimate(spec, plan, facts, model_facts_of(spec, MODEL))


def test_multiplies_trials_by_replicates_up_to_the_limit() -> None:
    """Each config is launched once per replicate, unless the search stops earlier."""
    assert 8 == cost(search={"replicates": 2}).trials
    assert 3 == cost(search={"replicates": 2, "trials": 3}).trials


def test_takes_at_least_as_long_as_its_rates_last() -> None:
    """Thirty requests at one in two seconds take a minute in each of four trials."""
    assert cost().duration_s > 4 * 60


def test_shares_trials_between_nodes() -> None:
    """Two nodes take half the time and as many GPU-hours."""
    one, two = cost(1), cost(2)

    assert pytest.approx(one.duration_s / 2) == two.duration_s
    assert pytest.approx(one.gpu_hours) == two.gpu_hours


def test_counts_production_s_return_once_when_it_stays_down() -> None:
    """restore: per_sweep starts production once, so that it is down for less time than with a return per trial."""
    assert cost(restore="per_sweep").production_downtime_s < cost().production_downtime_s


def test_knows_no_energy_of_an_unknown_device() -> None:
    """Without a TDP the energy is not guessed; the hours are."""
    unknown = cost(gpu="NVIDIA Unheard-Of 9000")

    assert unknown.energy_kwh is None
    assert unknown.duration_s > 0


def test_starts_a_simulated_engine_in_seconds() -> None:
    """A simulated node costs little but the load itself."""
    assert cost(simulated=True).duration_s < cost().duration_s
