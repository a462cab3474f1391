"""Which version an engine's command is and which flags it takes, asking it as seldom as possible.

`vllm --version` takes seconds and `vllm serve --help=all` ten and more: the version is read from the installation's
metadata where there is any, and the help is kept in the state folder until the installation changes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tokenpeak.node import process
from tokenpeak.node.state import State
from tokenpeak.node.trouble import Trouble

HELP = "engine-help.json"
VERSION_TIMEOUT_S = 120
HELP_TIMEOUT_S = 180
WHOLE_HELP_SINCE = (0, 9)
"""From this release on `--help` prints an overview and `--help=all` the flags."""


def engine_version(command: list[str]) -> str:
    """The vLLM version behind `command` (argv, perhaps with `serve`); raises Trouble when no engine tells one."""
    program = shutil.which(command[0])
    if program is None:
        raise Trouble(
            "engine",
            f"No engine at {command[0]!r}: install vLLM there, or correct tokenpeak_engine_command in the inventory.",
        )
    found = from_metadata(Path(program))
    if found:
        return found
    argv = [*(word for word in command if word != "serve"), "--version"]
    ran = process.run(argv, timeout_s=VERSION_TIMEOUT_S)
    version = parse_version(ran.out) if ran.status == 0 else None
    if version is None:
        said = (ran.err.strip() or ran.out.strip() or "nothing").splitlines()[-1]
        raise Trouble(
            "engine",
            f"`{' '.join(argv)}` ended with status {ran.status} and told no version, but said: {said}. Mend this "
            "installation of vLLM, or correct tokenpeak_engine_command in the inventory.",
        )
    return version


def engine_help(command: list[str], engine_version: str | None, state: State) -> list[str]:
    """The lines of the engine's own help that begin with a flag; none where there is no engine or it will not say."""
    program = shutil.which(command[0])
    if program is None or engine_version is None:
        return []
    made_ns = Path(program).resolve().stat().st_mtime_ns
    key = [command, engine_version, made_ns]
    kept = state.read(HELP)
    if kept is not None and kept["of"] == key:
        return list(kept["lines"])
    major, minor = (int(number) for number in engine_version.split(".")[:2])
    whole = "--help=all" if (major, minor) >= WHOLE_HELP_SINCE else "--help"
    ran = process.run([*command, whole], timeout_s=HELP_TIMEOUT_S)
    if ran.status != 0:
        return []
    lines = [line for line in ran.out.splitlines() if line.startswith("  -")]
    state.write(HELP, {"of": key, "lines": lines})
    return lines


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
