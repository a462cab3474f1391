"""Names of a run's figures in a mapping, and a run made of them."""

from collections.abc import Mapping

from tokenpeak.errors import suggestion
from tokenpeak.exchange.foreign import summary
from tokenpeak.metrics import METRICS, STATISTICS
from tokenpeak.records import Energy, RunSummary, StartupFacts

COUNTS = ("requests_sent", "requests_ok", "requests_failed", "input_tokens", "output_tokens")
SCALARS = (
    "duration_s",
    "request_per_s",
    "output_tok_per_s",
    "input_tok_per_s",
    "total_tok_per_s",
    "peak_output_tok_per_s",
    "goodput_request_per_s",
)
DISTRIBUTIONS = tuple(metric.name for metric in METRICS if metric.distribution)
ENERGY = ("power_w", "energy_j", "energy_j_per_output_tok")
STARTUP = ("kv_cache_tokens", "kv_cache_bytes", "weights_bytes", "max_concurrency")
TARGETS: tuple[str, ...] = (
    *COUNTS,
    *SCALARS,
    *(f"{name}_{statistic}" for name in DISTRIBUTIONS for statistic in ("n", *STATISTICS)),
    *ENERGY,
    *(f"startup_{name}" for name in STARTUP),
)
"""Every figure of a run that a mapping may fill."""


def unknown_target(name: str) -> str | None:
    """What is wrong with a figure's name; None when nothing is."""
    return None if name in TARGETS else f"no figure is called {name!r}. {suggestion(name, TARGETS)}"


def summary_of(values: Mapping[str, float]) -> RunSummary:
    """The summary of these figures; what is not among them stays unknown."""
    known: dict[str, object] = {name: int(values[name]) for name in COUNTS if name in values}
    known |= {name: values[name] for name in SCALARS if name in values}
    for name in DISTRIBUTIONS:
        parts: dict[str, float | int | None] = {
            statistic: values[f"{name}_{statistic}"] for statistic in STATISTICS if f"{name}_{statistic}" in values
        }
        count = values.get(f"{name}_n")
        known[name] = {"n": None if count is None else int(count), **parts}
    return summary(**known)


def startup_of(values: Mapping[str, float]) -> StartupFacts:
    """What the figures say of the engine's start."""
    found = {name: values[f"startup_{name}"] for name in STARTUP if f"startup_{name}" in values}
    return StartupFacts.model_validate(
        {name: value if name == "max_concurrency" else int(value) for name, value in found.items()}
    )


def energy_of(values: Mapping[str, float], source: str, boundary: str) -> Energy | None:
    """The energy of these figures; None when they hold none."""
    if not any(name in values for name in ENERGY):
        return None
    return Energy.model_validate(
        {"source": source, "boundary": boundary, **{name: values.get(name) for name in ENERGY}}
    )
