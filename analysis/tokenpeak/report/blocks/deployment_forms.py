"""Forms of an engine's command that deployments take: Compose, Kubernetes, Helm values, systemd.

Each is text that starts the engine as it stands, where the image, the model and the GPUs are.
"""

import math
import re
from collections.abc import Iterator

import yaml

from tokenpeak.report.blocks.serving_command import CACHE, PORT, ServingCommand, unit_argument, unit_word
from tokenpeak.vllm.command import model_words

_LIMITS_OF_COMPOSE = {"memory": "mem_limit", "cpus": "cpus", "cpuset_cpus": "cpuset", "pids": "pids_limit"}
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Of Kubernetes' device plugins."""


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
        f"          command: [{', '.join(map(_expanded, command.image_program))}]",
        "          args:",
        *(f"            - {_expanded(word)}" for word in command.arguments),
    ]
    if command.env:
        lines += ["          env:"]
        lines += [
            f"            - {{name: {_yaml(key)}, value: {_expanded(value)}}}" for key, value in command.env.items()
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
        f"      modelURL: {_expanded(command.model)}",
        "      replicaCount: 1",
        f"      requestGPU: {command.gpus if command.accelerator != 'none' else 0}",
        "      vllmConfig:",
        "        extraArgs:",
        *(f"          - {_expanded(word)}" for word in rest),
    ]
    if command.env:
        lines += ["      env:"]
        lines += [f"        - {{name: {_yaml(key)}, value: {_expanded(value)}}}" for key, value in command.env.items()]
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
        *("Environment=" + unit_word(f"{key}={value}") for key, value in command.env.items()),
        "ExecStart=" + " ".join(map(unit_argument, (*command.program, *(command.own_arguments or command.arguments)))),
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
    """The same for Compose, which reads variables in values: a dollar of it stands for none."""
    return _yaml(value.replace("$", "$$"))


def _expanded(value: str) -> str:
    """The same for Kubernetes, which reads variables as `$(NAME)`, and two dollars as one."""
    return _composed(value)


def _is_number(limit: str, value: str) -> bool:
    """Whether Compose may have this limit without quotes, as some of its releases want counts; sets are words."""
    return limit in ("cpus", "pids") and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) is not None
