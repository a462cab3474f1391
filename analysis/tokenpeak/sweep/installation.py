"""Installation: the node script by its playbook, the secrets that go with it, and what is installed here.

The master secret never leaves this machine. A node holds its own secret alone, from which nothing follows about
another node's; a trial's key follows from that, the trial, its sweep and a number used once.
"""

import contextlib
import fcntl
import functools
import hmac
import os
import platform
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpeak import paths
from tokenpeak.errors import NodeError
from tokenpeak.files import delete, write_atomically
from tokenpeak.node.bundle import script_digest, write_bundle
from tokenpeak.node.protocol.answers import NodeAnswer, StatusAnswer
from tokenpeak.own_place import git_environment
from tokenpeak.sweep.ansible.runner import PlaybookResult, run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory, Node

if TYPE_CHECKING:
    from tokenpeak.records import Provenance

_LOCK_MODE = 0o600
_PACKAGES = ("ansible-core", "ansible-runner", "httptools", "numpy", "polars", "pydantic", "uvloop")


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


@contextlib.contextmanager
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


def install(
    inventory: Inventory,
    *,
    nodes: Sequence[str] = (),
    user: str | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> PlaybookResult:
    """Put TokenPeak's command on the nodes, logging in as `user` where that is not the inventory's own."""
    return _run("install.yml", inventory, nodes, {"ansible_user": user} if user else {}, cancelled)


def install_and_probe(
    inventory: Inventory,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> PlaybookResult:
    """See that each node has this controller's script, declaration, secret and guard, and read what the node is.

    Where a trial has the rights for one command only, root has installed it before, and it is not touched. `say` is
    called with the words for each task that takes minutes.
    """
    own = [node.name for node in inventory.nodes if not node.guard_command]
    return _run("probe.yml", inventory, (), {"tokenpeak_install_on": own}, cancelled, say)


def _run(
    playbook: str,
    inventory: Inventory,
    nodes: Sequence[str],
    extravars: dict[str, Any],
    cancelled: Callable[[], bool],
    say: Callable[[str], None] = lambda _: None,
) -> PlaybookResult:
    named = [inventory.node(name) for name in nodes] or inventory.nodes
    with _extravars(inventory) as prepared:
        return run_playbook(
            playbook,
            inventory,
            nodes=nodes,
            extravars={**prepared, **extravars},
            cancelled=cancelled,
            on_long_task=lambda node, task: say(f"{node}: {task}"),
            skip_tags=() if any(map(_is_demonstration, named)) else ("demonstration",),
        )


@contextlib.contextmanager
def _extravars(inventory: Inventory) -> Iterator[dict[str, Any]]:
    """Where the script and the nodes' secrets lie here, for as long as the block takes."""
    folder = paths.state_dir() / "node"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tokenpeak-secrets-") as private:
        yield {
            "tokenpeak_pyz": str(write_bundle(folder / "tokenpeak-node.pyz")),
            "tokenpeak_secret_files": write_node_secrets(Path(private), inventory.nodes),
            "tokenpeak_secret_name": master_secret().name,
            "tokenpeak_retired_secrets": list(retired()),
        }


def _is_demonstration(node: Node) -> bool:
    """Whether the inventory itself sets the node up, or starts its production."""
    return any(node.variables.get(f"tokenpeak_{name}") for name in ("setup_roles", "produce"))


@functools.cache
def own_script() -> str:
    """The digest of the node script that this controller installs."""
    return script_digest()


def is_another(answer: NodeAnswer) -> bool:
    """Whether the answer came from a script of another version; one that says no digest is older."""
    return answer.script != own_script()


def renewal(inventory: Inventory, node: str) -> str:
    """What is wrong with a node whose script is of another version, and what to do."""
    as_root = " --user root" if inventory.node(node).guard_command else ""
    return (
        "its node script is of another version than this controller's: "
        f"tokenpeak install --inventory {inventory.name}{as_root}"
    )


def read_provenance() -> "Provenance":
    """The versions installed here; the git revision is marked `+changes` when tracked files differ from it."""
    from tokenpeak.records import Provenance  # pydantic, which giving back a node need not wait for

    return Provenance(
        tokenpeak_version=metadata.version("tokenpeak"),
        git_revision=_git_revision(),
        python=platform.python_version(),
        packages={name: metadata.version(name) for name in _PACKAGES},
    )


def _git_revision() -> str | None:
    revision = _git("rev-parse", "HEAD")
    if revision is None:
        return None
    return f"{revision}+changes" if _git("status", "--porcelain", "--untracked-files=no") else revision


def _git(*arguments: str) -> str | None:
    """Git's answer in the checkout; None without git or a checkout."""
    if paths.IS_INSTALLED:  # A repository around the environment is another project's.
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(paths.ROOT), *arguments],  # noqa: S607 - git is where the user's PATH has it
            env=git_environment(),
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
