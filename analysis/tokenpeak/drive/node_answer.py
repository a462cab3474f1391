"""Answer of a node's command, held against its shape and bounds before anything is made of it.

A node is not trusted: what it says is shown and recorded, and must neither fill the controller's memory nor end a sweep
in a traceback. A field of another shape is left out and named under `unusable`; the trial's runs are then invalid.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from tokenpeak.records import Reason, Restoration

LOG_LIMIT_BYTES = 16 << 20
"""Of an engine's log, unpacked; a node sends 8 MiB at most."""
SAMPLES_LIMIT = 1_000_000
COLUMNS_LIMIT = 1000
ANSWER_DEPTH_LIMIT = 20
UNUSABLE = "unusable"

_Word = Annotated[str, Field(max_length=200)]
_Text = Annotated[str, Field(max_length=100_000)]
_Seconds = Annotated[float, Field(ge=-1e9, le=1e10, allow_inf_nan=False)]
_Status = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Phase(_Shape):
    name: _Word
    kind: Literal["orchestration", "engine_start", "load", "production_start"]
    started_s: _Seconds
    duration_s: _Seconds


class _Telemetry(_Shape):
    t_s: Annotated[list[_Seconds], Field(max_length=SAMPLES_LIMIT)]
    columns: Annotated[
        dict[_Word, list[Annotated[float, Field(allow_inf_nan=False)] | None]], Field(max_length=COLUMNS_LIMIT)
    ]

    @model_validator(mode="after")
    def _columns_are_as_long(self) -> Self:
        if any(len(column) != len(self.t_s) for column in self.columns.values()):
            raise ValueError("a column is not as long as the times")
        return self


def _is_restoration(told: dict[str, Any] | None) -> dict[str, Any] | None:
    if told is not None:
        found = Restoration.model_validate({key: told[key] for key in Restoration.model_fields if key in told})
        TypeAdapter(_Seconds | None).validate_python(found.downtime_s)
        TypeAdapter(_Text).validate_python(found.message)
    return told


_Restoration = Annotated[dict[str, Any] | None, AfterValidator(_is_restoration)]

_SHAPES: dict[str, Any] = {
    "declaration": dict[str, Any],
    "engine_ran": bool | None,
    "exit_status": _Status | None,
    "failure_phase": _Word | None,
    "given_back_by": _Word | None,
    "holder": _Word | None,
    "last_restoration": _Restoration,
    "lease_remaining_s": _Seconds | None,
    "log": str | None,
    "log_tail": _Text | None,
    "message": _Text | None,
    "phases": Annotated[list[_Phase], Field(max_length=10_000)],
    "production": dict[str, Any] | None,
    "production_found_down": bool,
    "production_overlap_unix_s": _Seconds | None,
    "ready": bool,
    "restoration": _Restoration,
    "script": _Word | None,
    "started_at_unix_s": _Seconds | None,
    "telemetry": _Telemetry,
    "timed_out": bool | None,
}
_STRICT = ConfigDict(strict=True)
_FIELDS: dict[str, TypeAdapter[Any]] = {
    # A model has its own configuration.
    name: TypeAdapter(shape, config=None if shape is _Telemetry else _STRICT)
    for name, shape in _SHAPES.items()
}


def checked(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer without the fields that are not what they must be; `unusable` names those."""
    kept: dict[str, Any] = {}
    unusable: list[str] = []
    for name, value in answer.items():
        shape = _FIELDS.get(name)
        try:
            if shape is not None:
                shape.validate_python(value)
        except (ValidationError, RecursionError):
            unusable.append(name)
        else:
            kept[name] = value
    return {**kept, UNUSABLE: sorted(unusable)} if unusable else kept


def unusable_reasons(answers: Mapping[str, Mapping[str, Any]]) -> tuple[Reason, ...]:
    """Why runs are invalid whose node answered what makes no sense; `answers` maps a command to its answer."""
    return tuple(
        Reason(
            code="node_answer",
            text=f"The node's answer to {command} holds what makes no sense as {', '.join(answer[UNUSABLE])}; it is "
            "left out.",
        )
        for command, answer in answers.items()
        if answer.get(UNUSABLE)
    )


def unpacked_log(packed: str) -> str:
    """The text of an engine's log as a node packs it, cut at a bound; raises ValueError for what is no such pack."""
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(packed), LOG_LIMIT_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error
    cut = f"\n[cut at {LOG_LIMIT_BYTES} bytes]\n" if unpacking.unconsumed_tail else ""
    return raw.decode(errors="replace") + cut
