"""Which tool wrote a file or folder, and all sources of one import together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange import aiperf, folders, guidellm, inferencex, sglang, vllm_bench
from tokenpeak.exchange.foreign import COUNTS, ForeignNode, ForeignRun, Import, JsonFormat, mean_lengths, workload_of
from tokenpeak.exchange.reading import (
    READ,
    YAML_ENDINGS,
    first_mistake,
    parse_json,
    read_document,
    read_text,
    source_file,
    word,
)
from tokenpeak.exchange.silent_files import configs_of_files
from tokenpeak.exchange.table import read_tables
from tokenpeak.records import Imported, RunRecord, SourceFile
from tokenpeak.spec.load import ClosedLoad, ExternalLoad, OpenLoad

FILE_ENDINGS = (".json", ".jsonl", ".txt", ".log", *YAML_ENDINGS)
MOST_FILES = 20_000
OTHERS: Mapping[str, tuple[str, ...]] = {
    "vllm bench latency": ("avg_latency", "latencies", "percentiles"),
    "vllm bench throughput": ("elapsed_time", "num_requests", "requests_per_second", "tokens_per_second"),
    "vllm bench startup": ("avg_cold_startup_time",),
}
"""Commands whose results are not read, by the keys that these have: none of them offers load to a server."""


def _run_record(path: Path) -> ForeignRun:
    """A run that `tokenpeak load --output` wrote: what its load client knew of itself stays in its own file."""
    try:
        record = RunRecord.model_validate_json(read_text(path))
        summary = record.summary
        workload = workload_of(mean_lengths({name: getattr(summary, name) for name in COUNTS}))
    except ValidationError as error:
        raise ArchiveError(f"{path}: {first_mistake(error)}") from error
    level = record.level
    return ForeignRun(
        config="as-run",
        workload=workload,
        level=ExternalLoad(
            external=True,
            concurrency=level.concurrency if isinstance(level, ClosedLoad) else None,
            rate_per_s=level.rate_per_s if isinstance(level, OpenLoad) else None,
            requests=level.requests,
        ),
        summary=summary,
        slo=record.slo,
        slo_met=record.slo_met,
        energy=record.energy,
        started_at=record.started_at,
        reasons=record.verdict.reasons,
    )


OWN = JsonFormat(
    name="tokenpeak",
    looks_like=lambda raw: isinstance(raw, dict) and {"run_index", "workload", "summary", "verdict"} <= raw.keys(),
    tool_of=lambda _: f"tokenpeak {version('tokenpeak')}",
    read=lambda path: ([_run_record(path)], [], []),
)
JSON_FORMATS = (guidellm.FORMAT, aiperf.FORMAT, inferencex.FORMAT, sglang.FORMAT, OWN)
"""In the order in which they are tried; any other JSON is read as `vllm bench serve` results, which have no mark."""


@dataclass(kw_only=True)
class _Read:
    """Runs and facts of one source."""

    format: str
    tool: str
    runs: list[ForeignRun]
    unread: list[str]
    files: list[Path]
    nodes: list[ForeignNode] = field(default_factory=list)
    differences: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, known: JsonFormat, path: Path, raw: object) -> "_Read":
        """A file of a known format, whose content is `raw`."""
        runs, unread, nodes = known.read(path)
        return cls(
            format=known.name,
            tool=known.tool_of(raw),
            runs=runs,
            unread=unread,
            files=[path],
            nodes=nodes,
            differences=known.differences,
            mapping=known.mapping,
        )


def read_sources(
    sources: Sequence[Path], *, gpu: str | None = None, gpus: int = 1, engine_version: str | None = None
) -> tuple[Import, str | None]:
    """One import of all sources, and the id that a mapping file gives it. A file's content shows its tool."""
    if len(sources) == 1 and sources[0].suffix in YAML_ENDINGS and not guidellm.looks_like(read_document(sources[0])):
        return read_tables(sources[0])
    read = [each for source in sources for each in _read(source)]
    cautions = _name_configs(read)
    runs = [run for each in read for run in each.runs]
    nodes = {node.name: node for each in read for node in each.nodes}
    if any(run.node == "node" for run in runs):
        nodes["node"] = ForeignNode(gpu=gpu, count=gpus, engine_version=engine_version)
    formats = list(dict.fromkeys(each.format for each in read))
    several = len(formats) > 1
    named = [_named(run, each.tool) if several else run for each in read for run in each.runs]
    return (
        Import(
            name=word("-".join(formats)),
            description=f"Imported from {len(read)} files of {', '.join(dict.fromkeys(each.tool for each in read))}",
            runs=tuple(named),
            nodes=tuple(nodes.values()),
            imported=Imported(
                format=", ".join(formats),
                tool=", ".join(dict.fromkeys(each.tool for each in read)),
                files=tuple(_files(read)),
                mapping={
                    f"{each.tool.split()[0]}: {ours}" if several else ours: theirs
                    for each in read
                    for ours, theirs in each.mapping.items()
                },
                differences=tuple(dict.fromkeys(words for each in read for words in each.differences)),
                unmapped=tuple(dict.fromkeys(words for each in read for words in each.unread)),
                unknown=("The machine" if gpu is None and "node" in nodes else "The machine's state",)
                if "node" in nodes
                else (),
                cautions=cautions,
            ),
            objective=_objective(named),
        ),
        None,
    )


