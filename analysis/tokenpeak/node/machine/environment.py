"""Which variables a config may set in the engine's environment: those that tune it, none that load other code.

The node's declaration has the names (`tokenpeak_engine_env_allowed`). The controller asks the same questions while it
plans, so that a config is dropped before a node is touched. What the inventory itself sets (`tokenpeak_engine_env`,
`tokenpeak_engine_env_file`) comes with the declaration and is not asked about here.
"""

from __future__ import annotations

import re
from typing import Sequence

from tokenpeak.node.machine.words import shown_value

KEY = "tokenpeak_engine_env_allowed"
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")

DEFAULT = (
    "VLLM_*",
    "NCCL_*",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_FORCE_DEV_KERNARG",
    "HSA_NO_SCRATCH_RECLAIM",
    "HSA_OVERRIDE_GFX_VERSION",
    "GPU_MAX_HW_QUEUES",
    "ZE_AFFINITY_MASK",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_TUNABLEOP_ENABLED",
    "TORCHINDUCTOR_*",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "TOKENIZERS_PARALLELISM",
    "SAFETENSORS_FAST_GPU",
)
"""Allowed where the inventory says nothing."""
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""By which an engine sees some boards alone."""
ORDER = "CUDA_DEVICE_ORDER"
"""By which CUDA counts them."""
SIMULATED = "TOKENPEAK_SIM_*"
"""On simulated nodes, besides."""

FILES = re.compile(
    r"(PATH|DIR|FOLDER|(?<!PRO)FILE|(^|_)(ROOT|HOME|CACHE|LIB|LIBRARY|LIBRARIES|PLUGIN|PLUGINS|CONFIG|OUTPUT|DUMP"
    r"|SERVER|HOST|ADDR|ADDRESS|ENDPOINT|SOCKET|COMM_ID|URL|URI|COMMAND|CMD|EXEC|SCRIPT|HOOK|CXX|CC|COMPILER))$"
)
"""Endings of names whose value says where code, caches of code or settings are loaded from, what is run, or where
something is written or sent: VLLM_NCCL_SO_PATH, VLLM_CACHE_ROOT, VLLM_LOGGING_CONFIG_PATH, VLLM_PLUGINS,
NCCL_NET_PLUGIN, TORCHINDUCTOR_CACHE_DIR, TORCHINDUCTOR_WORKER_LOGPATH, NCCL_COMM_ID."""
PLACE = re.compile(r"/|^~|^\.\.?$")
"""Of a value that names a file, a folder or an address, whatever its variable is called."""
OPENING = ("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_SERVER_DEV_MODE")
"""They let whoever reaches the engine's port load code or files; as VLLM_API_KEY would let anybody reach it."""
KEPT_BACK = (*OPENING, "VLLM_API_KEY", "VLLM_LOGGING_STREAM", *VISIBLE, ORDER)
"""Names that no pattern allows."""
NEVER = re.compile(r"LD_.*|PYTHON.*|GLIBC_.*|GCONV_PATH|PATH|HOME|SHELL|ENV|BASH_.*|IFS")
"""The loader's, the interpreter's and the shell's own: no inventory can allow them."""


def allowed_names(declared: Sequence[str] | None, simulated: bool, chosen: bool = False) -> tuple[str, ...]:
    """The names and patterns that hold on a node; `declared` as in the inventory, None where it says nothing.

    Where the inventory has `chosen` boards, no config chooses others: what is measured would be of the wrong ones.
    """
    names = DEFAULT if declared is None else tuple(str(name) for name in declared)
    names = tuple(name for name in names if not (chosen and name in (*VISIBLE, ORDER)))
    return (*names, SIMULATED) if simulated else names


def why_not(name: str, allowed: Sequence[str], given: str = "") -> str | None:
    """Why a config may not set the variable (to the value `given`), and what to do; None when it may.

    A pattern allows no name that says where code or settings are loaded from, and no value that is a place; such a
    name must stand there itself.
    """
    if not NAME.fullmatch(name):
        return f"{shown_value(name)} is not the name of an environment variable"
    if NEVER.fullmatch(name):
        return f"{name} may not be set by a config: set it in tokenpeak_engine_env of the inventory"
    if name in allowed:
        return None
    matched = any(pattern.endswith("*") and name.startswith(pattern[:-1]) for pattern in allowed)
    if matched and not FILES.search(name) and not PLACE.search(given) and name not in KEPT_BACK:
        return None
    if name in (*VISIBLE, ORDER):
        return f"{name} chooses boards, and configs may not here: tokenpeak_gpus of the inventory does, for every trial"
    reason = "loads code, names a place or opens the engine, and no pattern allows it" if matched else "is not allowed"
    return f"{name} {reason}: add the name to {KEY} of the inventory, or set it in tokenpeak_engine_env"


def wrong_patterns(declared: Sequence[str]) -> list[str]:
    """The problem with a declared list; nothing when all of its entries are names or `PREFIX_*`."""
    wrong = [
        f"{shown_value(entry)} is neither a name nor PREFIX_*"
        for entry in declared
        if not PATTERN.fullmatch(str(entry))
    ]
    never = [f"{entry} can never be allowed" for entry in declared if NEVER.fullmatch(str(entry).rstrip("*"))]
    return wrong + never
