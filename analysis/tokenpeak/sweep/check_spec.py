"""A sweep's file: its JSON Schema for editors, and its mistakes, each with its line.

The schema allows what is written, not what is read: short forms of axes, spans of time as texts.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from tokenpeak import paths
from tokenpeak.errors import ArchiveError, InputError, LoadError, TokenpeakError, suggestion
from tokenpeak.loadgen.datasets import read_samples, read_starters
from tokenpeak.loadgen.hub import require_library
from tokenpeak.loadgen.prompts import lengths, shared_tokens
from tokenpeak.loadgen.request_forms import read_form
from tokenpeak.loadgen.traces.reading import read_trace
from tokenpeak.loadgen.vocabulary import UNKNOWN
from tokenpeak.quality.answers import read_passes
from tokenpeak.quality.measure import read_tasks
from tokenpeak.quality.sweep_quality import reference_file
from tokenpeak.spec.axes import Values
from tokenpeak.spec.energy import FACTORS
from tokenpeak.spec.mistakes import LocatedYaml, Mistake, complaints, unreadable
from tokenpeak.spec.schema import DescribedSchema
from tokenpeak.spec.sweep import SweepSpec, read_spec
from tokenpeak.spec.workload import (
    BASE,
    AnyWorkload,
    ConversationWorkload,
    DatasetWorkload,
    SyntheticWorkload,
    TraceWorkload,
)
from tokenpeak.sweep.prefix_notes import prefix_notes
from tokenpeak.vllm.flags import flag_table, size

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SPAN = {"type": "string", "description": "A span of time: 90m, 2h, 1h30m."}
_SHARES = ("gpu_memory_utilization", "device_memory_utilization")
_NEAR = 0.85
"""Likeness from which an unknown flag is taken for a mistyped one; others may be of a release newer than the table."""
PROMPTS = 1000
"""Prompts whose lengths are looked at."""

_Place = tuple[str | int, ...]


def spec_mistakes(path: Path) -> list[Mistake]:
    """What is wrong with the spec in a file, by line; nothing where it is one."""
    try:
        written = LocatedYaml(path)
    except InputError as error:
        return list(unreadable(path, error))
    try:
        spec = read_spec(str(path))
    except TokenpeakError as error:
        return sorted(_refused(written, error))
    return sorted({*_flags(spec, written), *_files(spec, written), *_adapters(spec, written)})


def spec_notes(path: Path) -> list[Mistake]:
    """What the spec in a file cannot show, by line; nothing where it has mistakes."""
    try:
        written = LocatedYaml(path)
        spec = read_spec(str(path))
    except TokenpeakError:
        return []
    return [written.mistake(text, *place) for text, place in prefix_notes(spec)]


def _refused(written: LocatedYaml, error: TokenpeakError) -> Iterator[Mistake]:
    """The lines of an error that reading raised."""
    if isinstance(error.__cause__, ValidationError):
        errors = complaints(error.__cause__, SweepSpec.model_json_schema())
        unknown = " ".join(text for _, text in errors if "unknown key. Did you mean" in text)
        for place, text in errors:
            # A key that is missing because it is mistyped is one mistake.
            if not (text.endswith("Field required") and str(place[-1]) in unknown):
                yield _placed(written, text.removeprefix("spec: "), place)
        return
    yield _placed(written, str(error).rpartition("\n  ")[2], ())


def _placed(written: LocatedYaml, text: str, place: tuple[int | str, ...]) -> Mistake:
    """The mistake in its line: that of the axis or key which the text names, where pydantic knows no place."""
    if axis := re.match(r"axes: axis '([^']+)'", text):
        return written.mistake(text, "axes", axis[1])
    key = re.match(r"[a-z_]+(\.[a-z_]+)*", text)
    return written.mistake(text, *(place or (key[0].split(".") if key else ())))


def _flags(spec: SweepSpec, written: LocatedYaml) -> Iterator[Mistake]:
    """Flags whose name is mistyped, and values that no engine takes; a forced config may have any value."""
    for axis, alternatives in spec.axes.items():
        for index, alternative in enumerate(alternatives):
            for _, text in _wrong_by_name(alternative.flags):
                yield written.mistake(f"axis {axis}: {text}", "axes", axis, index)
    for name, text in _wrong_by_name(spec.fixed.flags):
        yield written.mistake(f"fixed: {text}", "fixed", "flags", name)
    for index, extra in enumerate(spec.extra_configs):
        if not extra.force:
            for name, text in _wrong_by_name(extra.flags):
                yield written.mistake(f"extra config {extra.name}: {text}", "extra_configs", index, "flags", name)


def _adapters(spec: SweepSpec, written: LocatedYaml) -> Iterator[Mistake]:
    """Workloads of adapters that no config of vLLM can serve: each of their runs would end before its load."""
    patches = [spec.fixed, *(each for axis in spec.axes.values() for each in axis), *spec.extra_configs]
    if spec.endpoint is not None or any(each.flags.get("enable_lora") is True or each.args for each in patches):
        return
    for index, workload in enumerate(plan.workload for plan in spec.workloads):
        if names := sorted(set(getattr(workload, "adapters", ())) - {BASE}):
            text = f"workload {workload.name} asks the adapters {', '.join(names)}, and no config has enable_lora: true"
            yield written.mistake(text, "workloads", index, "workload", "adapters")


def _wrong_by_name(flags: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Flag → what is wrong with it."""
    table = flag_table()
    for name, value in flags.items():
        plain = name.replace("-", "_")
        if table.lifetime(plain) is None:
            if get_close_matches(plain, table.flags, n=1, cutoff=_NEAR):
                yield name, f"no release of vLLM has the flag {name}. {suggestion(plain, table.flags)}"
            continue
        if value is None or isinstance(value, bool):
            continue
        if plain in _SHARES and isinstance(value, int | float) and not 0 < value <= 1:
            instead = f"; write {value / 100:g}" if 1 < value <= 100 else ""
            yield name, f"{name} {value:g} is not a share between 0 and 1{instead}"
        kinds = {str(facts["kind"]) for _, _, facts in table.flags[plain]}
        if (
            kinds <= {"int", "size", "size_or_auto"}
            and isinstance(value, str)
            and value != "auto"
            and size(value) is None
        ):
            yield name, f"{name} is {value!r}; give a whole number"


