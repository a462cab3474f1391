"""Node result: what came of the steps on a node, why a login failed, and how production stands after a restore.

Ansible, the lease channel and load hosts all reach a host by SSH, and each repeats its words in a form of its own. A
host key that is unknown or has changed is refused by SSH before anything is sent.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.node.guard import lease
from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import AnyAnswer, NodeAnswer, RestoreAnswer, parse
from tokenpeak.node.protocol.frame import KEY, unframed
from tokenpeak.node.protocol.parts import Restoration, RestoreOutcome, picked
from tokenpeak.sweep.ansible.dispatch import Step

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
_LESS = "for one command alone see page 'Reach nodes' of `tokenpeak docs`"
WORDS_CHARACTERS = 4000
MOST_PRINTED_BYTES = 256 << 20
"""Of an answer, whose largest part is an engine's packed log."""
_TAIL_LINES = 12
_LONGEST_LIMIT_S = 1e9


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


def explained(printed: str, login: Login) -> str | None:
    """Why a login failed and what to do, from all that was printed; None for what is no failure of a login."""
    if address := re.search(r'remote host "([^"]+)"', printed):
        login = replace(login, address=address[1])
    reason = _host_key(printed, login) or _connection(printed, login) or _command(printed, login)
    return reason and one_line(reason)


def with_remedy(printed: str, login: Login = ANYWHERE) -> str:
    """What was printed of a failed login in a sentence; anything else in one line."""
    return explained(printed, login) or one_line(printed)


def missing_python(path: str) -> str:
    """What to do where there is no Python at this path."""
    return (
        f"there is no Python at {path}. Install Python 3.8 or newer there (apt-get install python3), or name the one "
        "that is there by ansible_python_interpreter and tokenpeak_python"
    )


def _host_key(printed: str, login: Login) -> str | None:
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in printed:
        match = re.search(r"Offending \S+ key in (.+):\d+", printed)
        place = f" -f {shlex.quote(match[1].strip())}" if match else ""
        known = shlex.quote(login.as_known)
        return (
            "its host key has changed, so nothing was sent there: somebody set the machine up anew, or another one "
            f"answers at {login.address}. This shows the fingerprint that was known and the one that is offered now: "
            f"ssh-keygen -lF {known}{place}; {login.scan} | ssh-keygen -lf -. When the machine's own console shows the "
            f"new one too (ssh-keygen -lf {_KEY}): ssh-keygen -R {known}{place}, then add it as on first contact: "
            f"{login.scan} >> {login.known_hosts}"
        )
    if "Host key verification failed" in printed or "host key is known for" in printed:
        if "UNKNOWN port 65535" in printed:
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


def _connection(printed: str, login: Login) -> str | None:
    if match := re.search(r"Permission denied \([a-z,-]+\)", printed):
        return (
            f"{login.address} accepts no key that was offered for {login.whom} ({match[0]}). Try {login.ssh}; name the "
            "user by ansible_user, the key by ansible_ssh_private_key_file, or add the key to the agent (ssh-add)"
        )
    if "Could not resolve hostname" in printed:
        return f"no address is known for {login.address}: correct ansible_host, or give its name in ~/.ssh/config"
    if match := _NO_CONNECTION.search(printed) if "ssh: connect" in printed or "kex_exchange" in printed else None:
        return (
            f"no SSH connection to {login.address} port {login.port or 22} ({match[0]}). Is the address right, the "
            f"machine up, and the port open to this one? Try {login.ssh}"
        )
    return None


