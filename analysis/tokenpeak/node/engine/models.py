"""Models on a node: whether an engine finds the one that it serves or would download it, and which model it is."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Callable, Mapping, Sequence

from tokenpeak.node.engine.container import mounts_of
from tokenpeak.node.machine import trust, words
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.users import Result, within
from tokenpeak.node.machine.words import shown_value

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_OTHER_HUB = "VLLM_USE_MODELSCOPE"
_CACHES = ("", "hub", "huggingface/hub")
"""Where below a mounted folder a cache of the hub lies."""
_HEAD_BYTES = 64 * 1024
"""Of each file: a checkpoint's file of weights begins with a table of its tensors."""
_MOST_FILES = 2000


def declared_model(declaration: Json, asked: str | None = None) -> str | None:
    """The model that an engine is to serve, the asked or else the declared one; None where the engine is simulated."""
    declared = declaration.get("model") or {}
    model = asked or declared.get("path") or declared.get("name")
    return None if declaration.get("simulated") or not model else str(model)


def model_problem(build: Json, model: str, env: Mapping[str, str], argv: Sequence[str], user: str | None) -> str | None:
    """Why an engine of the build would not find the model on the node; None where it would, or nobody can say.

    `model` is a folder or a name of the hub, `env` and `argv` are what the engine is started with, as `user`.
    """
    if wrong := words.wrong_place(model):
        return f"The model {model} {wrong}."
    if "image" in build:
        return _not_mounted(build, model)
    if is_present(model, env, argv, user) is not False:
        return None
    if model.startswith("/"):
        return f"The model {model} is not on the node: copy it there, or correct tokenpeak_model_path."
    cache = cache_folders(env, argv, user)[0]
    return (
        f"The model {model} is not in {cache}, so a trial would download it while production is down: download it on "
        f"the node first (hf download {model}{f' as {user}' if user else ''}; {_free_gib(cache):.0f} GiB are free "
        "there), or set tokenpeak_model_path to its folder."
    )


def is_present(model: str, env: Mapping[str, str], argv: Sequence[str], user: str | None) -> bool | None:
    """Whether a program on the node finds the model there; None where nobody can say."""
    if model.startswith("/"):
        return as_engine(user, lambda: _is_seen(Path(model) / "config.json") or _is_seen_file(Path(model)))
    if not _HUB_NAME.fullmatch(model) or env.get(_OTHER_HUB, "").lower() in ("1", "true"):
        return None
    try:
        caches = cache_folders(env, argv, user)
        return as_engine(user, lambda: any(_is_seen(cache / _folder_of(model) / "snapshots") for cache in caches))
    except (OSError, KeyError):
        return None


def model_digest(build: Json, model: str, env: Mapping[str, str], argv: Sequence[str], user: str | None) -> str | None:
    """`sha256:…` of the model's files, each by its name, size and first 64 KiB; None where they are not found.

    It is another for another checkpoint, quantization or conversion. Reading all of a model would take minutes.
    What only root can read is not read for whoever chooses the model: a short secret is guessed from its digest.
    """
    if words.wrong_place(model):
        return None
    mounts = build.get("mounts") or [] if "image" in build else [None]
    for mount in mounts:
        one = build if mount is None else {**build, "mounts": [mount]}
        source = None if mount is None else Path(mounts_of(one)[0][0])
        try:
            # Whoever may lead the source of a mount elsewhere leads nobody but themselves there.
            who = trust.keeper(source, as_entry=True) if source else user if os.geteuid() == 0 else None
            digest = within(who, partial(_digest_on_node, one, model, env, argv, user, source))
        except (OSError, KeyError, ScriptError):
            continue
        if digest is not None:
            return digest
    return None


def _digest_on_node(
    build: Json, model: str, env: Mapping[str, str], argv: Sequence[str], user: str | None, source: Path | None
) -> str | None:
    return _digest_of(folder_on_node(build, model, env, argv, user), source.resolve() if source else None)


def _digest_of(folder: Path | None, source: Path | None) -> str | None:
    """The checksum of the files of a folder, none of which lies outside the `source` of a mount where there is one."""
    if folder is None:
        return None
    # One file has a whole model in it, as GGUF is.
    files = [folder] if folder.is_file() else sorted(path for path in folder.iterdir() if path.is_file())
    if not files or len(files) > _MOST_FILES:
        return None
    digest = hashlib.sha256()
    for path in files:
        beginning = _beginning(path, source)
        if beginning is None:
            return None
        size, head = beginning
        # Whoever owns the folder names its files, and not by UTF-8 alone.
        digest.update(os.fsencode(path.name) + f" {size} ".encode() + hashlib.sha256(head).digest())
    return f"sha256:{digest.hexdigest()}"


