"""Somebody hands over an archive with links or odd types, or an interrupted sweep with a plan or endpoint of theirs.

An archive with a link is refused and named, a file with other types is left out. `sweep --resume` goes on with what
this controller has begun itself; with anything else only if the operator's own spec is what the archive records.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from archive_factory import GPUS, PROVENANCE, START, make_archive, node_facts
from tokenpeak import paths
from tokenpeak.cli import tokenpeak
from tokenpeak.errors import ArchiveError, SpecError
from tokenpeak.records import NodeFacts, Production, SweepRecord
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.store.archive import Archive, archive_below
from tokenpeak.sweep import controller, resume
from tokenpeak.sweep.controller import resume_sweep
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.sweep_plan import SweepPlan, plan_nodes

WORKLOADS = [
    {
        "workload": {"name": "short", "kind": "synthetic", "input_tokens": 8, "output_tokens": 8},
        "levels": [{"concurrency": 4, "requests": 16}],
    }
]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
ENDPOINT = {"url": "http://10.0.0.5:8000/v1", "model": "m", "api_key_env": "THE_KEY"}
SERVER = {"endpoint": ENDPOINT, "workloads": WORKLOADS}
NODES = {
    "model": {"name": MODEL},
    "axes": {"tensor_parallel_size": [1, 2], "max_num_seqs": [8, 64]},
    "search": {"baseline": ["defaults", "production"]},
    "workloads": WORKLOADS,
}
EVIL = {"trust_remote_code": True, "tokenizer": "evil/repo", "worker_extension_cls": "evil.Extension"}


class GoingError(Exception):
    """It would go on."""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / "state"))


def spec_file(folder: Path, raw: dict[str, Any], name: str = "there") -> str:
    """A spec of the operator's own."""
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump(raw))
    return str(path)


def recorded(folder: Path, spec: SweepSpec, planned: SweepPlan | None = None, **changes: Any) -> Archive:
    """An interrupted sweep as its controller would record it."""
    record = SweepRecord(
        sweep_id="stolen",
        name="there",
        inventory="theirs",
        started_at=START,
        simulated=False,
        spec=(planned.spec if planned else spec).model_dump(mode="json"),
        nodes=(),
        plans=planned.plans if planned else (),
        provenance=PROVENANCE,
    )
    archive = Archive(folder / "stolen")
    archive.write_sweep(record.model_copy(update=changes))
    return archive


