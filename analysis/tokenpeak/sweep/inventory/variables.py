"""Variables of inventories, declared once: type, meaning, and where each goes in a node's declaration.

Argument specs of roles, `node.json`, the JSON Schema for editors, the reference and `tokenpeak check` follow from these
models (`schema`, `checks`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from tokenpeak.node.guard.notify import EVENTS, SIDES
from tokenpeak.node.production.answering import KINDS
from tokenpeak.node.production.managers import MANAGERS
from tokenpeak.node.protocol.requests import CONCURRENCY_MAX, OBSERVE_MAX_S
from tokenpeak.results.bake import SPANS
from tokenpeak.spec import Declaration
from tokenpeak.spec.engine_build import NAME, DeclaredBuild
from tokenpeak.spec.sweep import ModelSpec

Text = Annotated[str, Field(coerce_numbers_to_str=True), WithJsonSchema({"type": ["string", "number"]})]
"""A text; YAML may read one as a number."""
Words = tuple[Text, ...]
"""A program with its arguments, or names."""
Seconds = Annotated[float, Field(ge=0)]
_PERCENT = re.compile(r"(\d{1,3})\s*%")
SHORTEST_PERIOD_S = 0.5
MOST_ROUNDS = 3
"""So often as many seconds are observed again while they decide nothing."""
_EVERY_MANAGER = ("manager", "url", "api_key_file", "ca_file", "listens_as", "answers_with", "answer_command")
MANAGER_KEYS: Mapping[str, tuple[str, ...]] = {
    "systemd": ("unit", "user"),
    "docker": ("unit", "stop_grace_s"),
    "podman": ("unit", "stop_grace_s", "user"),
    "compose": ("file", "unit", "project"),
    "kubernetes": ("unit", "namespace", "context", "kubeconfig"),
    "supervisord": ("unit", "config"),
    "command": ("start", "stop", "check", "command_file", "process"),
    "none": (),
}
"""Manager of production → the keys of tokenpeak_production that are its own."""
ANSIBLE = (
    "ansible_become",
    "ansible_become_method",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_connection",
    "ansible_host",
    "ansible_password",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_python_interpreter",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_private_key_file",
    "ansible_user",
)
"""Ansible's own that an inventory of nodes usually has; there are more."""


def _limit(value: Any) -> Any:
    """A limit of a group as it may be written."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    share = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if is_number or (share and 1 <= int(share[1]) <= 100):
        return value
    raise ValueError(f"{value!r} is no limit; give a number of nodes from 1 on, or a share of the group such as 25%")


class BakeSettings(Declaration):
    """How an apply is judged on production itself, before and after."""

    bake_s: float = Field(default=300.0, ge=5, le=OBSERVE_MAX_S / 2)
    """How long production is observed."""
    settle_s: float = Field(default=30.0, ge=0, le=OBSERVE_MAX_S / 2)
    """How long the changed production may warm up before."""
    margin: float = Field(default=0.1, ge=0)
    """By what share a mean must be longer to count."""
    test_load: Annotated[
        int,
        Field(ge=0, le=CONCURRENCY_MAX),
        BeforeValidator(lambda value: 2 * value if isinstance(value, bool) else value),
        WithJsonSchema({"type": ["boolean", "integer"]}),
    ] = 0
    """A test load beside production's own: true, or so many requests at a time."""

    @property
    def period_s(self) -> float:
        """How often metrics are read."""
        return max(SHORTEST_PERIOD_S, self.bake_s / (2 * SPANS))


class DeclaredHaproxy(Declaration):
    """HAProxy, by its runtime socket."""

    socket: Text | None = None
    """Its runtime socket with level admin, as the node reaches it: a path, or HOST:PORT."""
    servers: Words = ()
    """What this node is there, each as BACKEND/SERVER."""


class DeclaredNginx(Declaration):
    """nginx, by the file with its upstream."""

    file: Text | None = None
    """The file with the upstream."""
    server: Text | None = None
    """This node's server, as its line there has it."""
    reach: Words = ()
    """The words before a command that runs it where nginx is: ssh and a host."""
    reload: Words = ()
    """A program with arguments that makes nginx read its files again."""


class DeclaredKubernetes(Declaration):
    """A Kubernetes Service, by the label that it selects."""

    service: Text | None = None
    """The Service that sends requests to the node's pods."""
    label: Text | None = None
    """KEY=VALUE of its selector: the pods lose it and get it back."""


