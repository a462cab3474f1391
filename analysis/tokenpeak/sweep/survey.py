"""Survey of hosts before they are in any inventory, by the node package; nothing stays there."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpeak.errors import InputError
from tokenpeak.node import process
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.protocol.survey import SurveyAnswer
from tokenpeak.node.words import visible, wrong_word
from tokenpeak.sweep.inventory import Inventory, Node
from tokenpeak.sweep.login_failures import Login
from tokenpeak.sweep.runner import run_playbook


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


def survey_hosts(hosts: Sequence[str], port: int) -> list[Surveyed]:
    """Look at each `[USER@]HOST`, as ssh takes it, and at what serves at this port there; nothing is left there."""
    if wrong := next((host for host in hosts if _is_no_host(host)), None):
        raise InputError(f"{visible(wrong)!r} is no host: give [USER@]HOST, a name or an address as ssh takes it.")
    made = [_named(host) for host in hosts]
    # As ssh knows the host, with what its configuration says of it. What is given is no pattern of Ansible's.
    nodes = {f"host-{number}": host for number, host in enumerate(made)}
    entries = {
        name: {"ansible_host": host.name} | ({"ansible_user": host.user} if host.user else {})
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
    found = []
    for name, host in nodes.items():
        result = done.nodes[name]
        answer = result.answer(SurveyAnswer)
        problem = result.unreachable or result.failure or (None if answer else "it said nothing")
        found.append(_changed(host, answer=None if problem else answer, problem=problem))
    return found


def _is_no_host(host: str) -> bool:
    """Whether ssh would take a part of it for an option, or Ansible for a template."""
    return any(not part or part.startswith("-") or "{" in part or wrong_word(part) for part in host.split("@"))


def _named(host: str) -> Surveyed:
    user, _, name = host.rpartition("@")
    return Surveyed(name=name, address=_address(host), user=user or None)


def _changed(host: Surveyed, **values: object) -> Surveyed:
    return Surveyed(**{**vars(host), **values})


def _address(host: str) -> str:
    """Where ssh goes for a host, by its configuration."""
    ran = process.run(["ssh", "-G", "--", host])
    found = [line.split(" ", 1)[1] for line in ran.out.splitlines() if line.startswith("hostname ")]
    return found[0] if found else host.rpartition("@")[2]
