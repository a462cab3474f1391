"""What a node is and what it is doing, found without changing anything."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from tokenpeak.node import environment, installation, machine, process, production, smi, version
from tokenpeak.node.restore import RECORD
from tokenpeak.node.state import Json, State
from tokenpeak.node.trouble import Trouble

GPU_KEYS = ("index", "name", "uuid", "driver", "vram_bytes", "vram_used_bytes", "power_limit_w", "compute_capability")
DISK_NEEDED_BYTES = 1 << 30
VRAM_NEEDED = 0.9
"""Share of VRAM that must be free when production is not there."""


def gpus() -> list[dict[str, Any]]:
    """The boards of the node by whichever of the makers' tools answers; none on a machine without."""
    nvidia = process.run(smi.query("gpu", smi.GPU_FIELDS))
    if nvidia.status == 0:
        return smi.parse_gpus(nvidia.out)
    if nvidia.status != 127:
        # An old driver refuses the whole query for one field that it does not know.
        found = smi.parse_gpus(_field_by_field())
        if found:
            return found
    static = process.run(["amd-smi", "static", "--json"])
    if static.status == 0:
        return smi.parse_amd_smi(static.out, process.run(["amd-smi", "metric", "--json"]).out)
    rocm = ["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--showuniqueid"]
    ran = process.run([*rocm, "--showdriverversion", "--json"])
    return smi.parse_rocm_smi(ran.out) if ran.status == 0 else []


def _field_by_field() -> str:
    columns = []
    for field in smi.GPU_FIELDS:
        ran = process.run(smi.query("gpu", (field,)))
        columns.append(ran.out.splitlines() if ran.status == 0 else [])
    rows = len(columns[0])
    cells = [column if len(column) == rows else ["[N/A]"] * rows for column in columns]
    return "\n".join(", ".join(row) for row in zip(*cells))


def vram_holders() -> list[dict[str, Any]]:
    """Processes that hold VRAM, by nvidia-smi."""
    ran = process.run(smi.query("compute-apps", smi.APP_FIELDS))
    return smi.parse_apps(ran.out) if ran.status == 0 else []


def holder_text(holder: dict[str, Any]) -> str:
    """`pid name MiB`, as the raw format has it."""
    held = holder["vram_bytes"]
    return f"{holder['pid']} {holder['name']} {'?' if held is None else int(held / smi.MIB)} MiB"


def model_present(path: str | None, name: str | None) -> bool | None:
    """Whether the model's files are on the node; None when it would be fetched by name and no cache has it."""
    if path:
        return (Path(path) / "config.json").is_file()
    if name and name.startswith("/"):
        return (Path(name) / "config.json").is_file()
    if name:
        hub = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface")) / "hub")
        if (hub.expanduser() / f"models--{name.replace('/', '--')}" / "snapshots").is_dir():
            return True
    return None


