"""Engines that are installed on a machine: programs called vllm in the usual places, and container images."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Iterator

from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.protocol.survey import FoundEngine
from tokenpeak.node.version import from_metadata

PLACES = ("/opt/*/bin/vllm", "/srv/*/bin/vllm", "/usr/local/*/bin/vllm", "/home/*/*/bin/vllm", "/root/*/bin/vllm")


def found(runtimes: list[Runtime]) -> list[FoundEngine]:
    """Each program of the usual places and each image with vllm in its name."""
    return [*_programs(), *(image for runtime in runtimes for image in _images(runtime))]


def of_program(program: Path) -> FoundEngine:
    """The engine that a program called vllm is."""
    return FoundEngine(command=(str(program), "serve"), version=installed_version(program))


def installed_version(program: Path) -> str | None:
    """The version beside the Python of a program; None where it does not say."""
    try:
        return from_metadata(program)
    except (OSError, ScriptError):
        return None


def _programs() -> Iterator[FoundEngine]:
    on_path = shutil.which("vllm")
    seen: set[Path] = set()
    for place in ([Path(on_path)] if on_path else []) + [path for pattern in PLACES for path in _matching(pattern)]:
        real = place.resolve()
        if real not in seen and os.access(place, os.X_OK):
            seen.add(real)
            yield of_program(place)


def _matching(pattern: str) -> list[Path]:
    try:
        return sorted(Path("/").glob(pattern.lstrip("/")))
    except OSError:
        return []


def _images(runtime: Runtime) -> Iterator[FoundEngine]:
    ran = runtime.run("images", "--format", "{{.Repository}}:{{.Tag}}")
    for name in ran.out.split() if ran.status == 0 else []:
        if "vllm" in name and "<none>" not in name:
            yield FoundEngine(image=name.removeprefix("docker.io/"), runtime=runtime.name, user=runtime.user)
