"""Pooling workloads in a sweep: the defaults that differ for them, and what is refused because nothing is generated."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenpeak.metrics import metric_of
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import AnyWorkload, PoolingWorkload

OBJECTIVE = "input_tok_per_s"
"""The metric that is to be best where the spec of a pooling sweep names none."""
INSTEAD = f"{OBJECTIVE}, inputs_per_s or latency_s_p95"
GENERATED = ("ttft_s", "tpot_s", "itl_s")


def with_pooling_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A spec as written, with the objective of a pooling sweep and without a comparison of answers."""
    if not any(_kind(plan) == "pooling" for plan in _listed(raw.get("workloads"))):
        return dict(raw)
    objective = raw.get("objective", {})
    if isinstance(objective, Mapping):
        objective = {"metric": OBJECTIVE, **objective}
    # A server that is measured as it is has no comparison of answers anyway.
    quality = {} if raw.get("endpoint") is not None else {"quality": False}
    return {**quality, **raw, "objective": objective}


def _listed(plans: object) -> Sequence[object]:
    return plans if isinstance(plans, list | tuple) else ()


def _kind(plan: object) -> object:
    """The kind of a plan's workload, as it is written or read."""
    workload = plan.get("workload") if isinstance(plan, Mapping) else getattr(plan, "workload", None)
    return workload.get("kind") if isinstance(workload, Mapping) else getattr(workload, "kind", None)


def is_pooling(workloads: Iterable[AnyWorkload]) -> bool:
    """Whether all of them are of a pooling model."""
    return all(isinstance(workload, PoolingWorkload) for workload in workloads)


def require_consistent(
    workloads: Sequence[AnyWorkload], *, metrics: Iterable[str], limits: Iterable[tuple[str, Slo]], quality: bool
) -> None:
    """Raise ValueError for what no pooling sweep can have, and for what no other can.

    `metrics` are those of the objective, the first is `objective.metric`; `limits` come with the key that has them.
    """
    if not any(isinstance(workload, PoolingWorkload) for workload in workloads):
        if "inputs_per_s" in metrics:
            raise ValueError("objective has inputs_per_s, which is of pooling workloads alone. Write request_per_s")
        return
    if not is_pooling(workloads):
        raise ValueError(
            "workloads of kind pooling cannot go with others: a server answers either with text or with embeddings "
            "and scores. Write a sweep for each"
        )
    for place, metric in enumerate(metrics):
        _require_of_pooling(metric, "objective.also" if place else "objective.metric")
    for key, slo in limits:
        require_latency_only(slo, f"{key}: ")
    if quality:
        raise ValueError("quality compares generated answers, and a pooling workload has none. Remove quality")


def require_latency_only(slo: Slo, where: str) -> None:
    """Raise ValueError for a limit on the time of tokens, which a pooling model does not generate."""
    for metric, percentile, _ in slo.limits():
        if metric in GENERATED:
            name = f"{metric.removesuffix('_s')}_{percentile}_ms"
            raise ValueError(
                f"{where}{name} limits the time of generated tokens, and a pooling workload generates none. "
                f"Write latency_{percentile}_ms"
            )


def _require_of_pooling(metric: str, key: str) -> None:
    """Raise ValueError for a metric of generated tokens."""
    found = metric_of(metric)
    if found is not None and (found[0].name in GENERATED or "output_tok" in found[0].name or "total" in found[0].name):
        raise ValueError(
            f"{key} is {metric}, which is of generated tokens, and a pooling workload generates none. Write {INSTEAD}"
        )
