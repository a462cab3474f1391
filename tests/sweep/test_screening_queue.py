"""Nodes that are compared before configs are: who is named, who goes on, and that nobody waits for ever."""

import shutil
import urllib.request
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import yaml
from driven_home import SPEC, Home

from archive_factory import START, node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.records import NodeFacts, Plan, TrialRecord
from tokenpeak.results.node_screening import NodeScreening
from tokenpeak.search.history import Finished, Proposal, Wait
from tokenpeak.spec.node_screening import NodeScreeningSpec
from tokenpeak.spec.search import SearchSpec
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.trial_queue import TrialQueue

NODES = tuple(node_facts(f"node-{number}", "NVIDIA L4") for number in range(4))
NAMES = tuple(node.node for node in NODES)
HARDWARE = NODES[0].hardware


def asked(**given: Any) -> tuple[SweepSpec, Plan]:
    """Two configs on four nodes, in a grid, after a screening."""
    search = SearchSpec(anchor_every=None, baseline=())
    screening = NodeScreeningSpec(**given)
    spec = sweep_spec({"max_num_seqs": [8, 64]}).model_copy(update={"search": search, "node_screening": screening})
    return spec, plan_of(spec, NODES[0]).model_copy(update={"nodes": NAMES})


def screened(
    spec: SweepSpec, plan: Plan, node: NodeFacts, proposal: Proposal, trial_id: str, *, speed: float = 1.0
) -> TrialRecord:
    """The record of a screening's launch on a node that is so fast."""
    planned = next(entry for entry in plan.feasible if entry.config.config_id == proposal.config_id)
    record, _ = trial_record(spec, node=node, planned=planned, replicate=proposal.replicate, number=int(trial_id[:4]))
    noise = 1 + 0.002 * (int(trial_id[:4]) % 3)
    runs = tuple(
        run.model_copy(
            update={
                "summary": run.summary.model_copy(
                    update={
                        "output_tok_per_s": (run.summary.output_tok_per_s or 1.0) * speed * noise,
                        "windowed_output_tok_per_s": (),
                    }
                )
            }
        )
        for run in record.runs
    )
    made = {"trial_id": trial_id, "node_screening": True, "status": "ok", "runs": runs, "failure": None}
    return record.model_copy(update={**made, "started_at": START + timedelta(seconds=10 * int(trial_id[:4]))})


def queue(
    spec: SweepSpec, plan: Plan, *, given: list[TrialRecord] | None = None
) -> tuple[TrialQueue, list[NodeScreening]]:
    """A trial queue over all four nodes, and what it says of them."""
    said: list[NodeScreening] = []
    trial_queue = TrialQueue(
        spec, [plan], given or [], last_number=len(given or []), nodes=NODES, there=NAMES, on_screened=said.append
    )
    return trial_queue, said


def claimed(trial_queue: TrialQueue, node: str) -> tuple[Proposal, str]:
    """The node's next trial, which there must be."""
    claim = trial_queue.claim(HARDWARE, node)
    assert isinstance(claim, tuple), claim
    return claim


def all_screened(spec: SweepSpec, plan: Plan, trial_queue: TrialQueue, slow: str) -> list[TrialRecord]:
    """Each node makes its launches; `slow` is a fifth slower."""
    made = []
    launches = spec.node_screening.launches if spec.node_screening is not False else 0
    for node in NODES:
        for _ in range(launches):
            proposal, trial_id = claimed(trial_queue, node.node)
            assert proposal.node_screening
            speed = 0.8 if node.node == slow else 1.0
            made.append(screened(spec, plan, node, proposal, trial_id, speed=speed))
            trial_queue.settle(proposal, made[-1])
    return made


