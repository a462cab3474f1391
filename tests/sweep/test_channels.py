"""Channels: the commands with which Ansible's own plugins would run something on a host, kept open."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tokenpeak.errors import NodeError
from tokenpeak.sweep.ansible.heartbeat_channel import channel_argvs
from tokenpeak.sweep.inventory.nodes import Inventory, Node

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
