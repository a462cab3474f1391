"""The resolver (resolver.py) as seen from this side: started with a request, asked for its answer.

It is quick to import, so that a command can have an inventory resolved while it imports the rest of itself.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpeak import paths
from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.names import inside

if TYPE_CHECKING:
    # Importing it imports Ansible, which is for a process of its own.
    from tokenpeak.sweep.resolver import ResolutionRequest, ResolvedHosts

_RESOLVE_TIMEOUT_S = 60
LOAD_HOSTS = "load_hosts"
"""The group whose hosts offer the load; they are no nodes."""


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
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
    }
    environment.pop("ANSIBLE_FORCE_COLOR", None)
    return environment


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
            [sys.executable, "-P", "-m", "tokenpeak.sweep.resolver", json.dumps(request)],
            env=resolver_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> "ResolvedHosts":
        """What was found; raises InventoryError when Ansible cannot read the inventory."""
        try:
            found, words = self._process.communicate(timeout=_RESOLVE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.communicate()
            raise InventoryError(
                f"Ansible could not read {self.hosts_path} within {error.timeout:.0f} s: see what its lookups wait for."
            ) from error
        if self._process.returncode != 0:
            raise InventoryError(f"Ansible could not read {self.hosts_path}:\n{words.strip()[-2000:]}")
        answer: ResolvedHosts = json.loads(found)
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