class DeclaredDrain(Declaration):
    """How a node leaves its load balancer."""

    haproxy: DeclaredHaproxy | None = None
    """Leave by haproxy."""
    nginx: DeclaredNginx | None = None
    """Leave by nginx."""
    kubernetes: DeclaredKubernetes | None = None
    """Leave by kubernetes."""
    before: Words = ()
    """A program with arguments that takes the node out, where no balancer above is meant."""
    after: Words = ()
    """A program with arguments that puts it back."""
    wait: dict[str, Any] | None = None
    """How to know that running requests have ended: `metric` and `most_s`, or `seconds` alone."""
    least_up: int | None = None
    """How many others must serve, so that this node may leave; 1 when absent."""


class ModelStore(Declaration):
    """A model store that nodes share."""

    name: Text = Field(min_length=1)
    """The store, the same for every node that reads it."""
    stagger_s: Seconds = 10.0
    """By how many seconds guards start production after one another; 10 when absent."""
    most_s: Seconds = 240.0
    """How much longer than the lease the last of them may wait; 240 when absent."""
    at_once: int | None = Field(default=None, ge=1)
    """How many start at once where the controller gives nodes back; any number when absent."""


class Receiver(Declaration):
    """Whom to notify, by one of command, webhook and webhook_file."""

    command: Words = ()
    """A program with arguments; it gets the event as JSON on its standard input."""
    webhook: Text | None = None
    """A URL that gets the event as JSON, sent again until it is taken."""
    webhook_file: Text | None = None
    """Instead: a file, its owner's alone, that holds a URL with a token in it."""
    secret_file: Text | None = None
    """A file, its owner's alone, with the secret that signs what a webhook gets."""
    events: tuple[Literal[tuple(EVENTS)], ...] = ()  # type: ignore[valid-type]
    """The events that are meant; all when absent."""
    from_: Literal[SIDES] | None = Field(default=None, alias="from")  # type: ignore[valid-type]
    """node or controller, where only one of them is to call; both when absent."""


class Tasks(Declaration):
    """Task files of the inventory's folder that run in each trial."""

    before_launch: Text | None = None
    """Tasks before production is stopped."""
    after_ready: Text | None = None
    """Tasks once the engine answers, before the load."""
    before_return: Text | None = None
    """Tasks before the engine is stopped and production returns."""
    timeout_s: int = Field(default=600, ge=1)
    """How many whole seconds one of these files may take; 600 when absent."""


def keys_of(manager: str) -> tuple[str, ...]:
    """Every key of tokenpeak_production that this manager takes."""
    return (*_EVERY_MANAGER, *MANAGER_KEYS[manager])


class DeclaredProduction(Declaration):
    """What the node normally serves, and what starts and stops it."""

    manager: Literal[tuple(MANAGERS)] = "none"  # type: ignore[valid-type]
    """What starts and stops production."""
    url: Text | None = None
    """Where production answers; without it only its state is checked."""
    api_key_file: Text | None = None
    """A file on the node with production's API key; root's, mode 0600."""
    ca_file: Text | None = None
    """A PEM file on the node by which an https `url` is trusted."""
    listens_as: Text | None = None
    """The user whose process answers at `url`, where that is none that the manager knows."""
    answers_with: Literal[tuple(KINDS)] | None = None  # type: ignore[valid-type]
    """What production must answer to count as well; `completion` when absent."""
    answer_command: Words = ()
    """For `answers_with: command`: a program with arguments; status 0 means well."""
    unit: Text | None = None
    """The unit, container, service, program or workload that serves the model."""
    user: Text | None = None
    """The user whose systemd, or whose rootless Podman, has the unit."""
    stop_grace_s: float | None = None
    """How long the container may take to stop before it is killed."""
    file: Text | None = None
    """The Compose file on the node."""
    project: Text | None = None
    """The Compose project, where it is not the folder's name."""
    namespace: Text | None = None
    """The Kubernetes namespace."""
    context: Text | None = None
    """The context of the kubeconfig."""
    kubeconfig: Text | None = None
    """The kubeconfig on the node."""
    config: Text | None = None
    """supervisord's configuration on the node, where it is not the usual one."""
    start: Words = ()
    """A program with arguments that starts production."""
    stop: Words = ()
    """A program with arguments that stops it."""
    check: Words = ()
    """A program with arguments; status 0 means that production runs. Without it, `url` is asked."""
    command_file: Text | None = None
    """The engine's command, a word a line, which `start` runs; what an apply changes."""
    process: dict[str, Any] | None = None
    """Instead of `start` and `stop`: the process itself, by `argv`, `env` and `cwd`."""


