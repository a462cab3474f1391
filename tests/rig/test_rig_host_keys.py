"""Host keys, over the real Ansible and the real SSH of every command: unknown and changed ones are refused."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.faults.bench import Bench
from tests.faults.conftest import boot_node, place  # noqa: F401

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

UNKNOWN = "its host key is unknown, so nothing was sent there"
CHANGED = "its host key has changed, so nothing was sent there"
KEY = "etc/ssh/ssh_host_ed25519_key"


@pytest.fixture
def strict(place: Path, tmp_path: Path) -> Iterator[Bench]:  # noqa: F811
    """A node with production, and an inventory as the documentation has it: nothing in it speaks of host keys."""
    made = Bench(node=boot_node(place, "keys1", 148), root=tmp_path / "checkout", state=tmp_path / "state")
    try:
        made.prepare()
        hosts = made.root / "inventory" / "rig" / "hosts.yml"
        inventory = yaml.safe_load(hosts.read_text())
        variables = inventory["all"]["hosts"]["keys1"]
        variables["ansible_ssh_common_args"] = f"-o UserKnownHostsFile={known_hosts(made)}"
        hosts.write_text(yaml.safe_dump(inventory))
        yield made
    finally:
        made.node.testnode("down")


def known_hosts(bench: Bench) -> Path:
    return bench.root.parent / "known_hosts"


def disk(bench: Bench, path: str) -> Path:
    """A file of the node, seen from this machine."""
    return bench.node.folder / bench.node.name / "upper" / path


def said_by(bench: Bench, *arguments: str) -> tuple[int, str]:
    controller = bench.start(*arguments)
    status = controller.wait(120)
    return status, controller.said


def words(said: str) -> str:
    """What was said without the breaks of a table's cells."""
    return "".join(said.split())


def test_unknown_and_changed_host_keys_are_refused(strict: Bench, tmp_path: Path) -> None:
    """A node is reached by no command before its key is known, and by none after it has changed; each says why."""
    commands = [("probe", "--inventory", "rig"), ("status", "--inventory", "rig"), ("restore", "--inventory", "rig")]
    unknown = [said_by(strict, *command) for command in commands]
    untouched = not disk(strict, "var/lib/tokenpeak").is_dir()

    scanned = subprocess.run(["ssh-keyscan", "-t", "ed25519", strict.node.address], capture_output=True, check=True)
    known_hosts(strict).write_bytes(scanned.stdout)
    known = said_by(strict, *commands[0])

    # Somebody sets the machine up anew, or another one stands at its address.
    strict.node.testnode("kill")
    for path in (disk(strict, KEY), disk(strict, f"{KEY}.pub")):
        path.unlink(missing_ok=True)
    disk(strict, KEY).parent.mkdir(parents=True, exist_ok=True)
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(disk(strict, KEY))]
    subprocess.run(make, stdin=subprocess.DEVNULL, check=True)
    strict.node.testnode("boot")
    assert clock.wait_until(strict.answers, 30)
    # The connection that Ansible kept open belongs to a machine that is no more.
    clock.wait_until(lambda: False, 8)
    changed = [said_by(strict, *command) for command in commands]

    assert [1, 1, 1] == [status for status, _ in unknown], unknown
    assert all(words(UNKNOWN) in words(said) for _, said in unknown), unknown
    # The command that the reader is given writes to the file that the inventory names.
    assert all(words(f">> {known_hosts(strict)}") in words(said) for _, said in unknown), unknown
    assert untouched
    assert 0 == known[0], known
    assert [1, 1, 1] == [status for status, _ in changed], changed
    assert all(words(CHANGED) in words(said) for _, said in changed), changed
    assert strict.answers()
