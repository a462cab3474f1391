"""The lease channel: beats while it is open, none after; and how Ansible's plugins would run its command."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.errors import NodeError
from tokenpeak.node.protocol.parts import Overlap
from tokenpeak.sweep.ansible.heartbeat_channel import LeaseChannel, channel_argvs
from tokenpeak.sweep.inventory.nodes import Inventory, Node

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


SSH: dict[str, Any] = {
    "ansible_host": "10.0.0.7",
    "ansible_port": 2222,
    "ansible_user": "ops",
    "ansible_ssh_private_key_file": "/keys/id",
    "ansible_ssh_common_args": "-o UserKnownHostsFile=/keys/known -J jump",
}
LOCAL: dict[str, Any] = {"ansible_connection": "local"}
HOSTS: dict[str, dict[str, Any]] = {
    "away": SSH,
    "root": {**SSH, "ansible_become": True},
    "here": LOCAL,
    "other": {**LOCAL, "ansible_become": True, "ansible_become_user": "nobody", "ansible_become_method": "su"},
}
WORDS = ["echo", "a; rm -rf b"]
Argvs = Callable[..., dict[str, list[str]]]


@pytest.fixture(scope="module")
def argvs_of(tmp_path_factory: pytest.TempPathFactory) -> Argvs:
    """The channels of hosts with these variables."""

    def answer(words: list[str] = WORDS, **hosts: dict[str, Any]) -> dict[str, list[str]]:
        path = tmp_path_factory.mktemp("inventory") / "hosts.yml"
        path.write_text(json.dumps({"all": {"hosts": hosts}}))
        nodes = tuple(Node(name=name, variables=variables) for name, variables in hosts.items())
        return channel_argvs(Inventory(name="x", hosts_path=path, nodes=nodes), dict.fromkeys(hosts, words))

    return answer


@pytest.fixture(scope="module")
def argvs(argvs_of: Argvs) -> dict[str, list[str]]:
    return argvs_of(**HOSTS)


def test_ssh_is_reported_what_the_inventory_says(argvs: dict[str, list[str]]) -> None:
    """Port, user, key, jump host and options are SSH's; neither an agent nor a display goes along."""
    words = argvs["away"]

    assert ["ssh", "-S", "none"] == words[:3]
    assert "10.0.0.7" == words[-2]
    for asked in ("Port=2222", 'User="ops"', 'IdentityFile="/keys/id"', "UserKnownHostsFile=/keys/known", "-a", "-x"):
        assert asked in words, words
    assert "jump" == words[words.index("-J") + 1]


def test_channel_shares_no_connection(argvs: dict[str, list[str]]) -> None:
    """SSH itself says that the socket which playbooks share is not this one's."""
    known = subprocess.run(["ssh", "-G", *argvs["away"][1:-1]], capture_output=True, text=True, check=True).stdout

    assert "controlpath" not in known.replace("controlpath none", "")
    assert "port 2222" in known


def test_words_stay_words(argvs: dict[str, list[str]]) -> None:
    """A hostile word is one to the shell there too."""
    found = subprocess.run(argvs["here"], capture_output=True, text=True, check=True).stdout

    assert "a; rm -rf b" == found.strip()


@pytest.mark.parametrize(("host", "needed"), [("root", "sudo "), ("other", "su "), ("away", ""), ("here", "")])
def test_rights_are_those_of_ansibles_tasks(host: str, needed: str, argvs: dict[str, list[str]]) -> None:
    """Whichever variable makes tasks another user's makes the channel that user's, by its method."""
    words = " ".join(argvs[host])

    assert needed in words
    if not needed:
        assert "sudo" not in words
    if host == "other":
        assert "nobody" in words


@pytest.mark.parametrize("password", ["ansible_password", "ansible_become_password"])
def test_password_is_refused_with_what_to_do(password: str, argvs_of: Argvs) -> None:
    """Nobody types one into a connection that is kept open."""
    with pytest.raises(NodeError, match=r"gpu1: .*nobody types a password .* use a key, and let sudo ask for none"):
        argvs_of(gpu1={**SSH, "ansible_become": True, password: "x"})
