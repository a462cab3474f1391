"""Requests of a controller to the node script: put, launch, finish, restore, uninstall, heartbeat.

A request is one JSON object. All of it is checked before anything on the node is touched: a field that is missing,
unknown, of another type or out of range is an error that names it, and so is a word that no word may be (`words`).
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import time
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

from tokenpeak.node.engine.builds import engine_build
from tokenpeak.node.machine import environment, words
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_output, shown_value
from tokenpeak.node.probe import boards

REQUEST_BYTES = 1 << 20
HEARTBEAT_BYTES = 1 << 14
REQUEST_TIMEOUT_S = 30.0
LEASE_MAX_S = 600.0
TRIAL_DEADLINE_MAX_S = 86_400.0
SECONDS_MAX = 31 * 86_400.0
IDLE_MAX_S = 30.0
"""No declaration allows more."""
ENGINE_STOP_S = 60.0
PRODUCTION_READY_S = 900.0
WORDS_MAX = 2_000
VARIABLES_MAX = 200
_WRONG_NAMED = 10

TRIAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
SECRET_NAME = re.compile("secret-[0-9a-f]{8}")

Check = Callable[[Any], Optional[str]]
"""What is wrong with a value, in words that follow the field's name; None when nothing is."""


def _text(given: Any) -> str | None:
    return words.wrong_name(given)


def _model(given: Any) -> str | None:
    return words.wrong_name(given) or words.wrong_place(given)


def _trial_id(given: Any) -> str | None:
    if isinstance(given, str) and TRIAL_ID.fullmatch(given):
        return None
    return f"is {shown_value(given)}, not letters, digits and ._-"


def _secret(given: Any) -> str | None:
    if isinstance(given, str) and SECRET_NAME.fullmatch(given):
        return None
    return f"is {shown_value(given)}, not the name of a secret"


def _declaration(given: Any) -> str | None:
    return words.wrong_tree(given) if isinstance(given, dict) else f"is {shown_value(given)}, not an object"


def _flag(given: Any) -> str | None:
    return None if isinstance(given, bool) else f"is {shown_value(given)}, not true or false"


def _seconds(given: Any) -> str | None:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return f"is {shown_value(given)}, not a number of seconds"
    if not 0 < given <= SECONDS_MAX:
        return f"is {shown_value(given)}; more than 0 and at most {SECONDS_MAX:g} s are possible"
    return None


def _idle_seconds(given: Any) -> str | None:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= IDLE_MAX_S:
        return f"is {shown_value(given)}, not 0 to {IDLE_MAX_S:g} s"
    return None


def _number(given: Any) -> str | None:
    return (
        None if type(given) is int and 0 <= given < 1 << 63 else f"is {shown_value(given)}, not a number of a heartbeat"
    )


def _claim(given: Any) -> str | None:
    if not isinstance(given, dict) or set(given) != {"sweep_id", "generation"}:
        return f"is {shown_value(given)}, not {{sweep_id, generation}}"
    generation = given["generation"]
    if type(generation) is not int or not 0 < generation < 1 << 31:
        return f"has the generation {shown_value(generation)}, not a whole number from 1 on"
    return _text(given["sweep_id"])


def _nonce(given: Any) -> str | None:
    if isinstance(given, str) and re.fullmatch("[0-9a-f]{32,64}", given):
        return None
    return f"is {shown_value(given)}, not 32 to 64 hexadecimal digits"


def _served(given: Any) -> str | None:
    if not isinstance(given, dict) or set(given) != {"running", "model"} or not isinstance(given["running"], bool):
        return f"is {shown_value(given)}, not {{running, model}}"
    return None if given["model"] is None else _text(given["model"])


def _words(given: Any) -> str | None:
    if not isinstance(given, list) or not 0 < len(given) <= WORDS_MAX:
        return f"is not a list of 1 to {WORDS_MAX} words"
    for place, word in enumerate(given, 1):
        if wrong := words.wrong_word(word):
            return f"has a word, number {place}, that {wrong}"
    return None


def _variables(given: Any) -> str | None:
    if not isinstance(given, dict) or len(given) > VARIABLES_MAX:
        return f"is not an object of at most {VARIABLES_MAX} variables"
    for name, text in given.items():
        if not environment.NAME.fullmatch(name):
            return f"has {shown_value(name)}, which is not the name of an environment variable"
        if wrong := words.wrong_word(text, words.WORD_BYTES - len(name) - 1):
            return f"has {name}, whose value {wrong}"
    return None


def _zero_or_seconds(given: Any) -> str | None:
    return None if given == 0 and not isinstance(given, bool) else _seconds(given)


def _concurrency(given: Any) -> str | None:
    return None if type(given) is int and 0 <= given <= 64 else f"is {shown_value(given)}, not 0 to 64"


def _digest(given: Any) -> str | None:
    if isinstance(given, str) and re.fullmatch("[0-9a-f]{64}", given):
        return None
    return f"is {shown_value(given)}, not a SHA-256"


