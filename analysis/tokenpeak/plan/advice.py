"""Advice on configs that can work: it only warns or orders, and nothing is dropped for it."""

from collections.abc import Callable

from tokenpeak.plan.case import Case
from tokenpeak.predict.model import ModelFacts
from tokenpeak.records import Config, NodeFacts


def _eager(case: Case) -> str | None:
    if case.flag("enforce_eager") is not True or not case.node.gpus:
        return None
    return f"enforce_eager gives up CUDA graphs: each step on {case.gpu_name} then pays for every kernel's launch"


def _weight_only(case: Case) -> str | None:
    method = case.method or ""
    if "fp8" not in method or case.capability is None or case.capability >= 89:
        return None
    return f"{case.gpu_name} has no fp8 arithmetic: {method} saves memory there, not computation"


def _kv_weight_only(case: Case) -> str | None:
    given = str(case.flag("kv_cache_dtype") or "auto")
    if not given.startswith("fp8") or case.capability is None or case.capability >= 89:
        return None
    return f"{case.gpu_name} has no fp8 arithmetic: kv_cache_dtype {given} saves memory there, and may cost time"


def _slow_link(case: Case) -> str | None:
    if case.tensor == 1 or case.gpu is None or case.gpu.interconnect != "pcie":
        return None
    return f"tensor_parallel_size {case.tensor} over PCIe: each layer waits twice for the link"


def _close(case: Case) -> str | None:
    if case.memory_plan is None or not 0 < case.short_bytes <= case.memory_margin_bytes:
        return None
    return f"it may not fit: {case.memory_plan.reason}, by less than the estimate is good for"


def _full(case: Case) -> str | None:
    value = case.flag("gpu_memory_utilization")
    if not isinstance(value, float) or value <= 0.95 or not case.node.gpus:
        return None
    kept = (
        " CUDA graphs are not counted in before 0.21."
        if case.release < (0, 21) and not case.flag("enforce_eager")
        else ""
    )
    return f"gpu_memory_utilization {value} leaves little for what the engine does not count; it may run out.{kept}"


ADVICE: tuple[Callable[[Case], str | None], ...] = (_eager, _weight_only, _kv_weight_only, _slow_link, _close, _full)


def advice(config: Config, node: NodeFacts, model: ModelFacts | None, engine_version: str | None) -> tuple[str, ...]:
    """What speaks against a config that may run, in sentences; nothing is dropped for it."""
    case = Case(config=config, node=node, model=model, version=config.engine_version or engine_version)
    return tuple(text for check in ADVICE if (text := check(case)))
