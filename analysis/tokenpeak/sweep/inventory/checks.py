"""Mistakes of an inventory's files, each with its line. Nothing is rendered and no node is contacted."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tokenpeak.errors import InputError, suggestion
from tokenpeak.node.engine.builds import ONLY
from tokenpeak.node.guard import notify
from tokenpeak.node.production.managers import MANAGERS
from tokenpeak.spec.engine_build import DeclaredBuild, first_mistake
from tokenpeak.spec.located import LocatedYaml, Mistake, unreadable
from tokenpeak.spec.sweep import ModelSpec, sweep_names
from tokenpeak.sweep.inventory.variables import (
    ANSIBLE,
    BALANCER_KEYS,
    DRAIN_KEYS,
    MANAGER_KEYS,
    TASK_KEYS,
    declared_variables,
    keys_of,
)
from tokenpeak.sweep.limits import value_mistake, value_mistakes

_GROUP_KEYS = ("hosts", "children", "vars")
_ONE_OF = {"hosts": "host", "children": "group"}
_NEAR = 0.8
"""Likeness from which a variable of nobody's is taken for a mistyped one."""
_IS_A: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
}
_SAID = {"int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "KEY: VALUE"}


def inventory_files(folder: Path, nodes: tuple[str, ...] = ()) -> list[Path]:
    """The YAML files of an inventory: hosts.yml, group_vars, and host_vars of these nodes, or of all."""
    below = [path for name in ("group_vars", "host_vars") for path in sorted((folder / name).rglob("*.y*ml"))]
    others = folder / "host_vars"
    asked = [path for path in below if not nodes or others not in path.parents or {path.stem, *path.parts} & {*nodes}]
    return [folder / "hosts.yml", *(path for path in asked if path.is_file())]


def inventory_mistakes(folder: Path, nodes: tuple[str, ...] = ()) -> list[Mistake]:
    """What is wrong in the files of an inventory, by file and line; of hosts, in those of `nodes` where any are given.

    A file beyond the bounds of a YAML file is left to Ansible.
    """
    found: list[Mistake] = []
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
                found += unreadable(path, error)
    own = {name for each in files for name in _names_in_templates(each.path.read_text())}
    for each in files:
        if each.path.name == "hosts.yml" and each.path.parent == folder:
            found += _Hosts(each, own, nodes).mistakes()
        else:
            values = each.values()
            if isinstance(values, dict):
                found += _of_variables(each, (), values, own)
            elif values is not None:
                found.append(each.mistake("these are no variables; write NAME: VALUE"))
    return sorted(found)


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
    known = declared_variables()
    for name, value in variables.items():
        if name not in known and name not in own and name not in ANSIBLE:
            near = get_close_matches(str(name), (*known, *ANSIBLE), n=1, cutoff=_NEAR)
            if str(name).startswith("tokenpeak_") or near:
                text = f"nothing reads {name}. {suggestion(str(name), (*known, *ANSIBLE))}"
                yield written.mistake(text, *place, name)
            continue
        type_ = known.get(name, "str")
        is_template = isinstance(value, str) and "{{" in value
        if value is None or is_template:
            continue
        wanted = _IS_A.get(type_)
        if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and type_ != "bool")):
            yield written.mistake(f"{name} is {value!r}; give {_SAID[type_]}", *place, name)
        else:
            for where, text in _tasks(value, written.path) if name == "tokenpeak_tasks" else _content(name, value):
                yield written.mistake(text, *place, name, *where)


