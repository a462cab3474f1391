"""The sweep spec: what a user writes in analysis/sweeps/NAME.yml, validated before anything is touched."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from tokenpeak import bounded, paths
from tokenpeak.errors import SpecError, suggestion
from tokenpeak.metrics import BY_NAME, PER_GPU, metric_of
from tokenpeak.paths import inside
from tokenpeak.spec import Declaration
from tokenpeak.spec.axes import Alternative, ExtraConfig, is_number, seeks_highest, spelled_out, without_highest
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.load import AnyLevel, MaxRateLoad, OpenLoad, ReplayLoad
from tokenpeak.spec.mistakes import complaints, secret_in
from tokenpeak.spec.pooling import is_pooling, require_consistent, with_pooling_defaults
from tokenpeak.spec.quality import QualitySpec
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.window import parse_window, span_s
from tokenpeak.spec.workload import AnyWorkload, ConversationWorkload, ProductionWorkload

MARGIN = 0.02
"""Configs that differ by less than this share are equally good in practice, where a spec does not say otherwise."""


class SearchSpec(Declaration):
    """Which configs are tried, in which order, how often, and when it is enough."""

    strategy: Literal["grid", "random", "adaptive"] = "grid"
    """How the next config is chosen: all of them, some by chance, or by what the trials so far have shown."""
    trials: PositiveInt | None = None
    """At most this many trials on each kind of hardware, baselines counted; when absent, all configs, and adaptive
    stops by itself. Anchors, the leader's further launches and finalists' come on top. See `budget` for all hardware
    together."""
    time: Annotated[PositiveFloat | None, BeforeValidator(span_s)] = None
    """At most about this long: no trial begins that would not end in it. `90m`, `2h`, or seconds."""
    gpu_hours: PositiveFloat | None = None
    """At most this many on each kind of hardware: hours of trials × GPUs of a node, one where it has none."""
    budget: Literal["per_hardware", "per_sweep"] = "per_hardware"
    """Whether `trials` and `gpu_hours` are of each kind of hardware (and of each model, where nodes serve several), or
    of the whole sweep. Of the whole, each begins with its share, and what a search that stops by itself leaves goes to
    the others."""
    finalists: Annotated[int, Field(ge=0)] | None = None
    """How many of the best are launched again in the end; when absent 3 for adaptive. A grid or a random search
    without this launches the leader until it has three launches; with 0 none is launched again."""
    replicates: PositiveInt = 1
    """Launches of each config (grid, random); launches of each finalist, then at least 3."""
    baseline: tuple[str, ...] = ("defaults", "production")
    """Names of configs that are tried first, where the matrix has them, so that gains are stated against them."""
    anchor_every: PositiveInt | None = 16
    """Launch the first baseline again after each so many trials, to see noise and drift; in the middle and last in any
    case, until it has three launches. None: never."""
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    """Configs that differ by less than this share are equally good."""
    seed: int = 0
    """Seed of the order of trials."""

    @model_validator(mode="after")
    def _limited(self) -> "SearchSpec":
        if self.budget == "per_sweep" and self.trials is None and self.gpu_hours is None:
            raise ValueError("budget per_sweep needs trials or gpu_hours, which it is of; time is of the clock")
        return self


class ModelSpec(Declaration):
    """Which model is served: a hub name or a path on the node."""

    name: str
    """Its name on the hub, or its folder on the nodes."""
    revision: str | None = None
    """A revision of it on the hub."""
    served_name: str | None = None
    """The name that requests use; the model's own name when absent."""


class WorkloadPlan(Declaration):
    """A workload and the load levels at which it is run, in order, within one launch."""

    workload: AnyWorkload
    """The requests."""
    levels: tuple[AnyLevel, ...] = Field(min_length=1)
    """Their load levels; each is a run of the trial."""


RATES = ("max_rate_per_s", PER_GPU["max_rate_per_s"])


class Objective(Declaration):
    """The objective: a metric of one run of each trial."""

    metric: str = "output_tok_per_s"
    """A metric, or a statistic of one such as `ttft_s_p95`."""
    workload: str | None = None
    """The first workload when absent."""
    level: str | None = None
    """A load level's label, such as `concurrency=32`; the workload's first level when absent."""
    also: tuple[str, ...] = ()
    """Other metrics of that run, such as `ttft_s_p95`: the search follows `metric`, and the sweep's end and its site
    show which configs no other beats in all of them."""

    @property
    def is_rate(self) -> bool:
        """Whether it is the highest rate within the SLO, which is read from all levels and meets the SLO by itself."""
        return self.metric in RATES


