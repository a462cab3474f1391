"""Known words of an archive: what its nodes, models and users are called, and what stands for them in a copy.

A name has no pattern. So it comes from the record, from the inventory if that is on this machine, and from this
machine itself, and replaced wherever it stands as a word.
"""

import getpass
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from tokenpeak import paths
from tokenpeak.errors import InputError
from tokenpeak.loadgen.calibration.network_path import HERE
from tokenpeak.records import Config, SweepRecord
from tokenpeak.sensitive import HARMLESS_HOSTS, LABEL, PLAIN, json_of, mask_places, place_of
from tokenpeak.spec.axes import Alternative, ExtraConfig
from tokenpeak.spec.located import LocatedYaml
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.flags import flag_table

_COMMON = """
root admin user users ubuntu debian centos fedora ansible vllm engine model models production prod node
nodes gpu cpu host hosts server local localhost localdomain main test default all one two three service
systemd docker podman compose kubernetes deployment statefulset nobody daemon runner worker sim rig
python python3 load none nvidia amd intel cuda rocm llm openai api http https tokenpeak
"""
COMMON = frozenset(_COMMON.split())
"""Names that give nobody away, and that text needs for other things."""
SHORTEST = 3
LONGEST_NAME = 80
"""Letters of a model's or a device's name; a longer text is no name."""
HOST_KEYS = frozenset({"ansible_host", "tokenpeak_host"})
USER_KEYS = frozenset({"ansible_user", "ansible_ssh_user", "ansible_become_user", "tokenpeak_engine_user", "user"})
SETTING_KEYS = frozenset({"unit", "project", "namespace", "context"})
"""Of production: what it is called on its node."""


@dataclass(frozen=True, kw_only=True)
class KnownWords:
    """What stands for what: nodes and load hosts by label, models by name; others by the kind of thing they are."""

    labels: Mapping[str, str]
    models: Mapping[str, str]
    kinds: Mapping[str, str]

    def pattern(self) -> re.Pattern[str]:
        """Any of the words, where letters and digits around it do not make it part of another."""
        words = [*filter(is_identifying, self.labels), *self.models, *self.kinds]
        alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)"
        return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE)


def is_identifying(word: str) -> bool:
    """A name that gives something away where it stands in a text."""
    return len(word) >= SHORTEST and word.casefold() not in COMMON


def known_words(record: SweepRecord, spec: SweepSpec) -> KnownWords:
    """The words of an archive."""
    shown = _shown(record)
    labels = {name: label for name, label in _labels(record).items() if name.casefold() not in shown or "." in name}
    exact = _labels(record)
    found = {}
    for word, kind in (*_of_record(record), *_of_settings(record, spec), *own_words(record.inventory)):
        plain = word.casefold()
        if is_identifying(word) and plain not in shown and word not in exact and not LABEL.fullmatch(word):
            found[plain] = kind
    # The first part of a full name is the same machine.
    short = {
        name.split(".")[0]: label
        for name, label in labels.items()
        if re.fullmatch(r"[A-Za-z][\w-]*\.[\w.-]*[A-Za-z]", name)
    }
    return KnownWords(labels={**short, **labels}, models=_models(record, spec), kinds=found)


def own_words(inventory: str) -> tuple[tuple[str, str], ...]:
    """Words that the inventory of that name and this machine give, each with its kind."""
    return tuple(dict.fromkeys([*_of_inventory(inventory), *_of_machine()]))


def node_labels(record: SweepRecord) -> dict[str, str]:
    """What pages call each node and load host, whatever it is called: node-1, node-2, … in the sweep's order."""
    return _labels(record)


def _labels(record: SweepRecord) -> dict[str, str]:
    found = {
        **{name: f"load-host-{index}" for index, name in enumerate(record.load_hosts, start=1)},
        **{node.node: f"node-{index}" for index, node in enumerate(record.nodes, start=1)},
    }
    for calibration in _calibrations(record):
        way = calibration.get("way") or {}
        ways = [("node", way.get("server")), *(("load-host", name) for name in way.get("load_hosts") or ())]
        for what, name in ways:
            if isinstance(name, str) and name != HERE and name not in found:
                count = sum(label.startswith(f"{what}-") for label in found.values())
                found[name] = name if LABEL.fullmatch(name) else f"{what}-{count + 1}"
    return found


def _calibrations(record: SweepRecord) -> list[Mapping[str, Any]]:
    raw = (record.calibration or {}).get("calibrations")
    return [each for each in raw if isinstance(each, dict)] if isinstance(raw, list) else []


def _shown(record: SweepRecord) -> frozenset[str]:
    """Words of what a site is for: the names of GPUs, processors and models."""
    texts = [gpu.name for node in record.nodes for gpu in node.gpus]
    texts += [text for node in record.nodes for text in (node.cpu, node.os) if text]
    texts += [plan.config.model.name for each in record.plans for plan in each.feasible]
    texts = [text for text in texts if not text.startswith("/") and len(text) <= LONGEST_NAME]
    return frozenset(word.casefold() for text in texts for word in (text, *re.split(r"[^A-Za-z0-9]+", text)))


