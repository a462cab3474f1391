"""The lease: signs of life from the controller to a node, on a channel of their own.

A small process (over SSH, or here for a local node) reads heartbeats from its standard input and renews the node's
lease. When this controller dies, the pipe closes, renewals stop, and the node's guard gives production back. The
channel is separate from Ansible's, so that neither a long task nor a lost one says anything about the controller.
"""

import json
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from tokenpeak.drive.inventory import Node

_BEATS_PER_LEASE = 4
_LONGEST_BEAT_S = 15.0
_SHORTEST_BEAT_S = 0.5
_CLOSE_TIMEOUT_S = 3.0
_TRY_TIMEOUT_S = 60.0


def node_command(node: Node, arguments: Sequence[str]) -> list[str]:
    """`arguments` as an argv that runs on the node, as root where the inventory says that it takes sudo."""
    return host_command(node, [*(["sudo", "-n"] if node.becomes_root else []), *arguments])


def host_command(host: Node, arguments: Sequence[str]) -> list[str]:
    """`arguments` as an argv that runs on the host with the connection that its inventory describes."""
    variables = host.variables
    if host.is_local:
        return list(arguments)
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ConnectTimeout=10"]
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    for option, value in (("-p", variables.get("ansible_port")), ("-l", variables.get("ansible_user")), ("-i", key)):
        if value:
            command += [option, str(value)]
    for variable in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        command += shlex.split(str(variables.get(variable) or ""))
    return [*command, str(variables.get("ansible_host") or host.name), shlex.join(arguments)]


def lease_command(node: Node, declaration: dict[str, Any]) -> list[str]:
    """The argv that renews the node's lease, from where install.yml put the node's command."""
    state_dir = str(declaration["state_dir"])
    python = str(declaration.get("python") or "python3")
    if node.guard_command:
        return node_command(node, ["sudo", "-n", node.guard_command, "lease"])
    return node_command(node, [python, "-I", f"{state_dir}/tokenpeak-node.pyz", "lease", "--state", state_dir])


def lease_problem(argv: Sequence[str]) -> str | None:
    """Why a lease would not be renewed by this command: its last words at an end without a heartbeat; None if it is."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TRY_TIMEOUT_S,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (_last_words(done.stdout) or f"it ended with status {done.returncode}") if done.returncode else None


class LeaseChannel:
    """Heartbeats to one node from entering the context to leaving it; a process that ends is started anew.

    `on_loss` is told its last words when it ends by itself, once for each that differ.
    """

    def __init__(self, argv: Sequence[str], lease_s: float, on_loss: Callable[[str], None]) -> None:
        self._argv = list(argv)
        self._on_loss = on_loss
        self._told: set[str] = set()
        self._beat_s = min(_LONGEST_BEAT_S, max(_SHORTEST_BEAT_S, lease_s / _BEATS_PER_LEASE))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(timeout=_CLOSE_TIMEOUT_S * 2)

    def _keep(self) -> None:
        while not self._closing.is_set():
            with tempfile.TemporaryFile() as said:
                try:
                    process = subprocess.Popen(
                        self._argv,
                        stdin=subprocess.PIPE,
                        stdout=said,
                        stderr=said,
                        start_new_session=True,  # Ctrl-C must not reach it before the nodes are restored
                    )
                except OSError as error:
                    self._tell(str(error))
                    self._closing.wait(self._beat_s)
                    continue
                self._beat(process)
                _end(process)
                if not self._closing.is_set():
                    said.seek(0)
                    self._tell(_last_words(said.read()) or f"it ended with status {process.returncode}")
            self._closing.wait(min(1.0, self._beat_s))

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._on_loss(words)

    def _beat(self, process: subprocess.Popen[bytes]) -> None:
        """Write heartbeats until the channel closes or its process is gone."""
        assert process.stdin is not None
        while process.poll() is None:
            try:
                process.stdin.write(f"{time.time():.3f}\n".encode())
                process.stdin.flush()
            except OSError:
                return
            if self._closing.wait(self._beat_s):
                return


def _last_words(said: bytes) -> str:
    """The last line that is not empty; of a node command's answer, its error."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    try:
        return str(json.loads(lines[-1])["error"]["text"])
    except (ValueError, KeyError, TypeError):
        return lines[-1].strip()
    except IndexError:
        return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe and see the process go; it is ended when it does not go by itself."""
    assert process.stdin is not None
    try:
        process.stdin.close()
    except OSError:
        process.kill()  # the pipe broke: nobody reads it any more
    try:
        process.wait(timeout=_CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
