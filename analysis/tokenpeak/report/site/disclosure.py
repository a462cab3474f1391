"""Disclosure rules: for each text field of the records, whether and how it may leave, and settings that may.

Figures, instants, truth values and a record's own words (Literal) stay: their types leave no room for anything else. A
field that can hold text is private, and emptied, until a rule here says otherwise; a test names those without one.

Of flags, variables and JSON keys, values that everybody has are public: numbers, yes and no, loopback, and words that
vLLM and its libraries give meaning to under any name, other words under the names below alone. Whatever else a setting
holds is its author's own.
"""

import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tokenpeak import records
from tokenpeak.loadgen.calibration import Calibration, NetworkPath
from tokenpeak.records.quality import AnswersQuality, QualityExample, QualityMeasurement, QualityVerdict, SweepQuality
from tokenpeak.sensitive import HARMLESS_HOSTS, LABEL, PLAIN
from tokenpeak.spec import request_form, workload
from tokenpeak.spec.axes import Alternative, ExtraConfig, ModelPatch
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.energy import Citation, EnergyFactors
from tokenpeak.spec.quality import QualitySpec
from tokenpeak.spec.sweep import ModelSpec, Objective, SearchSpec, SweepSpec
from tokenpeak.vllm.flags import flag_table

_WORDS = """
architectures attention_backend attn_implementation backend cudagraph_mode custom_ops data_parallel_backend
distributed_executor_backend dtype kv_buffer_device kv_cache_dtype kv_connector kv_role load_format mamba_backend
method mm_encoder_attn_backend mode model_impl model_type ops preemption_mode quant_method quantization
reasoning_parser rope_type safetensors_load_strategy splitting_ops tokenizer_mode tool_call_parser torch_dtype type
CUDA_DEVICE_ORDER CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
NVIDIA_DRIVER_CAPABILITIES NVIDIA_VISIBLE_DEVICES NCCL_ALGO NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_LAUNCH_MODE
NCCL_NET_GDR_LEVEL NCCL_P2P_LEVEL NCCL_PROTO KMP_AFFINITY OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY
PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF TORCH_CUDA_ARCH_LIST
TOKENPEAK_SIM_DRIVER TOKENPEAK_SIM_FAULT TOKENPEAK_SIM_GPU TOKENPEAK_SIM_LINKS TOKENPEAK_SIM_VERSION
VLLM_ALL2ALL_BACKEND VLLM_ATTENTION_BACKEND VLLM_FLASHINFER_MOE_BACKEND VLLM_FLOAT32_MATMUL_PRECISION
VLLM_KV_CACHE_LAYOUT VLLM_LOGGING_LEVEL VLLM_NVFP4_GEMM_BACKEND VLLM_ROCM_QUICK_REDUCE_QUANTIZATION
VLLM_TARGET_DEVICE VLLM_WORKER_MULTIPROC_METHOD
"""
WORDS = frozenset(_WORDS.split())
"""Names whose values are words of vLLM, of a library or of the simulated engine."""
_MODELS = "model revision served_model_name spec_model speculative_model tokenizer tokenizer_revision"
MODELS = frozenset(_MODELS.split())
"""Names of models, which a site is about; of a path its last part leaves."""
_NUMBERS = re.compile(r"[\d.,:;x-]*")
_IS_WORD = re.compile(r"[\w.,:;+|() -]{1,80}")
_OF_VLLM = re.compile(r"vllm(?:\.\w+)+")


class FieldRule(Enum):
    """How a text field leaves."""

    PRIVATE = auto()
    """Emptied."""
    FREE = auto()
    """What anybody may have written, in any words: emptied, and where it is asked for, as TEXT."""
    TEXT = auto()
    """As it is, names and sensitive patterns replaced; of a mapping the keys too."""
    WORD = auto()
    """An identifier, as TEXT, and an identifier again."""
    VERSION = auto()
    """A version's digits and dots are no address."""
    NODE = auto()
    """A node's or load host's label."""
    MODEL = auto()
    """A model's name; of a path its last part."""
    FILE = auto()
    """A file's name; of a path its last part."""
    IMAGE = auto()
    """A container image; of those that everybody can pull the whole name, of others its last part."""
    URL = auto()
    """Its host replaced, and a URL again."""
    ENV = auto()
    """Variables of the engine; values of those that everybody's engine knows."""
    FLAGS = auto()
    """Flags with their values, without secrets."""
    ARGV = auto()
    """A command line: the program's name, flags and values, without secrets."""
    SPEC = auto()
    """A sweep spec, by its own fields."""
    CALIBRATIONS = auto()
    """Calibrations, by their own fields."""


def _rules(**fields: str) -> dict[str, FieldRule]:
    """Field → rule, from `RULE="field field …"`."""
    return {field: FieldRule[rule] for rule, names in fields.items() for field in names.split()}


