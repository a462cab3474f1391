"""Values that an inventory declares, as their types; and what is wrong with them, in sentences."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from tokenpeak.errors import InventoryError, suggestion
from tokenpeak.sweep.inventory.nodes import Node
from tokenpeak.sweep.inventory.variables import BakeSettings, InventoryVariables

_WANTED = {
    "bool": "give true or false",
    "dict": "write KEY: VALUE",
    "float": "give a number",
    "int": "give a whole number",
    "model": "write KEY: VALUE",
    "string": "give a text",
    "tuple": "give a list",
}
"""Beginning of the name of a type error of pydantic's → what to do."""


@cache
def _adapter(variable: str) -> TypeAdapter[Any]:
    field = InventoryVariables.model_fields[variable]
    declared: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(declared)


def parsed(node: Node, variable: str) -> Any:
    """What the node declares by a variable, as its type; None where it declares nothing. Raises InventoryError."""
    value = node.variables.get(variable)
    if value is None:
        return None
    try:
        return _adapter(variable).validate_python(value)
    except ValidationError as error:
        _, text = next(iter(sentences(variable, error)))
        end = "" if text.endswith(("?", ".")) else "."
        raise InventoryError(f"Node {node.name}: {text}{end}") from error


def bake_of(node: Node, bake_s: float | None = None) -> BakeSettings:
    """How an apply to the node is judged; `bake_s` is given in place of the inventory's."""
    declared = node.variables.get("tokenpeak_bake") or {}
    if bake_s is not None and isinstance(declared, Mapping):
        declared = {**declared, "bake_s": bake_s}
    found: BakeSettings = parsed(Node(name=node.name, variables={"tokenpeak_bake": declared}), "tokenpeak_bake")
    return found


def mistakes_in(variable: str, value: Any) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with a variable as it is written, but for what a template will make of it: place and sentence."""
    try:
        _adapter(variable).validate_python(value)
    except ValidationError as error:
        return sentences(variable, error)
    return []


def sentences(variable: str, error: ValidationError) -> list[tuple[tuple[str, ...], str]]:
    """Findings of pydantic in a variable, each with its place in it; templates are left to Ansible."""
    found = []
    unknown = {finding["loc"][:-1] for finding in error.errors() if finding["type"] == "extra_forbidden"}
    for finding in error.errors():
        place = tuple(str(part) for part in finding["loc"] if part != "[key]")
        given, kind = finding["input"], finding["type"]
        if kind == "missing" and finding["loc"][:-1] in unknown:
            continue  # a key that is missing because it is mistyped is one mistake
        if kind not in ("missing", "extra_forbidden") and "{{" in str(given):
            continue
        name = ".".join((variable, *place))
        owner = ".".join((variable, *place[:-1]))
        if kind == "extra_forbidden":
            known = _keys_at(InventoryVariables.model_fields[variable].annotation, place[:-1])
            text = f"{owner} has no key {place[-1]}. {suggestion(place[-1], known)}"
        elif kind == "missing":
            text = f"{owner} has no {place[-1]}; give it"
        elif kind == "literal_error":
            known = str(finding["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            text = f"no {place[-1] if place else variable} is called {given!r}. {suggestion(str(given), known)}"
        else:
            wanted = next((words for start, words in _WANTED.items() if kind.startswith(start)), None)
            words = finding["msg"].removeprefix("Value error, ")
            shown = "" if kind == "value_error" else f" (given: {given!r})"
            if kind == "string_pattern_mismatch" and "mounts" in place:
                wanted = "write /ON/THE/NODE:/IN/THE/CONTAINER, with :ro where it only reads"
            text = f"{name} is {given!r}; {wanted}" if wanted else f"{name}: {words}{shown}"
        found.append((place, text))
    return found


def _keys_at(annotation: Any, place: tuple[str, ...]) -> list[str]:
    """The keys that a declared type takes at a place within it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
        return _keys_at(fields.get(place[0]), place[1:]) if place else list(fields)
    # An optional type, one with metadata, or the items of a list or mapping: the last of its parts that has keys.
    is_container = get_origin(annotation) in (dict, tuple)
    found = [_keys_at(part, place[1:] if is_container else place) for part in get_args(annotation)]
    return next((keys for keys in reversed(found) if keys), [])
