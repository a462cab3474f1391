"""Facts of a node: its boards, machine, engine builds and production, and what would keep a trial from running."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, Collection

from tokenpeak.node import rights
from tokenpeak.node.engine import checkpoint, images, installed, models
from tokenpeak.node.engine.builds import SERVER, allowed_variables, engine_builds
from tokenpeak.node.engine.engine import declared_environment
from tokenpeak.node.guard import guard, lease
from tokenpeak.node.guard import record as records
from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import hidden_words
from tokenpeak.node.probe import boards, chosen_boards, facts, meters
from tokenpeak.node.production import drain, production
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.answers import ProbeAnswer
from tokenpeak.node.protocol.parts import Checkpoint, Gpu, InstalledEngine, Production, picked

DISK_NEEDED_BYTES = 1 << 30
SHOWN = ("node", "host", "port", "gpus", "model", "limits", "simulated", "state_dir", "python")
"""Keys of the declaration whose values are shown as they are."""
VRAM_NEEDED = 0.9
"""Share of VRAM that must be free when production is not there."""


def gpus() -> list[dict[str, Any]]:
    """The boards of the node by whichever of the makers' tools answers; none on a machine without."""
    ran = process.run(boards.query("gpu", boards.GPU_FIELDS))
    if ran.status == 0:
        return boards.parse_gpus(ran.out)
    if ran.status != 127:
        # An old driver refuses the whole query for one field that it does not know.
        boards_read = boards.parse_gpus(_field_by_field())
        if boards_read:
            return boards_read
    static = process.run(boards.AMD_STATIC)
    return boards.parse_amd_smi(static.out, process.run(boards.AMD_METRIC).out) if static.status == 0 else []


def interconnect(indexes: Collection[int]) -> str | None:
    """How these boards of the node are linked, by nvidia-smi; None where no tool says."""
    ran = process.run(["nvidia-smi", "topo", "-m"])
    return boards.parse_topology(ran.out, indexes) if ran.status == 0 else None


def _field_by_field() -> str:
    columns = []
    for field in boards.GPU_FIELDS:
        ran = process.run(boards.query("gpu", (field,)))
        columns.append(ran.out.splitlines() if ran.status == 0 else [])
    rows = len(columns[0])
    cells = [column if len(column) == rows else ["[N/A]"] * rows for column in columns]
    return "\n".join(", ".join(row) for row in zip(*cells))


def vram_holders() -> list[dict[str, Any]]:
    """Processes that hold VRAM, by nvidia-smi."""
    ran = process.run(boards.query("compute-apps", boards.APP_FIELDS))
    return boards.parse_apps(ran.out) if ran.status == 0 else []


def holder_text(holder: dict[str, Any]) -> str:
    """`pid name MiB`, as the raw format has it."""
    held = holder["vram_bytes"]
    return f"{holder['pid']} {holder['name']} {'?' if held is None else int(held / boards.MIB)} MiB"


