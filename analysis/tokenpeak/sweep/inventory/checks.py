"""Checks of an inventory: values as their types, and mistakes of its files, each with its line.

Nothing is rendered and no node is contacted.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from tokenpeak import paths
from tokenpeak.errors import InputError, InventoryError, suggestion
from tokenpeak.node.engine.builds import ONLY
from tokenpeak.node.guard import notify
from tokenpeak.spec.mistakes import LocatedYaml, Mistake, unreadable
from tokenpeak.spec.sweep import sweep_names
from tokenpeak.sweep.inventory.nodes import Node
from tokenpeak.sweep.inventory.variables import ANSIBLE, MANAGER_KEYS, BakeSettings, InventoryVariables, keys_of

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
_GROUP_KEYS = ("hosts", "children", "vars")
_ONE_OF = {"hosts": "host", "children": "group"}
_NEAR = 0.8
"""Likeness from which a variable of nobody's is taken for a mistyped one."""
UNSETTLED = "Not settled; delete this comment once it is:"
"""How the comment in front of a variable begins whose value is a guess that nothing may be launched or stopped on."""
_TASK_FILES = ("before_launch", "after_ready", "before_return")


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
    settings: BakeSettings = parsed(Node(name=node.name, variables={"tokenpeak_bake": declared}), "tokenpeak_bake")
    return settings


def mistakes_in(variable: str, value: Any) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with a variable as it is written, but for what a template will make of it: place and sentence."""
    try:
        _adapter(variable).validate_python(value)
    except ValidationError as error:
        return sentences(variable, error)
    return []


def sentences(variable: str, error: ValidationError) -> list[tuple[tuple[str, ...], str]]:
    """Findings of pydantic in a variable, each with its place in it; templates are left to Ansible."""
    mistakes = []
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
        mistakes.append((place, text))
    return mistakes


def _keys_at(annotation: Any, place: tuple[str, ...]) -> list[str]:
    """The keys that a declared type takes at a place within it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
        return _keys_at(fields.get(place[0]), place[1:]) if place else list(fields)
    # An optional type, one with metadata, or the items of a list or mapping: the last of its parts that has keys.
    is_container = get_origin(annotation) in (dict, tuple)
    keys_of_parts = [_keys_at(part, place[1:] if is_container else place) for part in get_args(annotation)]
    return next((keys for keys in reversed(keys_of_parts) if keys), [])


def inventory_files(folder: Path, nodes: tuple[str, ...] = ()) -> list[Path]:
    """The YAML files of an inventory: hosts.yml, group_vars, and host_vars of these nodes, or of all."""
    below = [path for name in ("group_vars", "host_vars") for path in sorted((folder / name).rglob("*.y*ml"))]
    others = folder / "host_vars"
    chosen = [path for path in below if not nodes or others not in path.parents or {path.stem, *path.parts} & {*nodes}]
    return [folder / "hosts.yml", *(path for path in chosen if path.is_file())]


def inventory_mistakes(folder: Path, nodes: tuple[str, ...] = ()) -> list[Mistake]:
    """What is wrong in the files of an inventory, by file and line; of hosts, in those of `nodes` where any are given.

    A file beyond the bounds of a YAML file is left to Ansible.
    """
    mistakes: list[Mistake] = []
    files: list[LocatedYaml] = []
    for path in inventory_files(folder, nodes):
        if path.is_file() and path.read_bytes().startswith(b"$ANSIBLE_VAULT"):
            continue
        try:
            written = LocatedYaml(path)
            written.values()
            files.append(written)
        except InputError as error:
            if isinstance(error.__cause__, yaml.MarkedYAMLError | ValueError | RecursionError):
                mistakes += unreadable(path, error)
    own = {name for each in files for name in _names_in_templates(each.path.read_text())}
    for each in files:
        if each.path.name == "hosts.yml" and each.path.parent == folder:
            mistakes += _Hosts(each, own, nodes).mistakes()
        else:
            values = each.values()
            if isinstance(values, dict):
                mistakes += _of_variables(each, (), values, own)
            elif values is not None:
                mistakes.append(each.mistake("these are no variables; write NAME: VALUE"))
    return sorted(mistakes)


