"""Installed engines: the version and the flags of each, asked as seldom as possible; programs and images of vLLM.

`vllm --version` takes seconds and `vllm serve --help=all` ten and more: the version is read from the installation's
metadata where there is any, and the help is kept in the state folder until the installation changes.

The engine's files may be its own user's rather than root's. So it is asked as that user, from /, with no more of an
environment than it is launched with, and what is read of it is bounded.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Callable, Iterator, Sequence

from tokenpeak.node.engine import images
from tokenpeak.node.engine.builds import SERVER
from tokenpeak.node.machine import process, trust, users
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.users import within
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.protocol.parts import FoundEngine

HELP = "engine-help.json"
VERSION_TIMEOUT_S = 120
HELP_TIMEOUT_S = 180
METADATA_BYTES = 1 << 18
"""Version stands among the first lines; a README may follow."""
WHOLE_HELP_SINCE = (0, 9)
"""From this release on `--help` prints an overview and `--help=all` the flags."""
_PART = r"\d{1,9}"
"""Digits of a part of a version: whoever owns the program may print any number of them."""
_SAY_VERSION = "from importlib import metadata; print(metadata.version('vllm'))"


def ask(declared: Json, argv: list[str], timeout_s: float) -> process.Ran:
    """Run the engine's program as the engine's user, with what the inventory declares of its environment."""
    user = str(declared["user"]) if declared.get("user") else None
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        env.update(users.users_environment(user) if user else {})
        env.update({str(name): str(value) for name, value in (declared.get("env") or {}).items()})
        return process.run(argv, timeout_s, env, user)
    except KeyError:
        raise ScriptError("engine", f"This node has no tokenpeak_engine_user {shown_value(user)}.") from None


def engine_version(declared: Json, build: Json, state: State) -> str | None:
    """The vLLM version of a build (its command perhaps with `serve`); raises ScriptError when no engine says one.

    None for an image whose engine says none without a GPU: what it reports when it runs is compared all the same.
    None too for another server, which is not asked.
    """
    command = [str(word) for word in build["command"]]
    argv = version_argv(command)
    if "image" in build:
        return None if SERVER in build else _version_in_image(declared, build, argv, state)
    program = shutil.which(command[0])
    if program is None:
        raise ScriptError(
            "engine",
            f"No engine at {shown_value(command[0])}: install {build.get(SERVER) or 'vLLM'} there, or correct its "
            "command in the inventory.",
        )
    if SERVER in build:
        return None
    version_there = _as_engine(declared, lambda: from_metadata(Path(str(program))))
    if version_there:
        return version_there
    ran = ask(declared, argv, VERSION_TIMEOUT_S)
    version = parse_version(ran.out) if ran.status == 0 else None
    if version is None:
        output = shown_output((ran.err.strip() or ran.out.strip()).split("\n")[-1])
        raise ScriptError(
            "engine",
            f"{shown_command(argv)} ended with status {ran.status} and printed no version, but: {output}. Mend this "
            "installation of vLLM, or correct its command in the inventory.",
        )
    return version


def _version_in_image(declared: Json, build: Json, argv: list[str], state: State) -> str | None:
    """The version that the engine in an image reports, asked once for each image."""
    name = f"{build['image']} {' '.join(argv)}"
    key = [build["runtime"], images.digest_of(images.found_image(build))]
    answer = _kept(state).get(name)
    if answer is not None and answer["of"] == key:
        return None if answer["version"] is None else str(answer["version"])
    ran = images.ask(state, build, declared, argv, VERSION_TIMEOUT_S)
    version = parse_version(ran.out) if ran.status == 0 else None
    _keep(state, name, {"of": key, "version": version})
    return version


def engine_help(declared: Json, build: Json, engine_version: str | None, state: State) -> list[str]:
    """The lines of the engine's own help that begin with a flag; none where there is no engine or it will not say."""
    command = [str(word) for word in build["command"]]
    program = None if "image" in build else shutil.which(command[0])
    if engine_version is None or ("image" not in build and program is None):
        return []
    made = Path(program).resolve().stat().st_mtime_ns if program else images.digest_of(images.found_image(build))
    key = [command, engine_version, made]
    name = " ".join([*([str(build["image"])] if "image" in build else []), *command])
    answer = _kept(state).get(name)
    if answer is not None and answer["of"] == key:
        return list(answer["lines"])
    release = tuple(int(number) for number in re.findall(_PART, engine_version)[:2])
    argv = [*command, "--help=all" if release >= WHOLE_HELP_SINCE else "--help"]
    ran = ask(declared, argv, HELP_TIMEOUT_S) if program else images.ask(state, build, declared, argv, HELP_TIMEOUT_S)
    if ran.status != 0 and (program or ran.status == images.NOT_RUN):
        return []
    # An image that does not say is not asked again: it stays what it is, and each question may take its whole time.
    lines = [line for line in ran.out.splitlines() if line.startswith("  -")] if ran.status == 0 else []
    _keep(state, name, {"of": key, "lines": lines})
    return lines


