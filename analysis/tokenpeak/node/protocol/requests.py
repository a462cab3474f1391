"""Requests of a controller to the node script: put, launch, finish, restore, uninstall, heartbeat.

A request is one JSON object. All of it is checked before anything on the node is touched: a field that is missing,
unknown, of another type or out of range is an error that names it.
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

from tokenpeak.node import boards, environment
from tokenpeak.node.engine_builds import engine_build
from tokenpeak.node.error import ScriptError
from tokenpeak.node.state import Json

REQUEST_BYTES = 1 << 20
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
TEXT_MAX = 131_072
"""What Linux takes as one argument or variable."""

TRIAL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
SECRET_NAME = re.compile("secret-[0-9a-f]{8}")

Check = Callable[[Any], Optional[str]]
"""What is wrong with a value, in words that follow the field's name; None when nothing is."""


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"is {value!r:.80}, not a text"
    if not value or len(value) > 500 or not value.isprintable():
        return f"is {value!r:.80}: 1 to 500 printable characters are needed"
    return None


def _trial_id(value: Any) -> str | None:
    if isinstance(value, str) and TRIAL_ID.fullmatch(value):
        return None
    return f"is {value!r:.80}, not letters, digits and ._-"


def _secret(value: Any) -> str | None:
    if isinstance(value, str) and SECRET_NAME.fullmatch(value):
        return None
    return f"is {value!r:.80}, not the name of a secret"


def _secret_value(value: Any) -> str | None:
    """Without the value in the words."""
    return None if isinstance(value, str) and _text(value) is None else "is not 1 to 500 printable characters"


def _declaration(value: Any) -> str | None:
    return None if isinstance(value, dict) else f"is {value!r:.80}, not an object"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"is {value!r:.80}, not true or false"


