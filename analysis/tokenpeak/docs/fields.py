"""Units of fields, read off their names: `duration_s` is in seconds."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenpeak import bounded
from tokenpeak.docs.reference_tables import Entry, ReferenceTable, listed, row
from tokenpeak.errors import ReportError

_WHOLE = {
    "burstiness": "1 is Poisson",
    "concurrency": "requests",
    "cpus": "cores",
    "expected_prefix_hit_rate": "share",
    "height": "pixels",
    "gpu_hours": "GPU-hours",
    "inputs": "texts",
    "max_concurrency": "requests",
    "max_downtime": "s, or a span",
    "prefix_hit_rate": "share",
    "price_per_node_hour": "currency/h",
    "pue": "kWh/kWh",
    "starters": "beginnings",
    "time": "s, or a span",
    "turns": "requests",
    "width": "pixels",
}
_ENDINGS = {
    "_per_s": "1/s",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_tokens": "tokens",
    "_w": "W",
    "_requests": "requests",
    "requests": "requests",
    "kg_co2_per_kwh": "kg/kWh",
    "_l_per_kwh": "L/kWh",
    "price_per_kwh": "currency/kWh",
}


def unit_of(name: str) -> str:
    """The unit of a field; empty for one without."""
    if name in _WHOLE:
        return _WHOLE[name]
    return next((unit for ending, unit in _ENDINGS.items() if name.endswith(ending)), "")


LONGEST = 140
"""Characters of an example; a longer one is left to the complete example of the page."""
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


class Examples:
    """Values of a schema's fields, found in files that follow it; of several, the one in the first file counts."""

    def __init__(self, schema: Mapping[str, Any], files: Iterable[Path]) -> None:
        self._schema = schema
        self._found: dict[tuple[str, str], object] = {}
        for path in files:
            self._visit(schema, bounded.read_yaml(path, error=ReportError), "")

    def of(self, part: str, key: str) -> object | None:
        """The example of a part's field, or of the same field of another part; None where no file has one."""
        if (part, key) in self._found:
            return self._found[part, key]
        same = (other for other in self._schema["$defs"] if self._field(other, key) == self._field(part, key))
        return next((self._found[other, key] for other in same if (other, key) in self._found), None)

    def _field(self, part: str, key: str) -> object:
        node = self._schema["$defs"][part] if part else self._schema
        return node.get("properties", {}).get(key)

    def _visit(self, node: Mapping[str, Any], value: object, part: str) -> None:
        if "$ref" in node:
            part = node["$ref"].rpartition("/")[2]
            node = self._schema["$defs"][part]
        for choice in [*node.get("anyOf", ()), *node.get("oneOf", ())]:
            if self._is_of(choice, value):
                self._visit(choice, value, part)
                break
        if isinstance(value, list) and isinstance(node.get("items"), Mapping):
            for item in value:
                self._visit(node["items"], item, part)
        if isinstance(value, dict):
            self._visit_keys(node, value, part)

    def _visit_keys(self, node: Mapping[str, Any], value: dict[str, Any], part: str) -> None:
        properties = node.get("properties", {})
        others = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), None)
        for key, below in value.items():
            if key in properties:
                if below is not None and len(yaml.safe_dump(below, default_flow_style=True)) <= LONGEST:
                    self._found.setdefault((part, key), below)
                self._visit(properties[key], below, part)
            elif isinstance(others, Mapping):
                self._visit(others, below, part)

    def _is_of(self, node: Mapping[str, Any], value: object) -> bool:
        """Whether a value follows one of several schemas, as far as they differ."""
        if "$ref" in node:
            return self._is_of(self._schema["$defs"][node["$ref"].rpartition("/")[2]], value)
        if isinstance(value, dict) and "properties" in node:
            fixed = {key: each["const"] for key, each in node["properties"].items() if "const" in each}
            has_all = all(key in value for key in node.get("required", ()))
            return has_all and value.keys() <= node["properties"].keys() and fixed.items() <= {**fixed, **value}.items()
        types = node.get("type", [*_KINDS])
        return any(isinstance(value, _KINDS.get(name, ())) for name in ([types] if isinstance(types, str) else types))


HEADS = ("Key", "Type", "Unit", "Default", "Example", "Is")
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
_YAML_END = "...\n"
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

Schema = Mapping[str, Any]


