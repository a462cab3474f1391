"""Each metric's name, title, unit, direction and formula, once.

Axes, table heads, database comments and the glossary read this table; nothing else defines a metric.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A measured quantity of a run. `name` is its column everywhere; `direction` says which way is better."""

    name: str
    title: str
    unit: str
    direction: Direction
    formula: str
    distribution: bool = False
    """True when a run has mean, std and percentiles of it, over requests."""
    derived_from: tuple[str, ...] = ()
    """Columns of a run, factors of the spec's energy and earlier metrics that `derive` takes, in its order."""
    derive: Callable[..., float | None] | None = None
    """The function of these, for a metric that no raw file holds."""
    takes_null: bool = False
    """Whether `derive` also takes null for what is not known; else one null makes the metric null."""


def _cost(
    tok_per_s: float | None, price_per_hour: float | None, kwh: float | None, price_per_kwh: float | None
) -> float | None:
    """Of the node's time and of electricity, whichever has a price; null where one is priced and not known."""
    node = None if price_per_hour is None or tok_per_s is None else price_per_hour / (tok_per_s * 3600.0) * 1e6
    electricity = None if price_per_kwh is None or kwh is None else price_per_kwh * kwh
    if (node is None) == (price_per_hour is not None) or (electricity is None) == (price_per_kwh is not None):
        return None
    return None if node is None and electricity is None else (node or 0.0) + (electricity or 0.0)


METRICS: tuple[Metric, ...] = (
    Metric(
        name="output_tok_per_s",
        title="Output throughput",
        unit="tok/s",
        direction="higher",
        formula="output tokens that arrived in the steady window ÷ its length (aggregate over all requests); the "
        "window is the whole load, but in a closed loop it begins after the first wave of requests, ends before the "
        "drain, and holds whole waves",
    ),
    Metric(
        name="total_tok_per_s",
        title="Total throughput",
        unit="tok/s",
        direction="higher",
        formula="input throughput + output throughput",
    ),
    Metric(
        name="input_tok_per_s",
        title="Input throughput",
        unit="tok/s",
        direction="higher",
        formula="output throughput × input tokens of all measured requests ÷ their output tokens; of a pooling "
        "workload, input tokens in the steady window ÷ its length, each request's spread evenly over its latency",
    ),
    Metric(
        name="request_per_s",
        title="Request throughput",
        unit="req/s",
        direction="higher",
        formula="output throughput × measured requests that ended well ÷ their output tokens; of a pooling workload, "
        "input throughput × requests ÷ their input tokens",
    ),
    Metric(
        name="inputs_per_s",
        title="Input texts per second",
        unit="texts/s",
        direction="higher",
        formula="request throughput × texts of a request, of a pooling workload: those embedded or classified, or the "
        "documents ranked or scored",
        derived_from=("request_per_s", "inputs"),
        derive=lambda rate, inputs: rate * inputs,
    ),
    Metric(
        name="goodput_request_per_s",
        title="Goodput",
        unit="req/s",
        direction="higher",
        formula="request throughput × share of the requests that ended well which held every limit of the SLO",
    ),
    Metric(
        name="whole_output_tok_per_s",
        title="Output throughput of the whole load",
        unit="tok/s",
        direction="higher",
        formula="output tokens of all measured requests ÷ duration of the run, ramp-up and drain included",
        derived_from=("output_tokens", "duration_s"),
        derive=lambda tokens, seconds: tokens / seconds,
    ),
    Metric(
        name="peak_output_tok_per_s",
        title="Peak output throughput",
        unit="tok/s",
        direction="higher",
        formula="most output tokens that arrived in one second of the run, all requests together",
    ),
    Metric(
        name="request_output_tok_per_s",
        title="Output speed of a request",
        unit="tok/s per request",
        direction="higher",
        formula="output tokens ÷ latency, of each request; a single user's speed, not the node's throughput",
        distribution=True,
    ),
    Metric(
        name="request_input_tok_per_s",
        title="Prompt speed of a request",
        unit="tok/s per request",
        direction="higher",
        formula="prompt tokens ÷ latency, of each request",
        distribution=True,
    ),
    Metric(
        name="ttft_s",
        title="Time to first token",
        unit="s",
        direction="lower",
        formula="first token − due (open loop) or − sent (closed loop)",
        distribution=True,
    ),
    Metric(
        name="ttfat_s",
        title="Time to first answer token",
        unit="s",
        direction="lower",
        formula="first token of the answer, after a reasoning model's thoughts − due (open loop) or − sent (closed "
        "loop); only of runs in which a request had thoughts, or whose SLO limits it",
        distribution=True,
    ),
    Metric(
        name="tpot_s",
        title="Time per output token",
        unit="s",
        direction="lower",
        formula="(last token − first token) ÷ (output tokens − 1), of each request with at least two tokens",
        distribution=True,
    ),
    Metric(
        name="itl_s",
        title="Inter-token latency",
        unit="s",
        direction="lower",
        formula="gap between events that carry tokens, over all requests; an event may carry several tokens",
        distribution=True,
    ),
    Metric(
        name="latency_s",
        title="End-to-end latency",
        unit="s",
        direction="lower",
        formula="last token, or a pooling answer's last byte, − due (open loop) or − sent (closed loop)",
        distribution=True,
    ),
    Metric(
        name="power_w",
        title="Mean power",
        unit="W",
        direction="lower",
        formula="energy of the whole load ÷ its duration, within the stated boundary",
    ),
    Metric(
        name="energy_j_per_output_tok",
        title="Energy per output token",
        unit="J/token",
        direction="lower",
        formula="energy of the whole load ÷ its output tokens; the same number as mean W ÷ (tok/s of the whole load)",
    ),
    Metric(
        name="energy_kwh_per_1m_output_tok",
        title="Energy per million output tokens",
        unit="kWh/1M tokens",
        direction="lower",
        formula="J per output token × 10⁶ ÷ 3.6·10⁶ × PUE",
        derived_from=("energy_j_per_output_tok", "pue"),
        derive=lambda joules, pue: joules * pue * (1e6 / 3.6e6),
    ),
    Metric(
        name="co2_kg_per_1m_output_tok",
        title="CO₂ per million output tokens",
        unit="kg/1M tokens",
        direction="lower",
        formula="kWh per 1M output tokens × kg CO₂ per kWh",
        derived_from=("energy_kwh_per_1m_output_tok", "kg_co2_per_kwh"),
        derive=lambda kwh, kg_per_kwh: kwh * kg_per_kwh,
    ),
    Metric(
        name="water_l_per_1m_output_tok",
        title="Water per million output tokens",
        unit="L/1M tokens",
        direction="lower",
        formula="kWh of the GPUs per 1M output tokens × (WUE + PUE × litres off site per kWh)",
        derived_from=("energy_j_per_output_tok", "wue_l_per_kwh", "energy_kwh_per_1m_output_tok", "water_l_per_kwh"),
        derive=lambda joules, wue, kwh, litres_per_kwh: joules * (1e6 / 3.6e6) * wue + kwh * litres_per_kwh,
    ),
    Metric(
        name="cost_per_1m_output_tok",
        title="Cost per million output tokens",
        unit="currency/1M tokens",
        direction="lower",
        formula="price of the node per hour ÷ (3600 × tok/s) × 10⁶ + kWh per 1M output tokens × price per kWh",
        derived_from=(
            "output_tok_per_s",
            "price_per_node_hour",
            "energy_kwh_per_1m_output_tok",
            "price_per_kwh",
        ),
        derive=_cost,
        takes_null=True,
    ),
    Metric(
        name="max_rate_per_s",
        title="Highest rate within the SLO",
        unit="req/s",
        direction="higher",
        formula="highest request rate at which every limit of the SLO held",
    ),
    Metric(
        name="output_tok_per_s_per_gpu",
        title="Output throughput per GPU",
        unit="tok/s per GPU",
        direction="higher",
        formula="output tok/s ÷ GPUs that the config's engine takes (tensor × pipeline × data parallel)",
        derived_from=("output_tok_per_s", "gpus"),
        derive=lambda tok_per_s, gpus: tok_per_s / gpus,
    ),
    Metric(
        name="max_rate_per_s_per_gpu",
        title="Highest rate within the SLO per GPU",
        unit="req/s per GPU",
        direction="higher",
        formula="highest rate within the SLO ÷ GPUs that the config's engine takes",
        derived_from=("max_rate_per_s", "gpus"),
        derive=lambda rate, gpus: rate / gpus,
    ),
    Metric(
        name="saturation_per_s",
        title="Saturated throughput",
        unit="req/s",
        direction="higher",
        formula="requests that end per second while more are in flight than the engine serves within the limits; "
        "no higher rate is sustainable",
    ),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}