def _name_configs(read: Sequence[_Read]) -> tuple[str, ...]:
    """Name the configs of each tool's files that name none; the warnings about them."""
    cautions = []
    for tool in dict.fromkeys(each.format for each in read):
        files = {each.files[0]: each for each in read if each.format == tool and len(each.files) == 1}
        named, words = configs_of_files({path: each.runs for path, each in files.items()})
        for each, runs in zip(files.values(), named, strict=True):
            each.runs = runs
        cautions += [words] if words else []
    return tuple(cautions)


def _named(run: ForeignRun, tool: str) -> ForeignRun:
    """A run of one tool among several: the tool is what its config differs in."""
    short = tool.split()[0]
    return replace(run, config=f"{short}: {run.config}", choices={"tool": short, **run.choices})


def _objective(runs: Sequence[ForeignRun]) -> dict[str, str]:
    """The workload and level that most runs share."""
    places = [(run.workload.name, run.level.label) for run in runs]
    workload, level = max(dict.fromkeys(places), key=places.count)
    return {"metric": "output_tok_per_s", "workload": workload, "level": level}


def _files(read: Sequence[_Read]) -> list[SourceFile]:
    files: dict[str, SourceFile] = {}
    for each in read:
        for path in each.files:
            file = source_file(path, path.parent.parent)
            files.setdefault(f"{file.name} {file.sha256}", file)
    return list(files.values())


def _read(source: Path) -> list[_Read]:
    """A tuner's folder as a whole; a folder that is no tool's own stands for the files in it."""
    if not source.exists():
        raise ArchiveError(f"{source}: no such file or folder.")
    if not source.is_dir():
        return [_file(source)]
    if folders.is_vllm_sweep(source):
        return [_bench(*folders.read_vllm_sweep(source), "vllm_sweep", folders.REPEATS)]
    if folders.is_auto_tune(source):
        return [_bench(*folders.read_auto_tune(source), "auto_tune")]
    if (export := source / aiperf.EXPORT).is_file():
        return [_file(export)]
    paths = [path for path in sorted(source.iterdir()) if path.suffix in FILE_ENDINGS and path.is_file()]
    # GuideLLM writes its report in several forms.
    paths = [path for path in paths if path.suffix not in YAML_ENDINGS or path.with_suffix(".json") not in paths]
    if not paths:
        raise ArchiveError(f"{source}: nothing to import in it. {READ}")
    return [_file(path) for path in paths[:MOST_FILES]]


def _file(path: Path) -> _Read:
    if path.suffix in YAML_ENDINGS:
        report = read_document(path)
        if not guidellm.looks_like(report):
            raise ArchiveError(f"{path}: no report of GuideLLM. Import a mapping file alone.")
        return _Read.of(guidellm.FORMAT, path, report)
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        return _json(path, text)
    if vllm_bench.holds_block(text):
        runs, unread = vllm_bench.read_printed(path)
        is_sglang = sglang.PRINTED_MARK in text
        return _Read(
            format="sglang_printed" if is_sglang else "vllm_printed",
            tool="SGLang" if is_sglang else "vllm-printed",
            runs=runs,
            unread=unread,
            files=[path],
            differences=sglang.DIFFERENCES if is_sglang else (vllm_bench.SENT_NOT_DUE,),
            mapping={ours: label for label, ours in vllm_bench.LABELS.items()},
        )
    raise ArchiveError(f"{path}: neither JSON nor a printed 'Serving Benchmark Result'. {READ}")


def _json(path: Path, text: str) -> _Read:
    raw: Any
    try:
        raw = parse_json(text, path)
    except ArchiveError:
        # Results appended to one file are several objects, which the reader of that tool separates.
        if not all(f'"{key}"' in text for key in vllm_bench.MARKS):
            raise
        raw = vllm_bench.objects(text, path)
    for known in JSON_FORMATS:
        if known.looks_like(raw):
            return _Read.of(known, path, raw)
    first = raw[0] if isinstance(raw, list) and raw else raw
    for command, keys in OTHERS.items():
        if isinstance(first, Mapping) and all(key in first for key in keys):
            raise ArchiveError(f"{path}: a result of {command}, which is not read. {READ}")
    if not vllm_bench.looks_like(first):
        raise ArchiveError(f"{path}: no result of vllm bench serve, nor of another known tool. {READ}")
    runs, unread = vllm_bench.read_vllm_bench(path)
    return _bench(runs, unread, [path], "vllm_bench")


def _bench(runs: list[ForeignRun], unread: list[str], files: list[Path], kind: str, *differences: str) -> _Read:
    return _Read(
        format=kind,
        tool="vllm-bench",
        runs=runs,
        unread=unread,
        files=files,
        differences=(vllm_bench.SENT_NOT_DUE, *differences),
        mapping={ours: theirs for theirs, ours in vllm_bench.FIGURES.items() if not theirs.endswith(":")},
    )
