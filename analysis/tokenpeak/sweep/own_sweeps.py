"""Sweeps that this controller began or took up; one of anybody else's goes on only by the operator's own spec.

What an archive plans is launched on the nodes, and vLLM loads code that its arguments name; where it measures a server,
the operator's key goes there. So an archive alone vouches for nothing: either `sweep.json` is, byte for byte, what this
controller has noted in its state folder, or the operator has the spec that such a sweep is begun with, and each config
follows from that and from the nodes as they are.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenpeak import bounded, paths
from tokenpeak.atomic import write_atomically
from tokenpeak.errors import PlanError, SpecError
from tokenpeak.metrics import PER_GPU
from tokenpeak.names import inside
from tokenpeak.plan.baseline import baselines
from tokenpeak.plan.matrix import configs, kinds_of, on_node
from tokenpeak.records import Config, NodeFacts, SweepRecord
from tokenpeak.spec.sweep import SweepSpec, parse_spec, read_spec
from tokenpeak.store.archive import parse_record

_NAMED = 3
"""Of the configs that a spec does not have, so many are named."""


def opened(archive: Path) -> tuple[SweepRecord, SweepSpec, str]:
    """What the sweep of an archive set out to do, and the digest of the file that says so, read once."""
    path = archive / "sweep.json"
    data = bounded.read_bytes(path)
    record = parse_record(data, SweepRecord, path)
    return record, parse_spec(record.spec, path), hashlib.sha256(data).hexdigest()


def note(archive: Path, digest: str | None = None) -> None:
    """Note that the sweep of this archive is this controller's, as it is planned there or as `digest` says."""
    path = _note(archive.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, digest or opened(archive)[2], mode=0o600)


def is_noted(archive: Path, digest: str) -> bool:
    """Whether this controller has noted the sweep with this very plan."""
    path = _note(archive.name)
    return path.is_file() and path.read_text() == digest


def own_spec_of(sweep_id: str, recorded: SweepSpec, name: str) -> SweepSpec:
    """The operator's own spec called `name`; SpecError unless the recorded one is what planning makes of it."""
    why = f"{sweep_id} was not begun by this controller, so what it launches or asks could be anybody's choice"
    again = f"name the spec that it was begun with: tokenpeak sweep --resume {sweep_id} --sweep FILE"
    try:
        own = read_spec(name)
    except SpecError as error:
        raise SpecError(f"{why}. It goes on only by a spec of your own. {error} Or {again}") from error
    if changed := [key for key, value in _settled(own, recorded).items() if value != recorded.model_dump()[key]]:
        raise SpecError(
            f"{why}. It is not word for word the one of your own spec {name}: {', '.join(changed)}. Put the spec back "
            f"as it was, start a new sweep, or {again}"
        )
    return own


def require_planned(sweep_id: str, record: SweepRecord, own: SweepSpec, nodes: Iterable[NodeFacts]) -> None:
    """SpecError unless each config that the archive plans for these nodes follows from the operator's own spec."""
    there = list(nodes)
    names = {facts.node for facts in there}
    known = {config.model_dump_json() for config in _configs(own, there)}
    planned = [each.config for plan in record.plans if names & {*plan.nodes} for each in plan.feasible]
    if foreign := [config for config in planned if config.model_dump_json() not in known]:
        named = ", ".join(config.name for config in foreign[:_NAMED])
        raise SpecError(
            f"{sweep_id} was not begun by this controller, and {len(foreign)} of the {len(planned)} configs that it "
            f"plans are none of your spec's on these nodes ({named}). No such config is launched: resume it on the "
            f"machine that began it, or start a new sweep."
        )


def _settled(own: SweepSpec, recorded: SweepSpec) -> dict[str, Any]:
    """The operator's spec with what planning may have settled as it is recorded: metric per GPU, baselines added."""
    found = own.model_dump()
    if recorded.objective.metric == PER_GPU.get(own.objective.metric):
        found["objective"]["metric"] = recorded.objective.metric
    count = len(own.search.baseline)
    if recorded.search.baseline[:count] == own.search.baseline:
        found["search"]["baseline"] = recorded.search.baseline
    return found


def _configs(spec: SweepSpec, nodes: list[NodeFacts]) -> Iterator[Config]:
    """Every config that the spec may have launched on nodes as these are, baselines of each node's own included."""
    for same in kinds_of(spec, nodes).values():
        own = [extra for node in same for extra in baselines(spec, [node])[0]]
        extras = [extra for number, extra in enumerate(own) if extra not in own[:number]]
        whole = spec.model_copy(update={"extra_configs": (*spec.extra_configs, *extras)})
        for config in configs(whole, same[0].model):
            with suppress(PlanError):
                yield on_node(config, same[0])


def _note(sweep_id: str) -> Path:
    return inside(paths.state_dir() / "own-sweeps", sweep_id)
