"""Default objective: per GPU where the configs of a sweep take different numbers of GPUs.

On all eight GPUs of a node a config beats one on a single GPU, while seven stand idle: what counts is what a GPU gives.
"""

from collections.abc import Iterable

from tokenpeak.metrics import PER_GPU
from tokenpeak.records import Config
from tokenpeak.spec.sweep import SweepSpec


def with_objective(spec: SweepSpec, configs: Iterable[Config]) -> tuple[SweepSpec, tuple[str, ...]]:
    """The spec with the objective per GPU where it names none and its configs differ in GPUs; and a note that says so.

    `configs` are those of all kinds of hardware, baselines among them.
    """
    per_gpu = PER_GPU.get(spec.objective.metric)
    if per_gpu is None or "metric" in spec.objective.model_fields_set:
        return spec, ()
    counts = sorted({config.gpus for config in configs if config.gpus is not None})
    if len(counts) < 2:
        return spec, ()
    named = ", ".join(map(str, counts[:-1]))
    return (
        spec.model_copy(update={"objective": spec.objective.model_copy(update={"metric": per_gpu})}),
        (
            f"configs take {named} or {counts[-1]} GPUs, so they are ranked by {per_gpu}; "
            f"objective: {{metric: {spec.objective.metric}}} ranks them as a whole",
        ),
    )