def missing_variables(folder: Path) -> list[Mistake]:
    """The variables that every node needs and that no file of the inventory gives, as one mistake.

    Nothing where a file is encrypted, unreadable or not named as YAML, or where there are load hosts alone.
    """
    paths = inventory_files(folder)
    others = {path for name in ("group_vars", "host_vars") for path in (folder / name).rglob("*") if path.is_file()}
    if others - {*paths} or any(path.read_bytes().startswith(b"$ANSIBLE_VAULT") for path in paths if path.is_file()):
        return []
    try:
        files = [LocatedYaml(path) for path in paths if path.is_file()]
        given = {name for each in files for name in _keys(each.values())}
    except InputError:
        return []
    if "load_hosts" in given and "tokenpeak_production" not in given:
        return []
    needed = (name for name, field in InventoryVariables.model_fields.items() if field.is_required())
    missing = [name for name in needed if name not in given]
    place = folder / "group_vars" / "all.yml"
    text = f"its nodes have no {', '.join(missing)}; give each in {place}, or below its host here"
    return [files[0].mistake(text)] if missing else []


def _keys(value: object) -> Iterator[str]:
    """The keys of mappings at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)


def _names_in_templates(text: str) -> set[str]:
    """Variables that templates of the inventory use: helpers of its author's."""
    return {name for template in re.findall(r"{{.*?}}", text, re.DOTALL) for name in re.findall(r"\w+", template)}


@dataclass(frozen=True)
class _Hosts:
    """The file hosts.yml; `own` are helpers of its author's, `nodes` the hosts that matter, all when empty."""

    written: LocatedYaml
    own: set[str]
    nodes: tuple[str, ...]

    def mistakes(self) -> Iterator[Mistake]:
        """What is wrong in it."""
        groups = self.written.values()
        if not isinstance(groups, dict) or not groups:
            yield self.written.mistake("it has no hosts; write all: {hosts: {NAME: {ansible_host: ADDRESS}}}")
            return
        for name, group in groups.items():
            if name in ("hosts", "vars"):
                yield self.written.mistake(f"{name} belongs to a group: indent it below all:", name)
            else:
                yield from self._group((name,), group)

    def _group(self, place: tuple[str, ...], group: object) -> Iterator[Mistake]:
        if group is None:
            return
        if not isinstance(group, dict):
            yield self.written.mistake(f"group {place[-1]} is {group!r}; it has hosts, children and vars", *place)
            return
        for key in group:
            if key not in _GROUP_KEYS:
                is_host = group.get("hosts", 0) is None
                instead = "If it is a host, indent it below hosts." if is_host else suggestion(str(key), _GROUP_KEYS)
                yield self.written.mistake(f"{key} is no key of group {place[-1]}. {instead}", *place, key)
        for key in ("hosts", "children"):
            members = group.get(key)
            if members is not None and not isinstance(members, dict):
                name = members[0] if isinstance(members, list) and members else members
                text = f"{key} is {members!r}; write each {_ONE_OF[key]} as a key: {name}:"
                yield self.written.mistake(text, *place, key)
            for name, member in (members if isinstance(members, dict) else {}).items():
                below = (*place, key, name)
                yield from self._host(below, member) if key == "hosts" else self._group(below, member)
        if isinstance(group.get("vars"), dict):
            yield from _of_variables(self.written, (*place, "vars"), group["vars"], self.own)

    def _host(self, place: tuple[str, ...], variables: object) -> Iterator[Mistake]:
        name = str(place[-1])
        if name.startswith(("ansible_", "tokenpeak_")):
            yield self.written.mistake(f"{name} is no host; indent it below the name of its host", *place)
        elif self.nodes and name not in self.nodes:
            return
        elif isinstance(variables, dict):
            yield from _of_variables(self.written, place, variables, self.own)
        elif variables is not None:
            text = f"host {name} is {variables!r}; write {name}: {{ansible_host: {variables}}}"
            yield self.written.mistake(text, *place)


