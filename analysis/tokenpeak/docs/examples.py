"""Examples of fields: the first value that a shipped file gives a field, so that each example is one that works."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenpeak import bounded
from tokenpeak.errors import ReportError

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

Schema = Mapping[str, Any]


class Examples:
    """Values of a schema's fields, found in files that follow it; of several, the one in the first file counts."""

    def __init__(self, schema: Schema, files: Iterable[Path]) -> None:
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

    def _visit(self, node: Schema, value: object, part: str) -> None:
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

    def _visit_keys(self, node: Schema, value: dict[str, Any], part: str) -> None:
        properties = node.get("properties", {})
        others = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), None)
        for key, below in value.items():
            if key in properties:
                if below is not None and len(yaml.safe_dump(below, default_flow_style=True)) <= LONGEST:
                    self._found.setdefault((part, key), below)
                self._visit(properties[key], below, part)
            elif isinstance(others, Mapping):
                self._visit(others, below, part)

    def _is_of(self, node: Schema, value: object) -> bool:
        """Whether a value follows one of several schemas, as far as they differ."""
        if "$ref" in node:
            return self._is_of(self._schema["$defs"][node["$ref"].rpartition("/")[2]], value)
        if isinstance(value, dict) and "properties" in node:
            fixed = {key: each["const"] for key, each in node["properties"].items() if "const" in each}
            has_all = all(key in value for key in node.get("required", ()))
            return has_all and value.keys() <= node["properties"].keys() and fixed.items() <= {**fixed, **value}.items()
        types = node.get("type", [*_KINDS])
        return any(isinstance(value, _KINDS.get(name, ())) for name in ([types] if isinstance(types, str) else types))
