"""Comparisons without matched pairs, and second variables that changed along with the one compared."""

import json
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from tokenpeak.checks.evidence import (
    CheckOutcome,
    Evidence,
    Finding,
    Guarded,
    Verdict,
    figure,
    looks,
    percent,
    settled,
    undecided,
)
from tokenpeak.spec.sweep import MARGIN

SHOWN = 8


def matched(
    evidence: Evidence,
    *,
    axis: str,
    better: str,
    worse: str,
    equal: Sequence[str],
    where: Mapping[str, object] | None = None,
    require: Sequence[str] = (),
    clean: bool = False,
    null_where: Mapping[str, object] | None = None,
) -> CheckOutcome:
    """Whether one alternative of an axis beats another wherever all of `equal` is the same.

    `require` names columns that must agree too and are not the sweep's axes. `clean` leaves out runs with failed
    requests. `null_where` names pairs in which the axis can make no difference: they show the noise.
    """
    keys = [*equal, *require]

    def matching(keys: Sequence[str], where: Mapping[str, object]) -> list[tuple[str, float]]:
        return _pairs(evidence, axis, better, worse, keys, where, clean)

    pairs = matching(keys, where or {})
    lines = [f"{len(pairs)} pairs of {axis} {better} and {worse} that agree in {', '.join(keys)}."]
    if not pairs:
        lines += [f"Nearest, not matched: {words}" for words, _ in matching(keys[:-1], where or {})[:3]]
        return undecided(*lines, corrected="no matched pair is published")
    noise = MARGIN
    if null_where is not None:
        null = matching(keys, null_where)
        noise = max([MARGIN, *(abs(effect) for _, effect in null)])
        lines += [f"{words} (no difference possible)" for words, _ in null]
    lines += [words for words, _ in pairs[:SHOWN]]
    ahead = sum(effect > noise for _, effect in pairs)
    behind = sum(effect < -noise for _, effect in pairs)
    level = len(pairs) - ahead - behind
    lines.append(f"Ahead by more than {noise:.1%}: {ahead}; level: {level}; behind: {behind}.")
    corrected = f"{axis} {better} is ahead of {worse} in {ahead} of {len(pairs)} pairs, behind in {behind}"
    otherwise: Verdict = "contradicted" if behind else "not_supported"
    return settled(lines, holds=ahead == len(pairs), corrected=corrected, otherwise=otherwise)


def _pairs(
    evidence: Evidence,
    axis: str,
    better: str,
    worse: str,
    equal: Sequence[str],
    where: Mapping[str, object],
    clean: bool,
) -> list[tuple[str, float]]:
    """Each pair in words and by how much the better is ahead."""
    column = evidence.objective
    runs = evidence.select(where, evidence.counted()).filter(pl.col(column).is_not_null())
    if clean:
        runs = runs.filter(pl.col("requests_failed").fill_null(0) == 0)
    runs = _with_keys(runs, [axis, *equal])
    keys = [f"key_{name}" for name in equal]
    last = runs.sort("replicate").group_by(*keys, f"key_{axis}", maintain_order=True).last()
    sides = [last.filter(pl.col(f"key_{axis}") == side) for side in (better, worse)]
    joined = (
        sides[0].join(sides[1], on=keys, suffix="_other")
        if keys
        else sides[0].join(sides[1], how="cross", suffix="_other")
    )
    pairs = []
    for row in joined.sort(keys or [column]).iter_rows(named=True):
        first, second = float(row[column]), float(row[f"{column}_other"])
        named = ", ".join(str(row[key]) for key in keys)
        effect = first / second - 1
        pairs.append((f"{named}: {better} {figure(first)} against {worse} {figure(second)}, {percent(effect)}", effect))
    return pairs


