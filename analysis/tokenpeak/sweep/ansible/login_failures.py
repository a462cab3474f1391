"""Login failures: what SSH, a login shell, sudo and Ansible print when a command does not get to a node, in a sentence.

Ansible, the lease channel and load hosts all reach a host by SSH, and each repeats its words in a form of its own. A
host key that is unknown or has changed is refused by SSH before anything is sent.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tokenpeak.node.machine.words import one_line

_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
LOGIN_VARIABLES = "^ansible_(host|port|user|ssh_common_args|ssh_extra_args)$"
"""Pattern of the variables that say how a host is logged in to."""
_OPTIONS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
_DISPLAY = 200
_MISSING_PYTHON = (
    re.compile(r"module interpreter '([^']+)' was not found"),
    re.compile(r"interpreter (/\S+) was not found"),
)
_NO_CONNECTION = re.compile(
    r"No route to host|Connection timed out|Connection refused|Network is unreachable|Operation timed out"
    r"|Connection reset by peer|Connection closed by remote host"
)


@dataclass(frozen=True, kw_only=True)
class Login:
    """How a host is logged in to, as far as its inventory says."""

    address: str
    user: str | None = None
    port: int | None = None
    jump: str | None = None
    """The machines on the way there, as ssh's -J takes them."""
    known_hosts: str = "~/.ssh/known_hosts"

    @classmethod
    def of(cls, name: str, variables: Mapping[str, Any]) -> Self:
        """The login of a host by its inventory's variables."""
        port = str(variables.get("ansible_port") or "")
        user = variables.get("ansible_user")
        options = " ".join(str(variables.get(name) or "") for name in _OPTIONS)
        jump = re.search(r"(?:ProxyJump[= ]|-J ?)([^\s'\"]+)", options)
        known_hosts = re.search(r"UserKnownHostsFile[= ]([^\s'\"]+)", options)
        return cls(
            address=str(variables.get("ansible_host") or name),
            user=None if user is None else str(user),
            port=int(port) if port.isdigit() else None,
            jump=jump[1] if jump else None,
            known_hosts=known_hosts[1] if known_hosts else "~/.ssh/known_hosts",
        )

    @property
    def whom(self) -> str:
        """The user in words."""
        return f"user {self.user}" if self.user else "the user that logs in"

    @property
    def as_known(self) -> str:
        """The host as known_hosts has it."""
        return self.address if self.port in (None, 22) else f"[{self.address}]:{self.port}"

    @property
    def scan(self) -> str:
        """The command that fetches its host key; where machines are on the way, on the last of them."""
        before, _, last = (self.jump or "").rpartition(",")
        through = f"ssh {f'-J {before} ' if before else ''}{last} " if last else ""
        return f"{through}ssh-keyscan -t ed25519 {self._port}{shlex.quote(self.address)}"

    @property
    def ssh(self) -> str:
        """The command that logs in by hand."""
        jump = f"-J {self.jump} " if self.jump else ""
        user = f"{shlex.quote(self.user)}@" if self.user else ""
        return f"ssh {jump}{self._port}{user}{shlex.quote(self.address)} true"

    @property
    def _port(self) -> str:
        return "" if self.port in (None, 22) else f"-p {self.port} "


def logins_of(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, Login]:
    """The login of each host, by its name."""
    return {name: Login.of(name, of_host) for name, of_host in variables.items()}


ANYWHERE = Login(address="HOST")
"""Where the inventory's variables are not known: commands have HOST for the reader to fill in."""


def explained(said: str, login: Login) -> str | None:
    """Why a login failed and what to do, from all that was printed; None for what is no failure of a login."""
    if found := re.search(r'remote host "([^"]+)"', said):
        login = replace(login, address=found[1])
    reason = _host_key(said, login) or _connection(said, login) or _command(said, login)
    return reason and one_line(reason)


def with_remedy(said: str, login: Login = ANYWHERE) -> str:
    """What was printed of a failed login in a sentence; anything else in one line."""
    return explained(said, login) or one_line(said)


