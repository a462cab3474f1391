"""What a controller replaces on its nodes: a rotated secret, and a script of another version."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest
from driven_home import Home

from tokenpeak.node import bundle
from tokenpeak.sweep import installation
from tokenpeak.sweep.inventory.nodes import read_inventory


def secrets_on(node: Path) -> dict[str, str]:
    """The secrets that lie on the node, by name."""
    return {path.name: path.read_text().strip() for path in node.glob("secret-*")}


@pytest.mark.e2e
def test_rotated_secret_reaches_the_node_and_the_old_one_leaves_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `install --rotate` both sides derive keys from one new secret, and nothing is left of the old."""
    node = home.state / "nodes" / "one"
    assert 0 == home.run("install", "--inventory", "lone").returncode
    before = secrets_on(node)

    running = home.state / "work" / "a-sweep" / "lock"
    running.parent.mkdir(parents=True)
    with running.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        refused = home.run("install", "--inventory", "lone", "--rotate")
    kept = secrets_on(node)
    rotated = home.run("install", "--inventory", "lone", "--rotate")
    after = secrets_on(node)
    monkeypatch.setenv("TOKENPEAK_STATE", str(home.state))
    master = installation.master_secret()
    one = read_inventory("lone", home.root / "inventory").node("one")

    assert 1 == refused.returncode
    assert "not rotated: sweep a-sweep runs here" in refused.stdout
    assert before == kept
    assert 0 == rotated.returncode, rotated.stdout
    assert {master.name: master.of_node(one)} == after
    assert not {*before, *before.values()} & {*after, *after.values()}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in node.glob("secret-*")}
    assert not any(value in rotated.stdout for value in (*before.values(), *after.values(), master.value))


@pytest.mark.e2e
def test_script_of_another_version_is_renewed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe finds an older script on the node, says what it says by its digest, and leaves the controller's own."""
    assert 0 == home.run("install", "--inventory", "lone").returncode
    script = home.state / "nodes" / "one" / "tokenpeak-node.pyz"
    own, sources = script.read_bytes(), bundle._sources()
    monkeypatch.setattr(bundle, "_sources", lambda: {**sources, "tokenpeak/node/older.py": "# Of an older release.\n"})
    bundle.write_bundle(script)
    said = subprocess.run(
        [str(script), "--state", str(script.parent), "status"], capture_output=True, check=True, env={**os.environ}
    ).stdout
    monkeypatch.undo()

    assert installation.own_script().encode() not in said
    probed = home.run("probe", "--inventory", "lone")

    assert 0 == probed.returncode, probed.stdout
    assert own == script.read_bytes()