class Deadlines(Declaration):
    """How long each phase of a trial may take before it is ended and recorded as hung."""

    engine_ready_s: PositiveFloat = 900
    """From the engine's launch to its first completion."""
    run_s: PositiveFloat = 900
    """One run, a search for the highest rate excepted."""
    engine_stop_s: PositiveFloat = 60
    """From asking the engine to stop until it is killed."""
    production_ready_s: PositiveFloat = 900
    """From production's start to its first completion."""
    lease_s: PositiveFloat = 60
    """Without a sign of the controller for this long, the node restores production itself."""


def _window(raw: str) -> str:
    parse_window(raw)
    return raw


class SweepSpec(Declaration):
    """Everything a sweep does, whichever inventory it is carried out on."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)
    """Part of the sweep's id; the file's name when absent."""
    description: str = ""
    """Its purpose, in words."""
    study: str | None = None
    """Sweeps that name the same study are compared by study stage on the site's rates pages."""
    model: ModelSpec | None = None
    """None: the model that the inventory names."""
    axes: Annotated[dict[str, tuple[Alternative, ...]], BeforeValidator(spelled_out)] = {}
    """The axes: name → a list of values of the flag of that name, a list of alternatives, or the long form."""
    highest: str | None = None
    """The axis of which only the highest value is wanted that launches and survives the load; it is found first. Given
    by writing `AXIS: highest`, or `highest: true` in the axis's long form."""
    fixed: Alternative = Alternative(name="fixed")
    """The part that every config has."""
    extra_configs: tuple[ExtraConfig, ...] = ()
    """Configs beside those of the axes."""
    endpoint: EndpointSpec | None = None
    """A server that is there already, to be measured as it is; nothing is launched or stopped."""
    workloads: tuple[WorkloadPlan, ...] = Field(min_length=1)
    """Workloads of each config, with their load levels."""
    slo: Slo = Slo()
    """Limits that a run is held against."""
    objective: Objective = Objective()
    """The metric that is to be best, and of which run."""
    search: SearchSpec = SearchSpec()
    """Which configs are tried, in which order, and when it is enough."""
    restore: Literal["per_trial", "per_sweep"] = "per_trial"
    """When production comes back: after each trial, or after a node's last."""
    window: Annotated[str, AfterValidator(_window)] | None = None
    """Hours in which production may be away, such as `01:00-05:00 Asia/Kolkata`: no trial begins that could not end in
    them; outside them production is back, and the sweep goes on the next night."""
    max_downtime: Annotated[PositiveFloat | None, BeforeValidator(span_s)] = None
    """At most this long may production be down for the sweep, all nodes together. `90m`, `2h`, or seconds."""
    max_node_failures: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of all trials that may fail for reasons of three nodes or more, not of the configs; beyond it the sweep
    ends. Of fewer than ten trials no share is taken."""
    deadlines: Deadlines = Deadlines()
    """How long each phase of a trial may take."""
    energy: EnergyFactors = EnergyFactors()
    """Factors from energy to CO₂, water and money."""
    quality: QualitySpec | Literal[False] = QualitySpec()
    """How answers are compared with a reference's; `false`: they are not."""

    @model_validator(mode="before")
    @classmethod
    def _find_highest(cls, raw: object) -> object:
        """The axis given as `highest`, in its long form without that word, beside the axes; defaults of pooling."""
        raw = with_pooling_defaults(raw) if isinstance(raw, Mapping) else raw
        axes = raw.get("axes") if isinstance(raw, Mapping) else None
        if not isinstance(raw, Mapping) or not isinstance(axes, Mapping):
            return raw
        sought = {axis: without_highest(axis, given) for axis, given in axes.items() if seeks_highest(given)}
        axis_named = raw.get("highest")
        if axis_named is not None and not isinstance(axis_named, str):
            raise ValueError(f"highest is {axis_named!r}; name one axis")
        named = {axis: None for axis in (*sought, axis_named) if axis is not None}
        if len(named) > 1:
            raise ValueError(f"the highest value of one axis can be found, not of {', '.join(map(str, named))}")
        return {**raw, "axes": {**axes, **sought}, "highest": next(iter(named), None)}

    @model_validator(mode="after")
    def _climbs(self) -> "SweepSpec":
        if self.highest is None:
            return self
        if self.highest not in self.axes:
            raise ValueError(f"highest is {self.highest!r}. {suggestion(self.highest, self.axes)}")
        alternatives = self.axes[self.highest]
        if odd := [alternative.name for alternative in alternatives if not is_number(alternative.name)]:
            raise ValueError(f"the highest of axis {self.highest!r} needs numbers, not {', '.join(map(repr, odd))}")
        conditions = [when for choices in self.axes.values() for alternative in choices for when in alternative.when]
        if self.highest in conditions or any(alternative.when for alternative in alternatives):
            raise ValueError(f"axis {self.highest!r}, whose highest value is wanted, and another depend on each other")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "SweepSpec":
        names = [plan.workload.name for plan in self.workloads]
        if len(set(names)) != len(names):
            raise ValueError(f"two workloads share a name: {', '.join(names)}")
        self.objective_run()
        if self.endpoint is not None:
            self._only_measures(self.endpoint)
        if metric_of(self.objective.metric) is None:
            metric = self.objective.metric
            raise ValueError(f"objective.metric is {metric!r}. {suggestion(metric, BY_NAME)}")
        for other in self.objective.also:
            if metric_of(other) is None:
                raise ValueError(f"objective.also has {other!r}. {suggestion(other, BY_NAME)}")
            if other in (self.objective.metric, *RATES):
                raise ValueError(f"objective.also has {other}, which can only be objective.metric itself")
        levels = [level for plan in self.workloads for level in plan.levels if isinstance(level, MaxRateLoad)]
        require_consistent(
            [plan.workload for plan in self.workloads],
            metrics=(self.objective.metric, *self.objective.also),
            limits=[("slo", self.slo), *(("max_rate_under", level.max_rate_under) for level in levels)],
            quality=self.quality is not False and self.endpoint is None,
        )
        return self

    def _only_measures(self, endpoint: EndpointSpec) -> None:
        """Refuse what only a server that we launch could have."""
        fields = type(self).model_fields
        ours = ("model", "quality", "axes", "highest", "fixed", "extra_configs", "restore")
        # Compared with defaults, since a recorded spec has every key.
        if given := [name for name in (*ours, "max_downtime") if getattr(self, name) != fields[name].get_default()]:
            raise ValueError(
                f"{', '.join(given)} cannot go with endpoint: {endpoint.url} is measured as it is, and nothing is "
                "launched or stopped. Remove endpoint to tune an engine, or remove the others to measure this server"
            )
        if any(isinstance(plan.workload, ProductionWorkload) for plan in self.workloads):
            raise ValueError(
                "a workload from production is read off the production of an inventory's nodes, and this sweep has an "
                "endpoint instead. Give a recorded trace"
            )

    @property
    def pools(self) -> bool:
        """Whether it is of a pooling model, which generates nothing."""
        return is_pooling(plan.workload for plan in self.workloads)

    def objective_run(self) -> tuple[str, str]:
        """The workload's name and the load level's label that the objective is read from."""
        plans = {plan.workload.name: plan for plan in self.workloads}
        workload = self.objective.workload or next(iter(plans))
        if workload not in plans:
            raise ValueError(f"objective.workload is {workload!r}. {suggestion(workload, plans)}")
        labels = [level.label for level in plans[workload].levels]
        level = self.objective.level or labels[0]
        if level not in labels:
            raise ValueError(f"objective.level is {level!r}. {suggestion(level, labels)}")
        return workload, level