def _seconds(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"is {value!r:.80}, not a number of seconds"
    if not 0 < value <= SECONDS_MAX:
        return f"is {value!r:.80}; more than 0 and at most {SECONDS_MAX:g} s are possible"
    return None


def _idle_seconds(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= IDLE_MAX_S:
        return f"is {value!r:.80}, not 0 to {IDLE_MAX_S:g} s"
    return None


def _is_passable(text: str) -> bool:
    """Whether a process can be given it: half of a surrogate pair, which JSON may hold, has no bytes."""
    try:
        return len(text.encode()) < TEXT_MAX
    except UnicodeEncodeError:
        return False


def _number(value: Any) -> str | None:
    return None if type(value) is int and 0 <= value < 1 << 63 else f"is {value!r:.80}, not a number of a heartbeat"


def _claim(value: Any) -> str | None:
    if not isinstance(value, dict) or set(value) != {"sweep_id", "generation"}:
        return f"is {value!r:.80}, not {{sweep_id, generation}}"
    generation = value["generation"]
    if type(generation) is not int or not 0 < generation < 1 << 31:
        return f"has the generation {generation!r:.80}, not a whole number from 1 on"
    return _text(value["sweep_id"])


def _nonce(value: Any) -> str | None:
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{32,64}", value):
        return None
    return f"is {value!r:.80}, not 32 to 64 hexadecimal digits"


def _served(value: Any) -> str | None:
    if not isinstance(value, dict) or set(value) != {"running", "model"} or not isinstance(value["running"], bool):
        return f"is {value!r:.80}, not {{running, model}}"
    return None if value["model"] is None else _text(value["model"])


def _words(value: Any) -> str | None:
    if not isinstance(value, list) or not 0 < len(value) <= WORDS_MAX:
        return f"is not a list of 1 to {WORDS_MAX} words"
    for word in value:
        if not isinstance(word, str) or "\0" in word or not _is_passable(word):
            return f"has the word {word!r:.80}, which no command line can hold"
    return None


def _variables(value: Any) -> str | None:
    if not isinstance(value, dict) or len(value) > VARIABLES_MAX:
        return f"is not an object of at most {VARIABLES_MAX} variables"
    for name, text in value.items():
        if not environment.NAME.fullmatch(name):
            return f"has {name!r:.80}, which is not the name of an environment variable"
        if not isinstance(text, str) or environment.wrong_value(text) or not _is_passable(text):
            return f"has {name}, whose value must be a text in one line"
    return None


def _zero_or_seconds(value: Any) -> str | None:
    return None if value == 0 and not isinstance(value, bool) else _seconds(value)


def _concurrency(value: Any) -> str | None:
    return None if type(value) is int and 0 <= value <= 64 else f"is {value!r:.80}, not 0 to 64"


def _digest(value: Any) -> str | None:
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return None
    return f"is {value!r:.80}, not a SHA-256"


def _edit(value: Any) -> str | None:
    if not isinstance(value, dict) or set(value) != {"words", "program", "env", "image"}:
        return "is not {words, program, env, image}"
    words, program, env, image = (value[name] for name in ("words", "program", "env", "image"))
    if not isinstance(words, list) or any(type(word) is not int and not isinstance(word, str) for word in words):
        return "has words that are neither words nor places of words"
    said = _words([str(word) for word in words])
    if said is not None:
        return said
    if type(program) is not int or not 0 <= program < len(words):
        return f"has a program of {program!r:.80} words"
    if not isinstance(env, dict) or (said := _variables({name: text or "" for name, text in env.items()})) is not None:
        return said or "has no variables"
    return None if image is None else _text(image)


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
    "model": _text,
    "deadline_s": _seconds,
    "lease_s": _seconds,
    "trial_deadline_s": _seconds,
    "engine_stop_s": _seconds,
    "production_ready_s": _seconds,
    "idle_s": _idle_seconds,
    "secret": _secret,
    "secret_value": _secret_value,
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
    """Whether production ran when the sweep began, and its model: what it is to be again."""
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
    wrong = [f"{name!r:.80} is unknown" for name in given if name not in known]
    for name, one in known.items():
        if name in given:
            is_left_out = given[name] is None and one.default is None
            said = None if is_left_out else CHECKS[name](given[name])
            wrong += [f"{name} {said}"] if said else []
        elif one.default is MISSING:
            wrong.append(f"{name} is missing")
    if wrong:
        what = kind.__name__.replace("Request", "").lower()
        raise ScriptError("request", f"The {what} request is refused, and nothing was touched: {'; '.join(wrong)}.")
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


def too_long(declaration: Json, lease_s: float, trial_deadline_s: float) -> list[str]:
    """What a node would refuse of a trial's lease and deadline, and by which key of the inventory."""
    most = limits(declaration)
    found = []
    if lease_s > most["lease_max_s"]:
        found.append(f"lease_s is {lease_s:g} s and tokenpeak_lease_max_s of the inventory {most['lease_max_s']:g}")
    if trial_deadline_s > most["trial_deadline_max_s"]:
        found.append(
            f"a trial may take {trial_deadline_s:g} s by its deadlines and tokenpeak_trial_deadline_max_s of the "
            f"inventory is {most['trial_deadline_max_s']:g}"
        )
    return found


def check_declared(declaration: Json, request: LaunchRequest) -> None:
    """Raise ScriptError for what the node's own declaration does not allow of a launch."""
    wrong = too_long(declaration, request.lease_s, max(request.trial_deadline_s, request.deadline_s))
    engine_build(declaration, request.engine)
    engine = declaration.get("engine") or {}
    has_chosen = boards.chosen_boards(declaration) is not None
    allowed = environment.allowed_names(engine.get("env_allowed"), bool(declaration.get("simulated")), has_chosen)
    # A config may empty a variable that the inventory itself sets.
    own = engine.get("env") or {}
    wrong += filter(
        None, (environment.why_not(name, allowed) for name, text in request.env.items() if text or name not in own)
    )
    if wrong:
        raise ScriptError("refused", f"The launch request is refused, and nothing was touched: {'; '.join(wrong)}.")


def read(source: str) -> Json:
    """The JSON object in a file, or on standard input for `-`; an empty one where a terminal or nothing is there."""
    raw = _standard_input() if source == "-" else Path(source).read_bytes()
    if len(raw) > REQUEST_BYTES:
        raise ScriptError("request", f"The request has more than {REQUEST_BYTES} bytes.")
    return parsed(raw) if raw.strip() else {}


def parsed(raw: bytes | str) -> Json:
    """The JSON object in a text; raises ScriptError for any other text."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ScriptError("request", f"The request is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ScriptError("request", "The request must be a JSON object.")
    return value


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