def gone_on(archive: Archive, own_spec: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume it up to where files are looked at and nodes asked; `GoingError` when it came so far."""

    def going(*_: object) -> None:
        raise GoingError

    monkeypatch.setattr(controller, "_check_files", going)
    inventory = Inventory(name="x", hosts_path=archive.path, nodes=(Node(name="node-1", variables={}),))
    monkeypatch.setattr(controller, "read_inventory", lambda _: inventory)
    resume_sweep(
        "stolen",
        parallel=1,
        progress=ProgressDisplay(terminal=False),
        interrupt=Interrupt(),
        own_spec=own_spec,
        results=archive.path.parent,
    )


def node(**changes: Any) -> NodeFacts:
    """A node of the operator's, as it is."""
    facts = node_facts("node-1", GPUS[0], count=2)
    production = Production(manager="systemd", running=True, model=MODEL, arguments=(MODEL, "--max-num-seqs", "32"))
    return facts.model_copy(update={"production": production, **changes})


@pytest.fixture
def spec() -> SweepSpec:
    """Of a sweep of nodes."""
    return parse_spec(NODES, Path("there.yml"))


def test_own_sweep_needs_no_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this controller has begun goes on, and what somebody made of it since does not."""
    archive = recorded(tmp_path, parse_spec(SERVER, Path("there.yml")))
    resume.note(archive.path)

    with pytest.raises(GoingError):
        gone_on(archive, None, monkeypatch)
    (archive.path / "sweep.json").write_text((archive.path / "sweep.json").read_text().replace("10.0.0.5", "10.6.6.6"))
    with pytest.raises(SpecError, match="stolen was not begun by this controller"):
        gone_on(archive, None, monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://10.6.6.6:8000/v1"},
        {"api_key_env": "CLOUD_KEY"},
    ],
)
def test_server_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]) -> None:
    """Another address, key, header or trust than the operator's own spec has is refused before anything is sent."""
    stolen = recorded(tmp_path, parse_spec({**SERVER, "endpoint": {**ENDPOINT, **change}}, Path("there.yml")))

    with pytest.raises(SpecError, match=r"not word for word the one of your own spec .*: endpoint\. "):
        gone_on(stolen, spec_file(tmp_path, SERVER), monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        {"fixed": {"name": "fixed", "flags": EVIL}},
        {"model": {"name": "evil/repo"}},
        {"workloads": [{**WORKLOADS[0], "workload": {"name": "short", "kind": "dataset", "path": "/home/op/mail"}}]},
        {"search": {"baseline": ["production"]}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_spec_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    """Nodes are asked nothing, and the files of a workload are not read."""
    stolen = parse_spec({**NODES, **change}, Path("there.yml"))
    planned = plan_nodes(parse_spec(NODES, Path("there.yml")), [node()])
    archive = recorded(tmp_path, stolen, replace(planned, spec=stolen))

    with pytest.raises(SpecError, match=f"not word for word the one of your own spec .*{next(iter(change))}"):
        gone_on(archive, spec_file(tmp_path, NODES), monkeypatch)


def test_second_controller_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: SweepSpec) -> None:
    """What was settled for the nodes, the objective per GPU and what answers are compared with, is no other spec."""
    planned = plan_nodes(spec, [node()])
    archive = recorded(tmp_path, spec, planned, nodes=(node(),))
    record = archive.read_sweep()

    assert planned.spec != spec
    with pytest.raises(GoingError):
        gone_on(archive, spec_file(tmp_path, NODES), monkeypatch)
    resume.require_planned("stolen", record, spec, [node()])


@pytest.mark.parametrize("change", ["trust_remote_code", "env", "model", "engine"])
def test_config_of_somebody_else(tmp_path: Path, spec: SweepSpec, change: str) -> None:
    """The recorded spec is the operator's, and one config of the plan is not."""
    planned = plan_nodes(spec, [node()])
    plan, first = planned.plans[0], planned.plans[0].feasible[0]
    changes: dict[str, Any] = {
        "env": {"env": {"PYTHONPATH": "/srv/evil"}},
        "model": {"model": first.config.model.model_copy(update={"revision": "evil"})},
        "engine": {"engine": "other"},
    }.get(change, {"flags": {**first.config.flags, change: EVIL.get(change)}})
    stolen = first.model_copy(update={"config": first.config.model_copy(update=changes)})
    plans = (plan.model_copy(update={"feasible": (stolen, *plan.feasible[1:])}),)
    record = recorded(tmp_path, spec, planned, plans=plans, nodes=(node(),)).read_sweep()

    with pytest.raises(SpecError, match=r"1 of the \d+ configs that it plans are none of your spec's .*"):
        resume.require_planned("stolen", record, spec, [node()])


def test_production_is_what_the_node_runs(tmp_path: Path, spec: SweepSpec) -> None:
    """Not what the archive says that it ran."""
    theirs = Production(manager="systemd", running=True, model=MODEL, arguments=(MODEL, "--trust-remote-code"))
    planned = plan_nodes(spec, [node(production=theirs)])
    record = recorded(tmp_path, spec, planned, nodes=(node(production=theirs),)).read_sweep()

    assert "production" in {each.config.name for each in planned.plans[0].feasible}
    with pytest.raises(SpecError, match=r"on these nodes \(production\)"):
        resume.require_planned("stolen", record, spec, [node()])


SECRET = "kn4ry-of-home"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder that never leaves."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "hosts.yml").write_text(f"pin: {SECRET}\n")
    return folder


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody else's archive, in the results."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return make_archive(tmp_path / "results" / "theirs", axes={"max_num_seqs": [8]}, requests=4).path


def _link_trials(archive: Path, private: Path) -> None:
    (archive / "trials").rename(private / "trials")
    (archive / "trials").symlink_to(private / "trials")


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "claims": lambda archive, private: (archive / "claims.yml").symlink_to(private / "hosts.yml"),
    "folder": lambda archive, private: (archive / "more").symlink_to(private),
    "trials": _link_trials,
}


@pytest.mark.parametrize("link", LINKS)
def test_archive_with_a_link_is_not_opened(theirs: Path, private: Path, link: str) -> None:
    """To go on with it or to apply what it found."""
    LINKS[link](theirs, private)

    with pytest.raises(ArchiveError, match=r"is a link\. Put the (file|folder) itself"):
        archive_below(theirs.parent, theirs.name)


@pytest.mark.parametrize("options", [[], ["--keep-everything"], ["--keep-everything", "--summaries"]])
@pytest.mark.parametrize("link", LINKS)
def test_archive_with_a_link_is_not_packed(
    theirs: Path, private: Path, tmp_path: Path, link: str, options: list[str]
) -> None:
    """Cleaned or as it is."""
    LINKS[link](theirs, private)
    done = CliRunner().invoke(tokenpeak, ["archive", str(theirs), *options, "--output", str(tmp_path / "x.tar.zst")])

    assert isinstance(done.exception, ArchiveError), done.output
    assert not (tmp_path / "x.tar.zst").exists()


@pytest.mark.parametrize("link", LINKS)
def test_archive_with_a_link_is_not_pruned(theirs: Path, private: Path, tmp_path: Path, link: str) -> None:
    """By `prune`, which names it."""
    LINKS[link](theirs, private)
    words = ["prune", "--keep", "1d", "--yes", "--pack", str(tmp_path / "packed")]
    done = CliRunner().invoke(tokenpeak, [*words, str(theirs.parent)])

    assert "is a link" in done.output, done.output
    assert theirs.is_dir()
    assert not (tmp_path / "packed").exists()
