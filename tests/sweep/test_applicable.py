"""Which results may be applied: each obstacle with its reason and what would do, and which can be declared away."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from archive_factory import GPUS, MODEL, make_archive, node_facts
from node_models import LLAMA, named, serving
from tokenpeak.errors import InventoryError, PlanError
from tokenpeak.node.protocol.answers import DescribeAnswer
from tokenpeak.node.protocol.parts import Production, Series
from tokenpeak.plan.matrix import kinds_of
from tokenpeak.records import (
    ApplyRecord,
    Config,
    EngineBuild,
    NodeFacts,
    Provenance,
)
from tokenpeak.records.quality import AnswersQuality, QualityVerdict, SweepQuality
from tokenpeak.results.bake import Observed
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.apply.applicable import Applicable, SweepResult, applicable, remaining
from tokenpeak.sweep.apply.node_apply import ApplyPlan, NodeApply
from tokenpeak.sweep.apply.setup import apply_rights, apply_serially, batches, forbidden
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.inventory.variables import MOST_ROUNDS, BakeSettings
from tokenpeak.sweep.limits import GroupLimit

A100 = node_facts("node-1", GPUS[0], simulated=False)
WORDS = (
    *("/opt/vllm/bin/vllm", "serve", MODEL.name, "--port", "8000", "--dtype", "bfloat16"),
    *("--max-model-len", "2048", "--max-num-seqs", "8"),
)


def described(**changes: Any) -> DescribeAnswer:
    """A node's answer of a production that serves the sweep's model by the measured version."""
    given: dict[str, Any] = {
        "production": Production(
            manager="systemd", unit="vllm.service", running=True, url="http://127.0.0.1:8000", model=MODEL.name
        ),
        "place": "systemd unit vllm.service",
        "words": WORDS,
        "program": 2,
        "env": {},
        "text": "vllm serve",
        "sha256": "0" * 64,
        "engine_version": "0.32.0",
        "max_model_len": 2048,
        **changes,
    }
    return DescribeAnswer(**given)


@pytest.fixture
def result(tmp_path: Path) -> SweepResult:
    """What a completed sweep on real nodes left."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], replicates=3, simulated=False)
    return opened(archive)


def opened(archive: Archive) -> SweepResult:
    record = archive.read_sweep()
    return SweepResult(
        record=record,
        spec=parse_spec(record.spec, Path("sweep.json")),
        trials=tuple(archive.judged_trials()),
        end=archive.read_end(),
        quality=archive.read_quality(),
    )


def reasons(found: Applicable) -> list[str]:
    return [obstacle.reason for obstacle in found.obstacles]


def test_good_result(result: SweepResult) -> None:
    """Nothing stands against a valid result of a completed sweep on the same boards, model and version."""
    found = applicable(result, A100, described(), None)

    assert [] == reasons(found)
    assert "max_num_seqs=64" == found.config.name
    assert found.edit is not None
    assert ("--max-num-seqs", "64") == found.edit.shown_words(found.described)[-2:]


def test_a_lead_that_is_not_shown_is_applied_by_name_alone(tmp_path: Path) -> None:
    """One launch each of too few requests for the SLO: the decision is said, and a name given is taken."""
    once = opened(make_archive(tmp_path / "o", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], simulated=False))

    with pytest.raises(
        PlanError, match=r"to apply: \S+=64 leads, but is not proven to hold the SLO\. Name a config by"
    ):
        applicable(once, A100, described(), None)
    assert "max_num_seqs=64" == applicable(once, A100, described(), "max_num_seqs=64").config.name


def test_what_runs_now_is_not_replaced_by_defaults_that_are_kept(tmp_path: Path) -> None:
    """To keep the engine's defaults is said of a sweep that launched no production: nothing is put over it."""
    archive = make_archive(tmp_path / "k", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], replicates=3, simulated=False)
    for path in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        path.write_text(path.read_text().replace('"name":"max_num_seqs=64"', '"name":"defaults"'))

    with pytest.raises(PlanError, match=r"nothing to apply: Keep the engine's defaults, as nothing is shown"):
        applicable(opened(archive), A100, described(), None)


def test_simulated_result(tmp_path: Path) -> None:
    """Simulated results go to simulated nodes alone, where that is declared."""
    simulated = opened(make_archive(tmp_path / "s", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], replicates=3))
    real = applicable(simulated, A100, described(), None)
    played = applicable(simulated, node_facts("node-1", GPUS[0]), described(), None)

    assert ["the results are simulated"] == reasons(real) == reasons(played)
    assert real.obstacles[0].despite is None
    assert remaining(real.obstacles, ("simulated", "interrupted"))
    assert [] == remaining(played.obstacles, ("simulated",))


def test_interrupted_sweep(tmp_path: Path) -> None:
    """The best of some trials is not the best of all; it can be declared to be good enough."""
    archive = make_archive(
        tmp_path / "i", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], replicates=3, simulated=False, end=False
    )
    found = applicable(opened(archive), A100, described(), None)

    assert ["the sweep was interrupted before all trials were made"] == reasons(found)
    assert "tokenpeak sweep --resume i" in str(found.obstacles[0])
    assert "interrupted" == found.obstacles[0].despite


