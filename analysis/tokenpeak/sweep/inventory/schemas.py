"""JSON Schemas of what a user writes, for editors: a sweep, and the variables of an inventory.

They allow what is written, not what is read: short forms of axes, spans of time as texts, templates of Ansible's.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from tokenpeak import paths
from tokenpeak.node.guard import notify
from tokenpeak.node.production.answering import KINDS
from tokenpeak.node.production.managers import MANAGERS
from tokenpeak.records import NodeFacts
from tokenpeak.spec.axes import Values
from tokenpeak.spec.energy import FACTORS
from tokenpeak.spec.engine_build import NAME, DeclaredBuild
from tokenpeak.spec.schema import DescribedSchema
from tokenpeak.spec.sweep import ModelSpec, SweepSpec
from tokenpeak.sweep.inventory.variables import (
    BALANCER_KEYS,
    BY_CONTROLLER,
    CONTROLLER,
    DRAIN_OPTIONS,
    MANAGER_KEYS,
    NOTIFY_KEYS,
    PRODUCTION_KEYS,
    TASK_KEYS,
    declared_variables,
    keys_of,
)
from tokenpeak.sweep.limits import KEYS as STORE_KEYS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SPAN = {"type": "string", "description": "A span of time: 90m, 2h, 1h30m."}
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
_TEMPLATE = {"type": "string", "pattern": "{{"}


FACTS = ("gpus", "interconnect", "cpu", "cpu_cores", "memory_bytes")
"""What an inventory declares of its nodes."""


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema of a sweep's file."""
    schema = SweepSpec.model_json_schema(by_alias=True, schema_generator=DescribedSchema)
    definitions, properties = schema["$defs"], schema["properties"]
    # The file's name is the sweep's where it gives none.
    schema["required"] = [name for name in schema["required"] if name != "name"]
    for name in ("Alternative", "ExtraConfig"):
        definitions[name]["properties"]["flags"]["additionalProperties"] = True
    definitions["Alternative"]["properties"]["when"]["additionalProperties"] = True
    values = Values.model_json_schema(by_alias=True, schema_generator=DescribedSchema)
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
    _short_forms_of_energy(definitions)
    # What is inherited and never allowed.
    for name, refused in {"MaxRateLoad": ("requests", "duration_s"), "StagedLoad": ("duration_s",)}.items():
        for key in refused:
            del definitions[name]["properties"][key]
    return {"$schema": _DIALECT, **schema, "title": "TokenPeak sweep"}


def _short_forms_of_energy(definitions: dict[str, Any]) -> None:
    """A factor with its range and source."""
    energy = definitions["EnergyFactors"]["properties"]
    # A user writes a factor's range with the factor itself; `cited` is how that is recorded.
    del energy["cited"]
    value = {"value": {"type": "number", "description": "The factor."}}
    cited = {**value, **definitions.pop("Citation")["properties"]}
    definitions["CitedFactor"] = {"type": "object", "properties": cited, "additionalProperties": False}
    for name in FACTORS:
        words = {key: energy[name].pop(key) for key in ("default", "description") if key in energy[name]}
        energy[name] = {**words, "anyOf": [energy[name], {"$ref": "#/$defs/CitedFactor"}]}


