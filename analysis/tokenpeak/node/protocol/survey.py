"""Answer of a survey: what a machine is and serves before TokenPeak is on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from tokenpeak.node.protocol import field
from tokenpeak.node.protocol.answers import GpuState, NodeAnswer
from tokenpeak.node.protocol.field import bound

_word = field.optional(field.word)
_words = field.optional(field.text())
_several_words = field.several(field.text(), 10_000)


@dataclass(frozen=True)
class FoundEngine:
    """A way to start vLLM that is there: a command, or an image with what its container is given."""

    command: tuple[str, ...] = bound(_several_words, ())
    version: str | None = bound(_word)
    image: str | None = bound(_words)
    runtime: str | None = bound(_word)
    mounts: tuple[str, ...] = bound(_several_words, ())
    user: str | None = bound(_word)


@dataclass(frozen=True)
class FoundServer:
    """What serves a model, and who starts and stops it: the keys of tokenpeak_production, as far as they are known."""

    manager: str = bound(field.word, "none")
    """A manager of production; `process` for what nobody manages."""
    unit: str | None = bound(_words)
    user: str | None = bound(_word)
    """Whose unit it is; None: the system's."""
    file: str | None = bound(_words)
    project: str | None = bound(_word)
    runs_as: str | None = bound(_word)
    """The user of its processes; None: root, or a container's own."""
    argv: tuple[str, ...] = bound(_several_words, ())
    """Less what may be secret."""
    cwd: str | None = bound(_words)
    env: Mapping[str, str] = bound(field.variables)
    """Of a process that nobody manages: the variables that vLLM's answers depend on."""
    pid: int | None = bound(field.optional(field.integer()))
    model: str | None = bound(_words)
    """The hub name or path that it loads."""
    engine: FoundEngine | None = bound(field.optional(field.structure(FoundEngine)))
    notes: tuple[str, ...] = bound(field.several(field.sentence, 10_000), ())
    """What else whoever writes the inventory must know."""


@dataclass(frozen=True)
class SurveyAnswer(NodeAnswer):
    """A machine as it is: its boards, who asked, what serves at the port that was asked about, and engines."""

    user: str = bound(field.word)
    is_root: bool = bound(field.flag, default=False)
    home: str = bound(field.text(), "/")
    python: str = bound(field.text(), "/usr/bin/python3")
    has_systemd: bool = bound(field.flag, default=False)
    gpus: tuple[GpuState, ...] = bound(field.several(field.structure(GpuState), 1000), ())
    url: str = bound(field.word, "http://127.0.0.1:8000")
    """Where the machine itself reaches the port that was asked about."""
    servers: tuple[FoundServer, ...] = bound(field.several(field.structure(FoundServer), 1000), ())
    served_name: str | None = bound(_words)
    """What the server at the port calls its model."""
    listens_as: str | None = bound(_word)
    """The user whose process answers at the port, where that is another program in front of what serves."""
    front: str | None = bound(field.optional(field.sentence))
    """That program."""
    engines: tuple[FoundEngine, ...] = bound(field.several(field.structure(FoundEngine), 1000), ())