_WORKLOAD = _rules(WORD="name", TEXT="adapters", PRIVATE="adapter_paths")

RULES: dict[type[Any], dict[str, FieldRule]] = {
    records.SweepRecord: _rules(
        WORD="sweep_id name inventory study", NODE="load_hosts", SPEC="spec", CALIBRATIONS="calibration"
    ),
    records.EndRecord: _rules(
        WORD="sweep_id", NODE="production_downtime_s open_downtime_s unrestored left_out_nodes", FREE="problems"
    ),
    records.TrialRecord: _rules(
        WORD="sweep_id trial_id config_class", NODE="node", TEXT="hardware left_out stated_quality", ARGV="argv"
    ),
    records.ApplyRecord: _rules(
        WORD="apply_id sweep_id", NODE="node", PRIVATE="who", TEXT="failed_in", FREE="message", VERSION="engine_version"
    ),
    # Production's own definition has its paths and addresses; its checksum says whether it is the same.
    records.ProductionDefinition: _rules(WORD="sha256", PRIVATE="text"),
    records.Bake: _rules(FREE="reason"),
    QualityVerdict: _rules(TEXT="reason"),
    QualityMeasurement: _rules(FREE="problem"),
    # Examples are of built-in questions alone.
    QualityExample: _rules(WORD="name kind", TEXT="question reference_answer answer"),
    AnswersQuality: _rules(WORD="answers config_ids trial_ids", TEXT="hardware changes"),
    SweepQuality: _rules(WORD="sweep_id", TEXT="references"),
    QualitySpec: _rules(TEXT="reference tasks"),
    records.NodeFacts: _rules(
        NODE="node",
        TEXT="cpu interconnect os engine_help engine_env_allowed",
        FREE="problems",
        VERSION="engine_version",
        ENV="engine_env",
        PRIVATE="kernel vram_holders",
    ),
    records.EngineBuild: _rules(TEXT="name help", FREE="problem", VERSION="version installed digest", IMAGE="image"),
    records.Container: _rules(TEXT="devices shm_size", PRIVATE="mounts user limits args"),
    records.PowerMeter: _rules(TEXT="by"),
    # Its shape gives a model of one's own away.
    records.Checkpoint: _rules(MODEL="model", PRIVATE="config"),
    records.Tensors: _rules(TEXT="name", WORD="dtype"),
    records.Gpu: _rules(TEXT="name", VERSION="driver compute_capability", PRIVATE="uuid"),
    records.Production: _rules(WORD="manager", MODEL="model", PRIVATE="unit url arguments"),
    records.ProductionTraffic: _rules(NODE="node"),
    records.Plan: _rules(TEXT="hardware apart", NODE="nodes", WORD="highest"),
    records.PlannedConfig: _rules(WORD="config_class answers", TEXT="advice"),
    records.Dropped: _rules(WORD="rule", TEXT="reason"),
    records.Config: _rules(
        WORD="config_id",
        TEXT="name choices engine",
        FLAGS="flags",
        ENV="env",
        VERSION="engine_version",
        URL="endpoint",
        PRIVATE="args",
    ),
    records.ModelName: _rules(MODEL="name served_name", WORD="revision"),
    records.Prediction: _rules(WORD="binding"),
    records.Provenance: _rules(VERSION="tokenpeak_version git_revision python", PRIVATE="packages"),
    records.Imported: _rules(
        TEXT="format tool title publisher url published measured mapping differences unmapped unknown cautions"
    ),
    records.SourceFile: _rules(FILE="name", WORD="sha256"),
    records.Series: _rules(WORD="columns"),
    records.RunSummary: _rules(WORD="failures within_limits"),
    records.LoadHostHealth: _rules(NODE="load_host"),
    records.Reason: _rules(WORD="code", TEXT="text"),
    records.RateProbe: _rules(WORD="metrics percentile_intervals"),
    records.RunRecord: _rules(TEXT="level_label", FREE="failure_messages", WORD="percentile_intervals"),
    records.AdapterSummary: _rules(TEXT="adapter"),
    records.Failure: _rules(WORD="phase cause", FREE="message evidence"),
    records.Phase: _rules(TEXT="name"),
    records.StartupFacts: _rules(VERSION="engine_version engine_digest model_digest", WORD="engine_choices"),
    records.Restoration: _rules(MODEL="model", FREE="message"),
    workload.FixedWorkload: {**_WORKLOAD, **_rules(FREE="prompt")},
    workload.SyntheticWorkload: _WORKLOAD,
    request_form.StructuredAnswers: _rules(FILE="file"),
    request_form.Tools: _rules(FILE="file"),
    workload.DatasetWorkload: {
        **_WORKLOAD,
        **_rules(FILE="path paths", TEXT="prompt_column output_column hub subset split match"),
    },
    workload.ConversationWorkload: {**_WORKLOAD, **_rules(FILE="starters", FREE="turn_text")},
    workload.TraceWorkload: {**_WORKLOAD, **_rules(FILE="path")},
    workload.ProductionWorkload: _WORKLOAD,
    workload.PoolingWorkload: _rules(WORD="name"),
    workload.ExternalWorkload: _rules(WORD="name", FREE="description"),
    SweepSpec: _rules(WORD="name study highest axes", FREE="description", TEXT="window"),
    ModelSpec: _rules(MODEL="name served_name", WORD="revision"),
    ModelPatch: _rules(MODEL="name served_name", WORD="revision"),
    Alternative: _rules(TEXT="name when", FLAGS="flags", ENV="env", VERSION="engine", PRIVATE="args"),
    ExtraConfig: _rules(TEXT="name", FLAGS="flags", ENV="env", VERSION="engine", PRIVATE="args"),
    EndpointSpec: _rules(URL="url metrics_url", MODEL="model", WORD="inventory", PRIVATE="api_key_env headers ca_file"),
    Objective: _rules(WORD="metric workload also", TEXT="level"),
    SearchSpec: _rules(TEXT="baseline"),
    EnergyFactors: _rules(WORD="currency cited"),
    Citation: _rules(TEXT="source"),
    Calibration: _rules(PRIVATE="host"),
    NetworkPath: _rules(NODE="load_hosts server"),
}