def test_the_search_begins_when_every_node_has_made_its_launches() -> None:
    """A node that is done waits, and gives its slot to the others; all launch the same config."""
    spec, plan = asked(launches=1)
    trial_queue, said = queue(spec, plan)
    claims = {node: claimed(trial_queue, node) for node in NAMES[:3]}
    assert 1 == len({proposal.config_id for proposal, _ in claims.values()})
    for node, (proposal, trial_id) in claims.items():
        facts = next(each for each in NODES if each.node == node)
        trial_queue.settle(proposal, screened(spec, plan, facts, proposal, trial_id))
    wait = trial_queue.claim(HARDWARE, NAMES[0])
    assert isinstance(wait, Wait)
    assert wait.gives_back
    assert not trial_queue.is_finished(HARDWARE)
    assert [] == said
    proposal, trial_id = claimed(trial_queue, NAMES[3])
    trial_queue.settle(proposal, screened(spec, plan, NODES[3], proposal, trial_id))
    search, _ = claimed(trial_queue, NAMES[0])

    assert not search.node_screening
    assert 1 == len(said)


@pytest.mark.parametrize("outliers", ["exclude", "keep"])
def test_an_outlier_is_excluded_where_the_sweep_says_so(outliers: str) -> None:
    """The slow node gets no further trial, or goes on; the others go on in any case."""
    spec, plan = asked(outliers=outliers)
    trial_queue, said = queue(spec, plan)
    all_screened(spec, plan, trial_queue, slow="node-2")
    claim = trial_queue.claim(HARDWARE, "node-2")

    assert ["node-2"] == [node.node for node in said[0].outliers]
    assert isinstance(claim, Finished if outliers == "exclude" else tuple)
    assert isinstance(trial_queue.claim(HARDWARE, "node-1"), tuple)
    if isinstance(claim, Finished):
        assert "node-2 is 20." in claim.reason


def test_a_resumed_sweep_knows_whom_it_excluded() -> None:
    """Verdicts are made of the records: the node is excluded again, and no launch is made twice."""
    spec, plan = asked()
    first, _ = queue(spec, plan)
    made = all_screened(spec, plan, first, slow="node-2")
    resumed, said = queue(spec, plan, given=made)

    assert ["node-2"] == [node.node for node in said[0].outliers]
    assert isinstance(resumed.claim(HARDWARE, "node-2"), Finished)
    assert not claimed(resumed, "node-0")[0].node_screening
    half, said = queue(spec, plan, given=made[:3])
    assert [] == said
    assert 5 == half.count().remaining - 2
    assert [True, Wait] == [claimed(half, "node-1")[0].node_screening, type(half.claim(HARDWARE, "node-0"))]


def test_nobody_waits_for_a_node_that_is_gone() -> None:
    """A node that is left out is no longer awaited; an interrupted launch is made again."""
    spec, plan = asked(launches=1)
    trial_queue, said = queue(spec, plan)
    for node in NODES[:3]:
        proposal, trial_id = claimed(trial_queue, node.node)
        trial_queue.settle(proposal, screened(spec, plan, node, proposal, trial_id))
    proposal, trial_id = claimed(trial_queue, "node-3")
    lost = screened(spec, plan, NODES[3], proposal, trial_id).model_copy(update={"status": "interrupted"})
    trial_queue.settle(proposal, lost)
    assert claimed(trial_queue, "node-3")[0].node_screening
    trial_queue.leave("node-3")

    assert ["node-0", "node-1", "node-2"] == [node.node for node in said[0].nodes]
    assert not claimed(trial_queue, "node-0")[0].node_screening


def test_screening_is_no_part_of_the_search() -> None:
    """Its launches rank no config and are no trials of the grid, which makes both of its own."""
    spec, plan = asked(launches=1)
    trial_queue, _ = queue(spec, plan)
    all_screened(spec, plan, trial_queue, slow="")
    found = [claimed(trial_queue, "node-0")[0] for _ in plan.feasible]

    assert {planned.config.config_id for planned in plan.feasible} == {proposal.config_id for proposal in found}
    assert {0} == {proposal.replicate for proposal in found}
    assert (4, 2) == (trial_queue.count().ended, trial_queue.count().remaining)


@pytest.mark.parametrize("given", [False, NodeScreeningSpec()])
def test_one_node_or_no_wish_screens_nothing(given: Any) -> None:
    """Without the field, and for a node that is alone of its kind, the search begins at once."""
    spec, plan = asked()
    spec = spec.model_copy(update={"node_screening": given})
    there = NAMES if given is False else NAMES[:1]
    trial_queue = TrialQueue(spec, [plan], [], last_number=0, nodes=NODES, there=there)

    assert not claimed(trial_queue, "node-0")[0].node_screening


