"""Replacing this controller's master secret, when no trial uses what follows from it."""

import fcntl
from collections.abc import Iterator

from tokenpeak import paths
from tokenpeak.drive import secret
from tokenpeak.drive.inventory import Inventory
from tokenpeak.drive.runner import run_playbook
from tokenpeak.errors import NodeError


def rotate(inventory: Inventory) -> None:
    """Make a new master secret; raises NodeError, changing nothing, while a trial of this controller runs."""
    running = list(_sweeps_here())
    if running:
        raise NodeError(f"The secret was not rotated: {', '.join(running)} runs here. Rotate when it has ended.")
    present = secret.master_secret().name
    answers = {
        name: result.answers.get("status", {}) for name, result in run_playbook("status.yml", inventory).nodes.items()
    }
    borrowed = [
        f"trial {answer.get('trial_id')} of {answer.get('holder')} has {name}"
        for name, answer in answers.items()
        if answer.get("armed") and answer.get("secret") == present
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
