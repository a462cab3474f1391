"""Installation of the node script: by a playbook, and by none where a node has all of it already.

A task of a playbook costs this machine a tenth of a second of processor time for each node. So a probe first looks, by
one command over SSH, whether script, declaration and secret are on the node as they should be. Where they are, the
node's own `install` does the rest; the playbook does all of it on the others.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from tokenpeak import paths
from tokenpeak.node.bundle import write_bundle
from tokenpeak.sweep import secret
from tokenpeak.sweep.inventory import Inventory, Node
from tokenpeak.sweep.node_command import run_node_command, run_python
from tokenpeak.sweep.node_files import LOOK_LIMIT_S, NodeFiles, look_command
from tokenpeak.sweep.node_result import Event, NodeResult
from tokenpeak.sweep.runner import PlaybookResult, run_playbook
from tokenpeak.sweep.step import Step

AT_ONCE = 50
"""As many nodes as Ansible has in hand at once (ansible.cfg)."""
_LOOK = "Look whether the node script is there"
Value = TypeVar("Value")


def install(
    inventory: Inventory,
    *,
    nodes: Sequence[str] = (),
    user: str | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> PlaybookResult:
    """Put TokenPeak's command on the nodes, logging in as `user` where that is not the inventory's own."""
    with tempfile.TemporaryDirectory(prefix="tokenpeak-secrets-") as folder:
        extravars: dict[str, Any] = {
            "tokenpeak_pyz": str(_bundle()),
            "tokenpeak_secret_files": secret.write_node_secrets(Path(folder), inventory.nodes),
            "tokenpeak_secret_name": secret.master_secret().name,
            "tokenpeak_retired_secrets": list(secret.retired()),
        }
        if user is not None:
            extravars["ansible_user"] = user
        named = [inventory.node(name) for name in nodes] or inventory.nodes
        return run_playbook(
            "install.yml",
            inventory,
            nodes=nodes,
            extravars=extravars,
            on_event=on_event,
            cancelled=cancelled,
            skip_tags=() if any(map(_is_demonstration, named)) else ("demonstration",),
        )


def _is_demonstration(node: Node) -> bool:
    """Whether the inventory itself sets the node up, or starts its production."""
    return any(node.variables.get(f"tokenpeak_{name}") for name in ("setup_roles", "produce"))


def _bundle() -> Path:
    folder = paths.state_dir() / "node"
    folder.mkdir(parents=True, exist_ok=True)
    return write_bundle(folder / "tokenpeak-node.pyz")


def install_where_missing(
    inventory: Inventory,
    *,
    on_event: Callable[[Event], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> dict[str, NodeResult]:
    """See that each node has this controller's script, declaration, secret and guard; what came of it, by node.

    Where a trial has the rights for one command only, root has installed it before: such a node is logged in to, and
    nothing else.
    """
    script, master, retired = _bundle().read_bytes(), secret.master_secret(), list(secret.retired())
    found: dict[str, NodeResult] = {}
    missing: list[str] = []

    def look(node: Node) -> NodeResult | None:
        files = None
        if node.declaration is not None and not node.guard_command:
            files = NodeFiles(
                script=script,
                declaration={**node.declaration, "retired_secrets": retired},
                secret_name=master.name,
                secret_value=master.of_node(node),
            )
        return _installed_already(node, files, cancelled)

    for node, result in at_once(inventory.nodes, look, cancelled):
        if result is None:
            missing.append(node.name)
            continue
        found[node.name] = result
        if on_event is not None:
            on_event(event_of(node, "install", result))
    if missing and not cancelled():
        in_order = [node.name for node in inventory.nodes if node.name in missing]
        found |= install(inventory, nodes=in_order, on_event=on_event, cancelled=cancelled).nodes
    return found


def _installed_already(node: Node, files: NodeFiles | None, cancelled: Callable[[], bool]) -> NodeResult | None:
    """What came of a node that has these files, or cannot be reached, or hangs; None where a playbook is needed."""
    words = files.look(node.interpreter) if files else look_command(node.interpreter, "/")
    looked = run_python(node, words, _LOOK, limit_s=LOOK_LIMIT_S, cancelled=cancelled)
    if node.guard_command or looked.result.unreachable or not looked.in_time:
        return looked.result
    if files is None or node.variables.get("tokenpeak_setup_roles") or not files.are_there(looked.printed):
        return None
    result = run_node_command(node, files.declaration, "install", b"", cancelled=cancelled)
    if result.ok and node.variables.get("tokenpeak_produce"):
        result = result.then(run_node_command(node, files.declaration, "produce", b"", cancelled=cancelled))
    return result if result.answers or result.unreachable else None


def at_once(
    nodes: Sequence[Node], action: Callable[[Node], Value], cancelled: Callable[[], bool]
) -> Iterator[tuple[Node, Value]]:
    """Each node with what the action came to, as they end; some nodes at a time, and no further ones once cancelled."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {pool.submit(action, node): node for node in nodes}
        for future in as_completed(futures):
            if cancelled():
                pool.shutdown(wait=False, cancel_futures=True)
                return
            yield futures[future], future.result()


def event_of(node: Node, step: Step, result: NodeResult) -> Event:
    """The end of a step that ran without a playbook."""
    kind = "unreachable" if result.unreachable else "failed" if result.failure else "ok"
    return Event(kind=kind, step=step, node=node.name, answer=result.answers.get(step))
