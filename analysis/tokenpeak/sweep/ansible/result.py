"""Node result: what came of the steps that ran on a node, and how its production stands after a restore."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.node.guard import fence, lock
from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import AnyAnswer, NodeAnswer, RestoreAnswer, parse
from tokenpeak.node.protocol.frame import KEY, unframed
from tokenpeak.node.protocol.parts import Restoration, RestoreOutcome, picked
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.login_failures import ANYWHERE, Login, explained, missing_python

WORDS_CHARACTERS = 4000
MOST_PRINTED_BYTES = 256 << 20
"""Of an answer, whose largest part is an engine's packed log."""
_TAIL_LINES = 12
_LONGEST_LIMIT_S = 1e9


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
        return self._refused(fence.CODE)

    @property
    def held(self) -> str | None:
        """The node's sentence where it begins no trial, because a person has given it back from the sweep."""
        return self._refused(lock.HELD)

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
        found = bounded.parse_json(data, "answer", nan="null", most=MOST_PRINTED_BYTES)
    except ArchiveError:
        return None
    return found if isinstance(found, dict) else None


def failure_words(title: str, result: Mapping[str, Any], login: Login = ANYWHERE) -> str:
    """The most useful words of a failed step, in one line: its own sentence, else its title with what it printed.

    `result` has cmd, rc, stdout, stderr and msg, as far as they are known; what a module gave may be of any type. A
    command that did not get to the node at all has the reason.
    """
    answer = answer_in(result.get("stdout"))
    if answer is not None and (refusal := parse(NodeAnswer, answer).error) is not None:
        return refusal.text[:WORDS_CHARACTERS]
    if answer is not None and isinstance(said := answer.get("message"), str):
        return f"{title}: {one_line(said[:WORDS_CHARACTERS])}"
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
