"""Whether to upgrade: each engine build of a sweep against the first, for each workload, everything else equal."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tokenpeak.metrics import inner, metric_of, title_of
from tokenpeak.ranking.rank import figures_of
from tokenpeak.ranking.upgrade import SAME, Upgrade, upgrade
from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, answer, strong, table
from tokenpeak.report.blocks.digits import percent
from tokenpeak.report.view import SweepView, engine_words

EFFECT_COLUMNS = (
    Column(key="hardware", title="Hardware"),
    Column(key="build", title="Build"),
    Column(key="workload_name", title="Workload"),
    Column(key="level_label", title="Load"),
    Column(key="figure", title="Figure"),
    Column(key="outcome", title="It is", kind="state"),
    Column(key="change", title="Difference", unit="%", kind="number", digits=1, signed=True),
    Column(key="low", title="From", unit="%", kind="number", digits=1, signed=True),
    Column(key="high", title="To", unit="%", kind="number", digits=1, signed=True),
    Column(key="pairs", title="Configs", kind="number"),
    Column(key="launches", title="Launches", kind="number"),
)
START_COLUMNS = (
    Column(key="hardware", title="Hardware"),
    Column(key="build", title="Build"),
    Column(key="version", title="Reported"),
    Column(key="ready_s", title="Start-up", unit="s", kind="number", digits=1),
    Column(key="kv_cache_tokens", title="KV cache", unit="tokens", kind="number", digits=0),
    Column(key="launches", title="Launches", kind="number"),
    Column(key="failed", title="Failed", kind="number"),
)


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """One build against the first, in one figure under one load."""

    hardware: str
    build: str
    first: str
    workload_name: str
    level_label: str
    metric: str
    effect: Upgrade

    def row(self) -> dict[str, object]:
        """The row of the table, ratios as differences in percent."""
        effect = self.effect
        ends = {"change": effect.ratio, "low": effect.low, "high": effect.high}
        return {
            **{name: getattr(self, name) for name in ("hardware", "build", "workload_name", "level_label")},
            "figure": title_of(self.metric),
            "outcome": effect.outcome,
            **{name: None if ratio is None else (ratio - 1) * 100 for name, ratio in ends.items()},
            "pairs": effect.pairs,
            "launches": effect.launches,
        }


def builds_of(view: SweepView, hardware: str) -> list[str]:
    """The engine builds that configs of the plan are of, the first one first."""
    here = view.frames.configs.filter(pl.col("hardware") == hardware)
    return [str(name) for name in here["engine_build"].drop_nulls().unique(maintain_order=True)]


def blocks(view: SweepView) -> list[Block]:
    """A sentence for each workload, the figures with their intervals, and how each build starts; else nothing."""
    compared = [each for hardware in view.hardware for each in _compared(view, hardware)]
    if not compared:
        return []
    starts = pl.DataFrame([row for hardware in view.hardware for row in _starts(view, hardware)])
    several = len(view.hardware) > 1
    return [
        *_sentences(view, compared),
        table(
            pl.DataFrame([each.row() for each in compared], infer_schema_length=None),
            [column for column in EFFECT_COLUMNS if several or column.key != "hardware"],
            name="upgrade",
            title="Each engine build against the first, everything else equal",
            note="Each config that was launched with both counts once. 95% intervals, from how much launches of one "
            f"config and build vary. Tied: not distinguishable, or less than {view.spec.search.margin:.0%} apart.",
        ),
        table(
            starts,
            [column for column in START_COLUMNS if several or column.key != "hardware"],
            name="upgrade-start",
            title="How each engine build starts",
            note="Medians over the launches of the configs that both builds were launched with.",
        ),
    ]


def _sentences(view: SweepView, compared: list[_Compared]) -> Iterator[Sentence]:
    """For each hardware, build and workload what the last load shows, by the objective's figure where that is known."""
    objective = view.spec.objective.metric
    groups: dict[tuple[str, str, str], list[_Compared]] = {}
    for each in compared:
        groups.setdefault((each.hardware, each.build, each.workload_name), []).append(each)
    for own in groups.values():
        # Levels stand in the spec's order; of a level, throughput comes first.
        shown = [each for each in own if each.metric == objective] or [
            each for each in own if each.metric == own[-1].metric or each.level_label == own[-1].level_label
        ]
        last = next(each for each in shown if each.level_label == shown[-1].level_label)
        yield answer(*_words(view, last))


