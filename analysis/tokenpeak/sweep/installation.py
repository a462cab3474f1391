"""Installation: the node script by its playbook, whether a node's is this controller's, and what is installed here."""

import contextlib
import functools
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenpeak import paths
from tokenpeak.node.bundle import script_digest, write_bundle
from tokenpeak.node.protocol.answers import NodeAnswer
from tokenpeak.own_place import git_environment
from tokenpeak.records import Provenance
from tokenpeak.sweep import secret
from tokenpeak.sweep.ansible.runner import PlaybookResult, run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory, Node


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
) -> PlaybookResult:
    """See that each node has this controller's script, declaration, secret and guard, and read what the node is.

    Where a trial has the rights for one command only, root has installed it before, and it is not touched.
    """
    own = [node.name for node in inventory.nodes if not node.guard_command]
    return _run("probe.yml", inventory, (), {"tokenpeak_install_on": own}, cancelled)


def _run(
    playbook: str,
    inventory: Inventory,
    nodes: Sequence[str],
    extravars: dict[str, Any],
    cancelled: Callable[[], bool],
) -> PlaybookResult:
    named = [inventory.node(name) for name in nodes] or inventory.nodes
    with _extravars(inventory) as prepared:
        return run_playbook(
            playbook,
            inventory,
            nodes=nodes,
            extravars={**prepared, **extravars},
            cancelled=cancelled,
            skip_tags=() if any(map(_is_demonstration, named)) else ("demonstration",),
        )


@contextlib.contextmanager
def _extravars(inventory: Inventory) -> Iterator[dict[str, Any]]:
    """Where the script and the nodes' secrets lie here, for as long as the block takes."""
    folder = paths.state_dir() / "node"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tokenpeak-secrets-") as secrets:
        yield {
            "tokenpeak_pyz": str(write_bundle(folder / "tokenpeak-node.pyz")),
            "tokenpeak_secret_files": secret.write_node_secrets(Path(secrets), inventory.nodes),
            "tokenpeak_secret_name": secret.master_secret().name,
            "tokenpeak_retired_secrets": list(secret.retired()),
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


_PACKAGES = ("ansible-core", "ansible-runner", "httptools", "numpy", "polars", "pydantic", "uvloop")


def read_provenance() -> Provenance:
    """The versions installed here; the git revision is marked `+changes` when tracked files differ from it."""
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