def _edit(given: Any) -> str | None:
    if not isinstance(given, dict) or set(given) != {"words", "env", "image"}:
        return "is not {words, env, image}"
    new_words, env, image = given["words"], given["env"], given["image"]
    if not isinstance(new_words, list) or any(
        type(word) is not int and not isinstance(word, str) for word in new_words
    ):
        return "has words that are neither words nor places of words"
    if any(type(word) is int and not 0 <= word < WORDS_MAX for word in new_words):
        return f"has the place of a word that is not 0 to {WORDS_MAX - 1}"
    wrong = _words([str(word) for word in new_words])
    if wrong is not None:
        return wrong
    if not isinstance(env, dict):
        return "has no object of variables"
    wrong = _variables({name: "" if text is None else text for name, text in env.items()})
    return wrong if wrong is not None or image is None else _text(image)


CHECKS: dict[str, Check] = {
    "trial_id": _trial_id,
    "holder": _text,
    "claim": _claim,
    "number": _number,
    "argv": _words,
    "env": _variables,
    "served_model": _text,
    "engine": _text,
    "engine_version": _text,
    "engine_digest": _text,
    "model": _model,
    "deadline_s": _seconds,
    "lease_s": _seconds,
    "trial_deadline_s": _seconds,
    "engine_stop_s": _seconds,
    "production_ready_s": _seconds,
    "idle_s": _idle_seconds,
    "secret": _secret,
    "secret_value": _text,
    "declaration": _declaration,
    "restore_production": _flag,
    "keep_lock": _flag,
    "production_at_start": _served,
    "accept": _flag,
    "release": _flag,
    "key_nonce": _nonce,
    "script": _text,
    "produced": _flag,
    "apply_id": _trial_id,
    "was_sha256": _digest,
    "confirm_within_s": _seconds,
    "edit": _edit,
    "seconds": _seconds,
    "period_s": _seconds,
    "settle_s": _zero_or_seconds,
    "concurrency": _concurrency,
}
"""By a field's name, which means the same in every request. One whose default is None may be null."""


@dataclass(frozen=True)
class NodeRequest:
    """What a controller asks of a node."""


@dataclass(frozen=True)
class PutRequest(NodeRequest):
    """Put the node's declaration and its controller's secret into the state folder, beside the script that runs."""

    declaration: Json
    secret: str | None = None
    """The secret's name."""
    secret_value: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class LaunchRequest(NodeRequest):
    """Borrow the node for a trial and start its engine.

    `deadline_s` is how long the engine may take to its first completion; after `lease_s` without a sign of the
    controller, and after `trial_deadline_s` in any case, the node gives itself back.
    """

    trial_id: str
    holder: str
    argv: list[str]
    env: dict[str, str]
    served_model: str
    deadline_s: float
    lease_s: float
    trial_deadline_s: float
    engine_stop_s: float = ENGINE_STOP_S
    production_ready_s: float = PRODUCTION_READY_S
    secret: str | None = None
    key_nonce: str | None = None
    """With the node's secret and the holder, what the trial's API key follows from."""
    engine: str | None = None
    """The name of the declared engine build that `argv` starts; None: the default one."""
    engine_version: str | None = None
    """The version that this engine is to report; None: any."""
    engine_digest: str | None = None
    """What this engine is started from, as the probe found it; None: whatever is there."""
    model: str | None = None
    """What it is to serve: a folder, or a name of the hub; None: the declared one."""
    script: str | None = None
    """The digest of the controller's own node script: one of another version is refused before this is parsed."""
    production_at_start: Json | None = None
    """Whether production ran when the sweep began, and its model: only then the node brings back what it saw itself."""
    idle_s: float = 0.0
    """How long the node is left idle, with its sampler running, before the engine starts."""
    claim: Json | None = None
    """The sweep and the generation of its controller: a newer one's node refuses this."""


@dataclass(frozen=True)
class FinishRequest(NodeRequest):
    """End a trial and give the node back. `keep_lock` leaves it to the sweep."""

    trial_id: str
    holder: str
    restore_production: bool = True
    keep_lock: bool = False
    engine_stop_s: float = ENGINE_STOP_S
    production_ready_s: float = PRODUCTION_READY_S
    claim: Json | None = None


@dataclass(frozen=True)
class RestoreRequest(NodeRequest):
    """Give the node back now: from this holder only, or from whoever has it."""

    holder: str | None = None
    production_at_start: Json | None = None
    claim: Json | None = None
    accept: bool = False
    """Whatever model production serves now is the right one."""
    release: bool = False
    """Sweeps may have the node again: nothing is held, and what was held is not any more."""


@dataclass(frozen=True)
class UninstallRequest(NodeRequest):
    """Take TokenPeak off the node; with `produced`, its demonstration production too."""

    produced: bool = False


@dataclass(frozen=True)
class HeartbeatRequest(NodeRequest):
    """A line on the lease's channel: its holder is alive. The answer has the same number."""

    number: int
    holder: str
    claim: Json | None = None


