"""Survey of a machine that TokenPeak is not on yet: its boards, its engines, and what serves a model at a port.

Changes nothing, and leaves nothing there. Run as root it sees every process; as another user that user's own.
"""

from __future__ import annotations

import os
import pwd
import sys

from tokenpeak.node.engine import installed, serving
from tokenpeak.node.installation.bundle import own_digest
from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.process_files import command_line
from tokenpeak.node.machine.words import shown_command, without_secrets
from tokenpeak.node.probe.probe import gpus
from tokenpeak.node.production.servers import Machine, user_of
from tokenpeak.node.protocol.answers import SurveyAnswer, as_json
from tokenpeak.node.protocol.frame import framed
from tokenpeak.node.protocol.parts import Gpu, picked

PORT = 8000
_LOCAL = ("0.0.0.0", "127.0.0.1", "::", "::ffff:127.0.0.1")  # noqa: S104 — where others listen
_SHOWN = 1000


def survey(port: int = PORT) -> SurveyAnswer:
    """The machine as it is, and what serves on it."""
    here = Machine.look()
    listeners = sockets.listening_at(port)
    servers, front = here.behind(port, sorted({pid for one in listeners for pid in one.pids}))
    account = pwd.getpwuid(os.geteuid())
    own = [each.engine for each in servers if each.engine is not None]
    return SurveyAnswer(
        user=account.pw_name,
        is_root=os.geteuid() == 0,
        home=account.pw_dir,
        python=sys.executable,
        gpus=tuple(picked(Gpu, gpu) for gpu in gpus()),
        url=_url(port, listeners),
        servers=tuple(servers),
        served_name=serving.served_model(_url(port, listeners)),
        listens_as=None if front is None else user_of(front),
        front=None if front is None else shown_command(without_secrets(command_line(front)), _SHOWN),
        engines=tuple(dict.fromkeys([*own, *installed.found(here.runtimes)])),
    )


def _url(port: int, listeners: list[sockets.Listener]) -> str:
    """Where this machine itself reaches what listens on the port."""
    addresses = [one.address for one in listeners]
    is_loopback = not addresses or any(address in _LOCAL for address in addresses)
    return serving.base_url("127.0.0.1" if is_loopback else addresses[0], port)


def main() -> None:
    """Print the survey as an answer; the port may be given."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    os.chdir("/")
    print(framed({**as_json(survey(port)), "script": own_digest()}), end="", flush=True)
