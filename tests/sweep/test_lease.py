"""The lease channel: beats while it is open, none after."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tokenpeak.node.protocol.answers import Overlap
from tokenpeak.sweep import connection
from tokenpeak.sweep.connection import host_command, node_command
from tokenpeak.sweep.inventory import Node
from tokenpeak.sweep.lease import LeaseChannel, lease_command, lease_problem

LISTENER = """
import os, sys
out = open(sys.argv[1], "a", buffering=1)
print("pid", os.getpid(), file=out)
for line in sys.stdin:
    print("beat", file=out)
print("end", file=out)
"""


def wait_for(path: Path, word: str, count: int = 1) -> str:
    """The file's text once it has `word` so often; fails after 10 s."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        text = path.read_text() if path.exists() else ""
        if text.count(word) >= count:
            return text
        time.sleep(0.02)
    raise AssertionError(f"{word!r} did not appear {count} times in {path}")


def channel(path: Path, lost: list[str]) -> LeaseChannel:
    """A channel to a process here that notes what it hears."""
    return LeaseChannel([sys.executable, "-c", LISTENER, str(path)], "sweep-1", 2.0, lost.append)


def test_beats_flow_until_the_channel_closes(tmp_path: Path) -> None:
    """The node hears the controller at once and again, and then the end."""
    heard = tmp_path / "heard"
    lost: list[str] = []
    with channel(heard, lost):
        wait_for(heard, "beat", 3)

    assert heard.read_text().endswith("end\n")
    assert [] == lost


ANSWERING = """
import json, sys
for line in sys.stdin:
    number = json.loads(line)["number"]
    print(json.dumps({"heard": number}), flush=True)
    if number == 1:
        noted = {"nonce": "1", "trial_id": "0001-abc", "holder": "sweep-1", "at_unix_s": 1.5}
        print(json.dumps({"overlap": noted}), flush=True)
"""


def test_node_that_answers_is_connected(tmp_path: Path) -> None:
    """An answer to a beat that was sent since proves the channel, and what the node noted comes along."""
    noted: list[object] = []
    with LeaseChannel([sys.executable, "-c", ANSWERING], "sweep-1", 40.0, lambda _: None, noted.append) as answering:
        found = [answering.problem(20), answering.problem(20)]

    assert [None, None] == found
    assert [Overlap(nonce="1", trial_id="0001-abc", holder="sweep-1", at_unix_s=1.5)] == noted


@pytest.mark.integration
def test_node_that_does_not_answer_is_not_connected(tmp_path: Path) -> None:
    """A process that lives proves nothing; one that ended has said why."""
    with channel(tmp_path / "heard", []) as silent:
        living = silent.problem(1)
    refused = ["sh", "-c", "echo 'Host key verification failed.' >&2; exit 255"]
    with LeaseChannel(refused, "sweep-1", 2.0, lambda _: None) as ending:
        gone = ending.problem(3)

    assert "it answered nothing for 1 s" == living
    assert (gone or "").startswith("its host key is unknown, so nothing was sent there.")


def test_channel_that_is_lost_is_opened_anew(tmp_path: Path) -> None:
    """A connection that goes does not lose the lease."""
    heard = tmp_path / "heard"
    lost: list[str] = []
    with channel(heard, lost):
        pid = int(wait_for(heard, "beat").split()[1])
        os.kill(pid, signal.SIGKILL)
        wait_for(heard, "pid", 2)

    assert ["it ended with status -9"] == lost


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo 'ops@gpu1: Permission denied (publickey).' >&2; exit 255", "Permission denied"),
        (
            """echo '{"error": {"code": "state", "text": "It belongs to root."}, "script": "abc"}'; exit 3""",
            "It belongs",
        ),
    ],
)
def test_why_a_lease_is_not_renewed_is_reported_once(tmp_path: Path, command: str, words: str) -> None:
    """Whoever watches learns what SSH or the node said, before the node gives itself back; not at every attempt."""
    lost: list[str] = []
    tried = tmp_path / "tried"
    with LeaseChannel(["sh", "-c", f"echo once >>{tried}; {command}"], "sweep-1", 2.0, lost.append):
        wait_for(tried, "once", 3)

    assert 1 == len(lost)
    assert words in lost[0]