@pytest.mark.parametrize(
    "now",
    [
        node_facts("node-1", GPUS[1], simulated=False),
        node_facts("node-1", GPUS[0], simulated=False, count=2),
        A100.model_copy(update={"gpus": (replace(A100.gpus[0], driver="590.1"),)}),
    ],
    ids=["boards", "number", "driver"],
)
def test_other_hardware(result: SweepResult, now: NodeFacts) -> None:
    """Other boards, another number of them or another branch of the driver: sweep again."""
    with pytest.raises(PlanError, match="sweep again on it"):
        applicable(result, now, described(), None)


def test_other_model(result: SweepResult) -> None:
    """Production that serves another model than was measured."""
    other = described(
        words=("vllm", "serve", "org/other"),
        production=Production(manager="systemd", running=True, model="org/other"),
    )

    assert "production serves org/other, and the sweep measured" in reasons(applicable(result, A100, other, None))[0]


def test_each_node_gets_the_winner_of_its_own_model(tmp_path: Path) -> None:
    """Of nodes with equal boards and a model each, a plan is of those that serve the same one."""
    archive = make_archive(
        tmp_path / "m", axes={"max_num_seqs": [8, 64]}, gpus=[GPUS[0], GPUS[0]], gpus_a_node=1, simulated=False
    )
    record = archive.read_sweep()
    nodes = [*serving(LLAMA, record.nodes[0]), *serving(named("acme/other-7b"), record.nodes[1])]
    labels = list(kinds_of(parse_spec({**record.spec, "model": None}, Path("s.yml")), nodes))
    plans = [
        plan.model_copy(update={"hardware": label, "nodes": (node.node,)})
        for plan, label, node in zip(record.plans, labels, nodes, strict=True)
    ]
    several = replace(
        opened(archive),
        record=record.model_copy(update={"nodes": tuple(nodes), "plans": tuple(plans)}),
        spec=parse_spec({**record.spec, "model": None}, Path("s.yml")),
    )
    moved = nodes[1].model_copy(update={"node": "new"})

    assert labels == [plan.hardware for node in nodes if (plan := several.plan_of(node))]
    assert labels[1] == (several.plan_of(moved) or plans[0]).hardware
    assert several.plan_of(*serving(named("acme/third-1b"), nodes[0])) is None


def test_other_version(result: SweepResult) -> None:
    """Production of another version than was measured: stale, unless the measured build is to take its place."""
    older = described(engine_version="0.24.0")
    gone = applicable(result, A100, older, None)
    there = A100.model_copy(update={"engines": (EngineBuild(name="new", installed="0.32.0"),)})
    found = applicable(result, there, older, None)
    changed = there.model_copy(update={"engines": (EngineBuild(name="new", installed="0.33.0"),)})
    image = there.model_copy(update={"engines": (EngineBuild(name="box", version="0.32.0", image="vllm:1"),)})

    assert [] == reasons(gone), "facts say 0.32.0 of the default build"
    assert [] == reasons(found)
    assert found.edit is not None
    assert ("vllm", "serve") == found.edit.shown_words(found.described)[:2]
    assert "vLLM 0.32.0 was measured, production runs 0.24.0" in reasons(applicable(result, changed, older, None))[0]
    assert "production runs 0.24.0, and box is 0.32.0" in reasons(applicable(result, image, older, None))[0]


def quality(config: Config, status: str) -> SweepQuality:
    verdict = QualityVerdict(status=status, reason="So.", margin_nats=0.02)  # type: ignore[arg-type]
    answers = AnswersQuality(
        answers="a",
        hardware=A100.hardware,
        config_ids=(config.config_id,),
        trial_ids=(),
        is_reference=False,
        verdict=verdict,
    )
    return SweepQuality(sweep_id="a", references={}, verdicts=(answers,))


@pytest.mark.parametrize("status", [None, "unknown", "fail", "pass"])
def test_changed_precision_needs_its_quality(tmp_path: Path, status: str | None) -> None:
    """A config of another precision is applied only where its answers passed."""
    archive = make_archive(tmp_path / "q", axes={"kv_cache_dtype": ["fp8"]}, gpus=GPUS[:1], simulated=False)
    found = opened(archive)
    if status is not None:
        found = replace(found, quality=quality(found.trials[0].config, status))
    stands = reasons(applicable(found, A100, described(), "kv_cache_dtype=fp8"))

    words = {None: "was not measured", "unknown": "is not proven", "fail": "failed"}
    if status == "pass":
        assert [] == stands
    else:
        assert f"the quality of kv_cache_dtype=fp8 {words[status]} and it changes fp8 KV cache" in stands


def test_shorter_context(result: SweepResult) -> None:
    """A config that serves a shorter context than production does is applied only where that is declared."""
    found = applicable(result, A100, described(max_model_len=32768), None)

    assert ["max_num_seqs=64 serves a context of 2048 tokens, and production serves 32768"] == reasons(found)
    assert [] == remaining(found.obstacles, ("shorter_context",))