@dataclass(frozen=True)
class OnNode:
    """Where a variable goes in a node's declaration, and what stands there without it; None: it is required."""

    place: str
    otherwise: str | None = "none"
    value: str = ""
    """The template of what is declared, where that is not the variable as it is."""


class InventoryVariables(Declaration):
    """Variables of an inventory's nodes and load hosts."""

    tokenpeak_python: Annotated[Text, OnNode("python", None)]
    """The Python (3.8 or newer) that runs the script."""
    tokenpeak_state_dir: Annotated[Text, OnNode("state_dir", None)]
    """The folder on the node that holds the script, its record and its logs; root-only."""
    tokenpeak_host: Annotated[Text, OnNode("host", None)]
    """The address at which the engine listens and is measured."""
    tokenpeak_port: Annotated[int, OnNode("port", None)]
    """The port at which the engine listens."""
    tokenpeak_model: Annotated[
        ModelSpec,
        OnNode("model.name", value="tokenpeak_model.name"),
        OnNode("model.served_name", value="tokenpeak_model.served_name | default(tokenpeak_model.name)"),
    ]
    """name and served_name of the model; a group of nodes may have one of its own."""
    tokenpeak_production: Annotated[DeclaredProduction, OnNode("production", None)]
    """What the node normally serves."""
    tokenpeak_engine_command: Annotated[Words, OnNode("engine.command")] = ("vllm", "serve")
    """The engine's command with its verb, where there is one build."""
    tokenpeak_engine_env: Annotated[dict[str, Any] | None, OnNode("engine.env", "{}")] = None
    """Environment of every engine; nothing secret."""
    tokenpeak_engine_env_allowed: Annotated[Words | None, OnNode("engine.env_allowed")] = None
    """Names, or PREFIX_*, of the environment variables that a config may set."""
    tokenpeak_engine_env_file: Annotated[Text | None, OnNode("engine.env_file")] = None
    """A root-only file on the node with NAME=VALUE lines, for tokens."""
    tokenpeak_engine_user: Annotated[Text | None, OnNode("engine.user")] = None
    """The user that the engine runs as."""
    tokenpeak_engine_limits: Annotated[dict[str, Any] | None, OnNode("engine.limits", "{}")] = None
    """systemd properties for the engine's unit, such as MemoryMax."""
    tokenpeak_engine_isolation: Annotated[Text | None, OnNode("engine.isolation", "'unit'")] = None
    """What the engine runs in, `unit` (a systemd unit, the default where systemd runs) or `process`."""
    tokenpeak_engine_version: Annotated[Text | None, OnNode("engine.version")] = None
    """The vLLM version that this command is to be."""
    tokenpeak_engines: Annotated[
        dict[Annotated[str, Field(pattern=NAME, max_length=60)], DeclaredBuild] | None,
        OnNode(
            "engines",
            value="tokenpeak_engines | default({}) | dict2items(key_name='name', value_name='build')",
        ),
    ] = None
    """Engine builds by name, the default one first; each a command or an image."""
    tokenpeak_gpus: Annotated[Words | None, OnNode("gpus")] = None
    """Numbers (nvidia-smi's) or UUIDs of the boards that trials use; all when absent."""
    tokenpeak_model_path: Annotated[Text | None, OnNode("model.path")] = None
    """Where its files are on the node."""
    tokenpeak_lease_max_s: Annotated[float, OnNode("limits.lease_max_s")] = 600
    """The longest lease that a sweep may ask for."""
    tokenpeak_trial_deadline_max_s: Annotated[float, OnNode("limits.trial_deadline_max_s")] = 86400
    """How long a trial may have production down, the engine's end and production's return included."""
    tokenpeak_drain: Annotated[DeclaredDrain | None, OnNode("drain")] = None
    """How the node leaves its load balancer before production is stopped."""
    tokenpeak_notify: Annotated[tuple[Receiver, ...] | None, OnNode("notify", "[]")] = None
    """Whom to notify when production does not come back, a guard acted, a node is left out or a sweep ended."""
    tokenpeak_textfile_dir: Annotated[Text | None, OnNode("textfile_dir")] = None
    """The folder of the node exporter's text-file collector, for the guard's metrics."""
    tokenpeak_power_command: Annotated[Words | None, OnNode("power_command")] = None
    """A command that prints the node's power in watts, of a PDU for example; without it the BMC is asked."""
    tokenpeak_simulated: Annotated[bool, OnNode("simulated", "false")] = False
    """Whether the node is simulated."""
    tokenpeak_tools: Annotated[Text | None, OnNode("tools")] = None
    """A folder that is put first on the PATH."""
    tokenpeak_guard_command: Annotated[Text | None, OnNode("guard_command")] = None
    """Where the command goes that a user other than root may run through sudo."""
    tokenpeak_apply_command: Annotated[Text | None, OnNode("apply_command")] = None
    """Where the command goes by which another user than root may change production's definition."""
    tokenpeak_bake: Annotated[BakeSettings | None, OnNode("bake", "{}")] = None
    """How an apply is judged on production itself; see page 'Apply the winner' of `tokenpeak docs`."""
    tokenpeak_default_sweep: Text | None = None
    """The sweep that `plan` and `sweep` take when none is named."""
    tokenpeak_facts: dict[str, Any] | None = None
    """What the nodes are, for planning before the first probe."""
    tokenpeak_load_python: Text | None = None
    """Of a load host: the Python of an environment that has TokenPeak already."""
    tokenpeak_max_unavailable: dict[str, Annotated[int | str, BeforeValidator(_limit)]] | None = None
    """Group of the inventory → how many of its nodes may be unavailable at a time, as a number or a share."""
    tokenpeak_model_store: ModelStore | None = None
    """The model store that the node shares with others: production of its nodes starts one after the other."""
    tokenpeak_tasks: Tasks | None = None
    """Task files of the inventory's folder that run in each trial: `before_launch` and others."""
    tokenpeak_tdp_w: float | None = None
    """Power of the processors at full load, for estimates where nothing measures energy."""
    tokenpeak_produce: bool | None = None
    """Whether production is a demonstration that the inventory starts itself."""
    tokenpeak_setup_roles: Words | None = None
    """Roles that `install` applies first: `simulator`, `cpu_engine`."""
    tokenpeak_engine_home: Text | None = None
    """The environment that the role `cpu_engine` makes."""
    tokenpeak_simulated_machine: dict[str, Any] | None = None
    """dir, gpu (several names with commas between for mixed boards), count and engine_version; links, where its boards
    are linked otherwise than usual; driver, another version; releases, further ones to play, each as vllm-RELEASE;
    and speed, the share of such a machine's usual one (0.92 is 8% slow)."""


