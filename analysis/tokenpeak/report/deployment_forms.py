"""Forms of an engine's command that deployments take: docker run, Compose, Kubernetes, Helm values, systemd.

Each is text that starts the engine as it stands, where the image, the model and the GPUs are.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PORT = 8000
"""vLLM's own default: a deployment is not a trial."""
SHARED_MEMORY_GIB = 16
"""Most that the processes of several GPUs may exchange through /dev/shm; as vLLM's own recipes have it. Docker gives
64 MiB, Kubernetes the same."""
ENTRY_POINT = ("vllm", "serve")
"""Of the official images. The program is named in every form: the module that older images start (0.8.5) reads no
positional model and serves its default."""


@dataclass(frozen=True, kw_only=True)
class ServingCommand:
    """What an engine is started with, and what it needs around it."""

    program: tuple[str, ...]
    """On the machine itself."""
    image_program: tuple[str, ...] = ENTRY_POINT
    """In the image."""
    arguments: tuple[str, ...]
    """The model first."""
    env: Mapping[str, str]
    image: str
    name: str
    """A DNS label, made of the model's served name."""
    model: str
    folder: str | None
    """The model's, where it lies in one of the machine's own."""
    gpus: int

    @property
    def shares_memory(self) -> bool:
        """Several processes exchange tensors through /dev/shm."""
        return self.gpus > 1


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


def docker_run(command: ServingCommand) -> str:
    """A `docker run` of the image."""
    entry, *first = command.image_program
    parts = [
        f"docker run --gpus {command.gpus}",
        *([f"--shm-size {SHARED_MEMORY_GIB}g"] if command.shares_memory else []),
        f"-p {PORT}:{PORT}",
        '-v "$HOME/.cache/huggingface:/root/.cache/huggingface"',
        *([f"-v {shlex.quote(f'{command.folder}:{command.folder}:ro')}"] if command.folder else []),
        *(f"-e {shlex.quote(f'{key}={value}')}" for key, value in command.env.items()),
        f"--entrypoint {shlex.quote(entry)}",
        shlex.join([command.image, *first]),
        *lines_of(command.arguments),
    ]
    return " \\\n  ".join(parts)


def compose(command: ServingCommand) -> str:
    """A file of Docker Compose with the engine as its service `vllm`."""
    volumes = ["${HOME}/.cache/huggingface:/root/.cache/huggingface"]
    volumes += [_composed(f"{command.folder}:{command.folder}:ro")] if command.folder else []
    lines = [
        "services:",
        "  vllm:",
        f"    image: {_yaml(command.image)}",
        f"    entrypoint: {json.dumps([_composed(word) for word in command.image_program])}",
        "    command:",
        *(f"      - {_yaml(_composed(word))}" for word in command.arguments),
    ]
    if command.env:
        lines += ["    environment:"]
        lines += [f"      {_yaml(key)}: {_yaml(_composed(value))}" for key, value in command.env.items()]
    lines += [
        "    ports:",
        f"      - {_yaml(f'{PORT}:{PORT}')}",
        "    volumes:",
        *(f"      - {_yaml(each)}" for each in volumes),
        *([f"    shm_size: {SHARED_MEMORY_GIB}gb"] if command.shares_memory else []),
        "    restart: unless-stopped",
        "    deploy:",
        "      resources:",
        "        reservations:",
        "          devices:",
        f"            - {{driver: nvidia, count: {command.gpus}, capabilities: [gpu]}}",
    ]
    return "\n".join(lines)


def kubernetes(command: ServingCommand) -> str:
    """A Deployment of one pod."""
    mounts, volumes = [], []
    if command.shares_memory:
        mounts.append("{name: shared-memory, mountPath: /dev/shm}")
        volumes.append(f"{{name: shared-memory, emptyDir: {{medium: Memory, sizeLimit: {SHARED_MEMORY_GIB}Gi}}}}")
    if command.folder:
        folder = _yaml(command.folder)
        mounts.append(f"{{name: model, mountPath: {folder}, readOnly: true}}")
        volumes.append(f"{{name: model, hostPath: {{path: {folder}, type: Directory}}}}")
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
        f"          command: {json.dumps([_expanded(word) for word in command.image_program])}",
        "          args:",
        *(f"            - {_yaml(_expanded(word))}" for word in command.arguments),
    ]
    if command.env:
        lines += ["          env:"]
        lines += [
            f"            - {{name: {_yaml(key)}, value: {_yaml(_expanded(value))}}}"
            for key, value in command.env.items()
        ]
    lines += [
        "          ports:",
        f"            - containerPort: {PORT}",
        "          resources:",
        "            limits:",
        f"              nvidia.com/gpu: {command.gpus}",
        "          readinessProbe:",
        f"            httpGet: {{path: /health, port: {PORT}}}",
    ]
    if mounts:
        lines += ["          volumeMounts:", *(f"            - {each}" for each in mounts)]
        lines += ["      volumes:", *(f"        - {each}" for each in volumes)]
    return "\n".join(lines)


def helm_values(command: ServingCommand) -> str:
    """Values for the chart of the vLLM production stack, which adds the model and /dev/shm itself."""
    repository, _, tag = command.image.rpartition(":")
    rest = list(command.arguments)
    if command.model in rest:
        # The same word may follow as the name that it is served by.
        rest.remove(command.model)
    lines = [
        "servingEngineSpec:",
        "  modelSpec:",
        f"    - name: {_yaml(command.name)}",
        f"      repository: {_yaml(repository)}",
        f"      tag: {_yaml(tag)}",
        f"      modelURL: {_yaml(command.model)}",
        "      replicaCount: 1",
        f"      requestGPU: {command.gpus}",
        "      vllmConfig:",
        "        extraArgs:",
        *(f"          - {_yaml(word)}" for word in rest),
    ]
    if command.env:
        lines += ["      env:"]
        lines += [f"        - {{name: {_yaml(key)}, value: {_yaml(value)}}}" for key, value in command.env.items()]
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
        *("Environment=" + _unit_word(f"{key}={value}") for key, value in command.env.items()),
        "ExecStart=" + " ".join(_unit_word(word, "$") for word in (*command.program, *command.arguments)),
        "Restart=on-failure",
        "KillMode=control-group",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines)


def _yaml(value: str) -> str:
    """A string as a YAML scalar; JSON strings are YAML strings."""
    return json.dumps(value, ensure_ascii=False)


def _composed(value: str) -> str:
    """A value that Compose does not read variables in."""
    return value.replace("$", "$$")


def _expanded(value: str) -> str:
    """A value that Kubernetes does not read variables in: it reads them as `$(NAME)`."""
    return value.replace("$(", "$$(")


def _unit_word(word: str, expanded: str = "") -> str:
    """A word that systemd reads as it is: % begins a specifier, a backslash an escape, `expanded` a variable."""
    for special in ("%", *expanded):
        word = word.replace(special, special * 2)
    if word and not set(word) & set(" \t\n\"'\\;"):
        return word
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{quoted}"'
