"""Which version an engine's command is, without starting it where possible: `vllm --version` takes seconds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tokenpeak.node import process


def engine_version(command: list[str]) -> str | None:
    """The vLLM version behind `command` (argv, perhaps with `serve`); None when there is no such engine."""
    program = shutil.which(command[0])
    if program is None:
        return None
    found = from_metadata(Path(program))
    if found:
        return found
    argv = [word for word in command if word != "serve"]
    ran = process.run([*argv, "--version"], timeout_s=120)
    return parse_version(ran.out) if ran.status == 0 else None


def parse_version(said: str) -> str | None:
    """The last word that looks like a version; a build's local part (`+cpu`) is not part of it."""
    versions = re.findall(r"\b\d+\.\d+(?:\.\d+)*(?:\.?(?:rc|post|dev)\d+)*", said)
    return versions[-1] if versions else None


def from_metadata(program: Path) -> str | None:
    """From the dist-info beside the Python that the program's first line names."""
    with program.open("rb") as stream:
        first = stream.readline(512)
    if not first.startswith(b"#!"):
        return None
    interpreter = Path(first[2:].decode(errors="replace").split()[0])
    for metadata in sorted(interpreter.parent.parent.glob("lib/python3*/site-packages/vllm-*.dist-info/METADATA")):
        match = re.search(r"^Version: (\S+)", metadata.read_text(errors="replace"), re.MULTILINE)
        if match:
            return parse_version(match.group(1))
    return None
