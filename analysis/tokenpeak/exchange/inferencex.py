"""InferenceX's aggregates (`agg_*.json`): figures per GPU, times in seconds under names that lost their unit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.foreign import ForeignNode, ForeignRun, JsonFormat, energy_of, summary_of
from tokenpeak.exchange.reading import Fields, Scalar, read_json, word
from tokenpeak.exchange.vllm_bench import latencies
from tokenpeak.spec.load import ExternalLoad
from tokenpeak.spec.workload import ExternalWorkload

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
STAGES = ("prefill", "decode")
CHOICES = ("framework", "precision", "spec_decoding", "mtp")
"""Keys in which configs differ beside how they are split over GPUs."""
NOTHING = ("none", "off", "false")
IGNORED = ("is_multinode", "disagg")
"""Said by which other keys there are."""
MOST_GPUS = 4096
VLLM = "vllm"
RELEASE = re.compile(r":v?(\d+\.\d+\.\d+[\w.+]*)")
DIFFERENCES = (
    "Throughput is given per GPU; the node's is that times the GPUs by which it was divided: all, or, of disaggregated "
    "serving, those of decode for the output and those of prefill for the input.",
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


@dataclass(frozen=True, kw_only=True)
class EngineLayout:
    """The GPUs that a result is of, and what it says of the engines on them."""

    gpus: int
    output_gpus: int
    """Those by which the output's throughput was divided."""
    input_gpus: int
    name: str
    flags: Mapping[str, Scalar]
    choices: Mapping[str, str]


def _layout(fields: Fields) -> EngineLayout:
    """Of one engine, or of disaggregated prefill and decode engines, whose throughputs are per GPU of their own."""
    if fields.content.get("tp") is None and (fields.content.get("decode_tp") or fields.content.get("prefill_tp")):
        prefill, decode = (_stage(fields, stage) for stage in STAGES)
        return EngineLayout(
            gpus=prefill.gpus + decode.gpus,
            output_gpus=decode.gpus,
            input_gpus=prefill.gpus,
            name=f"{prefill.name}, {decode.name}",
            flags={},
            choices={**prefill.choices, **decode.choices},
        )
    gpus = fields.count("tp", required=True) or 1
    flags: dict[str, Scalar] = {"tensor_parallel_size": gpus}
    choices = {"tp": str(gpus)}
    if (experts := fields.count("ep")) and experts > 1:
        flags["enable_expert_parallel"] = True
        choices["ep"] = str(experts)
    if _is_true(fields, "dp_attention"):
        choices["dp_attention"] = "true"
    return EngineLayout(
        gpus=gpus,
        output_gpus=gpus,
        input_gpus=gpus,
        name=_words(choices),
        flags=flags,
        choices={"parallel": _words(choices)},
    )


def _stage(fields: Fields, stage: str) -> EngineLayout:
    """The engines of one stage of disaggregated serving: how many, and how each is split."""
    workers = fields.count(f"{stage}_num_workers") or 1
    tp = fields.count(f"{stage}_tp") or 1
    gpus = fields.count(f"num_{stage}_gpu") or workers * tp
    parts = {"tp": str(tp)}
    if (experts := fields.count(f"{stage}_ep")) and experts > 1:
        parts["ep"] = str(experts)
    if _is_true(fields, f"{stage}_dp_attention"):
        parts["dp_attention"] = "true"
    words = f"{workers}x {_words(parts)}"
    return EngineLayout(
        gpus=gpus, output_gpus=gpus, input_gpus=gpus, name=f"{stage} {words}", flags={}, choices={stage: words}
    )


def _words(parts: Mapping[str, str]) -> str:
    return " ".join(name if value == "true" else f"{name}{value}" for name, value in parts.items())


def _is_true(fields: Fields, key: str) -> bool:
    return str(fields.raw(key)).casefold() == "true"


def _run(fields: Fields) -> tuple[ForeignRun, ForeignNode]:
    hardware = fields.text("hw", required=True) or ""
    found = _layout(fields)
    key = hardware.casefold().split("-")[0].split("_")[0]
    gpu, count = DEVICES.get(key, hardware), min(found.gpus, MOST_GPUS)
    values: dict[str, float] = {}
    for theirs, ours, gpus in (
        ("output_tput_per_gpu", "output_tok_per_s", found.output_gpus),
        ("tput_per_gpu", "total_tok_per_s", found.gpus),
        ("input_tput_per_gpu", "input_tok_per_s", found.input_gpus),
    ):
        if (each := fields.number(theirs)) is not None:
            values[ours] = each * gpus
    values |= latencies(fields, unit="", scale=1.0)
    if (joule := fields.number("joules_per_output_token")) is not None:
        values["energy_j_per_output_tok"] = joule
    isl, osl = fields.number("isl"), fields.number("osl")
    choices = {name: value for name in CHOICES if (value := fields.text(name)) and value.casefold() not in NOTHING}
    fields.ignore(IGNORED)
    shape = "-".join(f"{length:g}" for length in (isl, osl) if length)
    node = ForeignNode(name=f"{word(hardware)}-{found.gpus}", gpu=gpu, count=count)
    return (
        ForeignRun(
            node=node.name,
            config=", ".join([*choices.values(), found.name]),
            model=fields.text("model") or "unknown",
            flags=found.flags,
            engine_version=_engine(choices.get("framework"), fields.text("image")),
            choices={**choices, **found.choices},
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


def _engine(framework: str | None, image: str | None) -> str | None:
    """The release of vLLM, where the image's tag names one; the name of another engine."""
    if framework is None or framework.casefold() != VLLM:
        return framework
    tag = RELEASE.search(image or "")
    return tag[1] if tag else None


FORMAT = JsonFormat(
    name="inferencex",
    looks_like=looks_like,
    tool_of=lambda _: "InferenceX",
    read=read_inferencex,
    differences=DIFFERENCES,
)
