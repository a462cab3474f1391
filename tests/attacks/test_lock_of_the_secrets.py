"""Another user of the controller opens the lock of its secrets, if only to read it, and holds it for good.

Every command that needs the master secret would wait for ever. So nobody else can open the file.
"""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.sweep import secret

LOCK = ".secrets-lock"


@pytest.fixture
def state(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that every user can enter."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(place))
    return place


def test_lock_is_this_user_s_alone(state: Path) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        secret.master_secret()
    finally:
        os.umask(before)

    assert 0o600 == (state / LOCK).stat().st_mode & 0o7777


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")
def test_other_user_cannot_open_it(state: Path) -> None:
    """As that user tries."""
    secret.master_secret()
    tried = subprocess.run(["test", "-r", str(state / LOCK)], user=ATTACKER, group=ATTACKER, check=False)

    assert tried.returncode != 0


def test_lock_of_an_earlier_version_gives_way(state: Path) -> None:
    """Somebody holds the one that was made for everybody to read: a new one is made, and the secret is given."""
    (state / LOCK).touch()
    (state / LOCK).chmod(0o644)
    with (state / LOCK).open() as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        secret.master_secret()

    assert 0o600 == (state / LOCK).stat().st_mode & 0o7777


def test_lock_that_is_a_link(state: Path, tmp_path: Path) -> None:
    """It is not followed."""
    (state / LOCK).symlink_to(tmp_path / "made")

    with pytest.raises(OSError, match="symbolic links"):
        secret.master_secret()

    assert not (tmp_path / "made").exists()