def sweep_names(folder: Path = paths.SWEEPS) -> list[str]:
    """The sweeps that can be named on the command line."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def sweep_path(name: str, folder: Path = paths.SWEEPS) -> Path:
    """The file of the sweep called `name` in `folder`, with or without its ending, or of a path to a file.

    Raises SpecError naming the nearest when there is none.
    """
    is_file = name.endswith((".yml", ".yaml"))
    if is_file and Path(name).is_file():
        return Path(name)
    path = inside(folder, name if is_file else f"{name}.yml", may_link=True, error=SpecError)
    if not path.is_file():
        stem = Path(name).stem if is_file else name
        raise SpecError(f"No sweep called {name!r} in {folder}. {suggestion(stem, sweep_names(folder))}")
    return path


def read_spec(name: str, folder: Path = paths.SWEEPS) -> SweepSpec:
    """The sweep called `name` in `folder`, or in that file; raises SpecError saying which key is wrong, what is valid.

    It is refused, too, where its sweep could only fail to show anything, or where its archive would keep a secret; a
    recorded spec is not, as its sweep was made.
    """
    path = sweep_path(name, folder)
    spec = parse_spec(bounded.read_yaml(path, error=SpecError), path)
    if (
        reason := secret_in(spec.model_dump(mode="json"))
        or _untold(spec)
        or _too_few_requests(spec)
        or _too_long(spec)
        or _ambiguous(spec)
    ):
        raise SpecError(f"{path} is not a sweep spec:\n  {reason}")
    return spec


def _untold(spec: SweepSpec) -> str | None:
    """Why no trial of this spec could ever give its objective; None when trials can."""
    metric = spec.objective.metric
    if metric == "cost_per_1m_output_tok" and not spec.energy.has_price:
        return (
            "objective.metric is cost_per_1m_output_tok, which needs energy.price_per_node_hour or energy.price_per_kwh"
        )
    if metric == "goodput_request_per_s" and not spec.slo.limits():
        return "objective.metric is goodput_request_per_s, which needs a limit under slo, such as ttft_p95_ms: 500"
    if spec.objective.is_rate:
        levels = next(plan.levels for plan in spec.workloads if plan.workload.name == spec.objective_run()[0])
        tried = bool(spec.slo.limits()) and any(isinstance(level, OpenLoad) for level in levels)
        if not tried and not any(isinstance(level, MaxRateLoad) for level in levels):
            return (
                f"objective.metric is {metric}, which needs a level max_rate_under, or levels with rate_per_s and "
                "a limit under slo"
            )
    return None


def _too_few_requests(spec: SweepSpec) -> str | None:
    """Which run would be invalid in every trial because its requests cannot show the SLO; None when none would."""
    needed = spec.slo.requests_needed()
    for plan in spec.workloads:
        turns = plan.workload.turns if isinstance(plan.workload, ConversationWorkload) else 1
        for level in plan.levels:
            if level.requests is not None and level.requests * turns < needed:
                return (
                    f"workload {plan.workload.name!r}, level {level.label}: {level.requests} requests cannot show the "
                    f"percentiles under slo, and no run of it would count; give it requests: {-(-needed // turns)}"
                )
    return None


def _too_long(spec: SweepSpec) -> str | None:
    """Which replay of production's traffic would be ended before its end in every trial; None when none would."""
    most_s = spec.deadlines.run_s
    for plan in spec.workloads:
        replays = any(isinstance(level, ReplayLoad) and level.requests is None for level in plan.levels)
        if replays and isinstance(plan.workload, ProductionWorkload) and plan.workload.replay_s >= most_s:
            return (
                f"workload {plan.workload.name!r}: its replay takes {plan.workload.replay_s:g} s, and a run may take "
                f"{most_s:g} s. Give deadlines.run_s more, replay so many `requests`, or observe production for less "
                "(over)"
            )
    return None


def _ambiguous(spec: SweepSpec) -> str | None:
    """Which name stands for two things; None when each stands for one."""
    for plan in spec.workloads:
        if twice := _repeated(level.label for level in plan.levels):
            return f"workload {plan.workload.name!r} has two levels {twice}; put the second into a workload of its own"
    if twice := _repeated(extra.name for extra in spec.extra_configs):
        return f"two extra_configs share the name {twice!r}"
    return None


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that comes again."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def parse_spec(raw: object, path: Path) -> SweepSpec:
    """A spec from parsed YAML; `path` is named in errors and gives the spec its name when it has none."""
    if not isinstance(raw, Mapping):
        raise SpecError(f"{path} must be a mapping of keys, not {type(raw).__name__}")
    try:
        return SweepSpec.model_validate({"name": path.stem, **raw})
    except ValidationError as error:
        lines = "\n  ".join(text for _, text in complaints(error, SweepSpec.model_json_schema()))
        raise SpecError(f"{path} is not a sweep spec:\n  {lines}") from error