def _with_keys(runs: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The runs with each name as a text column `key_NAME`: an axis, a column, or a key of the workload."""
    asked = [json.loads(text) for text in runs["workload"]]
    columns = []
    for name in names:
        if f"axis_{name}" in runs.columns:
            columns.append(pl.col(f"axis_{name}").alias(f"key_{name}"))
        elif name in runs.columns:
            columns.append(pl.col(name).cast(pl.String).alias(f"key_{name}"))
        else:
            texts = [None if item.get(name) is None else str(item[name]) for item in asked]
            columns.append(pl.lit(pl.Series(f"key_{name}", texts, dtype=pl.String)).alias(f"key_{name}"))
    return runs.with_columns(columns)


def best_of_each(
    evidence: Evidence,
    *,
    axis: str,
    better: str,
    others: Sequence[str],
    resolution: float = 0.0,
    stated: Mapping[str, float] | None = None,
) -> CheckOutcome:
    """Whether the best config of one alternative beats the best of each other by more than the figures resolve.

    `stated` has the best of alternatives as the source gives them; what its figures do not show fails the claim.
    """
    column = evidence.objective
    runs = evidence.objective_runs().filter(pl.col(column).is_not_null())
    bests: dict[str, float] = {}
    worst: dict[str, float] = {}
    for name in (better, *others):
        own = evidence.select({axis: name}, runs)[column]
        if own.is_empty():
            return undecided(f"No run has {axis} {name}.")
        bests[name], worst[name] = float(own.max()), float(own.min())  # type: ignore[arg-type]
    given = stated or {}
    lines = [
        f"{axis} {name}: best {figure(bests[name])}, worst {figure(worst[name])}"
        + (f"; stated best {figure(given[name])}." if name in given else ".")
        for name in bests
    ]
    ahead = [bests[better] - bests[name] for name in others]
    leads = " and ".join(f"{name} by {figure(lead)}" for name, lead in zip(others, ahead, strict=True))
    lines.append(f"{better} leads {leads}; the figures resolve {figure(resolution)}.")
    corrected = f"best of each: {', '.join(f'{figure(best)} at {name}' for name, best in bests.items())}"
    differs = any(abs(bests[name] - best) > resolution for name, best in given.items())
    behind = any(lead < -resolution for lead in ahead)
    otherwise: Verdict = "contradicted" if behind or differs else "not_supported"
    return settled(lines, holds=min(ahead) > resolution and not differs, corrected=corrected, otherwise=otherwise)


def scaling(evidence: Evidence) -> CheckOutcome:
    """Whether more GPUs of a kind are slower for a model that fits one: every model and context, clean runs only."""
    column = evidence.objective
    runs = evidence.objective_runs().filter(
        pl.col(column).is_not_null(), pl.col("requests_failed").fill_null(0) == 0, pl.col("replicate") == 0
    )
    if "axis_parallelism" in runs.columns:
        runs = runs.filter(pl.col("axis_parallelism") != "pipeline")
    gpus = evidence.nodes.select("node", "gpu_name", "gpu_count")
    keys = [f"axis_{axis}" for axis in evidence.axes if axis not in ("parallelism", "tensor_parallel_size")]
    runs = runs.join(gpus, on="node")
    single, several = (runs.filter(condition) for condition in (pl.col("gpu_count") == 1, pl.col("gpu_count") > 1))
    joined = several.join(single, on=["gpu_name", *keys], suffix="_one").sort("gpu_name", *keys, "gpu_count")
    lines: list[str] = []
    slower = faster = 0
    for row in joined.iter_rows(named=True):
        effect = row[column] / row[f"{column}_one"] - 1
        slower += effect < -MARGIN
        faster += effect > MARGIN
        words = " ".join(str(row[key]) for key in keys)
        if effect > MARGIN or len(lines) < SHOWN:
            lines.append(
                f"{words}: {row['node']} {figure(row[column])} against "
                f"{row['node_one']} {figure(row[f'{column}_one'])}, "
                f"{percent(effect)}."
            )
    lines.append(f"Slower on more GPUs: {slower}; faster: {faster}; level: {joined.height - slower - faster}.")
    if not joined.height:
        return undecided("No model ran on one GPU and on several of its kind.")
    if faster:
        larger = joined.filter(pl.col(column) > pl.col(f"{column}_one") * (1 + MARGIN))[keys[0]].unique().sort()
        corrected = f"slower in {slower} of {joined.height}, faster in {faster} ({', '.join(larger.to_list())})"
        return settled(lines, holds=False, corrected=corrected)
    return settled(lines, holds=slower == joined.height, corrected="", otherwise="not_supported")


@looks
def guard(evidence: Evidence) -> Iterator[Finding | None]:
    """Each axis has configs that differ in it alone, so that its effect can be separated."""
    runs = evidence.objective_runs()
    column = evidence.objective
    runs = runs.filter(pl.col(column).is_not_null()) if column in runs.columns else runs
    for axis in evidence.axes:
        name = f"axis_{axis}"
        own = runs.filter(pl.col(name).is_not_null())
        if own[name].n_unique() < 2:
            continue
        rest = [f"axis_{other}" for other in evidence.axes if other != axis]
        groups = own.group_by("hardware", *rest).agg(pl.col(name).n_unique().alias("kinds"))
        text = f"no two configs differ in {axis} alone, so its effect cannot be separated from the others"
        yield None if groups.filter(pl.col("kinds") > 1).height else Finding(where=axis, text=text)


def guard_second_variables(evidence: Evidence) -> Guarded:
    """Runs that share a workload's name and a load level were asked the same, by the same engine release."""
    findings: list[Finding] = []
    looked_at = 0
    for (workload, level), group in evidence.counted().group_by("workload_name", "level_label", maintain_order=True):
        looked_at += 1
        contents = [json.loads(text) for text in group["workload"].unique(maintain_order=True)]
        keys = [key for key in contents[0] if len({json.dumps(one.get(key)) for one in contents}) > 1]
        if len(contents) > 1:
            text = f"runs of one name were asked differently: {', '.join(keys)} changed along with the configs"
            findings.append(Finding(where=f"{workload} at {level}", text=text))
    asked = dict(evidence.configs.select("config_id", "engine_version").unique("config_id").iter_rows())
    # A trial whose engine is known to be another has failed, and is compared with none.
    started = evidence.trials.filter(
        pl.col("engine_version").is_not_null(), pl.col("failure_cause").ne_missing("wrong_engine")
    )
    for _, group in started.group_by("config_id", maintain_order=True):
        looked_at += 1
        if versions := _several_versions(group):
            text = f"launches of one config ran engine {versions}"
            findings.append(Finding(where=str(group["config_name"][0]), text=text))
    for row in started.iter_rows(named=True):
        wanted, ran = asked.get(row["config_id"]), str(row["engine_version"])
        if wanted is not None and ran.split("+")[0] != str(wanted).split("+")[0]:
            where = f"{row['trial_id']} ({row['config_name']})"
            findings.append(Finding(where=where, text=f"engine {wanted} was asked for and {ran} ran"))
    plain = started.filter(pl.col("config_id").is_in([key for key, version in asked.items() if version is None]))
    for (hardware,), group in plain.group_by("hardware", maintain_order=True):
        if versions := _several_versions(group):
            text = f"configs are compared across engine {versions}, which no axis names"
            findings.append(Finding(where=str(hardware), text=text))
    return Guarded(looked_at=looked_at, findings=tuple(findings))


def _several_versions(trials: pl.DataFrame) -> str:
    """The engine versions that ran, in words; empty where it is one."""
    versions = sorted(trials["engine_version"].unique().to_list())
    return " and ".join(versions) if len(versions) > 1 else ""
