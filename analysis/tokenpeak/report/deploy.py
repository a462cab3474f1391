"""The winner's config as texts to copy: a shell command, Docker, Kubernetes, Helm values, systemd.

All say the same arguments; plan.command owns how flags are written for an engine version. Ports are vLLM's own
default: a deployment is not a trial.
"""

import json
import shlex
from collections.abc import Sequence

from tokenpeak.errors import PlanError
from tokenpeak.plan.deployment import for_serving, without_benchmark_flags
from tokenpeak.records import Config
from tokenpeak.report.blocks import Sentence, Snippet, Snippets, note
from tokenpeak.vllm.command import command_line, engine_argv, paste_command, served_from

PORT = 8000
LATEST = "latest"


def snippets(
    config: Config,
    *,
    gpus: int,
    engine_version: str | None,
    launched: Sequence[str],
    containers: bool = True,
    name: str = "deploy",
) -> Snippets | Sentence:
    """The config as a `vllm serve` command and in the forms that deployments take; `launched` is its trial's argv.

    `gpus` are those that the config's engine takes. `containers` are those of NVIDIA GPUs: without, there is only what
    runs on the machine itself. A sentence says why no command can be given, where none can.
    """
    version = engine_version or config.engine_version
    served = for_serving(config, launched)
    if served.problem:
        return note(served.problem)
    config = served.config
    folder = config.model.name if config.model.name.startswith("/") else None
    try:
        argv = engine_argv(config, host="0.0.0.0", port=PORT, engine_version=version)  # noqa: S104
        options = command_line(config, config.engine_version).arguments
        pasted = _folded(paste_command(config).removesuffix(shlex.join(options)).rstrip(), options)
    except PlanError:
        # An archive of a release that the flag table does not know: what was launched is then the only truth.
        argv = without_benchmark_flags(launched)
        if served_from(argv).startswith("/"):
            argv = ["vllm", "serve", config.model.name, *argv[argv.index("serve") + 2 :]]
        start = next((index for index, word in enumerate(argv) if word.startswith("--")), len(argv))
        pasted = _folded(shlex.join(argv[:start]), argv[start:])
    arguments = argv[2:]
    image = f"vllm/vllm-openai:v{version}" if version else f"vllm/vllm-openai:{LATEST}"
    command = Snippet(title="vllm serve", text=pasted, note=served.note)
    in_containers = (
        Snippet(
            title="docker run",
            text=_docker(arguments, config.env, image, folder, gpus),
            note="Weights are kept in the host's Hugging Face cache.",
        ),
        Snippet(
            title="Kubernetes",
            text=_kubernetes(arguments, config.env, image, gpus),
            note=f"The container of a Deployment's pod template.{f' Mount {folder} in it.' if folder else ''}",
        ),
        Snippet(
            title="Helm values",
            text=_helm(arguments, config, image, gpus),
            note=f"For the vLLM production stack's chart.{f' Mount {folder} in its pods.' if folder else ''}",
        ),
    )
    unit = Snippet(
        title="systemd",
        text=_systemd(argv, config.env),
        note="Adjust the path of vllm; then systemctl daemon-reload.",
    )
    return Snippets(name=name, snippets=(command, *(in_containers if containers else ()), unit))


def _lines(words: Sequence[str]) -> list[str]:
    """An option with its value per line."""
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


def _folded(command: str, options: Sequence[str]) -> str:
    """A command with its options, a line each: no option is broken where a window ends."""
    return " \\\n  ".join([command, *_lines(options)])


def _docker(arguments: Sequence[str], env: dict[str, str], image: str, folder: str | None, gpus: int) -> str:
    parts = [
        f"docker run --gpus {gpus} --ipc=host",
        f"-p {PORT}:{PORT}",
        '-v "$HOME/.cache/huggingface:/root/.cache/huggingface"',
        *([f"-v {shlex.quote(f'{folder}:{folder}:ro')}"] if folder else []),
        *(f"-e {shlex.quote(f'{key}={value}')}" for key, value in env.items()),
        image,
        *_lines(arguments),
    ]
    return " \\\n  ".join(parts)


def _yaml(value: str) -> str:
    """A string as a YAML scalar; JSON strings are YAML strings."""
    return json.dumps(value)


def _kubernetes(arguments: Sequence[str], env: dict[str, str], image: str, gpus: int) -> str:
    lines = [
        "containers:",
        "  - name: vllm",
        f"    image: {_yaml(image)}",
        "    args:",
        *(f"      - {_yaml(a)}" for a in arguments),
    ]
    if env:
        lines += ["    env:", *(f"      - {{name: {_yaml(key)}, value: {_yaml(value)}}}" for key, value in env.items())]
    lines += [
        "    ports:",
        f"      - containerPort: {PORT}",
        "    resources:",
        "      limits:",
        f"        nvidia.com/gpu: {gpus}",
    ]
    lines += ["    readinessProbe:", f"      httpGet: {{path: /health, port: {PORT}}}"]
    return "\n".join(lines)


def _helm(arguments: Sequence[str], config: Config, image: str, gpus: int) -> str:
    repository, _, tag = image.rpartition(":")
    rest = list(arguments)
    if config.model.name in rest:
        # The chart adds the model itself; the same word may follow as the name that it is served by.
        rest.remove(config.model.name)
    lines = [
        "servingEngineSpec:",
        "  modelSpec:",
        f"    - name: {_yaml(config.model.served_name.rpartition('/')[2].lower())}",
    ]
    lines += [
        f"      repository: {_yaml(repository)}",
        f"      tag: {_yaml(tag)}",
        f"      modelURL: {_yaml(config.model.name)}",
    ]
    lines += ["      replicaCount: 1", f"      requestGPU: {gpus}", "      vllmConfig:", "        extraArgs:"]
    lines += [f"          - {_yaml(word)}" for word in rest]
    if config.env:
        lines += [
            "      env:",
            *(f"        - {{name: {_yaml(key)}, value: {_yaml(value)}}}" for key, value in config.env.items()),
        ]
    return "\n".join(lines)


def _systemd(argv: Sequence[str], env: dict[str, str]) -> str:
    lines = [
        "[Unit]",
        "Description=vLLM",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Service]",
    ]
    # systemd reads % as a specifier everywhere, and $ as a variable in ExecStart.
    lines += ["Environment=" + json.dumps(f"{key}={value}").replace("%", "%%") for key, value in env.items()]
    command = (
        " ".join(shlex.quote(word) for word in ["/usr/local/bin/vllm", *argv[1:]]).replace("%", "%%").replace("$", "$$")
    )
    lines += [
        f"ExecStart={command}",
        "Restart=on-failure",
        "KillMode=control-group",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines)