# One after the other, rights, settings.


def plan(node: str) -> ApplyPlan:
    return ApplyPlan(
        apply_id=f"20261121-010000-{node}",
        sweep_id="a",
        node=node,
        was_sha256="0" * 64,
        edit=None,
        config=None,
        engine_version=None,
        simulated=True,
        despite=(),
        bake=None,
        lease_s=60,
        production_ready_s=60,
    )


def record_of(one: ApplyPlan, status: str) -> ApplyRecord:
    return ApplyRecord(
        apply_id=one.apply_id,
        kind="apply",
        sweep_id="a",
        node=one.node,
        config=None,
        simulated=True,
        who="me@here",
        started_at=datetime(2026, 11, 21, tzinfo=UTC),
        duration_s=1.0,
        status=status,  # type: ignore[arg-type]
        message="",
        provenance=Provenance(tokenpeak_version="0.1.0", python="3.11"),
    )


@pytest.mark.parametrize(
    ("bad", "serial", "begun"),
    [("", 1, "abcde"), ("a", 2, "a"), ("b", 2, "abc"), ("d", 1, "abcd"), ("e", 4, "abcde")],
)
def test_one_first_then_so_many_at_a_time(bad: str, serial: int, begun: str) -> None:
    """The first is alone, and after one that was not confirmed no other is begun."""
    found = apply_serially(
        [plan(name) for name in "abcde"],
        serial,
        lambda one: record_of(one, "put_back" if one.node == bad else "confirmed"),
    )

    assert begun == "".join(record.node for record in found)


def test_no_more_of_a_group_at_a_time_than_its_limit() -> None:
    """Two racks of three, one node of each at most, and one of the left is down: the right's go one by one."""
    left, right = (
        GroupLimit(group=name, nodes=frozenset(nodes), most=1) for name, nodes in (("l", "abc"), ("r", "xyz"))
    )
    plans = [plan(name) for name in "axbyzc"]

    def order(down: frozenset[str]) -> list[str]:
        return ["".join(each.node for each in batch) for batch in batches(plans, 4, [left, right], down)]

    assert ["a", "xb", "yc", "z"] == order(frozenset())
    assert ["a", "xc", "y", "z"] == order(frozenset("c"))
    assert ["1 of the 3 nodes of l may be unavailable: c"] == forbidden("b", [left, right], frozenset("c"))
    assert [] == forbidden("c", [left, right], frozenset("c"))


def inventory(**variables: Any) -> Inventory:
    return Inventory(name="x", hosts_path=Path("hosts.yml"), nodes=(Node(name="gpu-1", variables=variables),))


def test_user_of_trials_may_not_apply() -> None:
    """Where trials have one command alone, an apply needs root, or a user and a command of its own."""
    limited = {"ansible_user": "tuner", "tokenpeak_guard_command": "/usr/local/sbin/tokenpeak-node"}
    own = {**limited, "tokenpeak_apply_command": "/usr/local/sbin/tokenpeak-apply"}
    for variables, user in ((limited, None), (limited, "deployer"), (own, None)):
        with pytest.raises(InventoryError, match="may run trials and not change production"):
            apply_rights(inventory(**variables), user)
    as_root = apply_rights(inventory(**own), "root")
    as_deployer = apply_rights(inventory(**own), "deployer")

    assert {"ansible_user": "root", "tokenpeak_guard_command": None} == as_root.extravars
    assert as_root.inventory.nodes[0].guard_command is None
    assert own["tokenpeak_apply_command"] == as_deployer.extravars["tokenpeak_guard_command"]
    assert "deployer" == as_deployer.inventory.nodes[0].variables["ansible_user"]
    assert {} == apply_rights(inventory(ansible_user="root"), None).extravars


def test_too_little_traffic_before_a_change_ends_it_before_production_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What could not be judged afterwards is not begun; each observation is asked for, and no playbook changes."""
    asked: list[Observed] = []

    def observe(self: NodeApply, **_: Any) -> Observed:
        # Production's counter goes on from window to window.
        first, start_s = 9.0 * len(asked), 10.0 * len(asked)
        counts = {"ttft_count": (first, first + 9.0)}
        asked.append(Observed(readings=Series(t_s=(start_s, start_s + 10.0), columns=counts)))
        return asked[-1]

    monkeypatch.setattr(NodeApply, "_observe", observe)
    monkeypatch.setattr(NodeApply, "_play", lambda self, *_: pytest.fail("a playbook ran"))
    site = SimpleNamespace(holder=str, who="me@here", provenance=Provenance(tokenpeak_version="0.1.0", python="3.11"))
    record = NodeApply(replace(plan("a"), bake=BakeSettings(bake_s=10)), site).run()  # type: ignore[arg-type]

    assert (MOST_ROUNDS, "not_begun", "observing") == (len(asked), record.status, record.failed_in)
    assert "27 requests" in record.message
    assert "nothing was changed" in record.message
