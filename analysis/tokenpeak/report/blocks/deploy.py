"""The winner's config as texts to copy, from the engine build that ran: the program or image, and its version.

All say the same arguments, in the forms that deployments take: a command, Compose, Kubernetes, Helm values, systemd;
vllm.command owns how flags are written for an engine version.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import yaml

from tokenpeak.errors import PlanError
from tokenpeak.node.engine.builds import DOCKER, PODMAN, is_vllm
from tokenpeak.plan.other_server import launched_line
from tokenpeak.plan.serving import TEMPORARY, for_serving, without_benchmark_flags
from tokenpeak.records import Config, Container, EngineBuild
from tokenpeak.report.blocks.block import Sentence, Snippet, Snippets, note
from tokenpeak.report.blocks.serving_command import (
    CACHE,
    ENTRY_POINT,
    PORT,
    Accelerator,
    ServingCommand,
    container_unit,
    folded,
    run_command,
    unit_word,
    unwritable,
)
from tokenpeak.sensitive import MODEL_PLACE
from tokenpeak.vllm.command import command_line, engine_argv, engine_env, launched_program, model_words, paste_command

_LIMITS_OF_COMPOSE = {"memory": "mem_limit", "cpus": "cpus", "cpuset_cpus": "cpuset", "pids": "pids_limit"}
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Of Kubernetes' device plugins."""
LATEST = "latest"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - of a container, or of a machine that serves
USUAL_PATH = "/usr/local/bin/vllm"
"""Of the program in a unit, which needs a whole path, where what ran has none that lasts."""
_HIDDEN_PATH = re.compile(r"<(?:path|private)-\d+>")
"""What a cleaned copy has in place of a path, or of a setting of somebody's own."""


def compose(command: ServingCommand) -> str:
    """A file of Docker Compose with the engine as its service `vllm`."""
    volumes = [_yaml(f"${{HOME}}/{CACHE}:/root/{CACHE}")] if command.keeps_weights else []
    volumes += [_composed(mount.words()) for mount in command.mounts]
    lines = [
        "services:",
        "  vllm:",
        f"    image: {_composed(command.image)}",
        f"    entrypoint: [{', '.join(map(_composed, command.image_program))}]",
        "    command:",
        *(f"      - {_composed(word)}" for word in command.arguments),
    ]
    if command.env:
        lines += ["    environment:"]
        # Of keys, Compose expands nothing.
        lines += [f"      {_yaml(key)}: {_composed(value)}" for key, value in command.env.items()]
    lines += ["    ports:", f"      - {_yaml(f'{PORT}:{PORT}')}"]
    if volumes:
        lines += ["    volumes:", *(f"      - {each}" for each in volumes)]
    return "\n".join([*lines, *_made_with(command), "    restart: unless-stopped", *_boards(command)])


def _made_with(command: ServingCommand) -> Iterator[str]:
    """Shared memory, user and limits of the service."""
    made = command.container
    shared = made.shm_size if made is not None else None
    if shared or command.shared_memory_gib:
        yield f"    shm_size: {_composed(shared or f'{command.shared_memory_gib}gb')}"
    if made is None:
        return
    if made.user:
        yield f"    user: {_composed(made.user)}"
    for name, value in made.limits.items():
        yield f"    {_LIMITS_OF_COMPOSE[name]}: {value if _is_number(name, value) else _composed(value)}"


def _boards(command: ServingCommand) -> Iterator[str]:
    """The boards of the service."""
    if command.devices is None:
        yield from ("    deploy:", "      resources:", "        reservations:", "          devices:")
        yield f"            - {{driver: nvidia, count: {command.gpus}, capabilities: [gpu]}}"
    elif command.devices:
        yield "    devices:"
        pairs = (device if ":" in device else f"{device}:{device}" for device in command.devices)
        yield from (f"      - {_composed(pair)}" for pair in pairs)


def kubernetes(command: ServingCommand) -> str:
    """A Deployment of one pod."""
    mounts, volumes = [], []
    if command.shared_memory_gib:
        size = f"{command.shared_memory_gib}Gi"
        mounts.append("{name: shared-memory, mountPath: /dev/shm}")
        volumes.append(f"{{name: shared-memory, emptyDir: {{medium: Memory, sizeLimit: {size}}}}}")
    for number, mount in enumerate(command.mounts):
        name = "model" if len(command.mounts) == 1 else f"mounted-{number}"
        reads = ", readOnly: true" if mount.reads else ""
        mounts.append(f"{{name: {name}, mountPath: {_yaml(mount.place)}{reads}}}")
        kind = ", type: Directory" if mount.place == command.folder else ""
        volumes.append(f"{{name: {name}, hostPath: {{path: {_yaml(mount.source)}{kind}}}}}")
    resource = _RESOURCES.get(command.accelerator)
    lines = [
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        f"  name: {_yaml(command.name)}",
        "spec:",
        "  replicas: 1",
        "  selector:",
        f"    matchLabels: {{app: {_yaml(command.name)}}}",
        "  template:",
        "    metadata:",
        f"      labels: {{app: {_yaml(command.name)}}}",
        "    spec:",
        # A Service called vllm would set VLLM_PORT, which vLLM reads.
        "      enableServiceLinks: false",
        "      containers:",
        "        - name: vllm",
        f"          image: {_yaml(command.image)}",
        f"          command: [{', '.join(map(_composed, command.image_program))}]",
        "          args:",
        *(f"            - {_composed(word)}" for word in command.arguments),
    ]
    if command.env:
        lines += ["          env:"]
        lines += [
            f"            - {{name: {_yaml(key)}, value: {_composed(value)}}}" for key, value in command.env.items()
        ]
    lines += [
        "          ports:",
        f"            - containerPort: {PORT}",
        *(
            ["          resources:", "            limits:", f"              {resource}: {command.gpus}"]
            if resource
            else []
        ),
        "          readinessProbe:",
        f"            httpGet: {{path: /health, port: {PORT}}}",
    ]
    if mounts:
        lines += ["          volumeMounts:", *(f"            - {each}" for each in mounts)]
        lines += ["      volumes:", *(f"        - {each}" for each in volumes)]
    return "\n".join(lines)


