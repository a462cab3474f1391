"""Serving command: what an engine is started with, and what a container of it needs besides."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenpeak.node.engine.builds import DOCKER
from tokenpeak.node.engine.container import AMD_DEVICES, OPTIONS_OF_LIMITS
from tokenpeak.node.machine.words import HIDDEN, wrong_word
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
    """Command that starts an engine, and what it needs around it."""

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
        """Size of /dev/shm where nobody declared it; None for an engine of one process."""
        return SHARED_MEMORY_GIB if self.gpus > 1 else None

    @property
    def devices(self) -> tuple[str, ...] | None:
        """Devices of the container, by `--device`; None: NVIDIA's boards, by their number."""
        if self.container is not None and self.container.devices is not None:
            return self.container.devices
        return None if self.accelerator == "nvidia" else AMD_DEVICES if self.accelerator == "amd" else ()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Mounts of the container, and the model's folder where that is in none of it."""
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


_PLAIN = re.compile(r"[\w%$+,./:=@^{}\[\]()<>&|!?*~#-]+")
_SPECIAL = re.compile(rf"[\\\"]|{HIDDEN.pattern}")
IN_HOME = "$HOME"
"""In a shell, the home of whoever types."""


def container_unit(command: ServingCommand) -> str:
    """A unit file of a service that runs the image by the runtime that ran it."""
    runtime = command.container.runtime if command.container is not None else DOCKER
    program, name = f"/usr/bin/{runtime}", command.name
    entry, *first = command.image_program
    options = [word for pair in _options(command, runtime) for word in pair]
    cache = [f"--volume=%h/{CACHE}:/root/{CACHE}"] if command.keeps_weights else []
    env = [f"--env={key}={value}" for key, value in command.env.items()]
    own = [program, "run", "--rm", f"--name={name}", f"--publish={PORT}:{PORT}", *options]
    last = [*env, f"--entrypoint={entry}", _image(command, runtime), *first, *command.arguments]
    started = " ".join([*map(unit_word, own), *cache, *map(unit_word, last)])
    after = f" {runtime}.service" if runtime == DOCKER else ""
    lines = [
        "[Unit]",
        "Description=vLLM",
        f"After=network-online.target{after}",
        "Wants=network-online.target",
        *([f"Requires={runtime}.service"] if runtime == DOCKER else []),
        "",
        "[Service]",
        f"ExecStartPre=-{program} rm --force {name}",
        f"ExecStart={started}",
        f"ExecStop={program} stop {name}",
        "Restart=on-failure",
        "TimeoutStartSec=infinity",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines)


def unit_word(word: str, expanded: str = "$") -> str:
    """A word that systemd reads as it is: % begins a specifier, a backslash an escape, `expanded` a variable."""
    for special in ("%", *expanded):
        word = word.replace(special, special * 2)
    if _PLAIN.fullmatch(word):
        return word
    return f'"{_SPECIAL.sub(_escaped, word)}"'


def _escaped(found: re.Match[str]) -> str:
    """A character as systemd reads it between quotes, and no editor or parser as the end of a line."""
    code = ord(found[0])
    if found[0] in '\\"':
        return f"\\{found[0]}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def run_command(command: ServingCommand, runtime: str) -> str:
    """A `docker run` or `podman run` of the image; Podman gets the boards' CDI names, and the image's whole one."""
    entry, *first = command.image_program
    parts = [
        f"{runtime} run",
        *(shlex.join(pair) for pair in _options(command, runtime)),
        f"-p {PORT}:{PORT}",
        *([f'-v "{IN_HOME}/{CACHE}:/root/{CACHE}"'] if command.keeps_weights else []),
        *(f"-e {shlex.quote(f'{key}={value}')}" for key, value in command.env.items()),
        f"--entrypoint {shlex.quote(entry)}",
        shlex.join([_image(command, runtime), *first]),
        *lines_of(command.arguments),
    ]
    # The first option stands with the verb.
    return " \\\n  ".join([" ".join(parts[:2]), *parts[2:]])


def _options(command: ServingCommand, runtime: str) -> list[tuple[str, ...]]:
    """Options of the container, each with its value: boards, shared memory, mounts, user, limits, others."""
    made = command.container
    found: list[tuple[str, ...]] = []
    if command.devices is not None:
        found += [("--device", device) for device in command.devices]
    elif runtime == DOCKER:
        found.append(("--gpus", str(command.gpus)))
    else:
        found += [("--device", f"nvidia.com/gpu={index}") for index in range(command.gpus)]
    shared = made.shm_size if made is not None else None
    if shared or command.shared_memory_gib:
        found.append(("--shm-size", shared or f"{command.shared_memory_gib}g"))
    found += [("-v", mount.words()) for mount in command.mounts]
    if made is not None:
        found += [("--user", made.user)] if made.user else []
        found += [(OPTIONS_OF_LIMITS[name], value) for name, value in made.limits.items()]
        found += [(word,) for word in made.args]
    return found


def _image(command: ServingCommand, runtime: str) -> str:
    """The image; with the registry that Docker means where a name has none and Podman may ask nobody."""
    ran_here = command.container is not None and command.container.runtime == runtime
    first, slash, _ = command.image.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    if runtime == DOCKER or ran_here or has_registry:
        return command.image
    return f"docker.io/{'' if slash else 'library/'}{command.image}"
