"""Definition of a server in a Compose file, a Kubernetes manifest, a systemd unit or a script: what vLLM starts with.

Variables are filled in as whoever reads the file would: Compose from its defaults and from `.env` beside it, Kubernetes
and a shell from the container's own environment. What stays a variable is not known.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from tokenpeak.errors import InputError

_COMPOSE = re.compile(r"\$(?:\$|\{(\w+)(?::?([-?+])([^}]*))?\}|(\w+))")
_KUBERNETES = re.compile(r"\$\((\w+)\)")
_SHELL = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_ENDS = ";&|"
_QUOTED_OR_COMMENT = re.compile(r"""(\\.|'[^']*'|"(?:\\.|[^"\\])*")|(?:(?<=\s)|^)#[^\n]*""", re.MULTILINE | re.DOTALL)
"""What may hold a `#` that begins no comment, as group 1, or a comment."""
_PRINTING = frozenset({"echo", "printf"})
_ASSIGNMENT = re.compile(r"\w+=")
_RUNTIMES = frozenset({"docker", "podman", "nerdctl"})
_NAMING = frozenset(
    [
        *("-v", "--volume", "--mount", "--name", "-e", "--env", "--env-file", "--network", "--network-alias"),
        *("-h", "--hostname", "-l", "--label", "-w", "--workdir", "--entrypoint"),
    ]
)
"""Options of a container's start whose value may have vllm in it and is no image."""
_REDIRECTION = re.compile(r"\d*(?:>>?|<)")
_UNIT_SUFFIX = ".service"


@dataclass(frozen=True)
class Definition:
    """One server: where it stands in its file, and the words that vLLM gets, the model among them."""

    place: str
    arguments: tuple[str, ...]


def definitions(path: Path) -> list[Definition] | None:
    """The vLLM servers that a file defines; None for other files. InputError for a script that no shell reads."""
    text = path.read_text(errors="replace")
    if path.suffix == _UNIT_SUFFIX or re.search(r"^\[Service\]", text, re.MULTILINE):
        return list(_unit(path.name, text))
    if path.suffix not in (".yml", ".yaml"):
        return (list(_script(path, text)) or None) if "vllm" in text else None
    try:
        documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
    except yaml.YAMLError:
        # Whoever reads sweeps says what is wrong, by its line.
        return None
    if any(isinstance(each.get("services"), dict) for each in documents):
        known = _env_file(path.with_name(".env"))
        return [found for each in documents for found in _compose(each, known)]
    if any("kind" in each and "apiVersion" in each for each in documents):
        return [found for each in documents for found in _kubernetes(each)]
    return None