def test_ssh_that_is_not_there_is_reported() -> None:
    """A program that cannot be started is named as the reason."""
    lost: list[str] = []
    reported = threading.Event()

    def note(words: str) -> None:
        lost.append(words)
        reported.set()

    with LeaseChannel(["/nonexistent/ssh"], "sweep-1", 2.0, note):
        assert reported.wait(10)

    assert "No such file" in lost[0]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["cat"], None),
        (["sh", "-c", "echo 'ops@gpu1: Permission denied (publickey,password).' >&2; exit 255"], "Permission denied"),
        (["sh", "-c", "exit 4"], "it ended with status 4"),
        (
            ["ssh", "-o", "BatchMode=yes", "-p", "9", "127.0.0.1", "true"],
            "no SSH connection to HOST port 22 (Connection refused)",
        ),
        (
            ["sh", "-c", "echo 'Host key verification failed.' >&2; exit 255"],
            "its host key is unknown, so nothing was sent there",
        ),
    ],
)
def test_lease_that_could_not_be_renewed_is_known_beforehand(argv: list[str], expected: str | None) -> None:
    """One look, without a heartbeat, shows what would lose every trial."""
    found = lease_problem(argv)

    assert (found is None) == (expected is None)
    assert (expected or "") in (found or "")


def test_local_node_is_reached_without_a_shell() -> None:
    """A local node's command is an argv."""
    node = Node(name="here", variables={"ansible_connection": "local"})
    found = lease_command(node, {"state_dir": "/var/lib/tokenpeak", "python": "/usr/bin/python3"})

    bundle = "/var/lib/tokenpeak/tokenpeak-node.pyz"
    assert ["/usr/bin/python3", "-I", bundle, "lease", "--state", "/var/lib/tokenpeak"] == found


@pytest.mark.parametrize(
    ("variables", "argv"),
    [
        ({}, ["id"]),
        ({"tokenpeak_become": True}, ["sudo", "-n", "id"]),
        ({"ansible_become": True}, ["sudo", "-n", "id"]),
        ({"tokenpeak_become": True, "ansible_become": False}, ["id"]),
    ],
)
def test_lease_is_renewed_with_the_rights_of_ansibles_tasks(variables: dict[str, bool], argv: list[str]) -> None:
    """Whichever variable makes Ansible root makes the lease's command root, and Ansible's own is the stronger one."""
    node = Node(name="here", variables={"ansible_connection": "local", **variables})

    assert argv == node_command(node, ["id"])


def test_inventory_says_where_a_shared_connection_is() -> None:
    """SSH keeps to the first of several values: what the inventory says of ControlPath is stronger than ours."""
    own = {"ansible_host": "10.0.0.7", "ansible_ssh_common_args": "-o ControlPath=/mine/%C"}
    node = Node(name="gpu1", variables=own)
    shared = host_command(node, ["true"], is_shared=True)
    paths = [word for word in shared if word.startswith("ControlPath=")]

    assert "ControlPath=/mine/%C" == paths[0]
    assert 2 == len(paths)
    assert len(paths[1].removeprefix("ControlPath=").replace("%C", "c" * 40)) + 17 < 108
    assert not any(word.startswith("ControlMaster") for word in host_command(node, ["true"]))


@pytest.mark.parametrize("trouble", ["no room", "long path", "cleaned away"])
def test_without_a_folder_no_connection_is_shared(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Neither a full disk, nor a long path, nor a cleaned /tmp keeps a command from its node."""
    request.addfinalizer(connection._made_folder.cache_clear)
    connection._made_folder.cache_clear()
    place = tmp_path / ("long" * 12 if trouble == "long path" else "short")
    if trouble != "no room":
        place.mkdir()
    made = str(place / "tp-x")
    monkeypatch.setattr(connection.tempfile, "mkdtemp", lambda prefix: Path(made).mkdir() or made)
    if trouble == "cleaned away":
        monkeypatch.setattr(connection, "_LONGEST_FOLDER", len(made))
        node = Node(name="gpu1", variables={})
        assert any(word.startswith("ControlPath=") for word in host_command(node, ["true"], is_shared=True))
        Path(made).rmdir()

    found = host_command(Node(name="gpu1", variables={}), ["true"], is_shared=True)

    assert ["gpu1", "true"] == found[-2:]
    assert not any(word.startswith("Control") for word in found)


def test_remote_node_is_reached_as_its_inventory_says() -> None:
    """Port, user, key and options of the inventory are SSH's; a hostile path stays one word."""
    variables = {
        "ansible_host": "10.0.0.7",
        "ansible_port": 2222,
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": "/keys/id",
        "ansible_ssh_common_args": "-o UserKnownHostsFile=/keys/known",
        "tokenpeak_become": True,
    }
    found = node_command(Node(name="gpu1", variables=variables), ["echo", "a; rm -rf b"])

    asked = found.index("-p")
    assert ["-p", "2222", "-l", "ops", "-i", "/keys/id", "-o", "UserKnownHostsFile=/keys/known"] == found[asked:-5]
    assert ["-a", "-x", "--", "10.0.0.7", "sudo -n echo 'a; rm -rf b'"] == found[-5:]
