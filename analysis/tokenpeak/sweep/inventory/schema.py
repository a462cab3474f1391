"""Files that follow from the variables of inventories: argument specs, `node.json`'s template, and the JSON Schema.

`python -m tokenpeak.sweep.inventory.schema` writes them anew; `tests/sweep/test_inventory.py` holds that they follow.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tokenpeak import paths
from tokenpeak.node.guard.notify import WAYS
from tokenpeak.records import NodeFacts
from tokenpeak.spec.schema import DescribedSchema, field_docstrings
from tokenpeak.sweep.inventory.nodes import DECLARATION
from tokenpeak.sweep.inventory.variables import ControllerVariables, InventoryVariables, OnNode

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEMPLATE = {"type": "string", "pattern": "{{"}
_FACTS = ("gpus", "interconnect", "cpu", "cpu_cores", "memory_bytes")
"""What an inventory declares of its nodes."""
_TYPES: Mapping[Any, str] = {str: "str", int: "int", float: "float", bool: "bool", tuple: "list", dict: "dict"}
_NODE = ("tokenpeak_python", "tokenpeak_state_dir")
_REQUEST = (*_NODE, "tokenpeak_apply_request")
ROLES: Mapping[str, Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "cpu_engine": {
        "main": (
            "vLLM for CPUs in an environment of its own, and a small trained model",
            ("tokenpeak_python", "tokenpeak_engine_home", "tokenpeak_engine_version", "tokenpeak_model_path"),
            (),
        )
    },
    "guard": {
        "main": ("The node script, its declaration, its secret and its guard", ("tokenpeak_pyz",), ()),
        "uninstall": ("Take everything of TokenPeak's off the node", _NODE, ("tokenpeak_produce",)),
    },
    "load_host": {
        "main": (
            "The load client in an environment of its own",
            ("tokenpeak_load_bundle", "tokenpeak_python"),
            (),
        )
    },
    "production": {
        "main": (
            "Give the node back now",
            _NODE,
            ("tokenpeak_restore_holder", "tokenpeak_claim", "tokenpeak_restore"),
        ),
        "status": ("How the node stands", _NODE, ()),
        "produce": ("Start the inventory's own production", _NODE, ()),
        "describe": ("What an apply would change", _NODE, ()),
        "observe": ("Production's own metrics over a while", _REQUEST, ()),
        "change": ("Change production's definition, to be confirmed", _REQUEST, ()),
        "confirm": ("Make the changed definition production's own", _REQUEST, ()),
    },
    "simulator": {
        "main": ("The vllm and nvidia-smi of a simulated machine", ("tokenpeak_simulated_machine",), ()),
    },
}
"""Role → entry point → what it does, the variables that it needs, and those that it takes; `guard` takes all that a
node's declaration has."""


class _IndentedLists(yaml.SafeDumper):
    """Lists are indented as Ansible's own files have them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """As of any block; a list's entries never stand at the level of its key."""
        super().increase_indent(flow, indentless=False)


def inventory_schema() -> dict[str, Any]:
    """The JSON Schema of an inventory's group_vars; helpers of its author's are allowed."""
    schema = InventoryVariables.model_json_schema(schema_generator=_TemplatesToo)
    definitions, properties = schema["$defs"], schema["properties"]
    facts = NodeFacts.model_json_schema(schema_generator=DescribedSchema)
    definitions["Facts"] = {"type": "object", "properties": {name: facts["properties"][name] for name in _FACTS}}
    definitions["Gpu"] = facts["$defs"]["Gpu"]
    properties["tokenpeak_facts"]["anyOf"][0] = {"$ref": "#/$defs/Facts"}
    definitions["Receiver"]["oneOf"] = [{"required": [way]} for way in WAYS]
    head = {"$schema": _DIALECT, "title": "Variables of a TokenPeak inventory", "type": "object"}
    return {**head, "properties": dict(sorted(properties.items())), "$defs": dict(sorted(definitions.items()))}


