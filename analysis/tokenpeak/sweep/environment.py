"""Environment of a process that reaches hosts: what Ansible, SSH or a node here may need, and nothing else."""

import os
import sys
from pathlib import Path

_KEPT_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "LANG", "TZ", "VIRTUAL_ENV")
_KEPT_PREFIXES = (
    "LC_",
    "SSH_",
    "SSL_",
    "XDG_",
    "ANSIBLE_",
    "TOKENPEAK_",
    "PIP_",
    "UV_",
    "DOCKER_",
    "CONTAINER_",
    "KUBE",
)
_KEPT_SUFFIXES = ("_proxy", "_PROXY")


def is_kept(name: str) -> bool:
    """Whether a variable of this process's environment is one that SSH, Ansible or a node here may need."""
    return name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) or name.endswith(_KEPT_SUFFIXES)


def search_path() -> str:
    """PATH, with this environment's own programs first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def environment() -> dict[str, str]:
    """The environment of a process that reaches a host, without whatever else this process happens to hold."""
    return {name: value for name, value in os.environ.items() if is_kept(name)} | {"PATH": search_path()}