def _files(spec: SweepSpec, written: LocatedYaml) -> Iterator[Mistake]:
    """Data sets, traces and references that are missing or none."""
    for error, place in unreadable_files(spec):
        yield written.mistake(str(error), *place)


def unreadable_files(
    spec: SweepSpec, *, workloads: bool = True, is_fetched: bool = False
) -> Iterator[tuple[TokenpeakError, _Place]]:
    """Why a file that the spec names cannot be read, and where it is named; load hosts have workloads of their own.

    Relative paths count from the working folder. Datasets of the hub are read only where they are to be fetched.
    """
    quality = spec.quality
    if quality is not False and spec.endpoint is None:
        try:
            if (path := reference_file(quality)) is not None:
                read_passes(path)
            if quality.tasks is not None:
                read_tasks(paths.HOME / quality.tasks)
        except ArchiveError as error:
            yield error, ("quality", "reference")
        except LoadError as error:
            yield error, ("quality", "tasks")
    for index, workload in enumerate(plan.workload for plan in spec.workloads if workloads):
        yield from ((error, ("workloads", index, "workload", key)) for error, key in _unreadable_forms(workload))
        try:
            _read(workload, is_fetched=is_fetched)
        except LoadError as error:
            keys = ("prompt_column", "output_column")
            key = next((key for key in keys if _names(error, workload, key)), _file_key(workload))
            yield error, ("workloads", index, "workload", key)


def _read(workload: AnyWorkload, *, is_fetched: bool) -> None:
    """Read the files that a workload names; see that lengths allow its share of prefix hits."""
    if isinstance(workload, DatasetWorkload):
        for name in workload.names:
            require_library(name)
        files = tuple(_here(file) for file in workload.files)
        names = workload.names if is_fetched else ()
        if files or names:
            read_samples(workload.model_copy(update={"path": None, "paths": files, "hub": names}))
    elif isinstance(workload, SyntheticWorkload) and workload.prefix_hit_rate:
        prompts = lengths(workload.input_tokens, PROMPTS, np.random.default_rng(workload.seed))
        shared_tokens(prompts, workload.prefix_hit_rate, UNKNOWN.block_tokens)
    elif isinstance(workload, TraceWorkload):
        read_trace(workload.model_copy(update={"path": _here(workload.path)}))
    elif isinstance(workload, ConversationWorkload) and isinstance(workload.starters, str):
        read_starters(workload.model_copy(update={"starters": _here(workload.starters)}))