def version_argv(command: Sequence[str]) -> list[str]:
    """The command that prints the version of a build's vLLM.

    The module of older images, `python -m vllm.entrypoints.openai.api_server`, has no option for it.
    """
    if "-m" in command and command[-1].endswith("api_server"):
        return [*command[: list(command).index("-m")], "-c", _SAY_VERSION]
    return [*(word for word in command if word != "serve"), "--version"]


def _kept(state: State) -> Json:
    return dict((state.read(HELP) or {}).get("builds") or {})


def _keep(state: State, name: str, answer: Json) -> None:
    state.write(HELP, {"builds": {**_kept(state), name: answer}})


def entry_digest(declared: Json, build: Json) -> str | None:
    """`sha256:…` of what a build is started from: its image, or its command's file; None where that is not read.

    The file is read with the rights of the engine's user, who may lead it to one of root's.
    """
    if "image" in build:
        return images.digest_of(images.found_image(build))
    program = shutil.which(str(build["command"][0]))
    return None if program is None else _as_engine(declared, lambda: trust.digest_of(Path(str(program))))


def _as_engine(declared: Json, action: Callable[[], str | None]) -> str | None:
    """The result of `action` when it is done with the engine's rights; None where it cannot be."""
    user = str(declared["user"]) if declared.get("user") and os.geteuid() == 0 else None
    try:
        return within(user, action)
    except (OSError, KeyError):
        return None


def parse_version(output: str) -> str | None:
    """The last word that looks like a version; a build's local part (`+cpu`) is not part of it."""
    versions = re.findall(rf"\b{_PART}\.{_PART}(?:\.{_PART}){{0,4}}(?:\.?(?:rc|post|dev){_PART}){{0,3}}", output)
    return versions[-1] if versions else None


def metadata_files(interpreter: Path) -> list[Path]:
    """Where vLLM's version stands beside an interpreter, if vLLM is installed for that."""
    return sorted(interpreter.parent.parent.glob("lib/python3*/site-packages/vllm-*.dist-info/METADATA"))


def code_files(command: Sequence[str]) -> list[Path]:
    """Files that run with an engine's command: its program, the program's Python, and vLLM beside that."""
    program = Path(shutil.which(command[0]) or command[0])
    files = trust.files_of_command(command)
    for metadata in metadata_files(trust.interpreter_of(program) or program)[:1]:
        files += [metadata, metadata.parent.parent / "vllm", metadata.parent.parent / "vllm" / "__init__.py"]
    return files


def from_metadata(program: Path) -> str | None:
    """From the dist-info beside the Python that the program's first line names."""
    interpreter = trust.interpreter_of(program)
    for metadata in metadata_files(interpreter) if interpreter else []:
        text = trust.read_foreign(metadata, METADATA_BYTES, follow=False).decode(errors="replace")
        match = re.search(r"^Version: (\S{1,100})", text, re.MULTILINE)
        if match:
            return parse_version(match.group(1))
    return None


PLACES = ("/opt/*/bin/vllm", "/srv/*/bin/vllm", "/usr/local/*/bin/vllm", "/home/*/*/bin/vllm", "/root/*/bin/vllm")


def found(runtimes: list[Runtime]) -> list[FoundEngine]:
    """Each program of the usual places and each image with vllm in its name."""
    return [*_programs(), *(image for runtime in runtimes for image in _images(runtime))]


def installed_version(program: Path) -> str | None:
    """The version beside the Python of a program; None where it does not say."""
    try:
        return from_metadata(program)
    except (OSError, ScriptError):
        return None


def _programs() -> Iterator[FoundEngine]:
    on_path = shutil.which("vllm")
    real_paths: set[Path] = set()
    for place in ([Path(on_path)] if on_path else []) + [path for pattern in PLACES for path in _matching(pattern)]:
        real = place.resolve()
        if real not in real_paths and os.access(place, os.X_OK):
            real_paths.add(real)
            yield FoundEngine(command=(str(place), "serve"), version=installed_version(place))


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