def _content(name: str, value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong within a variable: the place in it, and the sentence."""
    if name == "tokenpeak_default_sweep" and value not in sweep_names():
        yield (), f"no sweep is called {value!r}. {suggestion(str(value), sweep_names())}"
    if name == "tokenpeak_model":
        fields = ModelSpec.model_fields
        for key in value:
            if key not in fields:
                yield (key,), f"tokenpeak_model has no key {key}. {suggestion(str(key), fields)}"
        if "name" not in value and set(value) <= set(fields):
            yield (), "tokenpeak_model has no name; give the hub name that the node serves"
    if name == "tokenpeak_production":
        yield from _production(value)
    if name == "tokenpeak_drain":
        yield from _drain(value)
    if name == "tokenpeak_notify":
        for text in notify.problems(value):
            yield (), text
    if name == "tokenpeak_engines":
        yield from _engines(value)
    if name == "tokenpeak_model_store":
        yield from value_mistakes(value)
    if name == "tokenpeak_max_unavailable":
        for group, limit in value.items():
            mistake = value_mistake(limit) if "{{" not in str(limit) else None
            if mistake is not None:
                yield (str(group),), mistake


def _tasks(value: Mapping[str, Any], path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with the inventory's own tasks, of which this file of the inventory has the names."""
    folder = next((above for above in path.parents if (above / "hosts.yml").is_file()), path.parent)
    for key, file in value.items():
        if key not in TASK_KEYS:
            yield (key,), f"tokenpeak_tasks has no key {key}. {suggestion(str(key), TASK_KEYS)}"
        elif key == "timeout_s":
            if not isinstance(file, int | float):
                yield (key,), f"tokenpeak_tasks.timeout_s is {file!r}; give seconds"
        elif not isinstance(file, str):
            yield (key,), f"tokenpeak_tasks.{key} is {file!r}; give the name of a file with Ansible tasks"
        elif "{{" not in file and not (folder / file).is_file():
            yield (key,), f"tokenpeak_tasks.{key}: there is no file {file} in {folder}"
        elif "{{" not in file and re.search(r"^\s*(- )?throttle:", (folder / file).read_text(), re.MULTILINE):
            yield (key,), f"tokenpeak_tasks.{key}: {file} has throttle, which would hold up every other node's trial"


def _drain(value: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key in value:
        if key not in DRAIN_KEYS:
            yield (key,), f"tokenpeak_drain has no key {key}. {suggestion(str(key), DRAIN_KEYS)}"
    if not set(value) & (set(DRAIN_KEYS) - {"after", "wait", "least_up"}):
        yield (), "tokenpeak_drain names no balancer; give haproxy, nginx, kubernetes, or the commands before and after"
    for balancer, keys in BALANCER_KEYS.items():
        own = value.get(balancer)
        for key in own if isinstance(own, dict) else ():
            if key not in keys:
                yield (balancer, key), f"{balancer} takes no key {key}. {suggestion(str(key), keys)}"


def _engines(value: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with each engine build, but for what a template will make of it."""
    for name, build in value.items():
        known = DeclaredBuild.model_fields
        if not isinstance(build, dict):
            yield (name,), f"build {name} is {build!r}; write {name}: {{version: 0.32.0, command: [/opt/vllm, serve]}}"
            continue
        for key in build:
            if key not in known:
                yield (name, key), f"build {name} has no key {key}. {suggestion(str(key), known)}"
        plain = {key: each for key, each in build.items() if key in known and "{{" not in str(each)}
        given = {"command": ["vllm", "serve"], **plain} if {*build} - {*plain} else plain
        try:
            DeclaredBuild.model_validate(given)
        except ValidationError as error:
            where, text = first_mistake(error)
            yield (name, *where[:1]), f"build {name}: {text}"
    if ONLY in value:
        yield (ONLY,), f"the build of tokenpeak_engine_command is called {ONLY}; give this one another name"


def _production(value: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    manager = value.get("manager", "none")
    if "{{" in str(manager):
        return
    if manager not in MANAGERS:
        yield ("manager",), f"no manager is called {manager!r}. {suggestion(str(manager), MANAGERS)}"
        return
    if manager not in MANAGER_KEYS:
        return
    known = keys_of(manager)
    for key in value:
        if key not in known:
            yield (key,), f"manager {manager} takes no key {key}. {suggestion(str(key), known)}"
    if "unit" in known and "unit" not in value:
        yield (), f"manager {manager} needs a unit: the name of what serves the model"
