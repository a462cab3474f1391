"""What a release's argparse definitions say, read from its source without running it.

Up to 0.7 each flag is an `add_argument` call with everything in it. Since 0.8 most calls take their keywords from the
fields of config dataclasses (`**model_kwargs["dtype"]`), by the rules of `_compute_kwargs` in engine/arg_utils.py;
those rules are repeated here over annotations.
"""

import ast
import io
import json
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

UNKNOWN = object()
ARG_FILES = (
    "vllm/engine/arg_utils.py",
    "vllm/entrypoints/openai/cli_args.py",  # up to 0.28
    "vllm/entrypoints/launchers/cli_args.py",  # 0.29 to 0.32
    "vllm/entrypoints/common/cli_args.py",  # since 0.33
    "vllm/entrypoints/cli/serve.py",
)
QUANTIZATION = "vllm/model_executor/layers/quantization/"
ARG_FUNCTIONS = ("add_cli_args", "make_arg_parser", "subparser_init", "_customize_cli_kwargs")
WRAPPERS = ("Optional", "Union", "Annotated", "SkipValidation")
SIZES = {"human_readable_int": "size", "human_readable_int_or_auto": "size_or_auto"}
BLOCK = 1 << 19
PLATFORMS = ("1", "2014", *(f"_2_{minor}" for minor in (17, 24, 28, 31, 34, 35)))


def wanted(path: str) -> bool:
    """Whether a file of the wheel has a say in flags or variables."""
    listed = path in (*ARG_FILES, "vllm/envs.py", "vllm/config.py")
    return listed or (path.startswith(("vllm/config/", QUANTIZATION)) and path.endswith(".py"))