def _of_variables(
    written: LocatedYaml, place: tuple[str, ...], variables: dict[str, Any], own: set[str]
) -> Iterator[Mistake]:
    """Variables of hosts or groups: unknown names, wrong types, and what some of them hold."""
    known = InventoryVariables.model_fields
    for name, value in variables.items():
        # By the comment and not by the value: what was found may be right, and a person alone knows that.
        _, mark, doubt = written.comment(*place, name).partition(UNSETTLED)
        if mark:
            text = f"{name} is not settled:{doubt} Correct it if need be, and delete the comment in front of it."
            yield written.mistake(text, *place, name)
        if name not in known:
            near = get_close_matches(str(name), (*known, *ANSIBLE), n=1, cutoff=_NEAR)
            if name not in own and name not in ANSIBLE and (str(name).startswith("tokenpeak_") or near):
                text = f"nothing reads {name}. {suggestion(str(name), (*known, *ANSIBLE))}"
                yield written.mistake(text, *place, name)
            continue
        if value is None or (isinstance(value, str) and "{{" in value):
            continue
        if name == "tokenpeak_notify":
            mistakes: list[tuple[tuple[str, ...], str]] = [((), text) for text in notify.problems(value)]
        else:
            mistakes = mistakes_in(name, value) or [*_content(name, value, written.path)]
        for where, text in mistakes:
            yield written.mistake(text, *place, name, *where)


def _content(name: str, value: Any, path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong within a variable of the right type: the place in it, and the sentence."""
    if name == "tokenpeak_default_sweep" and value not in sweep_names():
        yield (), f"no sweep is called {value!r}. {suggestion(str(value), sweep_names())}"
    if name == "tokenpeak_production":
        yield from _production(value)
    if name == "tokenpeak_drain" and not set(value) & {"haproxy", "nginx", "kubernetes", "before"}:
        yield (), "tokenpeak_drain names no balancer; give haproxy, nginx, kubernetes, or the commands before and after"
    if name == "tokenpeak_engines" and ONLY in value:
        yield (ONLY,), f"the build of tokenpeak_engine_command is called {ONLY}; give this one another name"
    folder = next((above for above in path.parents if (above / "hosts.yml").is_file()), path.parent)
    if name == "tokenpeak_state_dir" and Path(value).expanduser() == paths.state_dir() and _has_local(folder):
        yield (), f"{value} is the controller's own state folder, and a node is this machine; give another folder"
    if name == "tokenpeak_tasks":
        for key in _TASK_FILES:
            if (file := value.get(key)) is not None and "{{" not in file and (text := _task_file(folder / file)):
                yield (key,), f"tokenpeak_tasks.{key}: {text}"


def _has_local(folder: Path) -> bool:
    """Whether a node of the inventory is this machine, without SSH."""
    written = r"ansible_connection[\"']?:\s*[\"']?local\b"
    return any(
        re.search(written, path.read_text("utf-8", "replace")) for path in inventory_files(folder) if path.is_file()
    )


def _task_file(path: Path) -> str | None:
    """What is wrong with a file of the inventory's own tasks; None where nothing is."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return f"there is no file {path}"
    except (OSError, UnicodeDecodeError) as error:
        return f"{path} cannot be read: {error}; give a file of Ansible tasks in UTF-8"
    if re.search(r"^\s*(- )?throttle:", text, re.MULTILINE):
        return f"{path} has throttle, which would hold up every other node's trial"
    return None


def _production(value: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    manager = value.get("manager", "none")
    if manager not in MANAGER_KEYS:
        return
    known = keys_of(manager)
    for key in value:
        if key not in known:
            yield (key,), f"manager {manager} takes no key {key}. {suggestion(str(key), known)}"
    if "unit" in known and "unit" not in value:
        yield (), f"manager {manager} needs a unit: the name of what serves the model"