def is_record(kind: Any) -> bool:
    """Whether a type, or the type of a value, is a record's."""
    return dataclasses.is_dataclass(kind) or isinstance(kind, BaseModel) or _is_model(kind)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def fields_of(record: type[Any]) -> Mapping[str, FieldInfo]:
    """The fields of a record; some records are the node's own types, which are plain dataclasses."""
    if _is_model(record):
        fields: Mapping[str, FieldInfo] = record.model_fields
        return fields
    hints = typing.get_type_hints(record)
    return {one.name: FieldInfo(annotation=hints[one.name], **_default(one)) for one in dataclasses.fields(record)}


def _default(one: "dataclasses.Field[Any]") -> dict[str, Any]:
    if one.default_factory is not dataclasses.MISSING:
        return {"default_factory": one.default_factory}
    return {} if one.default is dataclasses.MISSING else {"default": one.default}


def rule_of(record: type[Any], field: str) -> FieldRule:
    """The field's rule; private where none has been decided."""
    return RULES.get(record, {}).get(field, FieldRule.PRIVATE)


def holds_text(annotation: Any) -> bool:
    """Whether a field of this type can hold text of its own; parts that are records decide for themselves."""
    if annotation is str or annotation is Any or annotation is object:
        return True
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return False
    parts = typing.get_args(annotation)
    if origin is typing.Annotated:
        return holds_text(parts[0])
    if origin is dict or origin in (tuple, list, set, frozenset, typing.Union, types.UnionType):
        return any(holds_text(part) for part in parts)
    return False


def parts_of(annotation: Any) -> Iterator[type[Any]]:
    """The records that a field of this type can hold."""
    if isinstance(annotation, type) and is_record(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from parts_of(part)


def is_public(name: str, value: object) -> bool:
    """Whether a setting's value, which is no JSON, may leave as it is."""
    if not isinstance(value, str):
        return True
    host = value.rpartition(":")[0] if re.search(r":\d+$", value) else value
    if _NUMBERS.fullmatch(value) and value.count(".") < 3:
        return True
    if PLAIN.fullmatch(value) or LABEL.fullmatch(value) or {host, value} & HARMLESS_HOSTS or value in _choices():
        return True
    return _OF_VLLM.fullmatch(value) is not None or (_plain(name) in WORDS and _IS_WORD.fullmatch(value) is not None)


def is_model(name: str) -> bool:
    """Whether a setting of this name says a model."""
    return _plain(name) in MODELS


def private_values(name: str, value: object) -> Iterator[str]:
    """The texts in a setting's value that do not leave."""
    if isinstance(value, str) and (parsed := json_of(value)) is not None:
        value = parsed
    if isinstance(value, dict):
        for key, item in value.items():
            yield from private_values(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from private_values(name, item)
    elif isinstance(value, str) and not is_public(name, value) and not is_model(name):
        yield value


def json_of(value: str) -> dict[str, Any] | list[Any] | None:
    """The object or list that a text is, as values of some flags are; None for other texts."""
    if not value.lstrip().startswith(("{", "[")):
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | list) else None


@cache
def _choices() -> frozenset[object]:
    """Choices of vLLM's flags, and its quantizations: words of everybody's."""
    spans = (span for spans in flag_table().flags.values() for span in spans)
    return frozenset(choice for _, _, facts in spans for choice in facts.get("choices", ()))


def _plain(name: str) -> str:
    """`--kv-transfer-config.kv_role` as `kv_role`."""
    return name.lstrip("-").rpartition(".")[2].replace("-", "_")