@dataclass
class Release:
    """The syntax trees of a release with their classes and module-level names, looked up by bare name."""

    trees: dict[str, ast.Module]
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    names: dict[str, ast.expr] = field(default_factory=dict)

    @classmethod
    def parse(cls, files: dict[str, str]) -> "Release":
        """Index the trees of a release's files, given as path → text."""
        release = cls({path: ast.parse(text) for path, text in files.items()})
        for tree in release.trees.values():
            for node in tree.body:
                release._index(node)
        return release

    def _index(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            self.classes.setdefault(node.name, node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.names.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self.names.setdefault(node.target.id, node.value)
        elif isinstance(node, (ast.If, ast.Try)):
            for child in [*node.body, *node.orelse]:
                self._index(child)

    # Values

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """What an expression evaluates to, or UNKNOWN where only running it would show it."""
        if node is None or depth > 8:
            return UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items: list[Any] = []
            for element in node.elts:
                if isinstance(element, ast.Starred):
                    spread = self.value(element.value, depth + 1)
                    items += spread if isinstance(spread, list) else [UNKNOWN]
                else:
                    items.append(self.value(element, depth + 1))
            return UNKNOWN if UNKNOWN in items else items
        if isinstance(node, ast.Name):
            return self.value(self.names.get(node.id), depth + 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._attribute(node.value.id, node.attr, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Subscript):
            return self._literal(node, depth)
        if isinstance(node, ast.ListComp):  # [f.value for f in SomeEnum]
            return self._enum_values(node.generators[0].iter)
        try:
            return ast.literal_eval(node)
        except ValueError:
            return UNKNOWN

    def _attribute(self, owner: str, name: str, depth: int) -> Any:
        fields = self.fields(owner)
        return self.value(fields[name][1], depth + 1) if name in fields else UNKNOWN

    def _call(self, node: ast.Call, depth: int) -> Any:
        name = _callee(node)
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if name in ("field", "Field"):
            if "default" in keywords:
                return self.value(keywords["default"], depth + 1)
            if node.args:
                return self.value(node.args[0], depth + 1)
            factory = keywords.get("default_factory")
            if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set"):
                return {} if factory.id == "dict" else []
            return self.value(factory.body, depth + 1) if isinstance(factory, ast.Lambda) else UNKNOWN
        if name == "get_field" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            return self._attribute(node.args[0].id, str(self.value(node.args[1])), depth)
        if name in ("list", "sorted", "get_args", "tuple") and len(node.args) == 1:
            return self.value(node.args[0], depth + 1)
        return UNKNOWN

    def _literal(self, node: ast.Subscript, depth: int) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            choices: list[Any] = []
            for element in elements:
                value = self.value(element, depth + 1)
                choices += value if isinstance(value, list) else [value]
            return UNKNOWN if UNKNOWN in choices else choices
        return UNKNOWN

    def _enum_values(self, node: ast.expr) -> Any:
        definition = self.classes.get(node.id) if isinstance(node, ast.Name) else None
        if definition is None:
            return UNKNOWN
        return [
            item.value.value
            for item in definition.body
            if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
        ]

    # Config classes

    def fields(self, name: str) -> dict[str, tuple[ast.expr, ast.expr | None]]:
        """Field → annotation and default of a config class, its bases first."""
        definition = self.classes.get(name)
        if definition is None:
            return {}
        fields: dict[str, tuple[ast.expr, ast.expr | None]] = {}
        for base in definition.bases:
            if isinstance(base, ast.Name):
                fields |= self.fields(base.id)
        for item in definition.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                fields[item.target.id] = (item.annotation, item.value)
        return fields

    def types(self, annotation: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
        """The members of an annotation's union, with aliases and Optional followed."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            yield from self.types(ast.parse(annotation.value, mode="eval").body, depth + 1)
        elif isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            yield from self.types(annotation.left, depth)
            yield from self.types(annotation.right, depth)
        elif isinstance(annotation, ast.Subscript) and _name(annotation.value) in WRAPPERS:
            inner = annotation.slice
            members = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            for member in members[:1] if _name(annotation.value) == "Annotated" else members:
                yield from self.types(member, depth)
            if _name(annotation.value) == "Optional":
                yield ast.Constant(None)
        elif isinstance(annotation, ast.Name) and annotation.id in self.names and depth < 8:
            yield from self.types(self.names[annotation.id], depth + 1)
        else:
            yield annotation

    def field_argument(self, owner: str, name: str) -> dict[str, Any]:
        """The argparse keywords that `_compute_kwargs` gives a field of a config class."""
        if name not in self.fields(owner):
            return {}
        annotation, default = self.fields(owner)[name]
        members = list(self.types(annotation))
        kinds = {_name(member) for member in members}
        argument: dict[str, Any] = {"default": self.value(default) if default is not None else UNKNOWN}
        literals = [member for member in members if _name(member) == "Literal"]
        if any(self._is_config(kind) for kind in kinds):
            argument["kind"] = "json"
        elif kinds == {"bool", "str", "None"}:
            argument["kind"] = "bool_or_str"
        elif "bool" in kinds:
            argument["kind"] = "bool"
        elif literals:
            choices = [choice for each in literals for choice in self._choices(each)]
            numbers = bool(choices) and all(isinstance(choice, int) for choice in choices)
            argument |= {"kind": "int" if numbers else "str", "choices": choices}
        elif kinds & {"tuple", "Tuple", "list", "List", "set", "Sequence"}:
            argument["kind"] = "list"
        elif "int" in kinds:
            argument["kind"] = self.sizes().get(name, "int")
        elif "float" in kinds:
            argument["kind"] = "float"
        elif kinds & {"dict", "Dict"}:
            argument["kind"] = "json"
        else:
            argument["kind"] = "str"
        return argument

    def sizes(self) -> dict[str, str]:
        """Fields that take `32k` and the like: `_compute_kwargs` lists them by name."""
        text = ("_compute_kwargs", "get_kwargs")
        tree = self.trees["vllm/engine/arg_utils.py"]
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in text]
        named: dict[str, str] = {}
        for node in (each for function in functions for each in ast.walk(function)):
            if isinstance(node, (ast.Set, ast.Tuple)):
                names = self.value(node)
                if isinstance(names, list) and "max_num_batched_tokens" in names:
                    named = {str(name): "size" for name in names} | named
            elif isinstance(node, ast.Name) and node.id == "human_readable_int_or_auto":
                named["max_model_len"] = "size_or_auto"
        return named

    def _choices(self, literal: ast.expr) -> list[Any]:
        choices = self.value(literal)
        return choices if isinstance(choices, list) else []

    def _is_config(self, name: str) -> bool:
        definition = self.classes.get(name)
        decorators = definition.decorator_list if definition else []
        return any(
            _name(each.func if isinstance(each, ast.Call) else each) in ("config", "dataclass") for each in decorators
        )


def _callee(node: ast.Call) -> str:
    return _name(node.func)


def _name(node: ast.expr) -> str:
    """The bare name of a name, an attribute, a generic or a constant."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def wheel_url(release: str, python: str = "3.12") -> str:
    """Where pip would get the wheel of this vLLM release from; nothing is downloaded or installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "-qq"]
        command += ["--only-binary", ":all:", "--python-version", python, "--target", folder]
        for platform in PLATFORMS:
            command += ["--platform", f"manylinux{platform}_x86_64"]
        subprocess.run([*command, "--report", str(report), f"vllm=={release}"], check=True)
        url: str = json.loads(report.read_text())["install"][0]["download_info"]["url"]
        return url


class RangedFile(io.RawIOBase):
    """A remote file that can be read and sought like a local one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.position = 0
        with self._range("-1") as response:
            self.size = int(response.headers["Content-Range"].rsplit("/", 1)[1])

    def _range(self, span: str) -> "urllib.request._UrlopenRet":
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={span}"})  # noqa: S310 — pip gave it
        return urllib.request.urlopen(request)  # noqa: S310

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; costs nothing."""
        self.position = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence] + offset
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer from the position on."""
        end = min(self.size, self.position + len(buffer))
        if end <= self.position:
            return 0
        with self._range(f"{self.position}-{end - 1}") as response:
            data = response.read()
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def release_files(release: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Path in the wheel → text, of the files of a release that `wanted` picks."""
    with zipfile.ZipFile(io.BufferedReader(RangedFile(wheel_url(release)), BLOCK)) as wheel:
        members = sorted(wheel.infolist(), key=lambda member: member.header_offset)
        return {member.filename: wheel.read(member).decode() for member in members if wanted(member.filename)}
