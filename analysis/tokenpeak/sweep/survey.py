"""Survey of hosts over SSH before they are in any inventory, by the node package; nothing stays there."""

import shlex
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tokenpeak.node import process
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.protocol.answers import parse
from tokenpeak.node.protocol.survey import SurveyAnswer
from tokenpeak.node.words import one_line
from tokenpeak.sweep.connection import PRIVATE
from tokenpeak.sweep.login_failures import Login, explained
from tokenpeak.sweep.node_result import answer_in

_AT_ONCE = 16
_LIMIT_S = 120.0
_CODE = """\
import sys, tempfile
if sys.version_info < (3, 8):
    sys.exit("Python %d.%d is too old: install Python 3.8 or newer" % sys.version_info[:2])
bundle = tempfile.NamedTemporaryFile(suffix=".pyz")
bundle.write(sys.stdin.buffer.read())
bundle.flush()
sys.path.insert(0, bundle.name)
from tokenpeak.node.survey import main
main()
"""
_START = """\
p=/usr/bin/python3; [ -x "$p" ] || p=$(command -v python3) || { echo "interpreter $p was not found" >&2; exit 127; }
if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then exec sudo -n "$p" -I -B -c "$1" "$2"; fi
exec "$p" -I -B -c "$1" "$2"
"""


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
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder) / "survey.pyz").read_bytes()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda host: _survey(host, port, bundle), hosts))


def _survey(host: str, port: int, bundle: bytes) -> Surveyed:
    user, _, name = host.rpartition("@")
    made = Surveyed(name=name, address=_address(host), user=user or None)
    command = shlex.join(["sh", "-c", _START, "sh", _CODE, str(port)])
    ssh = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveInterval=5",
        *PRIVATE,
        "--",
        host,
        command,
    ]
    ran = process.run(ssh, _LIMIT_S, given=bundle)
    given = answer_in(ran.out)
    if ran.status != 0 or given is None:
        login = Login(address=made.address, user=made.user)
        said = (ran.err or ran.out).strip()
        last = one_line(said.splitlines()[-1]) if said else f"ssh ended with status {ran.status}"
        problem = explained(said, login) or last
        return _changed(made, problem=problem)
    return _changed(made, answer=parse(SurveyAnswer, given))


def _changed(host: Surveyed, **values: object) -> Surveyed:
    return Surveyed(**{**vars(host), **values})


def _address(host: str) -> str:
    """Where ssh goes for a host, by its configuration."""
    ran = process.run(["ssh", "-G", "--", host])
    found = [line.split(" ", 1)[1] for line in ran.out.splitlines() if line.startswith("hostname ")]
    return found[0] if found else host.rpartition("@")[2]