def missing_python(path: str) -> str:
    """What to do where there is no Python at this path."""
    return (
        f"there is no Python at {path}. Install Python 3.8 or newer there (apt-get install python3), or name the one "
        "that is there by ansible_python_interpreter and tokenpeak_python"
    )


def _host_key(said: str, login: Login) -> str | None:
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        found = re.search(r"Offending \S+ key in (.+):\d+", said)
        place = f" -f {shlex.quote(found[1].strip())}" if found else ""
        known = shlex.quote(login.as_known)
        return (
            "its host key has changed, so nothing was sent there: somebody set the machine up anew, or another one "
            f"answers at {login.address}. This shows the fingerprint that was known and the one that is offered now: "
            f"ssh-keygen -lF {known}{place}; {login.scan} | ssh-keygen -lf -. When the machine's own console shows the "
            f"new one too (ssh-keygen -lf {_KEY}): ssh-keygen -R {known}{place}, then add it as on first contact: "
            f"{login.scan} >> {login.known_hosts}"
        )
    if "Host key verification failed" in said or "host key is known for" in said:
        if "UNKNOWN port 65535" in said:
            return (
                "the host key of the machine on the way there (ProxyJump) is unknown or has changed, so nothing was "
                f"sent. Log in to that machine by hand once, and compare the fingerprint; then try {login.ssh}"
            )
        return (
            f"its host key is unknown, so nothing was sent there. These show the fingerprint that {login.address} "
            f"offers, and the one on its own console: {login.scan} | ssh-keygen -lf -; ssh-keygen -lf {_KEY}. Where "
            f"they are equal: {login.scan} >> {login.known_hosts}"
        )
    return None


def _connection(said: str, login: Login) -> str | None:
    if found := re.search(r"Permission denied \([a-z,-]+\)", said):
        return (
            f"{login.address} accepts no key that was offered for {login.whom} ({found[0]}). Try {login.ssh}; name the "
            "user by ansible_user, the key by ansible_ssh_private_key_file, or add the key to the agent (ssh-add)"
        )
    if "Could not resolve hostname" in said:
        return f"no address is known for {login.address}: correct ansible_host, or give its name in ~/.ssh/config"
    if found := _NO_CONNECTION.search(said) if "ssh: connect" in said or "kex_exchange" in said else None:
        return (
            f"no SSH connection to {login.address} port {login.port or 22} ({found[0]}). Is the address right, the "
            f"machine up, and the port open to this one? Try {login.ssh}"
        )
    return None


def _command(said: str, login: Login) -> str | None:
    """What keeps commands from running after the login."""
    if "currently not available" in said or "This account is not available" in said:
        return (
            f"{login.whom} has no login shell there ({_line(said, 'available')}). Give one there (usermod --shell "
            f"/bin/sh {login.user or 'USER'}), or log in as somebody else by ansible_user"
        )
    for pattern in _MISSING_PYTHON:
        if found := pattern.search(said):
            return missing_python(found[1])
    if "not in the sudoers file" in said or "is not allowed to execute" in said:
        return (
            f"{login.whom} may not use sudo there. Let an administrator allow it without a password, or log in as root "
            f"(ansible_user: root); {_LESS}"
        )
    if any(words in said for words in ("Missing sudo password", "a password is required", "a terminal is required")):
        return (
            f"sudo asks {login.whom} for a password there, which nobody types. Let it ask for none: sudo visudo -f "
            f"/etc/sudoers.d/tokenpeak, with the line {login.user or 'USER'} ALL=(root) NOPASSWD: ALL; {_LESS}"
        )
    if "sudo: not found" in said or "sudo: command not found" in said:
        return "there is no sudo there: install it, or log in as root (ansible_user: root) without ansible_become"
    if "you must have a tty to run sudo" in said:
        return (
            f"sudo wants a terminal there (requiretty in /etc/sudoers): add Defaults:{login.user or 'USER'} !requiretty"
        )
    return None


_LESS = 'for one command alone see "Rights" in playbooks/README.md'


def _line(said: str, words: str) -> str:
    """The line in which these words stand."""
    return next(line for line in said.splitlines() if words in line).strip()[:_DISPLAY]
