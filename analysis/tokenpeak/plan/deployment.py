"""Deployment of a config after its trial: real weights from a real name, without what only a benchmark may have."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpeak.records import Config
from tokenpeak.vllm.command import served_from

BENCHMARK_FLAGS = {"load_format": "dummy"}
"""Flags with the value that only a benchmark may give them: `dummy` fills the weights with random numbers."""
TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/")  # noqa: S108 - recognized, not written to
"""Folders whose content does not outlive the machine's next start."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A config to be served; `problem` says why a command cannot be given, and is empty where it can."""

    config: Config
    note: str = ""
    """How the command differs from what was measured."""
    problem: str = ""


def for_serving(config: Config, argv: Sequence[str]) -> Serving:
    """What to serve after the trial that `argv` launched.

    A node may hold a model in a folder of its own; that is where it is served from, unless the folder is a temporary
    one, or held no weights.
    """
    folder = served_from(argv) if served_from(argv).startswith("/") else config.model.name
    is_random = any(str(config.flags.get(name)) == value for name, value in BENCHMARK_FLAGS.items())
    is_temporary = folder.startswith(TEMPORARY)
    flags = {name: value for name, value in config.flags.items() if str(value) != BENCHMARK_FLAGS.get(name)}
    if not (is_random or is_temporary):
        model = config.model if not folder.startswith("/") else config.model.model_copy(update={"name": folder})
        return Serving(config=config.model_copy(update={"model": model}))
    how = "with random weights" if is_random else f"from the temporary folder {folder}"
    served = config.model_copy(update={"flags": flags})
    if config.model.name.startswith("/"):
        problem = (
            f"No command can be given: the model was measured {how}, and {config.model.name} is no name to load it by. "
            "Set `model.name` in the spec to the real model."
        )
        return Serving(config=served, problem=problem)
    return Serving(config=served, note=f"Measured {how}; this loads the weights of {config.model.name}.")


def without_benchmark_flags(arguments: Sequence[str]) -> list[str]:
    """Arguments as launched, without the flags that only a benchmark may have."""
    left: list[str] = []
    words = iter(arguments)
    for word in words:
        name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
        banned = BENCHMARK_FLAGS.get(name) if word.startswith("--") else None
        if banned is None:
            left.append(word)
        elif not value and (value := next(words, "")) != banned:
            left += [word, value]
        elif value != banned:
            left.append(word)
    return left