PER_GPU: dict[str, str] = {
    "output_tok_per_s": "output_tok_per_s_per_gpu",
    "max_rate_per_s": "max_rate_per_s_per_gpu",
}
"""Metrics of a whole engine, and what each is for one of its GPUs."""

DERIVED: tuple[Metric, ...] = tuple(metric for metric in METRICS if metric.derive is not None)


def with_derived(measured: Mapping[str, float | None]) -> dict[str, float | None]:
    """The known values of a run and all derived metrics; null where one that it needs is null or divides by zero."""
    values = dict(measured)
    for metric in DERIVED:
        arguments = [values.get(name) for name in metric.derived_from]
        assert metric.derive is not None, "DERIVED has no other"
        try:
            values[metric.name] = None if None in arguments and not metric.takes_null else metric.derive(*arguments)
        except ZeroDivisionError:
            values[metric.name] = None
    return values


STATISTICS: tuple[str, ...] = ("mean", "std", "p25", "p50", "p75", "p90", "p95", "p99")
"""Statistics that a run keeps of each distribution; a column is `METRIC_STATISTIC`, such as `ttft_s_p95`."""


def title_of(column: str) -> str:
    """A column's title with its statistic, such as `Time to first token p95`."""
    metric = metric_of(column)
    return titled(*metric) if metric else column


def titled(metric: Metric, statistic: str | None) -> str:
    """A metric's title with its statistic: `TTFT p95` would be said so, a mean comes first."""
    if statistic == "mean":
        return f"Mean {inner(metric.title)}"
    return f"{metric.title} {statistic}" if statistic else metric.title


def inner(title: str) -> str:
    """A title within a sentence: its first letter is small, unless an abbreviation begins with it."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def metric_of(column: str) -> tuple[Metric, str | None] | None:
    """The metric in a column and, for a distribution's column, which statistic of it; None for anything else."""
    if column in BY_NAME:
        return BY_NAME[column], None
    name, _, statistic = column.rpartition("_")
    if statistic in STATISTICS and name in BY_NAME and BY_NAME[name].distribution:
        return BY_NAME[name], statistic
    return None
