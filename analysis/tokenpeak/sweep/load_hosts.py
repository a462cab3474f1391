"""Load hosts of an inventory: how the load generator is installed and started there.

A host needs what this machine needs: Python 3.11 or newer, make, and a package index. `tokenpeak_load_python` names the
Python of an environment that is there already (the same version of TokenPeak), and then nothing is installed.
"""

import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenpeak import paths
from tokenpeak.atomic import replacing
from tokenpeak.errors import LoadError, NodeError
from tokenpeak.loadgen.processes import processes_borne
from tokenpeak.loadgen.remote_worker_pool import HostLostError, LoadHost, RemoteWorkerPool
from tokenpeak.sweep.channels import channel_argvs
from tokenpeak.sweep.inventory import Inventory, Node
from tokenpeak.sweep.login_failures import Login, explained
from tokenpeak.sweep.runner import run_playbook

_CHECKOUT = Path(__file__).resolve().parents[3]
_SHIPPED = ("Makefile", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_HOME = "~/.local/share/tokenpeak/load"


@dataclass(frozen=True, kw_only=True)
class PreparedHost:
    """A load host that answered, and how many processes of the client it bears."""

    host: LoadHost
    processes: int


def load_hosts(inventory: Inventory) -> tuple[LoadHost, ...]:
    """The inventory's load hosts as a load job takes them; none when this machine offers the load."""
    words = {host.name: [_python(host), "-P", "-m", "tokenpeak.loadgen.remote_worker"] for host in inventory.load_hosts}
    return tuple(LoadHost(name=name, argv=tuple(argv)) for name, argv in channel_argvs(inventory, words).items())


def prepare_load_hosts(
    inventory: Inventory, *, say: Callable[[str], None], cancelled: Callable[[], bool] = lambda: False
) -> tuple[PreparedHost, ...]:
    """Install the client where it is not there yet, and see every load host answer; raises NodeError naming one."""
    if not inventory.load_hosts:
        return ()
    say(f"Load comes from {', '.join(host.name for host in inventory.load_hosts)}")
    bare = [host.name for host in inventory.load_hosts if _is_bare(host)]
    if bare:
        extravars = {"tokenpeak_load_bundle": str(_write_bundle(paths.state_dir() / "load-host.tar.gz"))}
        installed = run_playbook("load_hosts.yml", inventory, nodes=bare, extravars=extravars, cancelled=cancelled)
        for name, result in installed.nodes.items():
            if not result.ok:
                raise NodeError(f"Load host {name}: {result.unreachable or result.failure}. Nothing was stopped.")
    try:
        hosts = load_hosts(inventory)
        with RemoteWorkerPool(hosts) as pool:
            return tuple(PreparedHost(host=host, processes=processes_borne(pool.cores[host.name])) for host in hosts)
    except HostLostError as error:
        host = next(host for host in inventory.load_hosts if host.name == error.name)
        reason = explained(str(error), Login.of(host.name, host.variables))
        said = f"Load host {error.name}: {reason}." if reason else str(error)
        raise NodeError(f"{said} Nothing was stopped.") from error
    except LoadError as error:
        raise NodeError(f"{error} Nothing was stopped.") from error


def _is_bare(host: Node) -> bool:
    return not host.is_local and not host.variables.get("tokenpeak_load_python")


def _python(host: Node) -> str:
    """The Python that has TokenPeak there; a path of the user's home is relative, because that is where SSH begins."""
    if given := host.variables.get("tokenpeak_load_python"):
        return str(given)
    if host.is_local:
        return sys.executable
    home = str(host.variables.get("tokenpeak_load_home") or _HOME)
    return f"{home.removeprefix('~/')}/.venv/bin/python"


def _write_bundle(path: Path) -> Path:
    """The checkout's package with what it takes to make its environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part, tarfile.open(part, "w:gz") as bundle:
        for name in _SHIPPED:
            bundle.add(_CHECKOUT / name, arcname=name)
        bundle.add(
            _CHECKOUT / "analysis" / "tokenpeak",
            arcname="analysis/tokenpeak",
            filter=lambda member: None if "__pycache__" in member.name else member,
        )
    return path