def _command(printed: str, login: Login) -> str | None:
    """What keeps commands from running after the login."""
    if "currently not available" in printed or "This account is not available" in printed:
        return (
            f"{login.whom} has no login shell there ({_line(printed, 'available')}). Give one there (usermod --shell "
            f"/bin/sh {login.user or 'USER'}), or log in as somebody else by ansible_user"
        )
    for pattern in _MISSING_PYTHON:
        if match := pattern.search(printed):
            return missing_python(match[1])
    if "not in the sudoers file" in printed or "is not allowed to execute" in printed:
        return (
            f"{login.whom} may not use sudo there. Let an administrator allow it without a password, or log in as root "
            f"(ansible_user: root); {_LESS}"
        )
    if any(words in printed for words in ("Missing sudo password", "a password is required", "a terminal is required")):
        return (
            f"sudo asks {login.whom} for a password there, which nobody types. Let it ask for none: sudo visudo -f "
            f"/etc/sudoers.d/tokenpeak, with the line {login.user or 'USER'} ALL=(root) NOPASSWD: ALL; {_LESS}"
        )
    if "sudo: not found" in printed or "sudo: command not found" in printed:
        return "there is no sudo there: install it, or log in as root (ansible_user: root) without ansible_become"
    if "you must have a tty to run sudo" in printed:
        return (
            f"sudo wants a terminal there (requiretty in /etc/sudoers): add Defaults:{login.user or 'USER'} !requiretty"
        )
    return None


def _line(printed: str, words: str) -> str:
    """The line in which these words stand."""
    return next(line for line in printed.splitlines() if words in line).strip()[:_DISPLAY]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A step that starts or ends on a node."""

    kind: str
    """started, ok, failed, skipped or unreachable."""
    step: Step | None
    """What the step does; None for a playbook's task without a mark."""
    node: str
    answer: NodeAnswer | None = None
    """The node command's, once it has ended."""


@dataclass(frozen=True, kw_only=True)
class NodeResult:
    """What came of a run on one node."""

    answers: Mapping[Step, NodeAnswer] = field(default_factory=dict)
    spans: Mapping[Step, tuple[float, float]] = field(default_factory=dict)
    """Step → when it started and ended, unix seconds on the controller."""
    has_run: bool = False
    """A step ended there, marked or not."""
    unreachable: str | None = None
    """SSH's or Ansible's words when the node could not be reached."""
    failure: str | None = None
    """What a failed step said, when one failed."""
    is_own_task: bool = False
    """What failed is a task of the inventory's own (`tokenpeak_tasks`)."""
    argv: tuple[str, ...] = ()
    """The command of this machine by which a channel to the host is opened, where that was asked for."""

    def then(self, later: "NodeResult") -> "NodeResult":
        """What came of these steps and of those after them."""
        return NodeResult(
            answers={**self.answers, **later.answers},
            spans={**self.spans, **later.spans},
            has_run=self.has_run or later.has_run,
            unreachable=later.unreachable or self.unreachable,
            failure=later.failure or self.failure,
            is_own_task=later.is_own_task if later.failure else self.is_own_task,
            argv=later.argv or self.argv,
        )

    def answer(self, kind: type[AnyAnswer]) -> AnyAnswer | None:
        """The node command's answer of this kind; None when it gave none, or an error."""
        return next((one for one in self.answers.values() if isinstance(one, kind) and one.error is None), None)

    @property
    def ok(self) -> bool:
        """Every step that ran succeeded."""
        return self.unreachable is None and self.failure is None

    @property
    def fenced(self) -> str | None:
        """The node's sentence where it refuses this controller, because another one has the sweep."""
        return self._refused(lease.FENCED)

    @property
    def held(self) -> str | None:
        """The node's sentence where it begins no trial, because a person has given it back from the sweep."""
        return self._refused(lease.HELD)

    def _refused(self, code: str) -> str | None:
        errors = (answer.error for answer in self.answers.values())
        return next((error.text for error in errors if error is not None and error.code == code), None)

    @property
    def is_not_installed(self) -> bool:
        """TokenPeak's command is not on the node: nothing was ever borrowed there."""
        failure = self.failure or ""
        return (
            any(answer.error is not None and answer.error.code == "not_installed" for answer in self.answers.values())
            or "tokenpeak-node.pyz': [Errno 2]" in failure
            or ("sudo:" in failure and "command not found" in failure)
        )


def answer_in(printed: object, key: str = KEY) -> dict[str, Any] | None:
    """The answer in all that a step printed, whoever carried it; None where there is none."""
    if not isinstance(printed, str | bytes):
        return None
    return unframed(printed if isinstance(printed, str) else printed.decode(errors="replace"), key, as_object)


