"""A config on a node, with what is known of both: what feasibility rules and advice look at."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tokenpeak.predict.hardware import GpuFacts
from tokenpeak.predict.memory_plan import MemoryPlan, core_facts, device_of, engine_environment, plan_memory
from tokenpeak.predict.model import ModelFacts
from tokenpeak.records import Config, NodeFacts
from tokenpeak.vllm.engine_core import CoreFacts, runs_v1
from tokenpeak.vllm.flags import minor, newest_release, size

MEMORY_MARGIN = 0.02
"""Share of the engine's memory by which the sum must fail before it forbids: the estimate is not better than that."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A config on a node, with what is known of both."""

    config: Config
    node: NodeFacts
    model: ModelFacts | None
    version: str | None

    @cached_property
    def release(self) -> tuple[int, int]:
        """Major and minor number; that of the table's newest release when the version is not known."""
        return minor(self.version or newest_release())

    @cached_property
    def gpu(self) -> GpuFacts | None:
        """The node's device; None when the table lacks it."""
        return device_of(self.node)

    @cached_property
    def capability(self) -> int | None:
        """The least compute capability of the node's NVIDIA GPUs, 75 for 7.5; None for other devices."""
        probed = [gpu.compute_capability for gpu in self.node.gpus if gpu.compute_capability]
        if not probed and self.gpu is not None and self.gpu.vendor == "nvidia":
            probed = [self.gpu.compute_capability]
        numbers = [text.split(".") for text in probed if text.replace(".", "").isdigit() and "." in text]
        return min((int(whole) * 10 + int(part) for whole, part in numbers), default=None)

    @cached_property
    def env(self) -> dict[str, str]:
        """The engine's environment, as far as rules depend on it."""
        return engine_environment(self.config, self.node)

    @cached_property
    def core(self) -> CoreFacts:
        """Facts that the choice between V0 and V1 depends on."""
        question = core_facts(self.config.flags, self.env, self.model, self.gpu, self.version)
        return replace(question, capability=self.capability)

    @cached_property
    def v1(self) -> bool:
        """Whether the engine core is V1."""
        return runs_v1(self.core)

    @cached_property
    def memory_plan(self) -> MemoryPlan | None:
        """The config's memory on the node; None when the device or the model is unknown."""
        return plan_memory(self.config, self.node, self.model, self.version)

    @property
    def gpu_name(self) -> str:
        """The node's first GPU, for sentences."""
        return self.node.gpus[0].name if self.node.gpus else "this device"

    def flag(self, name: str) -> Any:
        """A flag's value; None when the config leaves it out."""
        return self.config.flags.get(name)

    def number(self, name: str, default: int = 0) -> int:
        """A whole-number flag, `8k` too; `default` where it is left out, negative or not a number."""
        value = self.flag(name)
        amount = None if isinstance(value, bool) or value is None else size(str(value))
        return default if amount is None or amount < 0 else amount

    @property
    def tensor(self) -> int:
        """tensor_parallel_size."""
        return max(1, self.number("tensor_parallel_size", 1))

    @property
    def pipeline(self) -> int:
        """pipeline_parallel_size."""
        return max(1, self.number("pipeline_parallel_size", 1))

    @property
    def method(self) -> str | None:
        """The quantization method: the flag's, else the checkpoint's."""
        flag = self.flag("quantization")
        if flag:
            return str(flag)
        return self.model.quantization.method if self.model and self.model.quantization else None

    @property
    def short_bytes(self) -> float:
        """KV cache that one full sequence lacks on one device; zero or less when it fits, or nobody knows."""
        return self.memory_plan.sequence_bytes - self.memory_plan.kv_cache_bytes if self.memory_plan else 0.0

    @property
    def memory_margin_bytes(self) -> float:
        """By how much memory must be short before that forbids; 0 when the plan is unknown."""
        plan = self.memory_plan
        return MEMORY_MARGIN * plan.deployment.gpu.usable_bytes * plan.gpu_memory_utilization if plan else 0.0
