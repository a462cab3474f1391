"""Requests and answers of an apply: describe, observe, change, confirm."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Mapping

from tokenpeak.node.machine.state import Json
from tokenpeak.node.protocol import field, parts
from tokenpeak.node.protocol.answers import NodeAnswer
from tokenpeak.node.protocol.field import bound, needed
from tokenpeak.node.protocol.parts import Phase, Production, RestoreOutcome, Series
from tokenpeak.node.protocol.requests import PRODUCTION_READY_S, NodeRequest


@dataclass(frozen=True)
class AppliedState:
    """The last apply that was confirmed on the node; texts are definitions as they are shown."""

    apply_id: str = bound(field.word)
    holder: str = bound(field.word)
    at_unix_s: float | None = bound(parts.seconds)
    was_sha256: str = bound(field.word)
    new_sha256: str = bound(field.word)
    was_text: str = bound(field.text())
    new_text: str = bound(field.text())


@dataclass(frozen=True)
class DescribeAnswer(NodeAnswer):
    """Production's definition as it is; what may be secret in it is hidden, and every word is in its place."""

    production: Production | None = bound(field.optional(field.structure(Production)))
    problem: str | None = bound(parts.sentence)
    """Why an apply is not possible here."""
    place: str | None = bound(parts.sentence)
    words: tuple[str, ...] = bound(parts.texts, ())
    program: int | None = bound(field.optional(field.integer(0)))
    """How many of the words are the program."""
    env: Mapping[str, str] | None = bound(field.optional(field.variables))
    image: str | None = bound(parts.sentence)
    text: str | None = bound(field.optional(field.text()))
    sha256: str | None = bound(parts.word)
    engine_version: str | None = bound(parts.word)
    """That production itself reports."""
    max_model_len: int | None = bound(field.optional(field.integer(0)))
    """The longest context that it serves, as it says itself."""
    test_load: bool | None = bound(field.flag)
    """The inventory allows a test load."""
    applied: AppliedState | None = bound(field.optional(field.structure(AppliedState)))
    unconfirmed: str | None = bound(parts.word)
    """The apply that has the node and waits to be confirmed."""


@dataclass(frozen=True)
class ObserveAnswer(NodeAnswer):
    """Production's own metrics over a while: cumulative counts, a column each (`bake` reads them)."""

    readings: Series = bound(parts.series, Series())
    ended: str | None = bound(parts.sentence)
    """Why the readings end early: production ended, or does not answer any more."""
    load_sent: int | None = bound(field.integer(0))
    load_failed: int | None = bound(field.integer(0))
    load_failure: str | None = bound(parts.sentence)
    """What the first failed request of the test load came to."""


@dataclass(frozen=True)
class ChangeAnswer(NodeAnswer):
    """Production with another definition, unconfirmed; or why not, and how production stands."""

    changed: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)
    failed_in: str | None = bound(parts.word)
    """The phase in which it failed."""
    phases: tuple[Phase, ...] = bound(parts.phases, ())
    started_at_unix_s: float | None = bound(parts.seconds)
    was_sha256: str | None = bound(parts.word)
    new_sha256: str | None = bound(parts.word)
    was_text: str | None = bound(field.optional(field.text()))
    new_text: str | None = bound(field.optional(field.text()))
    engine_version: str | None = bound(parts.word)
    downtime_s: float | None = bound(parts.seconds)
    """From production's stop to its first real answer."""
    restoration: RestoreOutcome | None = bound(field.optional(field.structure(RestoreOutcome)))


@dataclass(frozen=True)
class ConfirmAnswer(NodeAnswer):
    """The changed definition is production's own from now on; or why not."""

    confirmed: bool | None = bound(field.flag)
    message: str | None = bound(parts.sentence)
    sha256: str | None = bound(parts.word)
    phases: tuple[Phase, ...] = bound(parts.phases, ())


OBSERVE_MAX_S = 7200.0
CONCURRENCY_MAX = 64
_settle_s = field.number(0, field.SECONDS_MAX, "0 or a number of seconds")
_edit = field.entries(words=field.edited, env=field.edited_environment, image=field.optional(field.name))


@dataclass(frozen=True)
class ObserveRequest(NodeRequest):
    """Read production's metrics for `seconds`, every `period_s`, after `settle_s`; with a test load of so many."""

    seconds: float = dataclasses.field(metadata=needed(field.time_s))
    period_s: float = dataclasses.field(metadata=needed(field.time_s))
    settle_s: float = bound(_settle_s, 0.0)
    concurrency: int = bound(field.integer(0, CONCURRENCY_MAX), 0)


@dataclass(frozen=True)
class ChangeRequest(NodeRequest):
    """Change production's definition, and put it back unless a confirmation comes within `confirm_within_s`.

    `edit` is {words, env, image}: each word is a new one, or the number of the word of the present command that stays;
    which of them are the program, the node says itself. Without it, the last confirmed apply is undone. `was_sha256` is
    the definition that was shown.
    """

    apply_id: str = dataclasses.field(metadata=needed(field.trial_name))
    holder: str = dataclasses.field(metadata=needed(field.name))
    was_sha256: str = dataclasses.field(metadata=needed(field.sha256))
    lease_s: float = dataclasses.field(metadata=needed(field.time_s))
    confirm_within_s: float = dataclasses.field(metadata=needed(field.time_s))
    edit: Json | None = bound(field.optional(_edit))
    engine_version: str | None = bound(field.optional(field.name))
    """The version that production is to report afterwards; None: any."""
    production_ready_s: float = bound(field.time_s, PRODUCTION_READY_S)
    script: str | None = bound(field.optional(field.name))


@dataclass(frozen=True)
class ConfirmRequest(NodeRequest):
    """Make the changed definition production's own."""

    apply_id: str = dataclasses.field(metadata=needed(field.trial_name))
    holder: str = dataclasses.field(metadata=needed(field.name))
