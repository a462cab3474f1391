"""Inventory as Ansible resolves it: its nodes, its load hosts, and their variables.

Ansible itself merges groups and renders Jinja, in one process on this machine (resolver.py); no node is contacted.
Only the variables named here are read, and only of the nodes that are asked for: what is wrong with another node's
variables is no matter of theirs. Facts and model that variables declare are read by the probe, so that this is quick
to import.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpeak import paths
from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.node.engine import builds
from tokenpeak.node.machine.words import visible, wrong_word
from tokenpeak.node.probe.chosen_boards import Chosen, chosen_boards
from tokenpeak.paths import inside

if TYPE_CHECKING:
    from tokenpeak.sweep.inventory.resolver import ResolutionRequest, ResolvedHosts


_RESOLVE_TIMEOUT_S = 60
LOAD_HOSTS = "load_hosts"
"""The group whose hosts offer the load; they are no nodes."""
WANTED = (
    "^(tokenpeak_(apply_command|bake|default_sweep|engine_command|engine_env|engine_env_allowed|engine_version"
    "|engines|facts|gpus|guard_command|host|lease_max_s|load_python|max_unavailable|model|model_store|notify|port"
    "|produce|setup_roles|simulated|tdp_w|trial_deadline_max_s)"
    "|ansible_(become|host|port|user|connection|private_key_file|python_interpreter|ssh_private_key_file|ssh_common_args"
    "|ssh_extra_args))$"
)
"""The variables that are read."""
_OF_THE_PROBE = ("tokenpeak_host", "tokenpeak_port")
"""Variables without which a node cannot be used, which its probe says; whatever else is done there needs none."""
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_:.%-]{0,254}")
"""An address, an IPv6 address with its zone, or a name."""
DECLARATION = paths.PLAYBOOKS / "roles" / "guard" / "templates" / "node.json.j2"
"""What is rendered of each node."""


def inventory_names(folder: Path = paths.INVENTORIES) -> list[str]:
    """The inventories that can be named on the command line."""
    return sorted(path.parent.name for path in folder.glob("*/hosts.yml"))


def hosts_path(name: str, folder: Path = paths.INVENTORIES) -> Path:
    """The file of the inventory called `name`; raises InventoryError naming the nearest when there is none."""
    path = inside(folder, name, may_link=True, error=InventoryError) / "hosts.yml"
    if not path.is_file():
        raise InventoryError(f"No inventory called {name!r} in {folder}. {suggestion(name, inventory_names(folder))}")
    return path


def as_extravars(given: Mapping[str, Any]) -> dict[str, Any]:
    """Variables of a playbook: the controller's own folders and `given`, each as it is.

    Texts are marked, for Ansible would take braces in a folder's name for a template.
    """
    folders = {
        "tokenpeak_local_home": str(paths.HOME),
        "tokenpeak_local_state": str(paths.state_dir()),
        "tokenpeak_local_data": str(paths.data_dir()),
    }
    return {name: _verbatim(value) for name, value in {**folders, **given}.items()}


def _verbatim(value: Any) -> Any:
    """`value` with each text in it marked as one that holds no template."""
    match value:
        case str():
            return {"__ansible_unsafe": value}
        case list() | tuple():
            return [_verbatim(one) for one in value]
        case dict():
            return {key: _verbatim(one) for key, one in value.items()}
        case _:
            return value


def resolution_request(
    hosts_path: Path, *, wanted: str | None = None, nodes: tuple[str, ...] = (), template: Path | None = None
) -> "ResolutionRequest":
    """What to ask the resolver for: the variables that match `wanted`, and `template`, of `nodes` (all when empty)."""
    return {
        "hosts_path": str(hosts_path),
        "playbooks": str(paths.PLAYBOOKS),
        "extravars": as_extravars({}),
        "wanted": wanted,
        "nodes": list(nodes) or None,
        "always": LOAD_HOSTS,
        "template": None if template is None else str(template),
    }


def resolver_environment() -> dict[str, str]:
    """The environment of here with the settings of Ansible that the resolver works by."""
    builds = {
        **os.environ,
        "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
    }
    builds.pop("ANSIBLE_FORCE_COLOR", None)
    return builds


class Resolution:
    """An inventory that is being resolved: the names and groups of its hosts, and the variables that match `wanted`.

    Variables are those of `nodes` (all when empty) and of the load hosts; `template` is rendered for the nodes alone.
    """

    def __init__(
        self, hosts_path: Path, *, wanted: str | None = None, nodes: tuple[str, ...] = (), template: Path | None = None
    ) -> None:
        """Start to resolve; raises InventoryError where Ansible has no place to work."""
        _require_place_for_ansible()
        self.hosts_path = hosts_path
        request = resolution_request(hosts_path, wanted=wanted, nodes=nodes, template=template)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenpeak.sweep.inventory.resolver", json.dumps(request)],
            env=resolver_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> "ResolvedHosts":
        """What was found; raises InventoryError when Ansible cannot read the inventory."""
        try:
            printed, words = self._process.communicate(timeout=_RESOLVE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.communicate()
            raise InventoryError(
                f"Ansible could not read {self.hosts_path} within {error.timeout:.0f} s: see what its lookups wait for."
            ) from error
        if self._process.returncode != 0:
            raise InventoryError(f"Ansible could not read {self.hosts_path}:\n{words.strip()[-2000:]}")
        answer: ResolvedHosts = json.loads(printed)
        return answer


def _require_place_for_ansible() -> None:
    """Raise InventoryError where Ansible could not make its temporary files, which it would say with a traceback."""
    home = Path(os.environ.get("ANSIBLE_HOME") or "~/.ansible")
    place = Path(os.environ.get("ANSIBLE_LOCAL_TEMP") or home / "tmp").expanduser()
    try:
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(dir=place).cleanup()
    except OSError as error:
        raise InventoryError(
            f"Ansible cannot keep its temporary files in {place} ({error.strerror}): set ANSIBLE_HOME to a folder that "
            "it may write to, and TOKENPEAK_STATE to one for TokenPeak's own files."
        ) from error


@dataclass(frozen=True, kw_only=True)
class Node:
    """A host of the inventory with the variables that the controller needs."""

    name: str
    variables: Mapping[str, Any]
    declaration: Mapping[str, Any] | None = field(default=None, repr=False)
    """What install.yml is to put there as node.json, without names of retired secrets; None where not all of it can be
    rendered, and where it was not asked for."""

    @property
    def is_local(self) -> bool:
        """The node is this machine, reached without SSH."""
        return self.variables.get("ansible_connection") == "local"

    @property
    def guard_command(self) -> str | None:
        """The command that is run as root through sudo, where a trial has no other rights; None where it needs none."""
        return text(self.variables.get("tokenpeak_guard_command"))

    @property
    def engine_address(self) -> tuple[str, int]:
        """Where the node's engine listens and the load is sent to; raises InventoryError where none is declared."""
        host, port = (self.variables.get(name) for name in _OF_THE_PROBE)
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            raise InventoryError(
                f"tokenpeak_host of node {self.name} is {host!r} in this controller's inventory; give the address or "
                "name where the engine listens and the load is sent to."
            )
        if not str(port).isdecimal() or not 0 < int(str(port)) < 1 << 16:
            raise InventoryError(f"tokenpeak_port of node {self.name} is {port!r}; give a number from 1 to 65535.")
        return host, int(str(port))

    @property
    def apply_command(self) -> str | None:
        """The command by which another user than root changes production's definition; None where there is none."""
        return text(self.variables.get("tokenpeak_apply_command"))

    @property
    def tdp_w(self) -> float | None:
        """The power that the inventory declares for the node's processors at full load; None when it does not."""
        value = self.variables.get("tokenpeak_tdp_w")
        return float(value) if value is not None else None

    @property
    def engine_env_allowed(self) -> tuple[str, ...]:
        """The names and patterns of environment variables that a config may set on the node."""
        declared = self.variables.get("tokenpeak_engine_env_allowed")
        if declared is not None and not isinstance(declared, list):
            raise InventoryError(f"tokenpeak_engine_env_allowed of node {self.name} is {declared!r}; give a list.")
        names = [str(entry) for entry in declared] if declared is not None else None
        if wrong := builds.wrong_variables(names or ()):
            raise InventoryError(f"tokenpeak_engine_env_allowed of node {self.name}: {', '.join(wrong)}.")
        simulated = bool(self.variables.get("tokenpeak_simulated", False))
        return builds.allowed_names(names, simulated, self.chosen_boards is not None)

    @property
    def chosen_boards(self) -> Chosen:
        """The boards on which the node's trials run; None: all."""
        env = self.variables.get("tokenpeak_engine_env")
        return chosen_boards({"gpus": self.variables.get("tokenpeak_gpus"), "engine": {"env": env}})

    @property
    def limits(self) -> dict[str, float]:
        """The maxima of a lease and of a trial's deadline that the inventory declares, as in the node's declaration."""
        limits = {}
        for name in ("lease_max_s", "trial_deadline_max_s"):
            value = self.variables.get(f"tokenpeak_{name}")
            if value is None:
                continue
            try:
                limits[name] = float(value)
            except (TypeError, ValueError):
                raise InventoryError(f"tokenpeak_{name} of node {self.name} is {value!r}; give seconds.") from None
        return limits


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Nodes and what they have in common, and the hosts that offer the load; without any, this machine does."""

    name: str
    hosts_path: Path
    nodes: tuple[Node, ...]
    load_hosts: tuple[Node, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ansible's group → its nodes, also those that are left out here."""

    @property
    def default_sweep(self) -> str | None:
        """The sweep that the inventory names; None when it names none."""
        return text(self.shared("tokenpeak_default_sweep"))

    @property
    def simulated(self) -> bool:
        """Its nodes are simulated, and everything measured on them is marked so."""
        return any(node.variables.get("tokenpeak_simulated", False) for node in self.nodes)

    @property
    def idle(self) -> frozenset[str]:
        """The nodes that declare that they have no production; not those of which it is not known."""
        declared = {node.name: node.declaration.get("production") for node in self.nodes if node.declaration}
        return frozenset(name for name, value in declared.items() if (value or {}).get("manager", "none") == "none")

    def node(self, name: str) -> Node:
        """The node called `name`."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = [node.name for node in self.nodes]
        raise InventoryError(f"Inventory {self.name} has no node {name!r}. {suggestion(name, known)}")

    def limited_to(self, names: tuple[str, ...]) -> "Inventory":
        """The inventory with these nodes only; all of them when `names` is empty."""
        if not names:
            return self
        return replace(self, nodes=tuple(self.node(name) for name in names))

    def shared(self, variable: str) -> Any:
        """The value of a variable that the nodes share; InventoryError when they differ, because a sweep has one."""
        values = {json.dumps(node.variables.get(variable), sort_keys=True) for node in self.nodes}
        if len(values) > 1:
            raise InventoryError(
                f"Nodes of inventory {self.name} differ in {variable}: {', '.join(sorted(values))}. "
                "Give it once in group_vars/all.yml, or make two inventories."
            )
        return json.loads(values.pop())


def read_inventory(name: str, folder: Path = paths.INVENTORIES, *, nodes: tuple[str, ...] = ()) -> Inventory:
    """The inventory called `name` in `folder`, limited to `nodes` when any are given, with its load hosts.

    Raises InventoryError naming the nearest when there is no such inventory or node, and for a variable of these hosts
    that cannot be rendered, or holds a secret where none belongs; the others' are not looked at.
    """
    path = hosts_path(name, folder)
    answer = Resolution(path, wanted=WANTED, nodes=nodes, template=DECLARATION).answer()
    return inventory_of(name, path, answer, nodes)


def inventory_of(name: str, path: Path, answer: "ResolvedHosts", nodes: tuple[str, ...] = ()) -> Inventory:
    """The inventory called `name` as its resolver answered; raises InventoryError as `read_inventory` does."""
    inventory = _inventory(name, path, answer).limited_to(nodes)
    for host in (*inventory.nodes, *inventory.load_hosts):
        for variable, reason in answer["failures"].get(host.name, {}).items():
            if variable in _OF_THE_PROBE:
                continue
            subject = f"Variable {variable}" if variable else "Variables"
            raise InventoryError(f"{subject} of node {host.name} in {path.parent}: {reason}")
    # Imported here: pydantic, which giving back a node by its name need not wait for.
    from tokenpeak.spec.mistakes import secret_in_environment

    for node in inventory.nodes:
        if secret := secret_in_environment("tokenpeak_engine_env", node.variables.get("tokenpeak_engine_env")):
            raise InventoryError(f"Node {node.name} in {path.parent}: {secret}.")
    return inventory


def nodes_by_name(name: str, resolution: Resolution, nodes: tuple[str, ...] = ()) -> Inventory:
    """The inventory called `name` with its nodes' names alone, for what must work whatever their variables are."""
    return _inventory(name, resolution.hosts_path, resolution.answer()).limited_to(nodes)


