"""JSON Schemas of what a user writes, for editors: a sweep, and the variables of an inventory.

They allow what is written, not what is read: short forms of axes, spans of time as texts, templates of Ansible's.
"""

from typing import Any

import yaml

from tokenpeak import paths
from tokenpeak.node.managers import MANAGERS
from tokenpeak.spec.axes import Values
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.inventory_variables import MANAGER_KEYS, declared_variables, keys_of

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SPAN = {"type": "string", "description": "A span of time: 90m, 2h, 1h30m."}
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
_TEMPLATE = {"type": "string", "pattern": "{{"}


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema of a sweep's file."""
    schema = SweepSpec.model_json_schema(by_alias=True)
    definitions, properties = schema["$defs"], schema["properties"]
    # The file's name is the sweep's where it gives none.
    schema["required"] = [name for name in schema["required"] if name != "name"]
    for name in ("Alternative", "ExtraConfig"):
        definitions[name]["properties"]["flags"]["additionalProperties"] = True
    definitions["Alternative"]["properties"]["when"]["additionalProperties"] = True
    values = Values.model_json_schema(by_alias=True)
    values["properties"]["highest"] = {"type": "boolean", "description": "Only the highest value that survives."}
    definitions["Values"] = values
    scalar = {"type": ["boolean", "integer", "number", "string", "null"]}
    properties["axes"]["additionalProperties"] = {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"anyOf": [scalar, {"$ref": "#/$defs/Alternative"}]}},
            {"$ref": "#/$defs/Values"},
            {"const": "highest"},
        ]
    }
    for span in (definitions["SearchSpec"]["properties"]["time"], properties["max_downtime"]):
        span["anyOf"].append(_SPAN)
    energy = definitions["EnergyFactors"]["properties"]
    energy["factors"] = {"type": "string", "description": "A CSV of factors by the hour, beside the sweep."}
    energy["region"] = {"type": "string", "description": "Which of its regions."}
    return {"$schema": _DIALECT, **schema, "title": "TokenPeak sweep"}


def inventory_schema() -> dict[str, Any]:
    """The JSON Schema of an inventory's group_vars; helpers of its author's are allowed."""
    words = _descriptions()
    found: dict[str, Any] = {}
    for name, type_ in sorted(declared_variables().items()):
        typed = {"type": _TYPES.get(type_, ["string", "number"])}
        found[name] = {"anyOf": [typed, _TEMPLATE, {"type": "null"}]}
        if name in words:
            found[name]["description"] = words[name]
    keys = sorted({key for manager in MANAGER_KEYS for key in keys_of(manager)} - {"manager"})
    found["tokenpeak_production"] = {
        "type": "object",
        "description": words["tokenpeak_production"],
        "properties": {"manager": {"enum": [*MANAGERS]}, **{key: {} for key in keys}},
        "additionalProperties": False,
    }
    return {"$schema": _DIALECT, "title": "Variables of a TokenPeak inventory", "type": "object", "properties": found}


def _descriptions() -> dict[str, str]:
    """Variable → what the roles that read it say of it."""
    found: dict[str, str] = {}
    for path in sorted(paths.PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            for name, option in entry["options"].items():
                found.setdefault(name, str(option["description"]))
    return found
