"""An inventory as Ansible resolves it: its nodes, its load hosts, and what group_vars say of them.

Ansible itself merges groups and renders Jinja (one `ansible … debug` on this machine, under a second); no node is
contacted. Only the variables named here are read; the node's own declaration is rendered on the node by install.yml.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenpeak import paths
from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.names import inside
from tokenpeak.plan.fit import PLANNING_ENV
from tokenpeak.plan.spec import ModelSpec
from tokenpeak.records import NodeFacts

_WANTED = (
    "^(tokenpeak_(become|default_sweep|engine_env|engine_version|facts|guard_command|load_home|load_python|model"
    "|simulated|tdp_w)|group_names"
    "|ansible_(become|host|port|user|connection|private_key_file|ssh_private_key_file|ssh_common_args|ssh_extra_args))$"
)
_HOST_BLOCK = re.compile(r"^(?P<host>\S+) \| (?P<status>[A-Z]+)!? => ", re.MULTILINE)
_RESOLVE_TIMEOUT_S = 60
LOAD_HOSTS = "load_hosts"
"""The group whose hosts offer the load; they are no nodes."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A host of the inventory with the variables that the controller needs."""

    name: str
    variables: Mapping[str, Any]

    @property
    def is_local(self) -> bool:
        """The node is this machine, reached without SSH."""
        return self.variables.get("ansible_connection") == "local"

    @property
    def becomes_root(self) -> bool:
        """Commands there take sudo, as Ansible's own tasks do: `ansible_become` is stronger than what plays say."""
        return bool(self.variables.get("ansible_become", self.variables.get("tokenpeak_become")))

    @property
    def guard_command(self) -> str | None:
        """The command that is run as root through sudo, where a trial has no other rights; None where it needs none."""
        return _text(self.variables.get("tokenpeak_guard_command"))

    @property
    def tdp_w(self) -> float | None:
        """The power that the inventory declares for the node's processors at full load; None when it does not."""
        value = self.variables.get("tokenpeak_tdp_w")
        return float(value) if value is not None else None

    @property
    def planning_env(self) -> dict[str, str]:
        """What the inventory sets in the engine's environment and a plan depends on; other variables may be secrets."""
        given = self.variables.get("tokenpeak_engine_env") or {}
        return {name: str(given[name]) for name in PLANNING_ENV if name in given}

    def declared_facts(self) -> NodeFacts | None:
        """The facts that the inventory declares for planning without the node; None when it declares none."""
        declared = self.variables.get("tokenpeak_facts")
        if not declared:
            return None
        try:
            return NodeFacts.model_validate(
                {
                    "simulated": bool(self.variables.get("tokenpeak_simulated", False)),
                    "engine_version": _text(self.variables.get("tokenpeak_engine_version")),
                    "engine_env": self.planning_env,
                    **declared,
                    "node": self.name,
                    "source": "declared",
                }
            )
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InventoryError(f"tokenpeak_facts of node {self.name}: {where}: {first['msg']}") from error


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Nodes and what they have in common, and the hosts that offer the load; without any, this machine does."""

    name: str
    hosts_path: Path
    nodes: tuple[Node, ...]
    load_hosts: tuple[Node, ...] = ()

    @property
    def default_sweep(self) -> str | None:
        """The sweep that the inventory names; None when it names none."""
        return _text(self._shared("tokenpeak_default_sweep"))

    @property
    def engine_version(self) -> str | None:
        """The vLLM version that the inventory pins; None: whatever the node has."""
        return _text(self._shared("tokenpeak_engine_version"))

    @property
    def model(self) -> ModelSpec | None:
        """The model that is served when a spec names none."""
        declared = self._shared("tokenpeak_model")
        if declared is None:
            return None
        try:
            return ModelSpec.model_validate(declared)
        except ValidationError as error:
            raise InventoryError(
                f"tokenpeak_model of inventory {self.name} is {declared!r}; give name, and served_name if it differs."
            ) from error

    @property
    def simulated(self) -> bool:
        """Its nodes are simulated, and everything measured on them is marked so."""
        return any(node.variables.get("tokenpeak_simulated", False) for node in self.nodes)

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

    def _shared(self, variable: str) -> Any:
        """The value that the nodes share; an error when they differ, because a sweep has one."""
        values = {json.dumps(node.variables.get(variable), sort_keys=True) for node in self.nodes}
        if len(values) > 1:
            raise InventoryError(
                f"Nodes of inventory {self.name} differ in {variable}: {', '.join(sorted(values))}. "
                "Give it once in group_vars/all.yml, or make two inventories."
            )
        return json.loads(values.pop())


def inventory_names(folder: Path = paths.INVENTORIES) -> list[str]:
    """The inventories that can be named on the command line."""
    return sorted(path.parent.name for path in folder.glob("*/hosts.yml"))


def read_inventory(name: str, folder: Path = paths.INVENTORIES) -> Inventory:
    """The inventory called `name` in `folder`; raises InventoryError naming the nearest when there is none."""
    hosts_path = inside(folder, name, may_link=True, error=InventoryError) / "hosts.yml"
    if not hosts_path.is_file():
        raise InventoryError(f"No inventory called {name!r} in {folder}. {suggestion(name, inventory_names(folder))}")
    variables = _resolved_variables(hosts_path)
    hosts = tuple(Node(name=host, variables=variables[host]) for host in sorted(variables))
    nodes = tuple(host for host in hosts if LOAD_HOSTS not in host.variables.get("group_names", ()))
    if not nodes:
        raise InventoryError(f"{hosts_path} has no hosts; put yours into it.")
    load_hosts = tuple(host for host in hosts if host not in nodes)
    return Inventory(name=name, hosts_path=hosts_path, nodes=nodes, load_hosts=load_hosts)


def common_extravars() -> dict[str, str]:
    """What every playbook is told: the controller's own folders."""
    return {
        "tokenpeak_local_home": str(paths.ROOT),
        "tokenpeak_local_state": str(paths.state_dir()),
        "tokenpeak_local_data": str(paths.data_dir()),
    }


def _resolved_variables(hosts_path: Path) -> dict[str, dict[str, Any]]:
    _require_place_for_ansible()
    names = f"query('ansible.builtin.varnames', '{_WANTED}')"
    message = f"{{{{ dict({names} | zip(query('ansible.builtin.vars', *{names}))) }}}}"
    command = [
        str(Path(sys.executable).with_name("ansible")),
        "all",
        f"--inventory={hosts_path}",
        f"--extra-vars={json.dumps(common_extravars())}",
        "--module-name=ansible.builtin.debug",
        f"--args={json.dumps({'msg': message})}",
    ]
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
    }
    environment.pop("ANSIBLE_FORCE_COLOR", None)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InventoryError(
            f"Ansible could not read {hosts_path}: {error}. Run make setup, then try again."
        ) from error
    resolved: dict[str, dict[str, Any]] = {}
    for block in _HOST_BLOCK.finditer(done.stdout):
        answer, _ = json.JSONDecoder().raw_decode(done.stdout, block.end())
        if block["status"] != "SUCCESS":
            reason = str(answer.get("msg", "")).rsplit("'msg': ", 1)[-1]
            raise InventoryError(f"Variables of node {block['host']} in {hosts_path.parent}: {reason}")
        resolved[block["host"]] = answer["msg"]
    if done.returncode != 0:
        raise InventoryError(f"Ansible could not read {hosts_path}:\n{done.stderr.strip()[-2000:]}")
    return resolved


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


def _text(value: object) -> str | None:
    return None if value is None else str(value)