def _unreadable_forms(workload: AnyWorkload) -> Iterator[tuple[LoadError, str]]:
    """Why the file of a schema or of tools cannot be read, with its key."""
    for key in ("structured", "tools"):
        if (form := getattr(workload, key, None)) is not None:
            try:
                read_form(key, _here(form.file))
            except LoadError as error:
                yield error, key


def _here(file: str) -> str:
    return str(paths.HOME / Path(file).expanduser())


def _file_key(workload: AnyWorkload) -> str:
    """The key under which a workload names its file."""
    if isinstance(workload, ConversationWorkload | SyntheticWorkload):
        return "starters" if isinstance(workload, ConversationWorkload) else "prefix_hit_rate"
    if isinstance(workload, DatasetWorkload) and not workload.files:
        return "hub"
    return "paths" if isinstance(workload, DatasetWorkload) and workload.path is None else "path"


def _names(error: LoadError, workload: AnyWorkload, key: str) -> bool:
    """Whether the error is about the column that this key of the workload names."""
    return f"has no column {getattr(workload, key, None)!r}" in str(error)


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema of a sweep's file."""
    schema = SweepSpec.model_json_schema(by_alias=True, schema_generator=DescribedSchema)
    definitions, properties = schema["$defs"], schema["properties"]
    # The file's name is the sweep's where it gives none.
    schema["required"] = [name for name in schema["required"] if name != "name"]
    for name in ("Alternative", "ExtraConfig"):
        definitions[name]["properties"]["flags"]["additionalProperties"] = True
    definitions["Alternative"]["properties"]["when"]["additionalProperties"] = True
    values = Values.model_json_schema(by_alias=True, schema_generator=DescribedSchema)
    values["properties"]["highest"] = {"type": "boolean", "description": "Only the highest value that survives."}
    definitions["Values"] = values
    scalar = {"type": ["boolean", "integer", "number", "string", "null"]}
    properties["axes"]["additionalProperties"] = {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"anyOf": [scalar, {"$ref": "#/$defs/Alternative"}]}},
            {"$ref": "#/$defs/Values"},
            {"const": "highest"},
        ]
    }
    for span in (definitions["SearchSpec"]["properties"]["time"], properties["max_downtime"]):
        span["anyOf"].append(_SPAN)
    _short_forms_of_energy(definitions)
    _without_imports(definitions)
    # What is inherited and never allowed.
    for name, refused in {"MaxRateLoad": ("requests", "duration_s"), "StagedLoad": ("duration_s",)}.items():
        for key in refused:
            del definitions[name]["properties"][key]
    return {"$schema": _DIALECT, **schema, "title": "TokenPeak sweep"}


def _without_imports(definitions: dict[str, Any]) -> None:
    """Leave out what another tool asked, which nobody can write."""
    plan = definitions["WorkloadPlan"]["properties"]
    for choices, name in ((plan["workload"], "ExternalWorkload"), (plan["levels"]["items"], "ExternalLoad")):
        choices["oneOf"].remove({"$ref": f"#/$defs/{name}"})
        del definitions[name]
    del plan["workload"]["discriminator"]["mapping"]["external"]
    # `from: production` is what people write.
    production = definitions["ProductionWorkload"]["properties"]
    definitions["ProductionWorkload"]["properties"] = {"from": production.pop("kind"), **production}
    definitions["ProductionWorkload"]["required"] = ["from"]
    over = definitions["ProductionWorkload"]["properties"]["over"]
    seconds = {key: over.pop(key) for key in ("type", "exclusiveMinimum")}
    over["anyOf"] = [seconds, _SPAN]


def _short_forms_of_energy(definitions: dict[str, Any]) -> None:
    """A factor with its range and source."""
    energy = definitions["EnergyFactors"]["properties"]
    # A user writes a factor's range with the factor itself; `cited` is how that is recorded.
    del energy["cited"]
    value = {"value": {"type": "number", "description": "The factor."}}
    cited = {**value, **definitions.pop("Citation")["properties"]}
    definitions["CitedFactor"] = {"type": "object", "properties": cited, "additionalProperties": False}
    for name in FACTORS:
        words = {key: energy[name].pop(key) for key in ("default", "description") if key in energy[name]}
        energy[name] = {**words, "anyOf": [energy[name], {"$ref": "#/$defs/CitedFactor"}]}
