"""Deployment of a config after its trial: real weights from a real name, without what only a benchmark may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import PlanError
from tokenpeak.node.production.manager import Command, text
from tokenpeak.records import Config
from tokenpeak.vllm.command import CommandOption, command_line, engine_env, read_options, served_from
from tokenpeak.vllm.flag_effects import is_tuning
from tokenpeak.vllm.flags import FlagFacts, known_flags

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
    """Config to serve after the trial that `argv` launched.

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


@dataclass(frozen=True, kw_only=True)
class Described:
    """Production's command as its node describes it."""

    place: str
    words: tuple[str, ...]
    program: int
    env: Mapping[str, str]
    image: str | None
    text: str
    served_name: str | None


@dataclass(frozen=True, kw_only=True)
class Edit:
    """The new command: each word a text, or the place of the present word that stays."""

    words: tuple[str | int, ...]
    program: int
    env: Mapping[str, str | None]
    image: str | None
    notes: tuple[str, ...] = ()

    def as_request(self) -> dict[str, Any]:
        """As it is sent to the node, which sees by itself which words are the program."""
        return {"words": [*self.words], "env": {**self.env}, "image": self.image}

    def changes(self, production: Described) -> bool:
        """Whether anything of production's would be another than it is."""
        words = self.shown_words(production)
        differs = any(production.env.get(name) != value for name, value in self.env.items())
        return words != production.words or differs or self.image not in (None, production.image)

    def shown_words(self, production: Described) -> tuple[str, ...]:
        """The new command, hidden words hidden."""
        return tuple(production.words[word] if isinstance(word, int) else word for word in self.words)

    def shown(self, production: Described) -> str:
        """The new definition as it is shown, beside the present one."""
        env = {name: value for name, value in {**production.env, **self.env}.items() if value is not None}
        words = self.shown_words(production)
        image = self.image or production.image
        return text(production.place, Command(words, env, self.program, image), words)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Program or image of a config's engine build, where production's own program is to give way to it."""

    words: tuple[str, ...] = ()
    image: str | None = None


def production_edit(
    production: Described,
    config: Config,
    launched: Sequence[str],
    *,
    base_model: str,
    version: str | None,
    tuned_env: Sequence[str] = (),
    inventory_env: Mapping[str, str] | None = None,
    program: Program | None = None,
) -> Edit:
    """The edit; raises PlanError for a config that cannot be served, or whose flags the version does not take.

    `launched` is its trial's command line, `base_model` the model of the sweep, which a config may have another than.
    `tuned_env` are the variables that the sweep's configs set, and `inventory_env` what its trials had besides.
    """
    served = for_serving(config, launched)
    if served.problem:
        raise PlanError(served.problem)
    table = known_flags(version)
    command = command_line(served.config, version)
    new = _options(command.arguments, table)
    place, present = read_options(production.words, table, program=production.program)
    is_same_model = config.model.name == base_model
    head: list[str | int] = [place if is_same_model and place is not None else served.config.model.name]
    notes = [served.note] if served.note else []
    words: list[str | int] = []
    used: set[str] = set()
    for option in present:
        name = option.name.removeprefix("no_")
        if name in new:
            words += _same_or_new(option, new[name], production) if name not in used else []
            used.add(name)
        elif option.name == "revision" and not is_same_model:
            continue
        elif not is_tuning(option.name):
            words += option.places
    for name, option_words in new.items():
        words += option_words if name not in used else []
    if not is_same_model:
        words += ["--revision", config.model.revision] if config.model.revision else []
        if not any(option.name == "served_model_name" for option in present):
            # Clients ask for the model by the name that it had.
            words += ["--served-model-name", production.served_name or base_model]
    start: list[str | int] = list(range(production.program))
    if program is not None and program.words:
        start = list(program.words)
    return Edit(
        words=(*start, *head, *words),
        program=len(start),
        env=_env(production, served.config, version, tuned_env, inventory_env or {}),
        image=program.image if program is not None else None,
        notes=tuple(notes),
    )


def described_model(production: Described, version: str | None) -> str | None:
    """The model in production's command; None where it names none."""
    place, _ = read_options(production.words, known_flags(version), program=production.program)
    return None if place is None else production.words[place]


def _options(arguments: Sequence[str], table: Mapping[str, FlagFacts]) -> dict[str, list[str]]:
    """A config's flags as words by name, several of one flag together."""
    by_name: dict[str, list[str]] = {}
    for option in read_options(arguments, table)[1]:
        by_name.setdefault(option.name.removeprefix("no_"), []).extend(arguments[place] for place in option.places)
    return by_name


def _same_or_new(option: CommandOption, new: list[str], production: Described) -> list[str | int]:
    """The option's own words where they say what the config says, else the config's."""
    return list(option.places) if [production.words[place] for place in option.places] == new else list(new)


def _env(
    production: Described,
    config: Config,
    version: str | None,
    tuned_env: Sequence[str],
    inventory_env: Mapping[str, str],
) -> dict[str, str | None]:
    """The variables that are to be set, and those to go: what other configs of the sweep set, and this one does not."""
    wanted: dict[str, str] = {
        **inventory_env,
        **engine_env(config, engine_version=version, inventory=inventory_env),
    }
    env: dict[str, str | None] = {
        name: value for name, value in wanted.items() if value and production.env.get(name) != value
    }
    env |= {name: None for name in (*tuned_env, *wanted) if not wanted.get(name) and name in production.env}
    return env