def probe(state: State, declaration: Json) -> Json:
    """The fields of the raw format's NodeFacts, and `declaration` with what the controller may know of it."""
    found_gpus = gpus()
    holders = vram_holders() if found_gpus else []
    declared_production = declaration.get("production") or {"manager": "none"}
    problems: list[str] = []
    try:
        found_production: Json | None = production.look(declared_production, state)
    except Trouble as trouble:
        problems.append(trouble.text)
        found_production = None
    if found_production and (unwell := production.unanswered(found_production)):
        problems.append(unwell)
    declared_engine = declaration.get("engine") or {}
    declared_engine = {**declared_engine, "command": declared_engine.get("command") or ["vllm", "serve"]}
    engine_version: str | None = None
    # Root asks no engine that others could have replaced.
    unsafe = installation.engine_problems(declaration)
    problems += [*unsafe, *installation.secret_problems(declaration)]
    try:
        engine_version = None if unsafe else version.engine_version(declared_engine)
    except Trouble as trouble:
        problems.append(trouble.text)
    host, port = declaration.get("host", "127.0.0.1"), int(declaration.get("port", 8099))
    port_problem = machine.port_problem(host, port)
    facts = machine.facts(state.folder)
    model = declaration.get("model") or {}
    present = None if declaration.get("simulated") else model_present(model.get("path"), model.get("name"))

    if port_problem:
        problems.append(port_problem)
    if facts["disk_free_bytes"] < DISK_NEEDED_BYTES:
        problems.append(
            f"Only {facts['disk_free_bytes'] / 2**20:.0f} MiB are free on the disk of {state.folder}: "
            "free 1 GiB, or set tokenpeak_state_dir to a folder on another disk."
        )
    if present is False:
        problems.append(
            f"The model {model.get('path') or model.get('name')} is not on the node: copy it there, "
            "or correct tokenpeak_model_path."
        )
    problems += gpu_problems(found_gpus, holders, found_production)
    if state.read(RECORD) is not None:
        problems.append("A trial has this node in its hands, or left it so: run `make restore` if no sweep is running.")
    return {
        "probed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "simulated": bool(declaration.get("simulated")),
        "gpus": [{key: gpu[key] for key in GPU_KEYS} for gpu in found_gpus],
        **facts,
        "engine_version": engine_version,
        "engine_help": []
        if declaration.get("simulated")
        else version.engine_help(declared_engine, engine_version, state),
        "engine_env_allowed": list(
            environment.allowed_names(declared_engine.get("env_allowed"), bool(declaration.get("simulated")))
        ),
        "production": found_production,
        "vram_holders": [holder_text(holder) for holder in holders],
        "engine_port_free": port_problem is None,
        "model_present": present,
        "problems": problems,
        "declaration": {**told(declaration), "bundle_sha256": bundle_sha256(state)},
    }


def bundle_sha256(state: State) -> str | None:
    """Which node script is installed here; None when it is not run from the state folder."""
    path = state.path("tokenpeak-node.pyz")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def told(declaration: Json) -> Json:
    """The declaration as the controller may know it: environments can hold tokens, so they stay on the node."""
    engine = declaration.get("engine") or {}
    declared_production = declaration.get("production") or {"manager": "none"}
    return {
        **{name: value for name, value in declaration.items() if name not in ("engine", "production")},
        "engine": {"command": engine.get("command") or ["vllm", "serve"], "version": engine.get("version")},
        "production": {name: declared_production.get(name) for name in ("manager", "unit", "url")},
    }


def gpu_problems(
    found: list[dict[str, Any]], holders: list[dict[str, Any]], found_production: Json | None
) -> list[str]:
    """What about the boards would keep a trial from running or from being comparable."""
    problems = []
    partitioned = [str(gpu["index"]) for gpu in found if gpu["mig"] == "Enabled"]
    if partitioned:
        problems.append(
            f"MIG is on for GPU {', '.join(partitioned)}: vLLM would see slices of a board. "
            "Turn it off (`nvidia-smi -mig 0`) or leave this node out."
        )
    names = sorted({gpu["name"] for gpu in found})
    if len(names) > 1:
        problems.append(
            f"The GPUs differ ({', '.join(names)}): choose one kind with CUDA_VISIBLE_DEVICES in tokenpeak_engine_env."
        )
    in_production = bool(found_production and found_production["running"])
    for gpu in found:
        total, used = gpu["vram_bytes"], gpu["vram_used_bytes"]
        if not in_production and total and used is not None and used > (1 - VRAM_NEEDED) * total:
            own = [holder_text(holder) for holder in holders if holder["gpu_uuid"] in (gpu["uuid"], None)]
            problems.append(
                f"GPU {gpu['index']} has {used / 2**30:.1f} of {total / 2**30:.1f} GiB in use though production is down"
                f" ({', '.join(own) or 'by processes that cannot be seen from here'}): end them first."
            )
    return problems
