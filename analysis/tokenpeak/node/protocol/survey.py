"""Answer of a survey: what a machine is and serves before TokenPeak is on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from tokenpeak.node.protocol import field, parts
from tokenpeak.node.protocol.answers import NodeAnswer
from tokenpeak.node.protocol.field import bound
from tokenpeak.node.protocol.parts import Gpu

_text = field.optional(field.text())


@dataclass(frozen=True)
class FoundEngine:
    """A way to start vLLM that is there: a command, or an image with what its container is given."""

    command: tuple[str, ...] = bound(parts.texts, ())
    version: str | None = bound(parts.word)
    image: str | None = bound(_text)
    runtime: str | None = bound(parts.word)
    mounts: tuple[str, ...] = bound(parts.texts, ())
    user: str | None = bound(parts.word)


@dataclass(frozen=True)
class FoundServer:
    """What serves a model, and who starts and stops it: the keys of tokenpeak_production, as far as they are known."""

    manager: str = bound(field.word, "none")
    """A manager of production; `process` for what nobody manages."""
    unit: str | None = bound(_text)
    user: str | None = bound(parts.word)
    """Whose unit it is; None: the system's."""
    file: str | None = bound(_text)
    project: str | None = bound(parts.word)
    runs_as: str | None = bound(parts.word)
    """The user of its processes; None: root, or a container's own."""
    argv: tuple[str, ...] = bound(parts.texts, ())
    """Less what may be secret."""
    cwd: str | None = bound(_text)
    env: Mapping[str, str] = bound(field.variables)
    """Of a process that nobody manages: the variables that vLLM's answers depend on."""
    pid: int | None = bound(field.optional(field.integer()))
    model: str | None = bound(_text)
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
    gpus: tuple[Gpu, ...] = bound(field.several(field.structure(Gpu), 1000), ())
    url: str = bound(field.word, "http://127.0.0.1:8000")
    """Where the machine itself reaches the port that was asked about."""
    servers: tuple[FoundServer, ...] = bound(field.several(field.structure(FoundServer), 1000), ())
    served_name: str | None = bound(_text)
    """What the server at the port calls its model."""
    listens_as: str | None = bound(parts.word)
    """The user whose process answers at the port, where that is another program in front of what serves."""
    front: str | None = bound(field.optional(field.sentence))
    """That program."""
    engines: tuple[FoundEngine, ...] = bound(field.several(field.structure(FoundEngine), 1000), ())