def _beginning(path: Path, source: Path | None) -> tuple[int, bytes] | None:
    """The size of a file and what it begins with; None of one that lies outside `source`, or cannot be read.

    Where it lies is asked of what was opened: a folder on the way may lead elsewhere a moment later.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        facts = os.fstat(stream.fileno())
        real = Path(os.readlink(f"/proc/self/fd/{stream.fileno()}"))
        if not stat.S_ISREG(facts.st_mode) or (source is not None and source not in real.parents):
            return None
        return facts.st_size, stream.read(_HEAD_BYTES)


def _is_seen(path: Path) -> bool:
    """Whether something is there for this very user."""
    try:
        return path.exists()
    except OSError:
        return False


def _is_seen_file(path: Path) -> bool:
    """Whether a file is there for this very user."""
    try:
        return path.is_file()
    except OSError:
        return False


def as_engine(user: str | None, action: Callable[[], Result]) -> Result:
    """The result of `action` when it is done with the engine's rights, where this script has more."""
    return within(user if os.geteuid() == 0 else None, action)


def folder_on_node(
    build: Json, model: str, env: Mapping[str, str], argv: Sequence[str], user: str | None
) -> Path | None:
    """The folder that holds the model's files; None where it is not known or not there."""
    in_container = "image" in build
    if model.startswith("/"):
        for source, place, _ in mounts_of(build) if in_container else ():
            if f"{model}/".startswith(f"{place.rstrip('/')}/"):
                return Path(source) / os.path.relpath(model, place)
        return None if in_container else Path(model)
    if not _HUB_NAME.fullmatch(model):
        return None
    if in_container:
        caches = [Path(source) / below for source, _, _ in mounts_of(build) for below in _CACHES]
    else:
        caches = cache_folders(env, argv, user)
    wanted = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "--revision"), "main")
    if words.wrong_place(wanted):
        return None
    for cache in caches:
        there = cache / _folder_of(model)
        commit = trust.read_foreign(there / "refs" / wanted, 100, follow=False).decode(errors="replace").strip()
        if words.wrong_place(commit):
            return None
        snapshot = there / "snapshots" / (commit or wanted)
        if snapshot.is_dir():
            return snapshot
    return None


def cache_folders(env: Mapping[str, str], argv: Sequence[str], user: str | None) -> list[Path]:
    """Where an engine looks for a model of the hub, the place that it would download to first.

    As huggingface_hub's constants.py has it, of 0.20 to 1.x. Raises KeyError for a user whom this machine lacks.
    """
    home = Path(pwd.getpwnam(user).pw_dir) if user else Path.home()
    declared = [argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "--download-dir"]
    declared += [word.partition("=")[2] for word in argv if word.startswith("--download-dir=")]
    declared += [env[name] for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") if env.get(name)]
    places = [_at_home(path, home) for path in declared]
    if env.get("HF_HOME"):
        return [*places, _at_home(env["HF_HOME"], home) / "hub"]
    cache = _at_home(env["XDG_CACHE_HOME"], home) if env.get("XDG_CACHE_HOME") else home / ".cache"
    return [*places, cache / "huggingface" / "hub"]


def _at_home(path: str, home: Path) -> Path:
    """The path, its beginning `~` being that home."""
    return home / path[2:] if path.startswith("~/") else Path(path)


def _folder_of(model: str) -> str:
    """The folder that a model of the hub has in a cache."""
    return f"models--{model.replace('/', '--')}"


def _not_mounted(build: Json, model: str) -> str | None:
    """Why a container of the build would not find the model.

    One that is loaded by its name must be in a cache that is mounted: each trial would download it otherwise.
    """
    if model.startswith("/"):
        for source, place, _ in mounts_of(build):
            if f"{model}/".startswith(f"{place.rstrip('/')}/"):
                inside = Path(source) / os.path.relpath(model, place)
                if _is_seen_file(inside / "config.json") or _is_seen_file(inside):
                    return None
                return f"The model {model} is not at {inside} on this node: copy it there, or correct the mount."
        image = shown_value(build["image"])
        return f"The model {model} is in no mount of the build of {image}: add {model}:{model}:ro to its mounts."
    for source, _, _ in mounts_of(build):
        if any((Path(source) / below / _folder_of(model) / "snapshots").is_dir() for below in _CACHES):
            return None
    return (
        f"The model {model} is in no mounted cache of the build of {shown_value(build['image'])}, so each trial would "
        "download it: download it on the node, and mount the cache (/root/.cache/huggingface, or where HF_HOME says)."
    )


def _free_gib(folder: Path) -> float:
    """Room on the disk on which the folder is, or would be."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(there).free / 2**30