class ControllerVariables(BaseModel):
    """Variables that the controller gives for one playbook; an inventory has none of them."""

    tokenpeak_pyz: str
    """The node script on the controller."""
    tokenpeak_secret_files: dict[str, str] | None = None
    """Each node's file with its secret, by the node's name; each trial's API key follows from it."""
    tokenpeak_secret_name: str | None = None
    """The secret's name on the node; each controller's is another."""
    tokenpeak_retired_secrets: Annotated[Words | None, OnNode("retired_secrets", "[]")] = None
    """Secrets of this controller that the node must not hold any more, by name."""
    tokenpeak_restore_holder: str | None = None
    """The sweep to give it back from, if nobody else has it; without it, whoever has it loses it."""
    tokenpeak_claim: dict[str, Any] | None = None
    """The sweep and the generation of its controller; a node that a newer one has had refuses it."""
    tokenpeak_restore: dict[str, Any] | None = None
    """What a person asks beyond that, by accept (any model) and release (sweeps may have the node again)."""
    tokenpeak_apply_request: str
    """The request as a JSON file on the controller."""
    tokenpeak_load_bundle: str
    """The package and what it takes to make its environment, as a tar file on the controller."""
    tokenpeak_install_on: Words | None = None
    """The nodes on which a probe installs the node script."""
    tokenpeak_local_home: str | None = None
    """The working folder on the controller."""
