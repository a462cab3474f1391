"""The vLLM release that the simulated engine plays, and what that changes in what it shows.

Sources: the release's own files, named at each property.
"""

import re
from dataclasses import dataclass

from tokenpeak.errors import FactsError
from tokenpeak.plan.flags import known_flags


@dataclass(frozen=True, kw_only=True)
class Release:
    """A vLLM release. `number` is (major, minor, patch); `v1` says which of the two engines it runs."""

    text: str
    number: tuple[int, int, int]
    v1: bool

    @property
    def one_kv_line(self) -> bool:
        """KV cache size and maximum concurrency share a line (vllm/v1/core/kv_cache_utils.py, from 0.32)."""
        return self.number >= (0, 32, 0)

    @property
    def banner(self) -> bool:
        """The log begins with a drawing of the name (vllm/entrypoints/utils.py, from 0.15)."""
        return self.number >= (0, 15, 0)

    @property
    def names_api_server(self) -> bool:
        """`Starting vLLM API server` (vllm/entrypoints/openai/api_server.py, up to 0.27)."""
        return self.number < (0, 28, 0)

    @property
    def process_prefixes(self) -> bool:
        """Log lines begin with the process, as `(EngineCore pid=1)` (vllm/utils/system_utils.py, from 0.10)."""
        return self.number >= (0, 10, 0)

    @property
    def core_name(self) -> str:
        """What the engine's process is called in the log (vllm/v1/engine/utils.py)."""
        return "EngineCore" if self.number >= (0, 18, 0) else "EngineCore_DP0"

    @property
    def default_memory_utilization(self) -> float:
        """`gpu_memory_utilization` unless given."""
        default = known_flags(self.text)["gpu_memory_utilization"].default
        return float(default) if isinstance(default, int | float) else 0.9

    @property
    def huge_gpu_defaults(self) -> bool:
        """GPUs of 160 GiB have larger defaults of their own (vllm/engine/arg_utils.py, from 0.28)."""
        return self.number >= (0, 28, 0)


def release(version: str, *, use_v1: str | None, compute_capability: tuple[int, int]) -> Release:
    """The release called `version`, running the engine that it would choose here.

    V0 up to 0.7, V1 from 0.11; between them V1 unless `VLLM_USE_V1=0` or the GPU is older than compute
    capability 8.0, with which V1 did not start. Raises FactsError for what is no version.
    """
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise FactsError(f"TOKENPEAK_SIM_VERSION is {version!r}, which is no vLLM version. Give one as 0.32.0.")
    number = (int(match[1]), int(match[2]), int(match[3] or 0))
    if number >= (0, 11, 0):
        v1 = True
    elif number < (0, 8, 0):
        v1 = use_v1 == "1"
    else:
        v1 = use_v1 != "0" and compute_capability >= (8, 0)
    return Release(text=version, number=number, v1=v1)
