"""Declared parameters of a notebook: name, type, default, unit, choices and bound, read from its parameters cell.

A line declares one, as papermill reads it too, with the rest in its comment:

    price_per_hour: float = 2.5  # USD per node-hour, > 0
    window: str = "night"  # one of: night, weekend
"""

import ast
import contextlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpeak import bounded
from tokenpeak.errors import InputError, ReportError, suggestion

TAG = "parameters"
"""Of the cell that declares them."""
_CHOICES = re.compile(r"one of:\s*([^;]+)")
_BOUND = re.compile(r"(≥|>)\s*(-?\d+(?:\.\d+)?)")
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A parameter as its notebook declares it."""

    name: str
    kind: str
    """str, int, float, bool or list; empty where neither a type nor the default says."""
    default: object
    comment: str = ""
    """What the line says after `#`: the unit, the bound and the choices."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What the value may be; empty: anything of its type."""
        found = _CHOICES.search(self.comment)
        return tuple(word.strip(" \"'`") for word in found[1].split(",")) if found else ()

    def value(self, given: object) -> object:
        """What is given, text included, as a value of the declared type; InputError where it is none or not allowed."""
        value = self._typed(given) if isinstance(given, str) else given
        if self.choices and str(value) not in self.choices:
            raise InputError(f"{self.name} is {value!r}. {suggestion(str(value), self.choices)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{self.name} is {given!r}. It must be a finite number.")
        bound = _BOUND.search(self.comment)
        if bound and isinstance(value, int | float):
            least = float(bound[2])
            if value < least or (value == least and bound[1] == ">"):
                raise InputError(f"{self.name} is {value!r}. It must be {bound[0]}: {self.comment}.")
        return value

    def _typed(self, text: str) -> object:
        try:
            match self.kind:
                case "int":
                    return int(text)
                case "float":
                    return float(text)
                case "bool":
                    return {word: word in _YES for word in (*_YES, *_NO)}[text.casefold()]
                case "list":
                    found = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
                    return [item.strip() if isinstance(item, str) else item for item in found]
        except (ValueError, KeyError) as error:
            kind = {"int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}[self.kind]
            about = f" ({self.comment})" if self.comment else ""
            raise InputError(f"{self.name} is {text!r}. It must be {kind}{about}.") from error
        return text


def declared(notebook: Path) -> dict[str, Declared]:
    """The parameters that a notebook declares, by name, in its order; none where it has no parameters cell."""
    try:
        return _of_cell(_cell(json.loads(bounded.read_bytes(notebook, error=ReportError))))
    except (ValueError, SyntaxError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise ReportError(f"{notebook.name} is no notebook whose parameters can be read: {error}.") from error


def _cell(notebook: Mapping[str, Any]) -> str:
    """The source of the parameters cell."""
    cells = [cell for cell in notebook["cells"] if TAG in cell.get("metadata", {}).get("tags", ())]
    return "".join(cells[0]["source"]) if cells else ""


def _of_cell(source: str) -> dict[str, Declared]:
    lines = source.splitlines()
    found: dict[str, Declared] = {}
    for statement in ast.parse(source).body:
        target: ast.expr
        if isinstance(statement, ast.AnnAssign):
            target, value, kind = statement.target, statement.value, ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign):
            target, value, kind = statement.targets[0], statement.value, ""
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        default = None
        if value is not None:
            # What is computed there has no type that could be read here.
            with contextlib.suppress(ValueError):
                default = ast.literal_eval(value)
        # What follows the statement on its last line is its comment, wherever else a # may stand.
        after = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset or 0 :].decode()
        comment = after.partition("#")[2].strip()
        known = re.sub(r"\[.*\]|\s*\|\s*None", "", kind) or (type(default).__name__ if default is not None else "")
        found[target.id] = Declared(name=target.id, kind=known, default=default, comment=comment)
    return found
