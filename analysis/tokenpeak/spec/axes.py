"""Axes and alternatives as a user writes them: lists, ranges, patches under a name, and what depends on what."""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from tokenpeak.errors import suggestion
from tokenpeak.spec import Declaration

USUAL = {"gpu_memory_utilization": [round(0.80 + 0.01 * step, 2) for step in range(19)]}
"""The values of an axis that a spec gives as `highest`; above 0.98 nothing is left for the driver and the context."""


def _json(raw: object) -> object:
    """A mapping or list as compact JSON, which is how the engine takes it; anything else as it is."""
    return json.dumps(raw, separators=(",", ":")) if isinstance(raw, (dict, list)) else raw


ENGINE = "engine"
"""The axis whose values are engine builds."""

FlagValue = Annotated[bool | int | float | str | None, BeforeValidator(_json)]
"""A server flag's value: True gives `--flag`, False `--no-flag` where the engine has it and nothing where
False is the default, None leaves the flag out, anything else `--flag value`. Mappings and lists become JSON."""


class ModelPatch(Declaration):
    """The part of a model that an alternative changes."""

    name: str | None = None
    """Another checkpoint: its hub name, or its folder on the node."""
    revision: str | None = None
    """A revision of it on the hub."""
    served_name: str | None = None
    """The name that requests use."""


class _Patch(Declaration):
    name: str
    """Its name in tables and on pages."""
    flags: dict[str, FlagValue] = {}
    """Server flags by vLLM's names, with underscores; null leaves one out that is fixed."""
    env: dict[str, str] = {}
    """Environment variables of the engine."""
    model: ModelPatch = ModelPatch()
    """Its changes to the model."""
    engine: str | None = None
    """An engine build of the inventory by its name, or by the version of vLLM that it is."""
    args: tuple[str, ...] = ()
    """More words of a server that is not vLLM, behind its build's command; it gets no flags."""


class Alternative(_Patch):
    """One choice of an axis: a patch over model, flags, environment and engine build."""

    when: dict[str, str] = {}
    """It is a choice only together with these alternatives of earlier axes; an axis left without any is absent."""


class ExtraConfig(_Patch):
    """A config outside the grid: the fixed part with this patch."""

    force: bool = False
    """Launch it even when a rule says that it cannot work; its failure is then a result."""


class Values(Declaration):
    """An axis in its long form."""

    values: list[Any]
    """The values, or alternatives."""
    when: dict[str, Any] = {}
    """The axis exists only together with these alternatives of earlier axes."""


def spelled_out(raw: object) -> object:
    """The short form `flag: [values]` and the long form as alternatives; alternatives are left as they are."""
    if not isinstance(raw, Mapping):
        return raw
    axes: dict[str, list[dict[str, Any]]] = {}
    for axis, given in raw.items():
        when: dict[str, str] = {}
        choices = given
        if isinstance(given, Mapping):
            spelled = _long_form(axis, given)
            choices, when = spelled.values, {other: _word(value) for other, value in spelled.when.items()}
        if not isinstance(choices, list | tuple):
            raise ValueError(f"axis {axis!r} must be a list of values or alternatives, not {choices!r}")
        if not choices:
            raise ValueError(f"axis {axis!r} has no alternatives; give at least one or remove it")
        alternatives = [dict(choice) if isinstance(choice, Mapping) else _patch(axis, choice) for choice in choices]
        names = [str(alternative.get("name")) for alternative in alternatives if alternative.get("name") is not None]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"axis {axis!r} names {', '.join(map(repr, twice))} twice")
        for alternative in alternatives:
            _conditions(axis, alternative, when, axes)
        axes[axis] = alternatives
    return axes


def _patch(axis: str, choice: object) -> dict[str, Any]:
    """A value of the short form: of the flag that the axis is called after, or an engine build of the axis `engine`."""
    name = _word(choice)
    return {"name": name, "engine": name} if axis == ENGINE else {"name": name, "flags": {axis: choice}}


def seeks_highest(given: object) -> bool:
    """The axis is given as `highest`, or in the long form with `highest: true`."""
    return given == "highest" or (isinstance(given, Mapping) and given.get("highest") is True)


def without_highest(axis: str, given: object) -> object:
    """The axis's values, ascending or not; the usual ones where it has and needs none."""
    values = {key: value for key, value in given.items() if key != "highest"} if isinstance(given, Mapping) else {}
    if values:
        return values
    if axis not in USUAL:
        raise ValueError(f"axis {axis!r} has no usual values; say which: {{highest: true, values: [...]}}")
    return USUAL[axis]


def is_number(name: str) -> bool:
    """The alternative's name is a number."""
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def _long_form(axis: str, given: Mapping[str, Any]) -> Values:
    try:
        return Values.model_validate(given)
    except ValidationError as error:
        mistakes = ", ".join(
            f"{'.'.join(map(str, each['loc']))} {each['msg'].removeprefix('Value error, ')}".strip()
            for each in error.errors()
        )
        raise ValueError(f"axis {axis!r}: {mistakes}") from error


def _conditions(
    axis: str, alternative: dict[str, Any], when: Mapping[str, str], earlier: Mapping[str, list[dict[str, Any]]]
) -> None:
    """Join the axis's conditions with the alternative's own; each must name an alternative of an earlier axis."""
    own = alternative.get("when") or {}
    if not isinstance(own, Mapping):
        raise ValueError(f"axis {axis!r}: when is {own!r}; write {{AXIS: ALTERNATIVE}} of an earlier axis")
    joined = dict(when) | {other: _word(value) for other, value in own.items()}
    for other, name in joined.items():
        if other not in earlier:
            raise ValueError(f"axis {axis!r} depends on {other!r}. {suggestion(other, earlier)} It must come earlier")
        names = [str(choice.get("name")) for choice in earlier[other]]
        if name not in names:
            raise ValueError(f"axis {axis!r} depends on {other}={name}. {suggestion(name, names)}")
    if joined:
        alternative["when"] = joined


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
