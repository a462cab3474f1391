"""Serving command: what an engine is started with, and what a container of it needs besides."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenpeak.node.engine_container import AMD_DEVICES, OPTIONS_OF_LIMITS
from tokenpeak.node.machine.words import wrong_word
from tokenpeak.records import Container

PORT = 8000
"""vLLM's own default: a deployment is not a trial."""
ENTRY_POINT = ("vllm", "serve")
"""Of the official images. The program is named in every form: the module that older images start (0.8.5) reads no
positional model and serves its default."""
SHARED_MEMORY_GIB = 16
"""Most that the processes of several GPUs may exchange through /dev/shm; as vLLM's own recipes have it. Docker gives
64 MiB, Kubernetes the same."""
CACHE = ".cache/huggingface"
"""Where weights are kept, below the home of a container's root as of the machine's user."""
Accelerator = Literal["nvidia", "amd", "none"]
UNIT_PREFIXES = tuple("@-:+!|")
"""What systemd takes for an order when a program begins with it, `+` for one to run it as root; no quotes help."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the machine and its place in the container."""

    source: str
    place: str
    reads: bool

    def words(self) -> str:
        """As Docker, Podman and Compose write it."""
        return f"{self.source}:{self.place}{':ro' if self.reads else ''}"


@dataclass(frozen=True, kw_only=True)
class ServingCommand:
    """What an engine is started with, and what it needs around it."""

    program: tuple[str, ...]
    """On the machine itself."""
    image_program: tuple[str, ...] = ENTRY_POINT
    """In the image."""
    arguments: tuple[str, ...]
    """Of the program in the image, the model first."""
    own_arguments: tuple[str, ...] = ()
    """Of the program on the machine, where its model is named otherwise."""
    env: Mapping[str, str]
    image: str
    name: str
    """A DNS label, made of the model's served name."""
    model: str
    folder: str | None
    """The model's, where it lies in one of the machine's own."""
    gpus: int
    accelerator: Accelerator = "nvidia"
    container: Container | None = None
    """How the image that was measured was run; None where a program was measured."""

    @property
    def shared_memory_gib(self) -> int | None:
        """What is asked for /dev/shm where nobody declared it; None for an engine of one process."""
        return SHARED_MEMORY_GIB if self.gpus > 1 else None

    @property
    def devices(self) -> tuple[str, ...] | None:
        """What the container gets by `--device`; None: NVIDIA's boards, by their number."""
        if self.container is not None and self.container.devices is not None:
            return self.container.devices
        return None if self.accelerator == "nvidia" else AMD_DEVICES if self.accelerator == "amd" else ()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What was mounted, and the model's folder where that is in none of it."""
        given = self.container.mounts if self.container is not None else ()
        found = [_mount(text) for text in given]
        if self.folder and not any(_is_below(self.folder, mount.place) for mount in found):
            found.append(Mount(source=self.folder, place=self.folder, reads=True))
        return tuple(found)

    @property
    def keeps_weights(self) -> bool:
        """The weights are downloaded, and nothing that is mounted keeps them."""
        return self.folder is None and not any("huggingface" in mount.place for mount in self.mounts)


def unwritable(command: ServingCommand) -> str | None:
    """Why nobody should copy the command, in a sentence: what it has from an archive is not what it looks like."""
    made = command.container or Container()
    words = [
        *(*command.program, *command.image_program, *command.arguments, *command.own_arguments),
        *(word for pair in command.env.items() for word in pair),
        *(command.image, command.model, command.folder or ""),
        *(*made.mounts, *(made.devices or ()), made.user or "", made.shm_size or "", *made.args),
        *(word for pair in made.limits.items() for word in pair),
    ]
    # A terminal and an editor would obey what stands there, and a page does not show it.
    wrong = next(filter(None, map(wrong_word, words)), None)
    if wrong is None and command.program[0].startswith(UNIT_PREFIXES):
        wrong = f"begins with {command.program[0][0]}, which systemd takes for an order of its own, and is a program"
    if wrong is None and command.image.startswith("-"):
        wrong = "begins with a dash, and is an image"
    if wrong is None and not made.limits.keys() <= OPTIONS_OF_LIMITS.keys():
        wrong = "is a limit that no container has"
    if wrong is None and not all(text.count(":") in (1, 2) for text in made.mounts):
        wrong = "is a mount without a place"
    return None if wrong is None else f"No command can be given: a word of what ran {wrong}."


def _mount(text: str) -> Mount:
    source, place, *rest = text.split(":")
    return Mount(source=source, place=place, reads=rest == ["ro"])


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def lines_of(words: Sequence[str]) -> list[str]:
    """Shell words, an option with its value per line."""
    lines: list[str] = []
    for word in words:
        if (
            lines
            and lines[-1].startswith("--")
            and " " not in lines[-1]
            and "=" not in lines[-1]
            and not word.startswith("--")
        ):
            lines[-1] += f" {shlex.quote(word)}"
        else:
            lines.append(shlex.quote(word))
    return lines


def folded(command: str, options: Sequence[str]) -> str:
    """A command with its options, a line each: no option is broken where a window ends."""
    return " \\\n  ".join([command, *lines_of(options)])
