"""Connection to a host: a command's argv as it runs there, over SSH or here, by what its inventory says."""

import atexit
import functools
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenpeak.deletion import delete_if_possible
from tokenpeak.sweep.inventory import Node

KEEPALIVE_S = 5
PRIVATE = ("-a", "-x")
"""Nothing of this machine is lent to a host: neither its agent, whose keys log in elsewhere, nor its display."""
_KEEPALIVES = 3
"""Unanswered ones after which SSH takes the host for gone."""
_LONGEST_FOLDER = 48
"""A socket's path has at most 107 characters; SSH adds a digest of 40, and 17 while it makes the socket."""
_KEPT_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "LANG", "TZ", "VIRTUAL_ENV")
_KEPT_PREFIXES = ("LC_", "SSH_", "SSL_", "XDG_", "ANSIBLE_", "TOKENPEAK_", "PIP_", "UV_")
_KEPT_SUFFIXES = ("_proxy", "_PROXY")


def host_command(
    host: Node, arguments: Sequence[str], *, keepalives: int = _KEEPALIVES, is_shared: bool = False
) -> list[str]:
    """`arguments` as an argv that runs on the host with the connection that its inventory describes.

    Commands that share a connection end with it, and spare a handshake each.
    """
    variables = host.variables
    if host.is_local:
        return list(arguments)
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    command += ["-o", f"ServerAliveInterval={KEEPALIVE_S}", "-o", f"ServerAliveCountMax={keepalives}"]
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    for option, value in (("-p", variables.get("ansible_port")), ("-l", variables.get("ansible_user")), ("-i", key)):
        if value:
            command += [option, str(value)]
    for variable in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        command += shlex.split(str(variables.get(variable) or ""))
    if is_shared and (folder := _sockets()) is not None:
        command += ["-o", "ControlMaster=auto", "-o", "ControlPersist=60s", "-o", f"ControlPath={folder}/%C"]
    return [*command, *PRIVATE, "--", str(variables.get("ansible_host") or host.name), shlex.join(arguments)]


def node_command(
    node: Node, arguments: Sequence[str], *, keepalives: int = _KEEPALIVES, is_shared: bool = False
) -> list[str]:
    """`arguments` as an argv that runs on the node, as root where the inventory says that it takes sudo."""
    become = ["sudo", "-n"] if node.becomes_root else []
    return host_command(node, [*become, *arguments], keepalives=keepalives, is_shared=is_shared)


def script_command(
    node: Node,
    declaration: Mapping[str, Any],
    command: str,
    *options: str,
    keepalives: int = _KEEPALIVES,
    is_shared: bool = False,
) -> list[str]:
    """The argv of a command of the node's script where install.yml put it; root's guard command takes no options."""
    if node.guard_command:
        argv = ["sudo", "-n", node.guard_command, command]
        return node_command(node, argv, keepalives=keepalives, is_shared=is_shared)
    state_dir = str(declaration["state_dir"])
    python = str(declaration.get("python") or "python3")
    script = [python, "-I", f"{state_dir}/tokenpeak-node.pyz", command, "--state", state_dir, *options]
    return node_command(node, script, keepalives=keepalives, is_shared=is_shared)


def open_sockets() -> Path | None:
    """The folder of sockets where this process has shared connections already, which Ansible can use too."""
    return _sockets() if _made_folder.cache_info().currsize else None


def _sockets() -> Path | None:
    """The folder of this process for sockets of shared connections; None where there is none to be had.

    Without one every command logs in by itself: neither a full disk nor a cleaned /tmp keeps production from coming
    back.
    """
    folder = _made_folder()
    try:
        is_ours = folder is not None and folder.is_dir() and folder.lstat().st_uid == os.getuid()
    except OSError:
        return None
    return folder if is_ours else None


@functools.cache
def _made_folder() -> Path | None:
    """A new private folder; None on a full disk, or where the paths of its sockets would be too long."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="tp-"))
    except OSError:
        return None
    atexit.register(delete_if_possible, folder)
    return folder if len(str(folder)) <= _LONGEST_FOLDER else None


def is_kept(name: str) -> bool:
    """Whether a variable of this process's environment is one that SSH, Ansible or a node here may need."""
    return name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) or name.endswith(_KEPT_SUFFIXES)


def search_path() -> str:
    """PATH, with this environment's own programs first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def environment() -> dict[str, str]:
    """The environment of a process that reaches a host, without whatever else this process happens to hold."""
    return {name: value for name, value in os.environ.items() if is_kept(name)} | {"PATH": search_path()}
