"""Engine builds of a node's declaration, by name, and which variables a config may set in their environment.

A build is a command on the node, or a container image with the command in it, and may be of a named version of vLLM.
`tokenpeak_engines` of the inventory names several, and the first of them is the default. `tokenpeak_engine_command`
is the short form of one.

A config may set variables that tune the engine, and none that load other code. The declaration has the names
(`tokenpeak_engine_env_allowed`). The controller asks the same questions while it plans, so that a config is dropped
before a node is touched. What the inventory itself sets (`tokenpeak_engine_env`, `tokenpeak_engine_env_file`) comes
with the declaration and is not asked about here.
"""

from __future__ import annotations

import re
from typing import Sequence

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import VARIABLE, shown_value
from tokenpeak.node.probe import chosen_boards
from tokenpeak.node.probe.chosen_boards import ORDER, VISIBLE
from tokenpeak.node.protocol.requests import LaunchRequest, refuse, too_long

ENV_ALLOWED = "tokenpeak_engine_env_allowed"
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")

DEFAULT_VARIABLES = (
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
_SIMULATED = "TOKENPEAK_SIM_*"
"""On simulated nodes, besides."""

_FILES = re.compile(
    r"(PATH|DIR|FOLDER|(?<!PRO)FILE|(^|_)(ROOT|HOME|CACHE|LIB|LIBRARY|LIBRARIES|PLUGIN|PLUGINS|CONFIG|OUTPUT|DUMP"
    r"|SERVER|HOST|ADDR|ADDRESS|ENDPOINT|SOCKET|COMM_ID|URL|URI|COMMAND|CMD|EXEC|SCRIPT|HOOK|CXX|CC|COMPILER))$"
)
"""Endings of names whose value says where code, caches of code or settings are loaded from, what is run, or where
something is written or sent: VLLM_NCCL_SO_PATH, VLLM_CACHE_ROOT, VLLM_LOGGING_CONFIG_PATH, VLLM_PLUGINS,
NCCL_NET_PLUGIN, TORCHINDUCTOR_CACHE_DIR, TORCHINDUCTOR_WORKER_LOGPATH, NCCL_COMM_ID."""
_PLACE = re.compile(r"/|^~|^\.\.?$")
"""Of a value that names a file, a folder or an address, whatever its variable is called."""
_OPENING = ("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_SERVER_DEV_MODE")
"""They let whoever reaches the engine's port load code or files; as VLLM_API_KEY would let anybody reach it."""
_KEPT_BACK = (*_OPENING, "VLLM_API_KEY", "VLLM_LOGGING_STREAM", *VISIBLE, ORDER)
"""Names that no pattern allows."""
_NEVER = re.compile(r"LD_.*|PYTHON.*|GLIBC_.*|GCONV_PATH|PATH|HOME|SHELL|ENV|BASH_.*|IFS")
"""The loader's, the interpreter's and the shell's own: no inventory can allow them."""
ONLY = "engine"
"""The name of the one build that `tokenpeak_engine_command` declares."""
DOCKER, PODMAN = "docker", "podman"
OF_CONTAINERS = ("mounts", "devices", "args", "user", "rootless_user", "shm_size", "limits", "pull")
"""Further keys that the declaration of a build in a container may say."""
SERVER = "server"
"""The key that a build of a server other than vLLM has, which names it; its version is that name then."""
PATH_COMMAND = ["vllm", "serve"]
"""The command where a declaration names no command."""


def allowed_names(declared: Sequence[str] | None, simulated: bool, chosen: bool = False) -> tuple[str, ...]:
    """The names and patterns that hold on a node; `declared` as in the inventory, None where it says nothing.

    Where the inventory has `chosen` boards, no config chooses others: what is measured would be of the wrong ones.
    """
    names = DEFAULT_VARIABLES if declared is None else tuple(str(name) for name in declared)
    names = tuple(name for name in names if not (chosen and name in (*VISIBLE, ORDER)))
    return (*names, _SIMULATED) if simulated else names


def allowed_variables(declaration: Json) -> tuple[str, ...]:
    """The names and patterns that hold on the node of a declaration."""
    declared = (declaration.get("engine") or {}).get("env_allowed")
    is_chosen = chosen_boards.chosen_boards(declaration) is not None
    return allowed_names(declared, bool(declaration.get("simulated")), is_chosen)


def why_not_set(name: str, allowed: Sequence[str], given: str = "") -> str | None:
    """Why a config may not set the variable (to the value `given`), and what to do; None when it may.

    A pattern allows no name that says where code or settings are loaded from, and no value that is a place; such a
    name must stand there itself.
    """
    if not VARIABLE.fullmatch(name):
        return f"{shown_value(name)} is not the name of an environment variable"
    if _NEVER.fullmatch(name):
        return f"{name} may not be set by a config: set it in tokenpeak_engine_env of the inventory"
    if name in allowed:
        return None
    matched = any(pattern.endswith("*") and name.startswith(pattern[:-1]) for pattern in allowed)
    if matched and not _FILES.search(name) and not _PLACE.search(given) and name not in _KEPT_BACK:
        return None
    if name in (*VISIBLE, ORDER):
        return f"{name} chooses boards, and configs may not here: tokenpeak_gpus of the inventory does, for every trial"
    reason = "loads code, names a place or opens the engine, and no pattern allows it" if matched else "is not allowed"
    return f"{name} {reason}: add the name to {ENV_ALLOWED} of the inventory, or set it in tokenpeak_engine_env"


def wrong_variables(declared: Sequence[str]) -> list[str]:
    """The problem with a declared list; nothing when all of its entries are names or `PREFIX_*`."""
    wrong = [
        f"{shown_value(entry)} is neither a name nor PREFIX_*"
        for entry in declared
        if not _PATTERN.fullmatch(str(entry))
    ]
    never = [f"{entry} can never be allowed" for entry in declared if _NEVER.fullmatch(str(entry).rstrip("*"))]
    return wrong + never


def engine_builds(declaration: Json) -> dict[str, Json]:
    """The declared builds in their order, each with `command` and `version` (None: any).

    One of another server has `server` besides; one in a container has `image` and `runtime`, and what else its
    container is made with.
    """
    several = declaration.get("engines") or []
    if several:
        return {str(one["name"]): _build(one["build"]) for one in several}
    return {ONLY: _build(declaration.get("engine") or {})}


def engine_build(declaration: Json, name: str | None) -> Json:
    """The build of that name, the default one for None; raises ScriptError for a name that is not declared."""
    builds = engine_builds(declaration)
    if name is None:
        return next(iter(builds.values()))
    if name not in builds:
        raise ScriptError(
            "refused",
            f"This node declares no engine build {shown_value(name)}, but {', '.join(builds)}, and nothing was "
            "touched: add it to tokenpeak_engines of the inventory, then `tokenpeak install`.",
        )
    return builds[name]


def require_allowed(declaration: Json, request: LaunchRequest) -> None:
    """Raise ScriptError for what the node's own declaration does not allow of a launch."""
    longest_s = max(request.trial_deadline_s, request.deadline_s)
    wrong = too_long(declaration, request.lease_s, longest_s + request.engine_stop_s + request.production_ready_s)
    engine_build(declaration, request.engine)
    allowed = allowed_variables(declaration)
    # A config may empty a variable that the inventory itself sets.
    own = (declaration.get("engine") or {}).get("env") or {}
    wrong += filter(
        None,
        (why_not_set(name, allowed, text) for name, text in request.env.items() if text or name not in own),
    )
    refuse("launch", wrong)


def is_version(asked: str | None, found: str | None) -> bool:
    """Whether a found version is the one that was asked for: `0.32` is met by 0.32.1, and any by `0.32.1+cpu`.

    One that is not known is not denied.
    """
    if asked is None or found is None:
        return True
    public, wanted = (text.split("+")[0].lower().lstrip("v") for text in (found, asked))
    return public == wanted or public.startswith(f"{wanted}.")


def is_vllm(version: str | None) -> bool:
    """Whether it is a version of vLLM, or unknown; of another engine its name stands there, such as `llama.cpp`."""
    return version is None or re.match(r"v?\d+\.\d", version) is not None


def _build(declared: Json) -> Json:
    version = declared.get("server") or declared.get("version")
    build: Json = {
        "command": [str(word) for word in declared.get("command") or PATH_COMMAND],
        "version": None if version is None else str(version),
    }
    if declared.get("server"):
        build[SERVER] = build["version"]
    if not declared.get("image"):
        return build
    return {
        **build,
        "image": str(declared["image"]),
        "runtime": str(declared.get("runtime") or DOCKER),
        **{name: declared[name] for name in OF_CONTAINERS if declared.get(name) is not None},
    }
