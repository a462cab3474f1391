"""InferenceX's aggregates (`agg_*.json`): figures per GPU, times in seconds under names that lost their unit."""

from collections.abc import Mapping
from pathlib import Path

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.foreign import ForeignNode, ForeignRun, JsonFormat, energy_of, summary_of
from tokenpeak.exchange.reading import Fields, read_json, word
from tokenpeak.exchange.vllm_bench import latencies
from tokenpeak.spec.workload import ExternalLoad, ExternalWorkload

MARKS = ("hw", "conc", "tput_per_gpu")
DEVICES = {
    "h100": "NVIDIA H100 80GB HBM3",
    "h200": "NVIDIA H200",
    "b200": "NVIDIA B200",
    "mi300x": "AMD Instinct MI300X",
    "mi325x": "AMD Instinct MI325X",
}
"""Its words for devices that our table has; others keep their word."""
DERIVED = ("intvty", "input_tput_per_gpu")
DIFFERENCES = (
    "Throughput is given per GPU; the node's is that times the tensor-parallel size, by which it was divided.",
    "Interactivity (1 ÷ TPOT) is derived and left out.",
)


def looks_like(raw: object) -> bool:
    """The object, or the first of a list, is such an aggregate."""
    first = raw[0] if isinstance(raw, list) and raw else raw
    return isinstance(first, Mapping) and all(key in first for key in MARKS)


def read_inferencex(path: Path) -> tuple[list[ForeignRun], list[str], list[ForeignNode]]:
    """The runs of a file that holds one aggregate or a list of them, keys without a place, and the nodes."""
    raw = read_json(path)
    items = raw if isinstance(raw, list) else [raw]
    if not items or not all(looks_like(item) for item in items):
        raise ArchiveError(f"{path}: no aggregate of InferenceX; it lacks {', '.join(MARKS)}.")
    runs: list[ForeignRun] = []
    nodes: dict[str, ForeignNode] = {}
    unread: list[str] = []
    for index, item in enumerate(items):
        fields = Fields(item, path, f"[{index}]" if len(items) > 1 else "")
        run, node = _run(fields)
        nodes[node.name] = node
        runs.append(run)
        unread += [key for key in fields.unread() if not any(part in key for part in DERIVED)]
    return runs, unread, list(nodes.values())


def _run(fields: Fields) -> tuple[ForeignRun, ForeignNode]:
    hardware = fields.text("hw", required=True) or ""
    gpus = fields.count("tp", required=True) or 1
    key = hardware.casefold().split("-")[0].split("_")[0]
    node = ForeignNode(name=f"{word(hardware)}-{gpus}", gpu=DEVICES.get(key, hardware), count=min(gpus, 4096))
    values: dict[str, float] = {}
    for theirs, ours in (("output_tput_per_gpu", "output_tok_per_s"), ("tput_per_gpu", "total_tok_per_s")):
        if (each := fields.number(theirs)) is not None:
            values[ours] = each * gpus
    if (each := fields.number("input_tput_per_gpu")) is not None:
        values["input_tok_per_s"] = each * gpus
    values |= latencies(fields, unit="", scale=1.0)
    if (joule := fields.number("joules_per_output_token")) is not None:
        values["energy_j_per_output_tok"] = joule
    isl, osl = fields.number("isl"), fields.number("osl")
    flags: dict[str, bool | int | float | str | None] = {"tensor_parallel_size": gpus}
    if (experts := fields.count("ep")) and experts > 1:
        flags["enable_expert_parallel"] = True
    framework, precision = fields.text("framework"), fields.text("precision")
    choices = {name: value for name, value in (("framework", framework), ("precision", precision)) if value}
    shape = "-".join(f"{length:g}" for length in (isl, osl) if length)
    return (
        ForeignRun(
            node=node.name,
            config=", ".join([*choices.values(), f"tp{gpus}"]),
            model=fields.text("model") or "unknown",
            flags=flags,
            engine_version=framework,
            choices=choices,
            workload=ExternalWorkload(
                name=word(f"random-{shape}" if shape else "random"),
                input_tokens=isl or None,
                output_tokens=osl or None,
            ),
            level=ExternalLoad(external=True, concurrency=fields.count("conc") or None),
            summary=summary_of(values),
            energy=energy_of(values, "sampled_power"),
        ),
        node,
    )


FORMAT = JsonFormat(
    name="inferencex",
    looks_like=looks_like,
    tool_of=lambda _: "InferenceX",
    read=read_inferencex,
    differences=DIFFERENCES,
)
