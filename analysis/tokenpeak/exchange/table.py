"""CSV files by a mapping: each row is a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.fields import energy_of, startup_of, summary_of, unknown_target
from tokenpeak.exchange.foreign import ForeignNode, ForeignRun, Import
from tokenpeak.exchange.mapping import (
    MOST_ROWS,
    Cell,
    Mapping_,
    Scalar,
    TableEntry,
    Value,
    columns_used,
    number_of,
    read_mapping,
    read_rows,
    value_of,
)
from tokenpeak.exchange.reading import source_file
from tokenpeak.names import inside
from tokenpeak.records import Imported, SourceFile
from tokenpeak.spec.workload import ExternalLoad, ExternalWorkload


def read_tables(path: Path) -> tuple[Import, str]:
    """The import that the mapping file at `path` describes, and its id. Its CSV files lie beside it."""
    mapping = read_mapping(path)
    root = path.parent
    runs: list[ForeignRun] = []
    files: list[SourceFile] = []
    fields: dict[str, str] = {}
    unmapped: list[str] = []
    for table in mapping.tables:
        for name in dict.fromkeys(target for target in table.fields if unknown_target(target)):
            raise ArchiveError(f"{path}: {unknown_target(name)}")
        rows = _joined(table, root)
        for number, row in rows:
            runs.append(_run(table, mapping, row, f"{table.file}, line {number}"))
        sources = [root / table.file, *([root / table.join.file] if table.join else [])]
        files += [file for source in sources if (file := source_file(source, root)) not in files]
        fields |= _known_columns(table)
        unmapped += _unmapped(table, rows)
    try:
        imported = Imported.model_validate(
            {
                **mapping.provenance,
                "format": "table",
                "files": files,
                "mapping": fields,
                "unmapped": [*mapping.provenance.get("unmapped", ()), *dict.fromkeys(unmapped)],
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ArchiveError(f"{path}: provenance.{'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
    return (
        Import(
            name=mapping.name,
            description=mapping.description,
            runs=tuple(runs),
            nodes=tuple(ForeignNode(name=name, **entry.model_dump()) for name, entry in mapping.nodes.items()),
            imported=imported,
            imported_at=mapping.imported_at,
            theoretical=mapping.theoretical,
            objective=mapping.objective,
            slo=mapping.slo,
            energy=mapping.energy,
            study=mapping.study,
        ),
        mapping.id,
    )


def _joined(table: TableEntry, root: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows that are wanted with their line, each with the columns that a joined file adds."""
    rows = list(enumerate(read_rows(_beside(root, table.file)), start=2))
    rows = [(n, row) for n, row in rows if all(row.get(column) == cell for column, cell in table.where.items())]
    if table.join is None:
        return rows
    others = read_rows(_beside(root, table.join.file))
    key = table.join.on
    heads = [head for head in (others[0] if others else {}) if head != key]
    by_key: dict[str, list[dict[str, str]]] = {}
    for other in others:
        by_key.setdefault(other.get(key, ""), []).append(other)
    empty = dict.fromkeys(heads, "")
    found = []
    for number, row in rows:
        if key not in row:
            raise ArchiveError(f"{table.file}: no column {key!r} to join {table.join.file} by.")
        found += [(number, {**empty, **other, **row}) for other in by_key.get(row[key], [{}])]
        if len(found) > MOST_ROWS:
            raise ArchiveError(
                f"{table.file}: joined with {table.join.file} by {key!r} it gives more than {MOST_ROWS:,} rows."
            )
    return found


def _beside(root: Path, name: str) -> Path:
    return inside(root, name)


def _run(table: TableEntry, mapping: Mapping_, row: dict[str, str], place: str) -> ForeignRun:
    def read(value: Value) -> Scalar:
        return value_of(value, row, place)

    def text(value: Value) -> str | None:
        found = read(value)
        return None if found is None else str(found)

    axes = {axis: found for axis, value in table.axes.items() if (found := read(value)) is not None}
    flags = {flag: found for flag, value in table.flags.items() if (found := read(value)) is not None}
    flags |= {axis: found for axis, found in axes.items() if axis not in table.labels}
    choices = {axis: _word(found) for axis, found in axes.items()}
    values = {
        name: number_of(found, f"{place}: {name}")
        for name, value in table.fields.items()
        if (found := read(value)) is not None
    }
    node = text(table.node) or "node"
    if node not in mapping.nodes:
        raise ArchiveError(f"{place}: node {node!r} is not among the mapping's nodes ({', '.join(mapping.nodes)}).")
    met = read(table.slo_met)
    if met is not None and not isinstance(met, bool):
        raise ArchiveError(f"{place}: slo_met must be true or false, not {met!r}.")
    replicate = read(table.replicate)
    try:
        return ForeignRun(
            node=node,
            config=text(table.config) or ", ".join(f"{axis}={word}" for axis, word in choices.items()) or "as-run",
            model=text(table.model) or "unknown",
            flags=flags,
            env={name: found for name, value in table.env.items() if (found := text(value)) is not None},
            engine_version=text(table.engine_version),
            choices=choices,
            replicate=None if replicate is None else int(number_of(replicate, f"{place}: replicate")),
            workload=ExternalWorkload.model_validate({"name": "imported", **_known(table.workload, row, place)}),
            level=ExternalLoad.model_validate({"external": True, **_known(table.level, row, place)}),
            summary=summary_of(values),
            startup=startup_of(values),
            slo_met=met,
            energy=energy_of(values, table.energy_source, table.energy_boundary),
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ArchiveError(f"{place}: {where}: {first['msg']}.") from error


def _known(values: dict[str, Value], row: dict[str, str], place: str) -> dict[str, Scalar]:
    return {key: found for key, value in values.items() if (found := value_of(value, row, place)) is not None}


def _word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(table: TableEntry) -> dict[str, Value]:
    """Each of our fields with the value that fills it."""
    groups: Sequence[tuple[str, dict[str, Value]]] = (
        ("", table.fields),
        ("flags.", {**table.flags, **{k: v for k, v in table.axes.items() if k not in table.labels}}),
        ("axes.", {k: v for k, v in table.axes.items() if k in table.labels}),
        ("env.", table.env),
        ("workload.", table.workload),
        ("level.", table.level),
    )
    found = {prefix + name: value for prefix, values in groups for name, value in values.items()}
    single: dict[str, Any] = {
        "node": table.node,
        "config": table.config,
        "model": table.model,
        "engine_version": table.engine_version,
        "replicate": table.replicate,
        "slo_met": table.slo_met,
    }
    return found | {name: value for name, value in single.items() if value is not None}


def _known_columns(table: TableEntry) -> dict[str, str]:
    """Field → the column that it is from, in words."""
    found = {}
    for name, value in _values(table).items():
        if isinstance(value, Cell):
            how = f" × {value.scale:g}" if value.scale is not None else " by table" if value.map is not None else ""
            found[name] = f"{value.column}{how}"
    return found


def _unmapped(table: TableEntry, rows: Sequence[tuple[int, dict[str, str]]]) -> list[str]:
    """The columns that no field takes, with the reason where the mapping gives it."""
    used = columns_used(list(_values(table).values())) | set(table.where)
    used |= {table.join.on} if table.join else set()
    heads = list(rows[0][1]) if rows else []
    return [
        f"{table.file}: {head}: {table.ignored[head]}" if head in table.ignored else f"{table.file}: {head}"
        for head in heads
        if head not in used
    ]
