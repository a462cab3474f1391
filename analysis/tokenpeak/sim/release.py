"""The vLLM release that the simulated engine plays, and what that changes in what it shows.

Sources: the release's own files, named at each property.
"""

import re
from dataclasses import dataclass

from tokenpeak.errors import FactsError
from tokenpeak.vllm.engine_core import CoreQuestion, runs_v1
from tokenpeak.vllm.flags import known_flags


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


def release_number(version: str) -> tuple[int, int, int]:
    """Major, minor and patch of the release called `version`; raises FactsError for what is no version."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise FactsError(f"TOKENPEAK_SIM_VERSION is {version!r}, which is no vLLM version. Give one as 0.32.0.")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def release(version: str, asked: CoreQuestion) -> Release:
    """The release called `version`, running the engine core that it would choose."""
    return Release(text=version, number=asked.release, v1=runs_v1(asked))