class SchemaTables:
    """The tables of one schema: one for the file itself, then one for each part, in the order in which they appear."""

    def __init__(self, schema: Schema, examples: Examples, file: str, required: Iterable[str] = ()) -> None:
        self._schema = schema
        self._examples = examples
        self._file = file
        self._required = (*schema.get("required", ()), *required)
        self._places = {"": file}
        self._order = [""]
        for name in self._order:
            for key, field in self._part(name)["properties"].items():
                self._find(field, key if not name else f"{self._path(name)}.{key}")

    def _part(self, name: str) -> Schema:
        """A part by its name; the file's own for an empty one."""
        found: Schema = self._schema["$defs"][name] if name else self._schema
        return found

    def _path(self, name: str) -> str:
        return self._places[name]

    def _find(self, node: Schema, place: str) -> None:
        """Note the parts that a field refers to, and where."""
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            if name not in self._places and "properties" in self._part(name):
                self._places[name] = place
                self._order.append(name)
        for key in ("anyOf", "oneOf"):
            for choice in node.get(key, ()):
                self._find(choice, place)
        for key, step in (("items", "[]"), ("additionalProperties", ".NAME"), ("patternProperties", ".NAME")):
            below = node.get(key)
            if isinstance(below, Mapping):
                for each in below.values() if key == "patternProperties" else [below]:
                    self._find(each, f"{place}{step}")

    def tables(self) -> list[ReferenceTable]:
        """The file's table and those of its parts."""
        return [self._table(name) for name in self._order]

    def _title(self, name: str) -> str:
        """Heading of a part: where it stands in the file, and which kind it is."""
        path, words = self._path(name), _words(name)
        is_same = path.rpartition(".")[2].removesuffix("[]").replace("_", " ") == words
        return f"`{path}`{'' if is_same else f': {words}'}" if name else self._file

    def _table(self, name: str) -> ReferenceTable:
        part = self._part(name)
        required = part.get("required", ()) if name else self._required
        entries = tuple(self._entry(name, key, field, key in required) for key, field in part["properties"].items())
        says = str(part.get("description", "")) if name else ""
        return ReferenceTable(title=self._title(name), says=" ".join(says.split()), heads=HEADS, entries=entries)

    def _entry(self, part: str, key: str, field: Schema, is_required: bool) -> Entry:
        default = "required" if is_required else _default(field)
        example = self._examples.of(part, key)
        shown = _code(example) if example is not None else "–"
        return row(key, self._type(field), unit_of(key), default, shown, str(field.get("description", "")))

    def _type(self, node: Schema) -> str:
        """A field's type in words, with links to its parts."""
        choices = [*dict.fromkeys(self._choices(node))]
        if "number" in choices and "whole number" in choices:
            choices.remove("whole number")
        return listed(choices) if choices else "anything"

    def _choices(self, node: Schema) -> Iterator[str]:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            if name in self._places:
                yield f"[{_words(name)}](#{ReferenceTable(title=self._title(name)).anchor})"
        elif "enum" in node:
            yield from (f"`{value}`" for value in node["enum"])
        elif "const" in node:
            yield f"`{json.dumps(node['const'])}`" if not isinstance(node["const"], str) else f"`{node['const']}`"
        elif "anyOf" in node or "oneOf" in node:
            for choice in [*node.get("anyOf", ()), *node.get("oneOf", ())]:
                yield from self._choices(choice)
        elif node.get("pattern") != "{{":
            yield from self._of_types(node)

    def _of_types(self, node: Schema) -> Iterator[str]:
        given = node.get("type", ())
        types = [given] if isinstance(given, str) else [name for name in given if name != "null"]
        if len(types) > 2:
            yield "any value"
            return
        # A text may be written without quotes that YAML then reads as a number, such as 0.32.
        for name in ["string"] if types == ["string", "number"] else types:
            if name == "array":
                yield self._of_array(node)
            elif name == "object":
                below = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
                kinds = [self._type(each) for each in below if isinstance(each, Mapping)]
                yield f"mapping of {listed(kinds)}" if kinds else "mapping"
            elif name != "null":
                bounds = [f"{sign} {node[key]:g}" for key, sign in _BOUNDS.items() if key in node]
                yield f"{_TYPES[name]} {' and '.join(bounds)}" if bounds else _TYPES[name]

    def _of_array(self, node: Schema) -> str:
        if "prefixItems" in node:
            return "pair of " + listed([self._type(each) for each in node["prefixItems"]], "and")
        return f"list of {self._type(node['items'])}" if node.get("items") else "list"


def _words(name: str) -> str:
    """A part's name as words: `ClosedLoad` is a closed load."""
    return _CAMEL.sub(" ", name).lower().removesuffix(" spec").removesuffix(" plan")


def _default(field: Schema) -> str:
    value = field.get("default")
    return _code(value) if value not in (None, {}, [], "") and not isinstance(value, dict) else "–"


def _code(value: object) -> str:
    """A value as YAML of one line, as code."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return f"`{text.removesuffix(_YAML_END).strip()}`"