def _models(record: SweepRecord, spec: SweepSpec) -> dict[str, str]:
    """For each model that is a path on a node: its last part, and a number where two end alike."""
    configs = _configs(record)
    names = [name for config in configs for name in (config.model.name, config.model.served_name)]
    patches = [alternative.model for choices in spec.axes.values() for alternative in choices]
    patches += [spec.fixed.model, *(extra.model for extra in spec.extra_configs)]
    names += [name for model in (spec.model, *patches) if model for name in (model.name, model.served_name) if name]
    names += [node.production.model for node in record.nodes if node.production and node.production.model]
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if re.match(r"[/~.]|file:", name):
            last = PurePosixPath(name).name
            last = last if re.fullmatch(r"[\w.+@=-]{1,96}", last) else "model"
            used = [*found.values()]
            found[name.rstrip("/")] = last if last not in used else f"{last}-{len(used) + 1}"
    return found


def _of_record(record: SweepRecord) -> Iterator[tuple[str, str]]:
    for node in record.nodes:
        if node.production is None:
            continue
        if node.production.url and (host := urlsplit(node.production.url).hostname):
            yield from _host(host)
        if node.production.unit:
            yield from _setting(node.production.unit)


def _of_settings(record: SweepRecord, spec: SweepSpec) -> Iterator[tuple[str, str]]:
    """What the values of flags and variables say of places; a choice's name and a config's may repeat it."""
    patches = [alternative for choices in spec.axes.values() for alternative in choices]
    parts: list[Config | Alternative | ExtraConfig] = [*_configs(record), *patches, spec.fixed, *spec.extra_configs]
    settings = [each for part in parts for each in (*part.flags.items(), *part.env.items())]
    settings += [each for node in record.nodes for each in node.engine_env.items()]
    vocabulary = {word for flag in flag_table().flags for word in flag.split("_")}
    for word, kind in dict.fromkeys(place for name, value in settings for place in _places(name, value)):
        # A flag's own words, and the beginnings of other paths, stand in texts for other things.
        if word.casefold() not in vocabulary and not word.startswith(("/", "~", "-")):
            yield word, kind