def _words(view: SweepView, found: _Compared) -> list[Part]:
    effect = found.effect
    new, old = (f"{name} ({_versions(view, found.hardware, name)})" for name in (found.build, found.first))
    place = f" on {found.hardware}" if len(view.hardware) > 1 else ""
    difference = f"{percent(effect.ratio - 1, 1)} {inner(title_of(found.metric))}"
    if effect.low is not None and effect.high is not None:
        difference += f" ({percent(effect.low - 1, 1)} to {percent(effect.high - 1, 1)})"
    start: list[Part] = [f"Under {found.workload_name}{place}, {new} is "]
    match effect.outcome:
        case "not known":
            start = [f"Under {found.workload_name}{place}, whether {new} is faster than {old} is ", strong("not known")]
        case outcome:
            start += [strong(outcome), f" {'with' if outcome == 'tied' else 'than'} {old}"]
    again = " Launch each again (search.replicates) to know." if effect.outcome == "not known" else ""
    return [*start, f": {difference} at {found.level_label}.{again}"]


def _versions(view: SweepView, hardware: str, build: str) -> str:
    """Versions that a build's engines reported themselves."""
    ran = _trials(view, hardware).filter(pl.col("engine_build") == build)["engine_version"].drop_nulls().unique().sort()
    return ", ".join(map(engine_words, ran)) or "reported no version"


def _trials(view: SweepView, hardware: str) -> pl.DataFrame:
    """The launches on this hardware with their engine build, and `same`: what else their config is."""
    configs = view.frames.configs.filter(pl.col("hardware") == hardware)
    same = [pl.col(name) for name in SAME if name in configs.columns]
    known = configs.select("config_id", "engine_build", pl.struct(same).struct.json_encode().alias("same"))
    trials = view.trials.filter(pl.col("hardware") == hardware, ~pl.col("holdout"))
    return trials.drop("engine_build", strict=False).join(known, on="config_id", maintain_order="left")


def _compared(view: SweepView, hardware: str) -> Iterator[_Compared]:
    builds = builds_of(view, hardware)
    if len(builds) < 2:
        return
    trials = _trials(view, hardware).select("trial_id", "engine_build", "same")
    runs = view.same_requests().filter(pl.col("verdict") != "invalid").drop("engine_build", strict=False)
    runs = runs.join(trials, on="trial_id", maintain_order="left")
    load = ("workload_name", "level_label", "level_kind")
    loads = runs.unique(load, keep="first", maintain_order=True).select("workload", *load)
    for build in builds[1:]:
        for workload, name, level, kind in loads.iter_rows():
            here = runs.filter(pl.col("workload_name") == name, pl.col("level_label") == level)
            for metric in figures_of(workload, kind, level):
                if (effect := _effect(view, here, metric, builds[0], build)) is not None:
                    yield _Compared(
                        hardware=hardware,
                        build=build,
                        first=builds[0],
                        workload_name=name,
                        level_label=level,
                        metric=metric,
                        effect=effect,
                    )


def _effect(view: SweepView, runs: pl.DataFrame, metric: str, old: str, new: str) -> Upgrade | None:
    """The effect on a figure; None where no config was launched with both, or the figure is not known."""
    if metric not in runs.columns:
        return None
    pairs = []
    for (_,), own in runs.filter(pl.col(metric) > 0).group_by("same", maintain_order=True):
        sides = [own.filter(pl.col("engine_build") == build)[metric].to_list() for build in (old, new)]
        pairs.append((sides[0], sides[1]))
    owner = metric_of(metric)
    better = owner is not None and owner[0].direction == "higher"
    return upgrade(pairs, higher_is_better=better, margin=view.spec.search.margin)


def _starts(view: SweepView, hardware: str) -> Iterator[dict[str, object]]:
    """How each build starts, over the configs that all of them were launched with."""
    builds = builds_of(view, hardware)
    if len(builds) < 2:
        return
    trials = _trials(view, hardware)
    count = trials.group_by("same").agg(builds=pl.col("engine_build").n_unique())
    shared = count.filter(pl.col("builds") == len(builds))
    trials = trials.join(shared, on="same", how="semi", maintain_order="left")
    for build in builds:
        own = trials.filter(pl.col("engine_build") == build)
        ok = own.filter(pl.col("status") == "ok")
        yield {
            "hardware": hardware,
            "build": build,
            "version": _versions(view, hardware, build),
            "ready_s": ok["ready_s"].median(),
            "kv_cache_tokens": ok["kv_cache_tokens"].median(),
            "launches": own.height,
            "failed": own.height - ok.height,
        }
