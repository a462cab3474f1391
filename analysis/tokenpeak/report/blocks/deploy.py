"""The winner's config as texts to copy, from the engine build that ran: the program or image, and its version.

All say the same arguments; vllm.command owns how flags are written for an engine version.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tokenpeak.errors import PlanError
from tokenpeak.plan.serving import TEMPORARY, for_serving, without_benchmark_flags
from tokenpeak.records import Config, Container, EngineBuild
from tokenpeak.report.blocks.block import Sentence, Snippet, Snippets, note
from tokenpeak.report.blocks.deployment_forms import compose, helm_values, kubernetes, systemd_unit
from tokenpeak.report.blocks.serving_command import (
    ENTRY_POINT,
    PORT,
    Accelerator,
    ServingCommand,
    container_unit,
    docker_run,
    folded,
    podman_run,
    unwritable,
)
from tokenpeak.vllm.command import command_line, engine_argv, engine_env, launched_program, model_words, paste_command

LATEST = "latest"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - of a container, or of a machine that serves
USUAL_PATH = "/usr/local/bin/vllm"
"""Of the program in a unit, which needs a whole path, where what ran has none that lasts."""
_HIDDEN_PATH = re.compile(r"<(?:path|private)-\d+>")
"""What a cleaned copy has in place of a path, or of a setting of somebody's own."""


def snippets(
    config: Config,
    *,
    gpus: int,
    engine_version: str | None,
    launched: Sequence[str],
    accelerator: Accelerator = "nvidia",
    inventory_env: Mapping[str, str] | None = None,
    build: EngineBuild | None = None,
    name: str = "deploy",
) -> Snippets | Sentence:
    """The config as a `vllm serve` command and in the forms that deployments take; `launched` is its trial's argv.

    `engine_version` is the one that the engine reported. `gpus` are those that the config's engine takes.
    `inventory_env` is what the node's inventory set beside the config's own. `build` is what ran. Of an image, all
    forms are of that image and made as its containers were. Of a program, containers are of vLLM's official image of
    the same version, which is for NVIDIA's GPUs: for other accelerators there is only what runs on the machine itself.
    A sentence says why no command can be given, where none can.
    """
    version = engine_version or config.engine_version
    image = build.image if build else None
    served = for_serving(config, launched)
    if served.problem:
        return note(served.problem)
    config = served.config
    folder = config.model.name if config.model.name.startswith("/") else None
    program = _program(launched)
    in_image = program if image else ENTRY_POINT
    # What ran in an image has no path on the machine itself.
    program = ENTRY_POINT if image else program
    try:
        config = _with_inventory(config, version, inventory_env or {})
        arguments, own = (_arguments(config, version, each) for each in (in_image, program))
        asked = command_line(config, config.engine_version)
        env = command_line(config, version).env
        start = paste_command(config, program).removesuffix(shlex.join(asked.arguments)).rstrip()
        pasted = folded(start, asked.arguments)
    except PlanError:
        # An archive of a release that the flag table does not know: what was launched is then the only truth.
        left = without_benchmark_flags(launched)[len(in_image if image else program) :]
        model, *rest = left[left[:1] == ["--model"] :] or [config.model.name]
        model = config.model.name if model.startswith("/") else model
        shown = [*model_words(program, model), *rest]
        env = config.env
        first = next((index for index, word in enumerate(shown) if word.startswith("--")), len(shown))
        pasted = folded(shlex.join([*program, *shown[:first]]), shown[first:])
        own = _at_every_address(shown)
        arguments = _at_every_address([*model_words(in_image, model), *rest])
    command = ServingCommand(
        program=program if program[0].startswith("/") else (USUAL_PATH, *program[1:]),
        arguments=tuple(arguments),
        own_arguments=tuple(own),
        env=env,
        image_program=in_image,
        image=image or f"vllm/vllm-openai:{f'v{version}' if version else LATEST}",
        name=_label(config.model.served_name),
        model=config.model.name,
        folder=folder,
        gpus=gpus,
        accelerator=accelerator,
        container=build.container or Container() if build and build.image else None,
    )
    if problem := unwritable(command):
        return note(problem)
    named = f", build {config.engine}" if config.engine else ""
    tagged = f", in {image}{f' ({build.digest})' if build and build.digest else ''}" if image else ""
    ran = f"Ran as vLLM {version}{named}{tagged}." if version else ""
    found = [Snippet(title="vllm serve", text=pasted, note=" ".join(each for each in (ran, served.note) if each))]
    if image or accelerator == "nvidia":
        found += _containers(command)
    if image:
        unit, hint = container_unit(command), "Then systemctl daemon-reload."
    else:
        lasting = "" if program[0].startswith("/") else f"Adjust the path of {program[0]}; "
        unit = systemd_unit(command)
        hint = f"{lasting}then systemctl daemon-reload." if lasting else "Then systemctl daemon-reload."
    found.append(Snippet(title="systemd", text=unit, note=hint))
    if "/" not in config.model.name:
        # A page that may leave has of a node's folder the last part alone, and none of its mounts.
        lacks = f"{config.model.name} stands for a folder of the node: a report with --node-names shows it."
        found = [replace(snippet, note=f"{snippet.note} {lacks}".strip()) for snippet in found]
    if hidden := sorted({*_HIDDEN_PATH.findall(pasted)}):
        lacks = f"{' and '.join(hidden)} stand{'s' if len(hidden) == 1 else ''} for what the node has there."
        found = [replace(snippet, note=f"{snippet.note} {lacks}".strip()) for snippet in found]
    return Snippets(name=name, snippets=tuple(found), span="half")


