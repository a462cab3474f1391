"""Load hosts of an inventory: installation, which of them offer a trial's load, and calibration on their paths.

A host needs what this machine needs: Python 3.11 or newer, make, and a package index. `tokenpeak_load_python` names the
Python of an environment that is there already (the same version of TokenPeak), and then nothing is installed.

A trial's load takes so many processes of each of its hosts, and a host bears one a core. All trials of a sweep take
equally many hosts, so that they compare. No more nodes work at once than the hosts have room for, so that hardly a
trial waits, with production down, for another's to end.
"""

import contextlib
import socket
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tokenpeak import paths
from tokenpeak.errors import LoadError, NodeError
from tokenpeak.files import replacing
from tokenpeak.loadgen.calibration import HERE, NetworkPath, Setup
from tokenpeak.loadgen.test_server import program, serving_argv, started
from tokenpeak.loadgen.workers.pool import most_streams, processes_borne, processes_of_share
from tokenpeak.loadgen.workers.remote import HostLostError, LoadHost, RemoteWorkerPool
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.ansible.heartbeat_channel import channel_argvs
from tokenpeak.sweep.ansible.result import Login, explained
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.trial.request import load_runs

_CHECKOUT = Path(__file__).resolve().parents[4]
_SHIPPED = ("Makefile", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_HOME = ".local/share/tokenpeak/load"
_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class PreparedHost:
    """A load host that answered, and how many processes of the client it bears."""

    host: LoadHost
    processes: int


def load_hosts(inventory: Inventory) -> tuple[LoadHost, ...]:
    """The inventory's load hosts as a load job takes them; none when this machine offers the load."""
    words = {
        host.name: [_python(host), "-P", "-m", "tokenpeak.loadgen.workers.remote"] for host in inventory.load_hosts
    }
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
        with closing(RemoteWorkerPool(hosts)) as pool:
            return tuple(PreparedHost(host=host, processes=processes_borne(pool.cores[host.name])) for host in hosts)
    except HostLostError as error:
        host = next(host for host in inventory.load_hosts if host.name == error.name)
        reason = explained(str(error), Login.of(host.name, host.variables))
        sentence = f"Load host {error.name}: {reason}." if reason else str(error)
        raise NodeError(f"{sentence} Nothing was stopped.") from error
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
    return f"{_HOME}/.venv/bin/python"


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


class LoadHostScheduler:
    """Gives load hosts to trials of at most `streams` requests in flight, of which `at_once` would run together.

    A trial takes the fewest hosts that bear its load, or more where some would else be idle. Without hosts this machine
    offers the load, and nothing is scheduled.
    """

    def __init__(self, hosts: Sequence[PreparedHost], streams: int, at_once: int) -> None:
        self._hosts = tuple(hosts)
        self._at_once = at_once
        self._free = {each.host.name: each.processes for each in hosts}
        self._changed = threading.Condition()
        self.hosts_per_trial = _hosts_per_trial(self._hosts, streams, at_once)
        """0: this machine offers the load."""
        self._share = processes_of_share(streams, max(1, self.hosts_per_trial))

    @property
    def trials_at_once(self) -> int:
        """How many of the trials that would run together do: those that the hosts have room for."""
        borne = [each.processes // self._taken(each) for each in self._hosts]
        trials = 1
        while trials < self._at_once and (
            sum(min(most, trials + 1) for most in borne) >= (trials + 1) * self.hosts_per_trial
        ):
            trials += 1
        return trials

    @contextlib.contextmanager
    def held(self, is_over: Callable[[], bool]) -> Iterator[tuple[LoadHost, ...]]:
        """A trial's hosts, in the inventory's order; their room is the trial's own until the block ends.

        Waits until enough have room, or until `is_over` answers True.
        """
        with self._changed:
            while sum(map(self._has_room, self._hosts)) < self.hosts_per_trial and not is_over():
                self._changed.wait(_POLL_S)
            roomiest = sorted(self._hosts, key=self._by_room)[: self.hosts_per_trial]
            chosen = [each for each in self._hosts if each in roomiest]
            for each in chosen:
                self._free[each.host.name] -= self._taken(each)
        try:
            yield tuple(each.host for each in chosen)
        finally:
            with self._changed:
                for each in chosen:
                    self._free[each.host.name] += self._taken(each)
                self._changed.notify_all()

    def _by_room(self, host: PreparedHost) -> tuple[bool, int]:
        return not self._has_room(host), -self._free[host.host.name]

    def _has_room(self, host: PreparedHost) -> bool:
        return self._free[host.host.name] >= self._taken(host)

    def _taken(self, host: PreparedHost) -> int:
        """How many processes a trial takes there: what its share needs, as far as the host bears it."""
        return min(self._share, host.processes)


def scheduler(hosts: Sequence[PreparedHost], spec: SweepSpec, at_once: int) -> LoadHostScheduler:
    """The scheduler of a sweep of which so many nodes would work at once."""
    return LoadHostScheduler(hosts, most_streams(run.level for run in load_runs(spec)), at_once)


def _hosts_per_trial(hosts: Sequence[PreparedHost], streams: int, at_once: int) -> int:
    if not hosts:
        return 0
    least = min(each.processes for each in hosts)
    enough = (count for count in range(1, len(hosts)) if processes_of_share(streams, count) <= least)
    return max(next(enough, len(hosts)), len(hosts) // max(1, at_once))


def network_paths(inventory: Inventory, endpoint: EndpointSpec | None) -> list[NetworkPath]:
    """The network paths of a sweep's requests; to nodes of this machine it is one."""
    names = tuple(host.name for host in inventory.load_hosts)
    if endpoint is not None:
        parts = urlsplit(endpoint.url)
        return [NetworkPath(load_hosts=names, tls=parts.scheme == "https", server=str(parts.hostname))]
    servers = dict.fromkeys(HERE if node.is_local else node.name for node in inventory.nodes)
    return [NetworkPath(load_hosts=names, server=server) for server in servers]


def calibrate_command(inventory: Inventory, endpoint: EndpointSpec | None) -> str:
    """What to do about a network path that no calibration covers, or a level that is beyond it."""
    if endpoint is not None:
        return "See tokenpeak calibrate --help: --through measures the path to a server of yours."
    if inventory.load_hosts or not all(node.is_local for node in inventory.nodes):
        return f"tokenpeak calibrate --inventory {inventory.name} measures the load generator's error."
    return "tokenpeak calibrate measures the load generator's error."


def node_setup(inventory: Inventory, node: Node) -> Setup:
    """How a calibration on the path to this node is carried out."""
    names = tuple(host.name for host in inventory.load_hosts)
    path = NetworkPath(load_hosts=names, server=HERE if node.is_local else node.name)
    return Setup(path=path, hosts=load_hosts(inventory))


def node_server(
    inventory: Inventory, node: Node, ready: ReadyNode, ttft_s: float, itl_s: float
) -> AbstractContextManager[str]:
    """A test server at the engine's address on the node; raises NodeError where none can be made for it."""
    host, port = str(ready.declaration["host"]), int(ready.declaration["port"])
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise NodeError(
            f"{host!r}, where the engine of {node.name} listens, has no IPv4 address, and the test server knows "
            f"no other ({error}). Set tokenpeak_host to one while you calibrate."
        ) from error
    if node.is_local:
        return _serving(serving_argv(address, port, ttft_s, itl_s), b"", host)
    built = program("-static") or program()
    if built is None:
        raise NodeError("The test server for a node is a C program, and no compiler is here: apt-get install gcc.")
    binary = built.read_bytes()
    serve = f"{address} {port} {ttft_s * 1e3} {itl_s * 1e3}"
    script = (
        f'echo && d=$(mktemp -d) && trap "rm -rf $d" EXIT && head -c {len(binary)} >$d/timetable && '
        f"chmod +x $d/timetable && $d/timetable {serve}"
    )
    argv = channel_argvs(inventory, {node.name: ["sh", "-c", script]})[node.name]
    return _serving(argv, binary, host)


@contextmanager
def _serving(argv: list[str], binary: bytes, host: str) -> Iterator[str]:
    with started(argv, binary) as port:
        yield f"http://{host}:{port}"