def _inventory(name: str, path: Path, answer: "ResolvedHosts") -> Inventory:
    hosts = {
        host: Node(
            name=host,
            variables=answer["variables"].get(host, {}),
            declaration=json.loads(answer["texts"].get(host, "null")),
        )
        for host in sorted(answer["groups"])
    }
    for host in hosts.values():
        for words in (host.name, *(host.variables.get(name) for name in ("ansible_host", "ansible_user"))):
            if words is not None and (str(words).startswith("-") or wrong_word(str(words))):
                raise InventoryError(
                    f"Host {visible(host.name)} in {path.parent} has {visible(str(words))!r} for its name, "
                    "ansible_host or ansible_user, which ssh would take for an option or two words: give a name or an "
                    "address."
                )
    nodes = tuple(node for host, node in hosts.items() if LOAD_HOSTS not in answer["groups"][host])
    if not nodes:
        raise InventoryError(f"{path} has no hosts; put yours into it.")
    load_hosts = tuple(node for host, node in hosts.items() if LOAD_HOSTS in answer["groups"][host])
    groups: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        for group in answer["groups"][node.name]:
            groups[group] = (*groups.get(group, ()), node.name)
    return Inventory(name=name, hosts_path=path, nodes=nodes, load_hosts=load_hosts, groups=groups)


def text(value: object) -> str | None:
    """A variable's value as a text; None where it has none."""
    return None if value is None else str(value)