def _containers(command: ServingCommand) -> tuple[Snippet, ...]:
    cached = "Weights are kept in the host's Hugging Face cache." if command.keeps_weights else ""
    mounted = f" The model is read from {command.folder} of the node." if command.folder else ""
    args = command.container.args if command.container is not None else ()
    lacks = f" Its containers were made with {shlex.join(args)} besides." if args else ""
    boards = " Boards by CDI: nvidia-ctk cdi generate." if command.devices is None else ""
    return (
        Snippet(title="docker run", text=docker_run(command), note=cached),
        Snippet(title="podman run", text=podman_run(command), note=f"{cached}{boards}".strip()),
        Snippet(title="Compose", text=compose(command), note=f"For docker compose up. {cached}{lacks}".strip()),
        Snippet(title="Kubernetes", text=kubernetes(command), note=f"For kubectl apply -f.{mounted}{lacks}"),
        Snippet(
            title="Helm values",
            text=helm_values(command),
            note="For the vLLM production stack's chart."
            + (f" Mount {command.folder} in its pods." if command.folder else ""),
        ),
    )


def _arguments(config: Config, version: str | None, program: Sequence[str]) -> list[str]:
    """What follows this program to serve the config at every address."""
    argv = engine_argv(config, host=ANY_ADDRESS, port=PORT, engine_version=version, executable=program)
    return argv[len(program) :]


def _with_inventory(config: Config, version: str | None, inventory_env: Mapping[str, str]) -> Config:
    """The config with what its node's inventory set as well, unless the config sets or empties it."""
    env = {**inventory_env, **engine_env(config, engine_version=version, inventory=inventory_env)}
    return config.model_copy(update={"env": {name: value for name, value in env.items() if value}})


def _at_every_address(arguments: Sequence[str]) -> list[str]:
    """Launched arguments with the address of a deployment instead of a trial's."""
    given = list(arguments)
    for option, value in (("--host", ANY_ADDRESS), ("--port", str(PORT))):
        if option in given[:-1]:
            given[given.index(option) + 1] = value
    return given


def _program(launched: Sequence[str]) -> tuple[str, ...]:
    """What was started, by its own path where that lasts, else by its name."""
    program = launched_program(launched) or ENTRY_POINT
    if program[0].startswith(TEMPORARY):
        return (program[0].rpartition("/")[2], *program[1:])
    return program


def _label(served_name: str) -> str:
    """A served name as Kubernetes takes it for a name: small letters, digits and hyphens, 63 at most."""
    words = re.sub(r"[^a-z0-9]+", "-", served_name.rpartition("/")[2].lower()).strip("-")
    return words[:63].rstrip("-") or "model"
