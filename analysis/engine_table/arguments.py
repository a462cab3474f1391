"""The `add_argument` calls of a release's parser, each as the facts of a flag."""

import ast
from collections.abc import Iterator
from typing import Any

from engine_table.reader import ARG_FILES, ARG_FUNCTIONS, QUANTIZATION, SIZES, UNKNOWN, Release

ACTIONS = {
    "store_true": "switch",
    "store_false": "switch",
    "BooleanOptionalAction": "bool",
    "StoreBoolean": "bool_value",
    "append": "append",
}
TYPES = {"int": "int", "float": "float", "str": "str", "loads": "json", "nullable_str": "str", **SIZES}
DTYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float": "float32"}


def flags(release: Release) -> dict[str, dict[str, Any]]:
    """Flag (underscored) → kind, default, choices, deprecated, short forms; of `vllm serve`."""
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    functions = [
        Function(release, node, changes)
        for path in ARG_FILES
        for node in ast.walk(release.trees.get(path, ast.Module([], [])))
        if isinstance(node, ast.FunctionDef) and node.name in ARG_FUNCTIONS
    ]
    facts: dict[str, dict[str, Any]] = {}
    for function in functions:
        facts |= function.arguments()
    return facts


class Function:
    """One function that adds arguments: its local names, and what it changes of a config's keywords."""

    def __init__(
        self, release: Release, function: ast.FunctionDef, changes: dict[tuple[str, str], dict[str, Any]]
    ) -> None:
        self.release = release
        self.function = function
        self.configs: dict[str, str] = {}
        self.aliases: dict[str, tuple[str, str]] = {}
        self.changes = changes
        if any(argument.arg == "frontend_kwargs" for argument in function.args.args):
            self.configs["frontend_kwargs"] = "FrontendArgs"
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                self._assigned(node.targets[0], node.value)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    if (place := self._place(target)) and place[2] == "nargs":
                        change = self.changes.setdefault(place[:2], {})
                        change.setdefault("kind", "json")
                        change["one"] = True

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and _called(value) == "get_kwargs":
            config = value.args[0].id if isinstance(value.args[0], ast.Name) else ""
            # `cls` is whichever class the parser asks: the OpenAI server's
            self.configs[target.id] = "FrontendArgs" if config == "cls" else config
        elif isinstance(target, ast.Name) and (field := self._field(value)):
            self.aliases[target.id] = field
        elif place := self._place(target):
            config, field_name, keyword = place
            change = self.changes.setdefault((config, field_name), {})
            if keyword == "type":
                kind = _kind_of_type(value)
                if kind and change.get("kind") != "append":
                    change["kind"] = kind
            elif keyword == "action" and isinstance(value, ast.Constant):
                change.update(kind=ACTIONS.get(str(value.value), "str"), one=True)

    def _field(self, node: ast.expr) -> tuple[str, str] | None:
        """The config class and field of `model_kwargs["dtype"]`."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and isinstance(node.slice, ast.Constant)
        ):
            config = self.configs.get(node.value.id)
            return (config, str(node.slice.value)) if config else None
        return None

    def _place(self, node: ast.expr) -> tuple[str, str, str] | None:
        """The config class, field and keyword of `model_kwargs["dtype"]["type"]`."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and (f := self._field(node.value)):
            return (*f, str(node.slice.value))
        return None

    def arguments(self) -> dict[str, dict[str, Any]]:
        """Flag → facts of each `add_argument` call, loops over a config's fields unrolled."""
        arguments: dict[str, dict[str, Any]] = {}
        for node in ast.walk(self.function):
            if isinstance(node, ast.For) and (config := self._looped(node)):
                for name in self.release.fields(config):
                    arguments[name] = _facts(self._field_keywords((config, name)))
            elif isinstance(node, ast.Call) and _called(node) == "add_argument":
                words = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
                long = [word for word in words if word.startswith("--")]
                if not long:
                    continue
                facts = _facts(self._keywords(node))
                if short := [word for word in words if word not in long]:
                    facts["short"] = short
                for word in long:
                    arguments[word[2:].replace("-", "_")] = facts
        return arguments

    def _looped(self, node: ast.For) -> str | None:
        """The config class whose keywords `for key, value in frontend_kwargs.items()` runs over."""
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Attribute):
            owner = node.iter.func.value
            return self.configs.get(owner.id) if isinstance(owner, ast.Name) else None
        return None

    def _field_keywords(self, field: tuple[str, str]) -> dict[str, Any]:
        argument, change = self.release.field_argument(*field), dict(self.changes.get(field, {}))
        if argument.get("kind") == "list" and not change.pop("one", False):
            change.pop("kind", None)  # a converter of the items, as long as there are several
        return argument | change

    def _keywords(self, call: ast.Call) -> dict[str, Any]:
        keywords: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                for spread in _spreads(keyword.value):
                    if field := self._field(spread):
                        keywords |= self._field_keywords(field)
                        break
                if isinstance(keyword.value, ast.Dict):
                    for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                        if isinstance(key, ast.Constant):
                            keywords |= self._keyword(str(key.value), value)
            else:
                keywords |= self._keyword(keyword.arg, keyword.value)
        return keywords

    def _keyword(self, name: str, value: ast.expr) -> dict[str, Any]:
        if name == "default":
            return {"default": self.release.value(value)}
        if name == "choices":
            choices = self.release.value(value)
            return {"choices": choices} if isinstance(choices, list) else {}
        if name == "action":
            action = str(value.value) if isinstance(value, ast.Constant) else _bare(value)
            return {"kind": ACTIONS[action]} if action in ACTIONS else {}
        if name == "type":
            return {"kind": kind} if (kind := _kind_of_type(value)) else {}
        if name == "nargs":
            return {"nargs": self.release.value(value)}
        if name == "help":
            text = self.release.value(value)
            return {"deprecated": True} if isinstance(text, str) and "deprecated" in text.lower() else {}
        if name == "deprecated":
            return {"deprecated": bool(self.release.value(value))}
        return {}