def sweep_of(claim: Json | None) -> str | None:
    """The sweep that a claim is on; None without one."""
    return None if claim is None else str(claim["sweep_id"])


Request = TypeVar("Request", bound=NodeRequest)


def parse(kind: type[Request], given: Json) -> Request:
    """The request, every field of it checked; raises ScriptError that names each field that is wrong."""
    known = {one.name: one for one in fields(kind)}
    wrong = [f"{shown_value(name)} is unknown" for name in given if name not in known]
    for name, one in known.items():
        if name in given:
            is_left_out = given[name] is None and one.default is None
            said = None if is_left_out else CHECKS[name](given[name])
            wrong += [f"{name} {said}"] if said else []
        elif one.default is MISSING:
            wrong.append(f"{name} is missing")
    if wrong:
        what = kind.__name__.replace("Request", "").lower()
        reasons = "; ".join(wrong[:_WRONG_NAMED])
        raise ScriptError("request", f"The {what} request is refused, and nothing was touched: {reasons}.")
    return kind(**given)


def as_json(request: NodeRequest) -> Json:
    """The request as it is sent; what a node would refuse raises ScriptError here."""
    given = asdict(request)
    parse(type(request), given)
    return given


def limits(declaration: Json) -> dict[str, float]:
    """The longest lease and the latest deadline of a trial that the node's declaration allows, in seconds."""
    declared = declaration.get("limits") or {}
    return {
        "lease_max_s": float(declared.get("lease_max_s") or LEASE_MAX_S),
        "trial_deadline_max_s": float(declared.get("trial_deadline_max_s") or TRIAL_DEADLINE_MAX_S),
    }


def too_long(declaration: Json, lease_s: float, trial_s: float) -> list[str]:
    """What a node would refuse of a lease, and of how long production may be down, and by which key of the inventory.

    `trial_s` is all of it: the trial's deadline, the end of its engine and the return of production.
    """
    most = limits(declaration)
    found = []
    if lease_s > most["lease_max_s"]:
        found.append(f"lease_s is {lease_s:g} s and tokenpeak_lease_max_s of the inventory {most['lease_max_s']:g}")
    if trial_s > most["trial_deadline_max_s"]:
        found.append(
            f"production may be down for {trial_s:g} s by its deadlines and tokenpeak_trial_deadline_max_s of the "
            f"inventory is {most['trial_deadline_max_s']:g}"
        )
    return found


def check_declared(declaration: Json, request: LaunchRequest) -> None:
    """Raise ScriptError for what the node's own declaration does not allow of a launch."""
    longest_s = max(request.trial_deadline_s, request.deadline_s)
    wrong = too_long(declaration, request.lease_s, longest_s + request.engine_stop_s + request.production_ready_s)
    engine_build(declaration, request.engine)
    engine = declaration.get("engine") or {}
    has_chosen = boards.chosen_boards(declaration) is not None
    allowed = environment.allowed_names(engine.get("env_allowed"), bool(declaration.get("simulated")), has_chosen)
    # A config may empty a variable that the inventory itself sets.
    own = engine.get("env") or {}
    wrong += filter(
        None,
        (environment.why_not(name, allowed, text) for name, text in request.env.items() if text or name not in own),
    )
    if wrong:
        raise ScriptError("refused", f"The launch request is refused, and nothing was touched: {'; '.join(wrong)}.")


def check_finish(declaration: Json, request: FinishRequest) -> None:
    """Raise ScriptError for an end that would keep production down beyond what the node's declaration allows."""
    if wrong := too_long(declaration, 0.0, request.engine_stop_s + request.production_ready_s):
        raise ScriptError("refused", f"The finish request is refused, and nothing was touched: {'; '.join(wrong)}.")


def read(source: str) -> Json:
    """The JSON object in a file, or on standard input for `-`; an empty one where a terminal or nothing is there."""
    raw = _standard_input() if source == "-" else _file(Path(source))
    if len(raw) > REQUEST_BYTES:
        raise ScriptError("request", f"The request has more than {REQUEST_BYTES} bytes.")
    return parsed(raw) if raw.strip() else {}


def parsed(raw: bytes | str) -> Json:
    """The JSON object in a text; raises ScriptError for any other text."""
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ScriptError("request", f"The request is not JSON: {shown_output(str(error))}.") from error
    if not isinstance(given, dict):
        raise ScriptError("request", "The request must be a JSON object.")
    return given


def _file(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(REQUEST_BYTES + 1)


def _standard_input() -> bytes:
    descriptor = sys.stdin.fileno()
    if os.isatty(descriptor):
        return b""
    raw = b""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while len(raw) <= REQUEST_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise ScriptError(
                "request",
                f"No whole request came on standard input within {REQUEST_TIMEOUT_S:g} s: close it, or give "
                "`< /dev/null` for a command without one.",
            )
        chunk = os.read(descriptor, REQUEST_BYTES)
        if not chunk:
            break
        raw += chunk
    return raw