class _TemplatesToo(DescribedSchema):
    """Each variable, and each key within one, may be a template of Ansible's, or without a value."""

    def model_schema(self, schema: Any) -> Any:
        """The schema of a model; those of what is more than an inventory's stay as they are."""
        made = super().model_schema(schema)
        if schema["cls"].__module__ != InventoryVariables.__module__:
            return made
        for name, place in made["properties"].items():
            words = {key: place.pop(key) for key in ("description", "default") if key in place}
            place.pop("title", None)
            kinds = [kind for kind in place.get("anyOf", [place]) if kind != {"type": "null"}]
            null = [{"type": "null"}] if schema["cls"] is InventoryVariables else []
            if words.get("default", 0) is None:
                del words["default"]
            made["properties"][name] = {"anyOf": [*kinds, _TEMPLATE, *null], **words}
        return made


def argument_specs(role: str) -> str:
    """The role's `meta/argument_specs.yml`."""
    entries = {}
    for entry, (short, required, optional) in ROLES[role].items():
        names = dict.fromkeys((*required, *optional))
        if (role, entry) == ("guard", "main"):
            names |= dict.fromkeys([name for name, _ in _declared()])
            names |= dict.fromkeys(["tokenpeak_secret_files", "tokenpeak_secret_name"])
        options = {name: _option(name, is_required=name in required or None) for name in names}
        entries[entry] = {"short_description": short, "options": options}
    written = yaml.dump(
        {"argument_specs": entries}, Dumper=_IndentedLists, sort_keys=False, width=110, allow_unicode=True
    )
    return f"---\n{written}"


def _option(name: str, *, is_required: bool | None) -> dict[str, Any]:
    model: type[BaseModel] = InventoryVariables if name in InventoryVariables.model_fields else ControllerVariables
    field = model.model_fields[name]
    required = is_required or (field.is_required() and model is InventoryVariables)
    option = {"type": _type(field.annotation), "required": required, "description": field_docstrings(model)[name]}
    if not required and field.default is not None:
        option["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
    return option


def _type(annotation: Any) -> str:
    """The type as argument specs name it."""
    if (origin := get_origin(annotation)) in _TYPES:
        return _TYPES[origin]
    if origin is not None:
        return _type(get_args(annotation)[0])
    return _TYPES.get(annotation, "dict")


def _declared() -> Iterator[tuple[str, OnNode]]:
    """The variables that a node's declaration has, each with its place there."""
    fields: dict[str, FieldInfo] = {**InventoryVariables.model_fields, **ControllerVariables.model_fields}
    for name, field in fields.items():
        for place in field.metadata:
            if isinstance(place, OnNode):
                yield name, place


def declaration_template() -> str:
    """The template of a node's declaration, `node.json`."""
    places: dict[str, Any] = {"node": "inventory_hostname"}
    for name, on_node in _declared():
        default = f" | default({on_node.otherwise})" if on_node.otherwise is not None else ""
        *above, last = on_node.place.split(".")
        within = places.setdefault(above[0], {}) if above else places
        within[last] = on_node.value or name + default
    places["connection"] = "ansible_connection | default('ssh')"
    return "{{ {\n" + "".join(_lines(places, 1)) + "} | to_nice_json }}\n"


def _lines(places: Mapping[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, value in places.items():
        if isinstance(value, str):
            yield f"{indent}'{name}': {value},\n"
        else:
            yield f"{indent}'{name}': {{\n{''.join(_lines(value, depth + 1))}{indent}}},\n"


def derived_files() -> dict[Path, str]:
    """Each file that follows from the variables, with its text."""
    roles = {paths.PLAYBOOKS / "roles" / role / "meta" / "argument_specs.yml": argument_specs(role) for role in ROLES}
    schema = json.dumps(inventory_schema(), indent=1, ensure_ascii=False) + "\n"
    return {**roles, DECLARATION: declaration_template(), paths.INVENTORIES / "group_vars.schema.json": schema}


if __name__ == "__main__":
    for path, text in derived_files().items():
        path.write_text(text)