def _facts(keywords: dict[str, Any]) -> dict[str, Any]:
    """A flag's facts without those that say nothing."""
    facts: dict[str, Any] = {"kind": keywords.get("kind", "str")}
    nargs = keywords.get("nargs")
    if (nargs in ("+", "*") or isinstance(nargs, int)) and facts["kind"] not in ("json", "bool_value"):
        facts["kind"] = "list"
    default = keywords.get("default", None if facts["kind"] != "switch" else False)
    if default is not UNKNOWN and _plain(default):
        facts["default"] = default
    choices = [choice for choice in keywords.get("choices", []) if choice not in (None, "None")]
    if choices and _plain(choices):
        facts["choices"] = list(dict.fromkeys(choices))
    if keywords.get("deprecated"):
        facts["deprecated"] = True
    return facts


def variables(release: Release) -> dict[str, Any]:
    """Environment variable → default (null where it has none, or only running shows it) of a release's envs.py."""
    tree = release.trees["vllm/envs.py"]
    declared: dict[str, ast.expr | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            declared[node.target.id] = node.value
    table = declared.get("environment_variables")
    names = [key.value for key in table.keys if isinstance(key, ast.Constant)] if isinstance(table, ast.Dict) else []
    defaults = {str(name): release.value(declared.get(str(name))) for name in names}
    return {name: None if value is UNKNOWN or not _plain(value) else value for name, value in defaults.items()}


def _plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or isinstance(value, (bool, int, float, str)) or value == {}


def _spreads(node: ast.expr) -> Iterator[ast.expr]:
    """What `**` unpacks, also within a dict display: `**{**kwargs["x"], "help": …}`."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield value
    else:
        yield node


def _called(node: ast.Call) -> str:
    return _bare(node.func)


def _bare(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _kind_of_type(node: ast.expr) -> str | None:
    """The kind that a `type=` converter gives; None where it changes nothing about how the value is written."""
    if isinstance(node, ast.Call):  # optional_type(int), parse_type(json.loads), Config.from_cli …
        return _kind_of_type(node.args[0]) if node.args else None
    if isinstance(node, ast.Lambda):
        return None
    name = _bare(node)
    if name.startswith("nullable_kvs"):
        return "str"
    return TYPES.get(name, "json" if name in ("from_cli", "validate_json", "union_dict_and_str") else None)


def methods(release: Release) -> dict[str, dict[str, Any]]:
    """Method → class, least capability (75 is 7.5) and dtypes, null where only running the code would show it."""
    facts: dict[str, dict[str, Any]] = {}
    for name, config in _classes(release).items():
        dtypes = _dtypes(release, config)
        facts[name] = {"capability": _capability(release, config), "dtypes": dtypes}
    return facts


def _classes(release: Release) -> dict[str, str]:
    """Method → config class, from `method_to_config` in quantization/__init__.py."""
    for node in ast.walk(release.trees[QUANTIZATION + "__init__.py"]):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)):
            continue
        if isinstance(node.target, ast.Name) and node.target.id == "method_to_config":
            return {
                str(key.value): value.id if isinstance(value, ast.Name) else ""
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if isinstance(key, ast.Constant)
            }
    return {}


def _method(release: Release, owner: str, name: str, depth: int = 0) -> ast.FunctionDef | None:
    definition = release.classes.get(owner)
    if definition is None or depth > 5:
        return None
    for item in definition.body:
        if isinstance(item, ast.FunctionDef) and item.name == name:
            return item
    bases = [base.id for base in definition.bases if isinstance(base, ast.Name)]
    return next((function for base in bases if (function := _method(release, base, name, depth + 1))), None)


def _returned(function: ast.FunctionDef | None) -> list[ast.expr]:
    nodes = ast.walk(function) if function else []
    return [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]


def _capability(release: Release, owner: str) -> int | None:
    """The least of what `get_min_capability` may return."""
    values = [release.value(value) for value in _returned(_method(release, owner, "get_min_capability"))]
    numbers = [value for value in values if isinstance(value, int)]
    return min(numbers) if numbers and len(numbers) == len(values) else None


def _dtypes(release: Release, owner: str) -> list[str] | None:
    """What `get_supported_act_dtypes` may return, all branches together."""
    returned = _returned(_method(release, owner, "get_supported_act_dtypes"))
    if not returned or not all(isinstance(value, ast.List) for value in returned):
        return None
    names = [
        item.attr
        for value in returned
        if isinstance(value, ast.List)
        for item in value.elts
        if isinstance(item, ast.Attribute)
    ]
    return sorted({DTYPES[name] for name in names if name in DTYPES})
