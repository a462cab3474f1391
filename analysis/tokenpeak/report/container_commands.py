"""Container commands: `docker run`, `podman run`, and a systemd unit that runs an image."""

import re
import shlex

from tokenpeak.node.engine_builds import DOCKER, PODMAN
from tokenpeak.node.engine_container import OPTIONS_OF_LIMITS
from tokenpeak.node.machine.words import HIDDEN
from tokenpeak.report.serving_command import CACHE, PORT, ServingCommand, lines_of

_PLAIN = re.compile(r"[\w%$+,./:=@^{}\[\]()<>&|!?*~#-]+")
_SPECIAL = re.compile(rf"[\\\"]|{HIDDEN.pattern}")
IN_HOME = "$HOME"
"""In a shell, the home of whoever types."""


def docker_run(command: ServingCommand) -> str:
    """A `docker run` of the image."""
    return _shell(command, DOCKER)


def podman_run(command: ServingCommand) -> str:
    """A `podman run` of the image; boards by their CDI names, the image by its whole one."""
    return _shell(command, PODMAN)


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
    started = " ".join([*map(unit_argument, own), *cache, *map(unit_argument, last)])
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


def unit_argument(word: str) -> str:
    """A word of a unit's command line that systemd takes as it is."""
    return unit_word(word, "$")


def unit_word(word: str, expanded: str = "") -> str:
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


def _shell(command: ServingCommand, runtime: str) -> str:
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
    """What the container is made with, each with its value: boards, shared memory, mounts, user, limits, others."""
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