def probe(state: State, declaration: Json) -> ProbeAnswer:
    """The node's facts, and its declaration with what the controller may know of it."""
    chosen, every_gpu = chosen_boards.chosen_boards(declaration), gpus()
    found_gpus = chosen_boards.only(every_gpu, chosen)
    uuids = {gpu["uuid"] for gpu in found_gpus} | {None}
    holders = [holder for holder in vram_holders() if holder["gpu_uuid"] in uuids] if found_gpus else []
    declared_production = declaration.get("production") or {"manager": "none"}
    problems: list[str] = []
    try:
        found_production: Production | None
        found_production, unwell = production.look(declared_production, state)
        problems += [unwell] if unwell else []
        # What could not be started again must not be stopped; a launch checks again.
        make_manager(declared_production, state).definition()
    except ScriptError as error:
        problems.append(error.text)
        found_production = None
    problems += drain_problems(declaration, state)
    # Root asks no engine that others could have replaced.
    unsafe = rights.engine_problems(declaration)
    own = (*rights.tools_problems(declaration), *unsafe, *rights.secret_problems(declaration))
    own += (*rights.production_problems(declaration, state), *rights.notify_problems(declaration))
    problems += [each for each in dict.fromkeys(own) if each not in problems]
    builds = () if unsafe else build_states(declaration, state)
    # A node goes without one of several builds; configs that ask for it are dropped there.
    if builds and all(build.problem for build in builds):
        problems += [str(build.problem) for build in builds]
    default = builds[0] if builds else None
    host, port = declaration.get("host", "127.0.0.1"), int(declaration.get("port", 8099))
    port_problem = facts.port_problem(host, port)
    of_machine = facts.machine_facts(state.folder)
    present, not_there, stored = _model(declaration)

    if port_problem:
        problems.append(port_problem)
    if of_machine["disk_free_bytes"] < DISK_NEEDED_BYTES:
        problems.append(
            f"Only {of_machine['disk_free_bytes'] / 2**20:.0f} MiB are free on the disk of {state.folder}: "
            "free 1 GiB, or set tokenpeak_state_dir to a folder on another disk."
        )
    if (lacks_inodes := state.inode_problem()) is not None:
        problems.append(f"{lacks_inodes}, or set tokenpeak_state_dir to a folder on another disk.")
    if not_there:
        problems.append(not_there)
    if absent := chosen_boards.missing(every_gpu, chosen):
        there = ", ".join(str(gpu["index"]) for gpu in every_gpu) or "none"
        problems.append(
            f"GPU {', '.join(absent)} is chosen by tokenpeak_gpus or tokenpeak_engine_env, and the node has {there}: "
            "correct it, or run nvidia-smi (amd-smi) there and mend what it says."
        )
    has_trial = state.has(records.NAME)
    is_idle = found_production is not None and not found_production.running and not has_trial
    problems += gpu_problems(found_gpus, holders, is_idle=is_idle)
    unsafe_meter = meters.rights_problem(declaration)
    measured_by = (
        ()
        if unsafe_meter
        else meters.found_meters(
            declaration,
            chosen_boards.columns_of(meters.boards_now(declaration.get("tools")), chosen_boards.indexes(chosen)),
        )
    )
    problems += [unsafe_meter] if unsafe_meter else meters.problems(declaration, measured_by)
    problems += filter(None, (lease.hold_problem(state), state.why_unwritable(), guard.why_masked(state)))
    if has_trial:
        problems.append(
            "A trial has this node in its hands, or left it so: run `tokenpeak restore` if no sweep is running."
        )
    simulated = bool(declaration.get("simulated"))
    return ProbeAnswer(
        probed_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        simulated=simulated,
        gpus=tuple(picked(Gpu, gpu) for gpu in found_gpus),
        interconnect=interconnect({gpu["index"] for gpu in found_gpus}) if len(found_gpus) > 1 else None,
        **of_machine,
        power_meters=measured_by,
        engine_version=default.installed if default else None,
        engine_help=default.help if default else (),
        engines=builds,
        engine_env_allowed=allowed_variables(declaration),
        production=found_production,
        vram_holders=tuple(map(holder_text, holders)),
        engine_port_free=port_problem is None,
        model_present=present,
        checkpoint=stored,
        problems=tuple(problems),
        declaration=shown_declaration(declaration),
    )


def _model(declaration: Json) -> tuple[bool | None, str | None, Checkpoint | None]:
    """Whether programs on the node find the declared model, what to do where they do not, and what its files hold.

    Where every build is in a container, each says itself whether it is there.
    """
    model = models.declared_model(declaration)
    builds = list(engine_builds(declaration).values())
    if model is None or not builds:
        return None, None, None
    engine = declaration.get("engine") or {}
    user = str(engine["user"]) if engine.get("user") else None
    try:
        env = {**os.environ, **declared_environment(declaration)}
    except ScriptError:
        return None, None, None
    stored = checkpoint.read_checkpoint(builds[0], model, env, user)
    build = next((each for each in builds if "image" not in each), None)
    if build is None:
        return None, None, stored
    return models.is_present(model, env, (), user), models.model_problem(build, model, env, (), user), stored