def _compose(document: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[Definition]:
    for name, service in (document.get("services") or {}).items():
        if not isinstance(service, dict):
            continue
        filled = _filled(service, lambda word: _COMPOSE.sub(lambda match: _of_compose(match, known), word))
        words = [*_words(filled.get("entrypoint")), *_words(filled.get("command"))]
        if _is_vllm(str(filled.get("image", "")), words):
            yield Definition(f"service {name}", served(words, _environment(filled.get("environment"))))


def _of_compose(match: re.Match[str], known: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    name = match[1] or match[4]
    if name in known:
        return known[name]
    return match[3] if match[2] == "-" else match[0]


def _kubernetes(document: Mapping[str, Any]) -> Iterator[Definition]:
    kind = document.get("kind", "?")
    name = (document.get("metadata") or {}).get("name", "?")
    items = document.get("items")
    for item in items if kind == "List" and isinstance(items, list) else ():
        yield from _kubernetes(item)
    for container in _containers(document.get("spec")):
        env = {
            str(each["name"]): str(each["value"])
            for each in container.get("env") or ()
            if isinstance(each, dict) and "name" in each and "value" in each
        }

        def fill(word: str, env: Mapping[str, str] = env) -> str:
            return _KUBERNETES.sub(lambda match: env.get(match[1], match[0]), word)

        words = [fill(word) for key in ("command", "args") for word in _words(container.get(key))]
        if _is_vllm(str(container.get("image", "")), words):
            yield Definition(f"{kind} {name}, container {container.get('name', '?')}", served(words, env))


def _containers(spec: object) -> Iterator[Mapping[str, Any]]:
    """The containers anywhere below a specification, those that prepare others left out."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key in ("containers", "model") and value:
                yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))
            elif key != "initContainers":
                yield from _containers(value)
    elif isinstance(spec, list):
        for each in spec:
            yield from _containers(each)


def _unit(name: str, text: str) -> Iterator[Definition]:
    joined = re.sub(r"\\\n\s*", " ", text)
    env: dict[str, str] = {}
    for line in re.findall(r"^\s*Environment=(.*)$", joined, re.MULTILINE):
        env |= dict(word.partition("=")[::2] for word in shlex.split(line) if "=" in word)
    for line in re.findall(r"^\s*ExecStart=(.*)$", joined, re.MULTILINE):
        words = shlex.split(line.lstrip("@-:+!"))
        if _is_vllm("", words):
            yield Definition(f"unit {name}", served(words, env))


def _script(path: Path, text: str) -> Iterator[Definition]:
    """The servers that a shell script starts, with the variables that it sets by then; in a container, too."""
    try:
        commands = list(_commands(text))
    except ValueError as error:
        raise InputError(f"{path} is read as a shell script, and is none: {error}.") from error
    env: dict[str, str] = {}
    for command in commands:
        words = command[1:] if command[0] == "export" else command
        if all(_ASSIGNMENT.match(word) for word in words):
            for name, _, value in (word.partition("=") for word in words):
                env[name] = _SHELL.sub(lambda match: _of_env(match, env), value)
            continue
        image = _image(words)
        if image is not None or _is_vllm("", words):
            yield Definition(f"script {path.name}", served(words[0 if image is None else image + 1 :], env))


def _image(words: Sequence[str]) -> int | None:
    """The place of vLLM's image in a command that runs a container."""
    if "run" not in words or not any(Path(word).name in _RUNTIMES for word in words[:2]):
        return None
    return next(
        (
            at
            for at, (option, word) in enumerate(pairwise(words), 1)
            if "vllm" in word and not word.startswith("-") and option not in _NAMING
        ),
        None,
    )


def served(words: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """What vLLM's server gets of a command line: behind `serve`, or behind the module of its API server.

    A line that is given to a shell is read as that shell would; one without a program is given to the image's own.
    """
    line = _of_shell(list(words), env)
    filled = [part for word in line for part in _expanded(word, env)]
    starts = [place for place, word in enumerate(filled) if word == "serve" or word.endswith("api_server")]
    return tuple(filled[starts[0] + 1 :] if starts else filled)


def _expanded(word: str, env: Mapping[str, str]) -> list[str]:
    """A word with its variables filled in: several, where it is a variable that holds flags."""
    text = _SHELL.sub(lambda match: _of_env(match, env), word)
    try:
        return shlex.split(text) if _SHELL.fullmatch(word) and text.startswith("-") else [text]
    except ValueError:
        return [text]


def _of_env(match: re.Match[str], env: Mapping[str, str]) -> str:
    found = env.get(match[1] or match[3])
    if found is None:
        return match[2] if match[2] is not None else match[0]
    return found


def _of_shell(words: list[str], env: Mapping[str, str]) -> list[str]:
    """The simple command of vLLM in what a shell is given, with what it sets for itself; other words as they are."""
    place = next((at for at, word in enumerate(words[:-1]) if re.fullmatch(r"-\w*c", word)), None)
    if place is None or not any(Path(word).name in _SHELLS for word in words[:place]):
        return words
    for command in _commands(words[place + 1]):
        if _is_vllm("", command):
            while command and (command[0] == "exec" or _ASSIGNMENT.match(command[0])):
                command = command[1:]
            return command
    return words


def _commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a script, each as its words."""
    script = _QUOTED_OR_COMMENT.sub(lambda match: match[1] or "", script)
    lexer = shlex.shlex(re.sub(r"\\\s*\n", " ", script).replace("\n", " ; "), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    command: list[str] = []
    for word in [*lexer, ";"]:
        if not word or set(word) - set(_ENDS):
            command.append(word)
        elif command and command[0] in _PRINTING:
            command = []
        elif command:
            yield [
                each
                for before, each in zip(["", *command], command, strict=False)
                if not _REDIRECTION.match(each) and not _REDIRECTION.fullmatch(before)
            ]
            command = []


def _is_vllm(image: str, words: Sequence[str]) -> bool:
    text = " ".join(words)
    return "vllm" in image or re.search(r"\bvllm\b.*\bserve\b|vllm\.entrypoints", text) is not None


def _words(value: object) -> list[str]:
    """A command as a list of words, or as a line."""
    if isinstance(value, list):
        return [str(word) for word in value]
    return shlex.split(value) if isinstance(value, str) else []


def _environment(value: object) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(name): str(each) for name, each in value.items() if each is not None}
    return dict(str(each).partition("=")[::2] for each in value if "=" in str(each)) if isinstance(value, list) else {}


def _filled(value: Any, fill: Any) -> Any:
    """A document with each of its texts filled in."""
    if isinstance(value, dict):
        return {key: _filled(each, fill) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, fill) for each in value]
    return fill(value) if isinstance(value, str) else value


def _env_file(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(errors="replace").splitlines())
    pairs = (line.removeprefix("export ").partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
