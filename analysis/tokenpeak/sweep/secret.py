"""Secrets: this controller's master secret, the secret of each node that follows from it, and each trial's API key.

The master secret never leaves this machine. A node holds its own secret alone, from which nothing follows about
another node's; a trial's key follows from that, the trial, its sweep and a number used once.
"""

import fcntl
import hmac
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import NodeError
from tokenpeak.files import delete, write_atomically
from tokenpeak.node.protocol.answers import StatusAnswer
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory, Node

_LOCK_MODE = 0o600


@dataclass(frozen=True, kw_only=True)
class MasterSecret:
    """What every node's secret of this controller follows from."""

    value: str = field(repr=False)

    @property
    def name(self) -> str:
        """What its secrets are called on nodes, where those of other controllers may lie beside them."""
        return f"secret-{sha256(self.value.encode()).hexdigest()[:8]}"

    def of_node(self, node: Node) -> str:
        """The node's own secret, by its name and address in the inventory."""
        address = ":".join(str(node.variables.get(key) or "") for key in ("ansible_host", "ansible_port"))
        return hmac.new(self.value.encode(), f"node {node.name} {address}".encode(), sha256).hexdigest()


def master_secret() -> MasterSecret:
    """The secret of this controller, made when it is missing.

    It is one per controller rather than one per sweep, so that a probe during a sweep installs the same one.
    """
    path = _path()
    with _locked():
        if not path.is_file():
            write_atomically(path, secrets.token_hex(32) + "\n", mode=0o600)
        return MasterSecret(value=path.read_text().strip())


def renew_master_secret() -> MasterSecret:
    """A new master secret in place of the present one, which nodes remove when they are next reached."""
    present = master_secret()
    with _locked():
        _retire(present.name)
        write_atomically(_path(), secrets.token_hex(32) + "\n", mode=0o600)
    return master_secret()


def retired() -> tuple[str, ...]:
    """The names of secrets that no node should hold any more."""
    path = _path().with_name("retired-secrets")
    return tuple(path.read_text().split()) if path.is_file() else ()


def write_node_secrets(folder: Path, nodes: Sequence[Node]) -> dict[str, str]:
    """Write each node's secret into a file in `folder` that this user alone can read; the files by the nodes' names."""
    master = master_secret()
    written = {}
    for number, node in enumerate(nodes):
        path = folder / str(number)
        write_atomically(path, master.of_node(node) + "\n", mode=0o600)
        written[node.name] = str(path)
    return written


def _path() -> Path:
    path = paths.state_dir() / "master-secret"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _retire(name: str) -> None:
    write_atomically(
        _path().with_name("retired-secrets"),
        "".join(f"{each}\n" for each in dict.fromkeys([*retired(), name])),
        mode=0o600,
    )


@contextmanager
def _locked() -> Iterator[None]:
    """One process of this user at a time, and none of another's: whoever can open the file can hold its lock."""
    path = _path().with_name(".secrets-lock")
    descriptor = _lock_file(path)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_LOCK_MODE:
        # Of an earlier version: others may have it open already, so that it gives way to a new one.
        os.close(descriptor)
        delete(path)
        descriptor = _lock_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock_file(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, _LOCK_MODE)


def rotate(inventory: Inventory) -> None:
    """Make a new master secret; raises NodeError, changing nothing, while a trial of this controller runs."""
    running = list(_sweeps_here())
    if running:
        raise NodeError(f"The secret was not rotated: {', '.join(running)} runs here. Rotate when it has ended.")
    present = master_secret().name
    results = run_playbook("status.yml", inventory).nodes
    answers = {name: result.answer(StatusAnswer) for name, result in results.items()}
    borrowed = [
        f"trial {answer.trial_id} of {answer.holder} has {name}"
        for name, answer in answers.items()
        if answer is not None and answer.armed and answer.secret == present
    ]
    if borrowed:
        raise NodeError(
            f"The secret was not rotated: {'; '.join(borrowed)}. Wait until it has ended, or run tokenpeak restore "
            f"--inventory {inventory.name}."
        )
    renew_master_secret()


def _sweeps_here() -> Iterator[str]:
    """The sweeps whose controller runs on this machine, with this state folder."""
    for lock in sorted((paths.state_dir() / "work").glob("*/lock")):
        with lock.open("rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield f"sweep {lock.parent.name}"