def helm_values(command: ServingCommand) -> str:
    """Values for the chart of the vLLM production stack, which adds the model and /dev/shm itself."""
    folders, slash, last = command.image.rpartition("/")
    name, _, tag = last.partition(":")
    repository = f"{folders}{slash}{name}"
    named = model_words(command.image_program, command.model)
    # The same word may follow as the name that it is served by.
    rest = command.arguments[len(named) :] if [*command.arguments[: len(named)]] == named else command.arguments
    lines = [
        "servingEngineSpec:",
        "  modelSpec:",
        f"    - name: {_yaml(command.name)}",
        f"      repository: {_yaml(repository)}",
        f"      tag: {_yaml(tag or 'latest')}",
        # What the chart writes into its Deployment is read there as Kubernetes reads it.
        f"      modelURL: {_composed(command.model)}",
        "      replicaCount: 1",
        f"      requestGPU: {command.gpus if command.accelerator != 'none' else 0}",
        "      vllmConfig:",
        "        extraArgs:",
        *(f"          - {_composed(word)}" for word in rest),
    ]
    if command.env:
        lines += ["      env:"]
        lines += [f"        - {{name: {_yaml(key)}, value: {_composed(value)}}}" for key, value in command.env.items()]
    return "\n".join(lines)


def systemd_unit(command: ServingCommand) -> str:
    """A unit file of a service."""
    lines = [
        "[Unit]",
        "Description=vLLM",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Service]",
        # A variable's value is never expanded, as the command's words are.
        *("Environment=" + unit_word(f"{key}={value}", expanded="") for key, value in command.env.items()),
        "ExecStart=" + " ".join(map(unit_word, (*command.program, *(command.own_arguments or command.arguments)))),
        "Restart=on-failure",
        "KillMode=control-group",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines)


def _yaml(value: str) -> str:
    """A string as a YAML scalar between quotes, in one line, which no character ends."""
    return str(yaml.dump(value, default_style='"', width=math.inf, allow_unicode=True)).rstrip("\n")


def _composed(value: str) -> str:
    """The same for Compose and Kubernetes, which read variables, as `$NAME` and `$(NAME)`, and two dollars as one."""
    return _yaml(value.replace("$", "$$"))


def _is_number(limit: str, value: str) -> bool:
    """Whether Compose may have this limit without quotes, as some of its releases want counts; sets are words."""
    return limit in ("cpus", "pids") and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) is not None


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
    if other := next((each for each in (config.engine_version, version) if not is_vllm(each)), None):
        return _of_other_server(other, config, launched, build, name)
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
    if "/" not in config.model.name or config.model.name.startswith(MODEL_PLACE):
        # A page that may leave has of a node's folder the last part alone, and none of its mounts.
        lacks = f"{config.model.name} stands for a folder of the node: a report with --node-names shows it."
        found = [replace(snippet, note=f"{snippet.note} {lacks}".strip()) for snippet in found]
    if hidden := sorted({*_HIDDEN_PATH.findall(pasted)}):
        lacks = f"{' and '.join(hidden)} stand{'s' if len(hidden) == 1 else ''} for what the node has there."
        found = [replace(snippet, note=f"{snippet.note} {lacks}".strip()) for snippet in found]
    return Snippets(name=name, snippets=tuple(found), span="half")


def _of_other_server(
    server: str, config: Config, launched: Sequence[str], build: EngineBuild | None, name: str
) -> Snippets | Sentence:
    """The command that launched a server which is not vLLM, at the address of a deployment where it names one so."""
    if not launched:
        return note(f"No command can be given: it ran on {server}, and the commands are vLLM's.")
    where = f" in {build.image}" if build and build.image else ""
    text = launched_line(config, _at_every_address(launched))
    hint = f"As a trial launched {server}{where}; give it an API key of your own."
    return Snippets(name=name, snippets=(Snippet(title=server, text=text, note=hint),), span="half")


def _containers(command: ServingCommand) -> tuple[Snippet, ...]:
    cached = "Weights are kept in the host's Hugging Face cache." if command.keeps_weights else ""
    mounted = f" The model is read from {command.folder} of the node." if command.folder else ""
    args = command.container.args if command.container is not None else ()
    lacks = f" Its containers were made with {shlex.join(args)} besides." if args else ""
    boards = " GPUs by CDI: nvidia-ctk cdi generate." if command.devices is None else ""
    return (
        Snippet(title="docker run", text=run_command(command, DOCKER), note=cached),
        Snippet(title="podman run", text=run_command(command, PODMAN), note=f"{cached}{boards}".strip()),
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
    """Arguments of this program to serve the config at every address."""
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
    """Program that was started, by its own path where that lasts, else by its name."""
    program = launched_program(launched) or ENTRY_POINT
    if program[0].startswith(TEMPORARY):
        return (program[0].rpartition("/")[2], *program[1:])
    return program


def _label(served_name: str) -> str:
    """A served name as Kubernetes takes it for a name: small letters, digits and hyphens, 63 at most."""
    words = re.sub(r"[^a-z0-9]+", "-", served_name.rpartition("/")[2].lower()).strip("-")
    return words[:63].rstrip("-") or "model"
