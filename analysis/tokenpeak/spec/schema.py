"""JSON Schemas for editors, with the docstring below each field as its description; and a workload in its own file.

Docstrings of fields are no part of a class at run time, so they are read from the source of its module. pydantic can do
the same on import (`use_attribute_docstrings`), which would make every command a second slower.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from tokenpeak import bounded
from tokenpeak.errors import WorkloadError, suggestion
from tokenpeak.spec.mistakes import known_keys
from tokenpeak.spec.workload import Workload


def field_docstrings(declared: type) -> Mapping[str, str]:
    """Field → the docstring below it, each in one line; of the classes that it is derived from too."""
    docstrings: dict[str, str] = {}
    for base in reversed(declared.__mro__):
        if base.__module__.partition(".")[0] == "tokenpeak":
            docstrings |= _of_module(base.__module__).get(base.__name__, {})
    return docstrings


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Class → field → docstring."""
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: dict(_of_class(node)) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in pairwise(node.body):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def in_yaml(docstring: str) -> str:
    """A field's docstring in the words of who writes YAML: what is None in Python is absent there."""
    for word, meant in {"None": "when absent", "False": "false"}.items():
        docstring = re.sub(rf"\b{word}(?=[:,;])", meant, docstring)
    return re.sub(r"(^|\. )w(?=hen absent)", r"\1W", docstring).replace("None where", "absent where")


class DescribedSchema(GenerateJsonSchema):
    """A JSON Schema with the docstring of each field as its description."""

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """The schema of a model."""
        return _described(super().model_schema(schema), schema["cls"], schema["cls"].model_fields)

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """The schema of a record that is a dataclass."""
        return _described(super().dataclass_schema(schema), schema["cls"], {})


def _described(schema: JsonSchemaValue, declared: type, fields: Mapping[str, Any]) -> JsonSchemaValue:
    if "description" in schema:
        schema["description"] = in_yaml(schema["description"])
    for name, docstring in field_docstrings(declared).items():
        alias = fields[name].alias if name in fields else None
        if (place := schema.get("properties", {}).get(alias or name)) is not None:
            place["description"] = in_yaml(docstring)
    return schema


_ADAPTER: TypeAdapter[Workload] = TypeAdapter(Workload)


def schema() -> dict[str, Any]:
    """The JSON Schema of a workload file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "TokenPeak workload",
        **_ADAPTER.json_schema(schema_generator=DescribedSchema),
    }


def read_workload(path: Path) -> Workload:
    """The workload in a file; raises WorkloadError naming the key that is wrong and the nearest right one."""
    raw = bounded.read_yaml(path, error=WorkloadError)
    if not isinstance(raw, dict):
        raise WorkloadError(f"{path} must be a mapping of keys, not {type(raw).__name__}.")
    try:
        return _ADAPTER.validate_python({"name": path.stem, **raw})
    except ValidationError as error:
        # Of lengths, which are a number or a mapping, pydantic names first that a mapping is no number.
        findings = [
            each for each in error.errors() if each["type"] != "int_type" or not isinstance(each["input"], dict)
        ]
        finding = next((each for each in findings if each["type"] == "extra_forbidden"), findings[0])
        where = ".".join(str(part) for part in finding["loc"][1:] if isinstance(part, int) or part.isidentifier())
        if finding["type"] == "extra_forbidden":
            known = known_keys(schema(), finding["loc"][:-1])
            raise WorkloadError(
                f"{path}: {where}: unknown key. {suggestion(str(finding['loc'][-1]), known)}"
            ) from error
        message = finding["msg"].removeprefix("Value error, ")
        raise WorkloadError(f"{path}: {where or 'kind'}: {message} (given: {finding['input']!r})") from error
