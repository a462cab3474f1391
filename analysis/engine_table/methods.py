"""What each quantization method of a release needs: a compute capability, and the dtypes it multiplies in."""

import ast
from typing import Any

from engine_table.reader import QUANTIZATION, Release

DTYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float": "float32"}


def methods(release: Release) -> dict[str, dict[str, Any]]:
    """Method → class, least capability (75 is 7.5) and dtypes, null where only running the code would show it."""
    found: dict[str, dict[str, Any]] = {}
    for name, config in _classes(release).items():
        dtypes = _dtypes(release, config)
        found[name] = {"capability": _capability(release, config), "dtypes": dtypes}
    return found


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
    return next((found for base in bases if (found := _method(release, base, name, depth + 1))), None)


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
