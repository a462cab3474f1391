"""Archives with a payload in every string and every key that the records permit.

The records' own models say what is permitted: a field takes the payload where its model still validates with it. What
has a pattern carries the longest odd name that the pattern lets in.
"""

import json
import shutil
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl
import yaml
import zstandard
from pydantic import TypeAdapter, ValidationError

from archive_factory import make_archive
from tokenpeak.errors import TokenpeakError
from tokenpeak.records import EndRecord, Imported, SourceFile, SweepRecord, TrialRecord
from tokenpeak.report.site.disclosure import fields_of, is_record
from tokenpeak.spec.sweep import parse_spec

HOST = "evil.example"
PAYLOAD = (
    "\"'><img src=x onerror=alert(1)></script></title></textarea><script>alert(1)</script><svg onload=alert(1)>"
    f"{{{{7*7}}}}{{% raw %}}${{7*7}} [a](javascript:alert(1)) [b](https://{HOST}/b) ![c](https://{HOST}/c.png) "
    f"<https://{HOST}/d> https://{HOST}/e `//{HOST}/f` --> ]]> &lt;script&gt;alert(1)&lt;/script&gt;"
)
ADDRESS = f"javascript:alert(1)//{HOST}/" + PAYLOAD
"""Where an address is expected."""
LONGEST = "-._" * 38
"""What a name may hold after its first letter."""
JOINING = frozenset({"level_label"})
"""Fields by which pages find the runs that are ranked; poisoned, some pages have nothing to show."""

ModelT = TypeVar("ModelT")


def poisoned(record: ModelT, spare: frozenset[str] = frozenset()) -> ModelT:
    """The record with the payload in every field that takes it, but for the fields named in `spare`."""
    kind = type(record)
    form = TypeAdapter[ModelT](kind)
    raw = form.dump_python(record, mode="json", by_alias=True)
    for name, field in fields_of(kind).items():
        if name in spare or name in ("spec", "calibration", "sweep_id", "trial_id", "config_id", "inventory"):
            continue
        value = _value(getattr(record, name), field.annotation, spare)
        tried = {**raw, field.alias or name: value}
        try:
            form.validate_json(json.dumps(tried))
        except (ValidationError, ValueError):
            continue
        raw = tried
    return form.validate_json(json.dumps(raw))


def _value(value: Any, kind: Any, spare: frozenset[str]) -> Any:
    """A JSON value like `value`, of the declared kind, with the payload wherever a text may be."""
    kinds = _members(kind)
    if is_record(value):
        return TypeAdapter(type(value)).dump_python(poisoned(value, spare), mode="json", by_alias=True)
    if isinstance(value, str):
        return value if any(typing.get_origin(each) is Literal for each in kinds) else text(value)
    if value is None:
        return text("") if str in kinds else None
    if isinstance(value, Mapping):
        items = next((typing.get_args(each)[1] for each in kinds if typing.get_origin(each) is dict), Any)
        found = {text(key): _value(item, items, spare) for key, item in value.items()}
        return found or ({text(""): text("")} if str in _members(items) else {})
    if isinstance(value, tuple):
        items = next((typing.get_args(each)[0] for each in kinds if typing.get_origin(each) is tuple), Any)
        return [_value(item, items, spare) for item in value] or ([text("")] if items is str else [])
    return json.loads(json.dumps(value, default=str))