def inventory_schema() -> dict[str, Any]:
    """The JSON Schema of an inventory's group_vars; helpers of its author's are allowed."""
    words = _options()
    found: dict[str, Any] = {}
    for name, type_ in sorted(declared_variables().items()):
        if name not in BY_CONTROLLER:
            typed = {"type": _TYPES.get(type_, ["string", "number"])}
            found[name] = {"anyOf": [typed, _TEMPLATE, {"type": "null"}], **words[name]}
    build = DeclaredBuild.model_json_schema(schema_generator=DescribedSchema)
    facts = NodeFacts.model_json_schema(schema_generator=DescribedSchema)
    model = ModelSpec.model_json_schema(schema_generator=DescribedSchema)
    limits: dict[str, Any] = build.pop("$defs")
    declared = {
        **{f"{name.capitalize()}Balancer": _mapping(keys) for name, keys in BALANCER_KEYS.items()},
        "Drain": _drain(),
        "EngineBuild": build,
        "Facts": {"type": "object", "properties": {name: facts["properties"][name] for name in FACTS}},
        "Gpu": facts["$defs"]["Gpu"],
        "Model": model,
        "ModelStore": {**_mapping(STORE_KEYS), "required": ["name"]},
        "Receiver": _receiver(),
        "Tasks": _mapping(TASK_KEYS),
        "Production": _object({key: _production_key(key) for key in _production_keys()}),
    }
    found["tokenpeak_engines"] |= {"patternProperties": {NAME: {"$ref": "#/$defs/EngineBuild"}}}
    found["tokenpeak_drain"]["anyOf"][0] = {"$ref": "#/$defs/Drain"}
    found["tokenpeak_facts"]["anyOf"][0] = {"$ref": "#/$defs/Facts"}
    found["tokenpeak_model"]["anyOf"][0] = {"$ref": "#/$defs/Model"}
    found["tokenpeak_model_store"]["anyOf"][0] = {"$ref": "#/$defs/ModelStore"}
    found["tokenpeak_notify"]["anyOf"][0] = {"type": "array", "items": {"$ref": "#/$defs/Receiver"}}
    found["tokenpeak_tasks"]["anyOf"][0] = {"$ref": "#/$defs/Tasks"}
    found["tokenpeak_production"] = {"$ref": "#/$defs/Production", **words["tokenpeak_production"]}
    head = {"$schema": _DIALECT, "title": "Variables of a TokenPeak inventory", "type": "object"}
    return {**head, "properties": found, "$defs": {**limits, **declared}}


def _production_keys() -> list[str]:
    """The keys that some manager takes; those of all come first."""
    return list(dict.fromkeys(key for manager in ("none", *MANAGER_KEYS) for key in keys_of(manager)))


def _production_key(key: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = {
        "manager": {"enum": [*MANAGERS]},
        "answers_with": {"anyOf": [{"enum": [*KINDS]}, _TEMPLATE]},
    }
    if key in known:
        return {**known[key], "description": PRODUCTION_KEYS[key][1]}
    return _typed(*PRODUCTION_KEYS[key])


def _typed(type_: str, meaning: str) -> dict[str, Any]:
    return {"anyOf": [{"type": _TYPES.get(type_, ["string", "number"])}, _TEMPLATE], "description": meaning}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _mapping(keys: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    return _object({key: _typed(*said) for key, said in keys.items()})


def _drain() -> dict[str, Any]:
    """How a node leaves its load balancer."""
    balancers = {
        name: {"$ref": f"#/$defs/{name.capitalize()}Balancer", "description": f"Leave by {name}."}
        for name in BALANCER_KEYS
    }
    return _object(balancers | {key: _typed(*said) for key, said in DRAIN_OPTIONS.items()})


def _receiver() -> dict[str, Any]:
    """Whom to notify."""
    keys = {key: _typed(*said) for key, said in NOTIFY_KEYS.items()}
    keys["events"]["anyOf"][0] |= {"items": {"enum": [*notify.EVENTS]}}
    keys["from"]["anyOf"][0] = {"enum": [*notify.SIDES]}
    return {**_object(keys), "oneOf": [{"required": [way]} for way in notify.WAYS]}


def _options() -> dict[str, dict[str, Any]]:
    """Variable → what is said of it, and its default where it has one; the role that all nodes have says it first."""
    found: dict[str, dict[str, Any]] = {name: {"description": said} for name, (_, said) in CONTROLLER.items()}
    roles = paths.PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")
    for path in sorted(roles, key=lambda each: ("roles/guard/" not in each.as_posix(), each)):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            for name, option in entry["options"].items():
                words = {key: option[key] for key in ("description", "default") if key in option}
                found.setdefault(name, words)
    return found
