"""A workload in a file of its own, YAML or JSON, and the JSON Schema that editors can check it by."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tokenpeak import bounded
from tokenpeak.errors import WorkloadError, suggestion
from tokenpeak.spec.described import DescribedSchema
from tokenpeak.spec.workload import Workload

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
        finding = error.errors()[0]
        where = ".".join(str(part) for part in finding["loc"][1:]) or "kind"
        if finding["type"] == "extra_forbidden":
            known = schema()["$defs"][_model(raw)]["properties"]
            raise WorkloadError(f"{path}: {where}: unknown key. {suggestion(where, known)}") from error
        raise WorkloadError(f"{path}: {where}: {finding['msg']} (given: {finding['input']!r})") from error


def _model(raw: dict[str, Any]) -> str:
    return f"{str(raw['kind']).capitalize()}Workload"
