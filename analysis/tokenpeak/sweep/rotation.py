"""Rotation of this controller's master secret, while no trial uses a key derived from it."""

import fcntl
from collections.abc import Iterator

from tokenpeak import paths
from tokenpeak.errors import NodeError
from tokenpeak.node.protocol.answers import StatusAnswer
from tokenpeak.sweep import secret
from tokenpeak.sweep.inventory import Inventory
from tokenpeak.sweep.runner import run_playbook


def rotate(inventory: Inventory) -> None:
    """Make a new master secret; raises NodeError, changing nothing, while a trial of this controller runs."""
    running = list(_sweeps_here())
    if running:
        raise NodeError(f"The secret was not rotated: {', '.join(running)} runs here. Rotate when it has ended.")
    present = secret.master_secret().name
    results = run_playbook("status.yml", inventory).nodes
    answers = {name: result.answer(StatusAnswer) for name, result in results.items()}
    borrowed = [
        f"trial {answer.trial_id} of {answer.holder} has {name}"
        for name, answer in answers.items()
        if answer is not None and answer.armed and answer.secret == present
    ]
    if borrowed:
        raise NodeError(
            f"The secret was not rotated: {'; '.join(borrowed)}. Wait until it has ended, or run make restore "
            f"INVENTORY={inventory.name}."
        )
    secret.rotate()


def _sweeps_here() -> Iterator[str]:
    """The sweeps whose controller runs on this machine, with this state folder."""
    for lock in sorted((paths.state_dir() / "work").glob("*/lock")):
        with lock.open("rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield f"sweep {lock.parent.name}"