def _places(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and (parsed := json_of(value)) is not None:
        yield from _places(name, parsed)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _places(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from _places(name, item)
    elif isinstance(value, str) and (kind := place_of(name)) is not None:
        places: list[tuple[str, str]] = []

        def note(_: str, text: str) -> str:
            places.append((text, kind))
            return text

        mask_places(kind, value, note)
        yield from places


def _configs(record: SweepRecord) -> list[Config]:
    configs = [planned.config for plan in record.plans for planned in plan.feasible]
    return [*configs, *(dropped.config for plan in record.plans for dropped in plan.dropped)]


def _of_machine() -> Iterator[tuple[str, str]]:
    yield from _host(socket.gethostname())
    try:
        yield getpass.getuser(), "user"
    except (KeyError, OSError):
        return


def _of_inventory(name: str) -> Iterator[tuple[str, str]]:
    """What the inventory of that name says, when it is one of this machine's."""
    folder = paths.INVENTORIES / name
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or not folder.is_dir():
        return
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml") and path.is_file()):
        yield from _in_file(file)


def _in_file(file: Path) -> Iterator[tuple[str, str]]:
    try:
        # With Ansible's own tags, as of what came from a node.
        raw = LocatedYaml(file).values()
    except InputError:
        return
    if file.parent.name == "host_vars":
        yield from _host(file.stem)
    yield from _walk(raw, "")


def _walk(value: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if key == "hosts":
                yield from _host(str(name))
            yield from _walk(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, "")
    elif isinstance(value, str) and "{{" not in value:
        if key in HOST_KEYS:
            yield from _host(value)
        elif key in USER_KEYS:
            yield value, "user"
        elif key in SETTING_KEYS:
            yield from _setting(value)


def _host(name: str) -> Iterator[tuple[str, str]]:
    if name in HARMLESS_HOSTS:
        return
    yield name, "host"
    if not re.fullmatch(r"[\d.:]+", name):
        yield name.split(".")[0], "host"


def _setting(name: str) -> Iterator[tuple[str, str]]:
    """A unit under its full name and without kind or ending."""
    parts: Iterable[str] = (name, name.rpartition("/")[2], name.rpartition("/")[2].rpartition(".")[0])
    for part in parts:
        if is_identifying(part.rpartition(".")[0] or part):
            yield part, "private"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LIBRARY_VARIABLES = _names(
    """
    CUDA_CACHE_DISABLE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE
    HIP_VISIBLE_DEVICES HIP_FORCE_DEV_KERNARG ROCR_VISIBLE_DEVICES HSA_NO_SCRATCH_RECLAIM
    NCCL_ALGO NCCL_BUFFSIZE NCCL_COMM_ID NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS
    NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_TIMEOUT NCCL_LAUNCH_MODE NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS
    NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL NCCL_NET_PLUGIN NCCL_NTHREADS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL
    NCCL_PROTO NCCL_RAS_ADDR NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF PYTORCH_TUNABLEOP_ENABLED
    PYTORCH_TUNABLEOP_TUNING TORCH_CUDA_ARCH_LIST TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_BLOCKING_WAIT
    TORCHDYNAMO_DISABLE TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_MAX_AUTOTUNE
    TRITON_CACHE_DIR TRITON_INTERPRET XLA_FLAGS FLASHINFER_CUDA_ARCH_LIST FLASHINFER_WORKSPACE_BASE
    OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY KMP_AFFINITY KMP_BLOCKTIME KMP_TPAUSE MKL_NUM_THREADS
    HF_HUB_CACHE HF_HUB_DISABLE_TELEMETRY HF_HUB_ENABLE_HF_TRANSFER HF_HUB_OFFLINE SAFETENSORS_FAST_GPU
    TOKENIZERS_PARALLELISM TRANSFORMERS_OFFLINE TRANSFORMERS_VERBOSITY RAY_ADDRESS RAY_DEDUP_LOGS
    TOKENPEAK_SIM_ACCEPTANCE TOKENPEAK_SIM_DRIVER TOKENPEAK_SIM_FAULT TOKENPEAK_SIM_GPU TOKENPEAK_SIM_GPU_COUNT
    TOKENPEAK_SIM_LINKS TOKENPEAK_SIM_NOISE TOKENPEAK_SIM_POWER_LIMIT_W TOKENPEAK_SIM_SEED TOKENPEAK_SIM_SPEED
    TOKENPEAK_SIM_START_S TOKENPEAK_SIM_VERSION
    """
)
"""Variables of libraries that an engine loads, and of the simulated engine."""
FREE_VARIABLES = _names(
    """
    VLLM_BUILD_COMMIT VLLM_BUILD_PIPELINE VLLM_BUILD_URL VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS VLLM_IMAGE_TAG
    VLLM_LOGGING_PREFIX VLLM_LORA_RESOLVER_HF_REPO_LIST VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME VLLM_PLUGINS
    VLLM_PROCESS_NAME_PREFIX VLLM_RAY_EXTRA_ENV_VARS_TO_COPY VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY VLLM_USAGE_SOURCE
    """
)
"""Variables of vLLM that hold words of whoever runs it."""
JSON_KEYS = _names(
    """
    architectures attn_implementation backend cudagraph_mode custom_ops dtype kv_buffer_device kv_connector
    kv_connector_module_path kv_role method mode model model_type ops publisher quant_method rope_type splitting_ops
    torch_dtype type use_inductor
    """
)
"""Keys of the JSON of vLLM's flags whose values are vLLM's words, and names of models."""
MODULES = _names(
    "middleware worker_cls worker_extension_cls scheduler_cls logits_processors io_processor_plugin "
    "kv_connector_module_path model_class_overrides"
)
"""Flags and keys that name what an engine imports."""


def is_known_flag(name: str) -> bool:
    """Whether some release of vLLM has a flag of that name; of `--flag.key`, whether it has the key too."""
    flag, dot, key = _plain(name).partition(".")
    has_flag = any(each in flag_table().flags for each in (flag, flag.removeprefix("no_")))
    return has_flag and (not dot or is_known_key(key.rpartition(".")[2]))


def is_known_variable(name: str) -> bool:
    """Whether vLLM or a library of its reads a variable of that name, which holds no words of its user's."""
    return (name in flag_table().variables or name in LIBRARY_VARIABLES) and name not in FREE_VARIABLES


def is_known_key(key: str, value: str = "") -> bool:
    """Whether the text below a key of a flag's JSON says nothing of its author, or says it as a place does."""
    plain = _plain(key)
    return (
        plain in JSON_KEYS
        or plain in flag_table().flags
        or place_of(key) is not None
        or bool(value and (PLAIN.fullmatch(value) or LABEL.fullmatch(value) or value in _choices()))
    )


def names_module(name: str) -> bool:
    """Whether a flag or key of that name says what is imported."""
    return _plain(name).rpartition(".")[2] in MODULES


def is_module_of_vllm(value: str) -> bool:
    """Whether what is imported is a part of vLLM, or nothing."""
    return value.startswith("vllm.") or not value or PLAIN.fullmatch(value) is not None


@cache
def _choices() -> frozenset[object]:
    """What flags of vLLM may be: words of everybody's."""
    spans = (span for spans in flag_table().flags.values() for span in spans)
    return frozenset(choice for _, _, facts in spans for choice in facts.get("choices", ()))


def _plain(name: str) -> str:
    return name.strip("-").replace("-", "_")
