"""Survey of hosts before there is an inventory; it is the node package's, and nothing stays on the hosts."""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenpeak.errors import InputError
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.machine import process
from tokenpeak.node.machine.words import visible, wrong_word
from tokenpeak.node.protocol.answers import SurveyAnswer
from tokenpeak.sweep.ansible.result import Login
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory, Node

LOCAL = "localhost"
"""The host that is this machine, which is reached without SSH."""


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """A host with what was found there, or why nothing was."""

    name: str
    """The host as it was given, without a user."""
    address: str
    """Where ssh goes for that name."""
    user: str | None
    """The user who was given; None: the one whom ssh takes."""
    answer: SurveyAnswer | None = None
    problem: str | None = None

    @property
    def is_local(self) -> bool:
        """The host is this machine."""
        return self.name == LOCAL


def survey_hosts(hosts: Sequence[str], port: int) -> list[Surveyed]:
    """Look at each `[USER@]HOST`, as ssh takes it, and at what serves at this port there; nothing is left there.

    `localhost` is this machine, without SSH.
    """
    if wrong := next((host for host in hosts if _is_no_host(host)), None):
        raise InputError(f"{visible(wrong)!r} is no host: give [USER@]HOST, a name or an address as ssh takes it.")
    made = [_named(host) for host in hosts]
    # As ssh knows the host, with what its configuration says of it. What is given is no pattern of Ansible's.
    nodes = {f"host-{number}": host for number, host in enumerate(made)}
    entries = {
        name: _by(host) | ({"ansible_user": host.user} if host.user and not host.is_local else {})
        for name, host in nodes.items()
    }
    with tempfile.TemporaryDirectory(prefix="tokenpeak-survey-") as folder:
        path = Path(folder, "hosts.json")
        path.write_text(json.dumps({"all": {"hosts": entries}}))
        inventory = Inventory(
            name="survey", hosts_path=path, nodes=tuple(Node(name=name, variables=entries[name]) for name in nodes)
        )
        done = run_playbook(
            "survey.yml",
            inventory,
            extravars={
                "tokenpeak_pyz": str(write_bundle(Path(folder, "survey.pyz"))),
                "tokenpeak_survey_port": port,
            },
            logins=lambda: {name: Login(address=host.address, user=host.user) for name, host in nodes.items()},
        )
    surveyed = []
    for name, host in nodes.items():
        result = done.nodes[name]
        answer = result.answer(SurveyAnswer)
        problem = result.unreachable or result.failure or (None if answer else "it said nothing")
        surveyed.append(replace(host, answer=None if problem else answer, problem=problem))
    return surveyed


def _by(host: Surveyed) -> dict[str, str]:
    """How Ansible reaches the host."""
    if host.is_local:
        return {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    return {"ansible_host": host.name}


def _is_no_host(host: str) -> bool:
    """Whether ssh would take a part of it for an option, or Ansible for a template."""
    return any(not part or part.startswith("-") or "{" in part or wrong_word(part) for part in host.split("@"))


def _named(host: str) -> Surveyed:
    user, _, name = host.rpartition("@")
    configured = process.run(["ssh", "-G", "--", host]).out.splitlines()
    address = next((line.split(" ", 1)[1] for line in configured if line.startswith("hostname ")), name)
    return Surveyed(name=name, address=address, user=user or None)