def drain_problems(declaration: Json, state: State) -> list[str]:
    """Problems that would keep the node from leaving its load balancer before production is stopped."""
    try:
        declared_drain = drain.drain_of(declaration.get("drain"), declaration.get("production") or {}, state)
        problem = declared_drain.problem() if declared_drain is not None and not state.has(records.NAME) else None
    except ScriptError as error:
        return [error.text]
    return [problem] if problem else []


def build_states(declaration: Json, state: State) -> tuple[InstalledEngine, ...]:
    """Each declared engine build with the version and the flags that its installation says.

    A simulated engine's flags are those of the release that it plays, and it has no help.
    """
    states = []
    for name, build in engine_builds(declaration).items():
        engine = declaration.get("engine") or {}
        made = InstalledEngine(name=name, version=build["version"], image=build.get("image"))
        try:
            if "image" in build:
                images.require_startable(build, declaration)
                if SERVER not in build:
                    # Another server may serve another file than the declared one, which its launch looks for.
                    _require_model(build, declaration)
            own_version = installed.engine_version(engine, build, state)
            flags = [] if declaration.get("simulated") else installed.engine_help(engine, build, own_version, state)
        except ScriptError as error:
            states.append(replace(made, problem=error.text))
            continue
        digest = installed.entry_digest(engine, build)
        states.append(replace(made, installed=own_version, help=tuple(flags), digest=digest))
    return tuple(states)


def _require_model(build: Json, declaration: Json) -> None:
    model = models.declared_model(declaration)
    if model and (absent := models.model_problem(build, model, {}, (), None)):
        raise ScriptError("engine", absent)


def shown_declaration(declaration: Json) -> Json:
    """The part of the declaration for a controller that has no inventory of its own for the node.

    Nothing else leaves: environments, commands of drains and meters, and addresses of notifications can hold tokens.
    """
    declared_production = declaration.get("production") or {"manager": "none"}
    return {
        **{name: declaration[name] for name in SHOWN if name in declaration},
        "engines": [{"name": name, "build": _shown_build(build)} for name, build in engine_builds(declaration).items()],
        "production": {name: declared_production.get(name) for name in ("manager", "unit", "url")},
    }


def _shown_build(build: Json) -> Json:
    return {**build, "args": hidden_words([str(word) for word in build["args"]])} if "args" in build else build


def gpu_problems(gpus: list[dict[str, Any]], holders: list[dict[str, Any]], *, is_idle: bool) -> list[str]:
    """Problems of the boards that would keep a trial from running or from being comparable.

    `is_idle`: production is known to be down, and no trial runs; else what is in use is theirs.
    """
    problems = []
    partitioned = [str(gpu["index"]) for gpu in gpus if gpu["mig"] == "Enabled"]
    if partitioned:
        problems.append(
            f"MIG is on for GPU {', '.join(partitioned)}: vLLM would see slices of a board. "
            "Turn it off (`nvidia-smi -mig 0`) or leave this node out."
        )
    names = sorted({gpu["name"] for gpu in gpus})
    if len(names) > 1:
        problems.append(f"The GPUs differ ({', '.join(names)}): choose one kind by their numbers in tokenpeak_gpus.")
    for gpu in gpus:
        total, used = gpu["vram_bytes"], gpu["vram_used_bytes"]
        if is_idle and total and used is not None and used > (1 - VRAM_NEEDED) * total:
            own = [holder_text(holder) for holder in holders if holder["gpu_uuid"] in (gpu["uuid"], None)]
            problems.append(
                f"GPU {gpu['index']} has {used / 2**30:.1f} of {total / 2**30:.1f} GiB in use though production is down"
                f" ({', '.join(own) or 'by processes that cannot be seen from here'}): end them first."
            )
    return problems