def inventory(home: Home, name: str, first: int, of_nodes: list[dict[str, Any]]) -> dict[str, str]:
    """An inventory of L4 nodes, each with settings of its simulated machine; their addresses."""
    lone, folder = home.root / "inventory" / "lone", home.root / "inventory" / name
    shutil.copytree(lone, folder)
    shared = yaml.safe_load((lone / "group_vars" / "all.yml").read_text())
    machine = shared.pop("tokenpeak_simulated_machine")
    env = shared.pop("tokenpeak_engine_env")
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared))
    place = home.address.rpartition(".")[0]
    hosts = {
        f"{name}-{number}": {
            "tokenpeak_host": f"{place}.{first + number}",
            "tokenpeak_simulated_gpu": "NVIDIA L4",
            "tokenpeak_simulated_machine": {**machine, **{key: own[key] for key in own if key != "env"}},
            "tokenpeak_engine_env": {**env, **own.get("env", {})},
        }
        for number, own in enumerate(of_nodes)
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    return {node: host["tokenpeak_host"] for node, host in hosts.items()}


@pytest.mark.e2e
def test_a_node_that_its_driver_holds_back_is_named_and_kept(home: Home) -> None:
    """Of two simulated nodes one is too hot: the driver names it, and by declaration it goes on."""
    nodes = inventory(home, "warm", 248, [{}, {"env": {"TOKENPEAK_SIM_FAULT": "throttle_after_s:0"}}])
    spec = {**SPEC, "node_screening": {"outliers": "keep", "launches": 1}}
    (home.root / "analysis" / "sweeps" / "warm.yml").write_text(yaml.safe_dump(spec))

    done = home.run("sweep", "--inventory", "warm", "--sweep", "warm", "--parallel", "2", "--no-report")
    trials = home.trials(home.archives()[-1])
    (line,) = (line for line in done.stdout.splitlines() if "OUTLIER" in line)

    assert "warm-1 throttles" in line, done.stdout
    assert (
        "its driver held the clock back for heat or the power supply in 100% of the samples, in 0% on the others"
        in line
    )
    assert "it is kept, as the sweep says" in line
    assert set(nodes) == {trial["node"] for trial in trials if trial["node_screening"]}
    assert 2 == sum(not trial["node_screening"] for trial in trials)


@pytest.mark.e2e
@pytest.mark.parametrize(("restore", "parallel"), [("per_trial", "2"), ("per_sweep", "1")])
def test_a_slow_node_is_named_excluded_and_given_back(home: Home, restore: str, parallel: str) -> None:
    """Of three simulated nodes one is a quarter slow under a lower power limit: a line says so, and it tries no config.

    With one slot and production given back at the end, a node that waits for the others hands its slot on.
    """
    name = f"slow-{restore.replace('_', '-')}"
    of_nodes = [{}, {"speed": 0.75, "power_limit_w": 45}, {}]
    nodes = inventory(home, name, 240 if restore == "per_trial" else 244, of_nodes)
    spec = {**SPEC, "restore": restore, "node_screening": {"outliers": "exclude", "launches": 2}}
    (home.root / "analysis" / "sweeps" / f"{name}.yml").write_text(yaml.safe_dump(spec))

    planned = home.run("plan", "--inventory", name, "--sweep", name)
    done = home.run("sweep", "--inventory", name, "--sweep", name, "--parallel", parallel, "--no-report")
    trials = home.trials(home.archives()[-1])
    launches = Counter((trial["node"], trial["node_screening"]) for trial in trials)

    assert "6 launches of one config compare the nodes first" in planned.stdout
    assert 0 == done.returncode, done.stdout
    (line,) = (line for line in done.stdout.splitlines() if "OUTLIER" in line)
    assert f"{name}-1 is 2" in line, done.stdout
    assert "slow: power limit 45 W, 72 W on the others" in line
    assert "no further trial is made there" in line
    assert {2} == {launches[node, True] for node in nodes}
    assert 0 == launches[f"{name}-1", False]
    assert 2 == launches[f"{name}-0", False] + launches[f"{name}-2", False]
    for address in nodes.values():
        with urllib.request.urlopen(f"http://{address}:18000/v1/models", timeout=10) as response:
            assert 200 == response.status