def _members(kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.get_args(kind)
    return (kind,)


def text(value: str) -> str:
    """The text with a payload; an address becomes one that would run."""
    return ADDRESS if value.startswith("http") else f"{value}{PAYLOAD}"


def _tree(raw: Any, permits: Callable[[Any], bool]) -> Any:
    """The JSON value with the payload in each string and key with which the whole is still permitted."""

    def tried(container: Any, key: Any, put: Callable[[], Callable[[], None]]) -> None:
        undo = put()
        if not permits(raw):
            undo()

    def visit(container: Any) -> None:
        places = list(container) if isinstance(container, dict) else range(len(container))
        for key in places:
            value = container[key]
            if isinstance(value, str):
                tried(container, key, lambda key=key, value=value: _set(container, key, text(value), value))
            elif isinstance(value, dict | list):
                visit(value)
            if isinstance(container, dict):
                tried(container, key, lambda key=key: _rename(container, key, text(key)))

    visit(raw)
    return raw


def _set(container: Any, key: Any, new: Any, old: Any) -> Callable[[], None]:
    container[key] = new
    return lambda: container.__setitem__(key, old)


def _rename(container: dict[str, Any], old: str, new: str) -> Callable[[], None]:
    before = dict(container)
    container[new] = container.pop(old)

    def undo() -> None:
        container.clear()
        container.update(before)

    return undo


@cache
def _spec(raw: str) -> dict[str, object]:
    return dict(_tree(json.loads(raw), _is_spec))


def _is_spec(raw: Any) -> bool:
    try:
        parse_spec(raw, Path("sweep.json"))
    except TokenpeakError:
        return False
    return True


def payload_archive(folder: Path, letter: str, *, calibration: dict[str, object], spare: frozenset[str]) -> Path:
    """An archive below `folder` with the payload everywhere but in the fields of `spare`."""
    made = folder / f"made-{letter}"
    axes = {"max_num_batched_tokens": [2048, 8192], "gpu_memory_utilization": [0.9, 0.95]}
    make_archive(made, axes=axes, gpus=["NVIDIA L4"], requests=30, seconds=10)
    sweep = SweepRecord.model_validate_json((made / "sweep.json").read_bytes())
    sweep_id = f"{letter}{LONGEST}"
    imported = Imported(
        format="table", url=f"https://{HOST}/", published="2026", files=(SourceFile(name="a", sha256="0" * 64),)
    )
    own = {
        "sweep_id": sweep_id,
        "inventory": f"i{LONGEST}",
        "load_hosts": ("lh",),
        "study": "s",
        "imported": imported if letter == "b" else None,
        "spec": _spec(json.dumps(sweep.spec)),
        "calibration": calibration,
    }
    target = folder / sweep_id
    (target / "trials").mkdir(parents=True)
    record = poisoned(sweep.model_copy(update=own), spare)
    (target / "sweep.json").write_text(record.model_dump_json())
    end = EndRecord.model_validate_json((made / "end.json").read_bytes())
    end = end.model_copy(update={"sweep_id": sweep_id, "unrestored": ("node-1",), "problems": ("a",)})
    (target / "end.json").write_text(poisoned(end, spare).model_dump_json())
    for path in sorted((made / "trials").glob("*.json")):
        trial = TrialRecord.model_validate_json(path.read_bytes())
        trial_id = f"{trial.trial_id}{LONGEST}"[:120]
        named = trial.model_copy(update={"sweep_id": sweep_id, "trial_id": trial_id})
        (target / "trials" / f"{trial_id}.json").write_text(poisoned(named, spare).model_dump_json())
        log = f"INFO {PAYLOAD}\nTraceback\nRuntimeError: {PAYLOAD}\n".encode()
        (target / "trials" / f"{trial_id}.engine.log.zst").write_bytes(zstandard.ZstdCompressor().compress(log))
        if (requests := path.with_name(f"{trial.trial_id}.requests.parquet")).is_file():
            failed = pl.read_parquet(requests).with_columns(error=pl.lit(PAYLOAD))
            failed.write_parquet(target / "trials" / f"{trial_id}.requests.parquet")
    claim: dict[str, Any] = {
        "id": "C1",
        "statement": PAYLOAD,
        "source": ADDRESS,
        "check": "quotient",
        "matters": PAYLOAD,
    }
    columns = {
        "numerator_column": "output_tokens",
        "denominator_column": "duration_s",
        "where": {"node": text("node-1")},
    }
    units = {"numerator_unit": "tok", "denominator_unit": "s", "stated_unit": "tok/s", "stated": 1.0}
    claim["parameters"] = columns | units | {"whole": PAYLOAD}
    (target / "claims.yml").write_text(yaml.safe_dump({"claims": [claim]}))
    shutil.rmtree(made)
    return target