def as_object(printed: object) -> dict[str, Any] | None:
    """The JSON object that was printed; None for what is none, or larger or deeper than any answer."""
    if not isinstance(printed, str | bytes):
        return None
    data = printed if isinstance(printed, bytes) else printed.encode(errors="replace")
    try:
        value = bounded.parse_json(data, "answer", nan="null", most=MOST_PRINTED_BYTES)
    except ArchiveError:
        return None
    return value if isinstance(value, dict) else None


def failure_words(title: str, result: Mapping[str, Any], login: Login = ANYWHERE) -> str:
    """The most useful words of a failed step, in one line: its own sentence, else its title with what it printed.

    `result` has cmd, rc, stdout, stderr and msg, as far as they are known; what a module gave may be of any type. A
    command that did not get to the node at all has the reason.
    """
    answer = answer_in(result.get("stdout"))
    if answer is not None and (refusal := parse(NodeAnswer, answer).error) is not None:
        return refusal.text[:WORDS_CHARACTERS]
    if answer is not None and isinstance(sentence := answer.get("message"), str):
        return f"{title}: {one_line(sentence[:WORDS_CHARACTERS])}"
    if reason := _login_failure(result, login):
        return reason
    if limit_s := _limit_s(result.get("timedout")):
        return f"{title}: nothing came back within {limit_s:g} s: log in there and see what hangs"
    for key in ("stderr", "stdout", "module_stderr", "reason", "msg"):
        if text := str(result.get(key) or "").strip():
            return f"{title}: " + one_line("\n".join(text[-WORDS_CHARACTERS:].splitlines()[-_TAIL_LINES:]))
    return f"{title}: failed without a word"


def _limit_s(timed_out: object) -> float | None:
    """The limit that a step did not keep, as Ansible says it; None where it does not."""
    period = timed_out.get("period") if isinstance(timed_out, Mapping) else None
    return period if isinstance(period, int | float) and 0 < period < _LONGEST_LIMIT_S else None


def _login_failure(result: Mapping[str, Any], login: Login) -> str | None:
    """Why the step's command did not run there; None where it ran and failed."""
    command = result.get("cmd")
    if result.get("rc") == 2 and result.get("msg") == "Error executing command." and not result.get("stderr"):
        words = command if isinstance(command, list) else str(command).split()
        return one_line(missing_python(str(words[0])[:WORDS_CHARACTERS])) if words else None
    printed = "\n".join(
        str(result.get(key) or "")[-WORDS_CHARACTERS:] for key in ("msg", "module_stdout", "module_stderr", "stderr")
    )
    return explained(printed, login)


def unknown(reason: str) -> RestoreOutcome:
    """What is known of production whose node gave no account of it: nothing, and why."""
    return RestoreOutcome(restored=None, was_running=True, message=reason)


def recorded(outcome: RestoreOutcome | None) -> Restoration | None:
    """The outcome as an archive has it: production that is not known to be back is not, and the message says so."""
    if outcome is None:
        return None
    message = f"Not known: {outcome.message}" if outcome.restored is None else outcome.message
    return picked(Restoration, {**vars(outcome), "restored": bool(outcome.restored), "message": message})  # type: ignore[no-any-return]


def restored_by(result: NodeResult, holder: str = "", trial_id: str | None = None) -> RestoreOutcome:
    """How production stands after a restore; where the guard was first, its own account of this trial counts."""
    answer = result.answer(RestoreAnswer) or RestoreAnswer()
    not_usable = f"its answer is not usable: {', '.join(answer.unusable)}" if answer.unusable else ""
    reason = result.unreachable or result.failure or not_usable or "the restore gave no answer"
    outcome = answer.restoration or unknown(reason)
    last = answer.last_restoration
    if (
        last is not None
        and (last.holder, last.trial_id, last.restored) == (holder, trial_id, True)
        and outcome.restored
        and outcome.downtime_s is None
    ):
        return last
    return outcome
