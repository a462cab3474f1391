"""Page of a trial, read from its raw record."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import polars as pl

from tokenpeak.errors import PlanError
from tokenpeak.metrics import with_derived
from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.node.protocol.parts import LEFT_DOWN
from tokenpeak.predict.correction import measured_as_predicted
from tokenpeak.predict.demand import objective_run
from tokenpeak.quality.answers import with_verdict
from tokenpeak.ranking.intervals import CONFIDENCE, requests_to_assure, share, slo_confidence
from tokenpeak.records import Restoration, RunRecord, TrialRecord
from tokenpeak.report.blocks.block import Part, answer, code, link, strong
from tokenpeak.report.blocks.digits import counted, number
from tokenpeak.report.blocks.metric_columns import confidence_words
from tokenpeak.report.ranking.classes import candidates
from tokenpeak.report.ranking.standings import choices, rank
from tokenpeak.report.trials import trial_tables
from tokenpeak.report.trials.time_axis import time_axis
from tokenpeak.report.view import LAUNCH, SweepView, engine_words, metric_word
from tokenpeak.spec.load import ClosedLoad
from tokenpeak.store.archive import Archive
from tokenpeak.vllm.command import paste_command
from tokenpeak.vllm.explanation import LEAKED

ACCESS = re.compile(r'"(?:GET|POST) /\S* HTTP/')
LOG_LINES = 40
"""Lines of the engine's log that a page shows, from its end, without those that requests and Python's leaks leave."""
_DIGEST_SHOWN = len("sha256:") + 12
"""As many digits as runtimes show of an image's id."""


def trial_pages(view: SweepView) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id and the template's variables of each trial that can be read, in the order of their files."""
    archive = Archive(view.path)
    quality = archive.read_quality()
    every = trial_tables.runs(view, view.runs, "runs", "Runs of this trial")
    # Each page is of one config: its name in each row would say nothing.
    head = replace(every, columns=every.columns[1:], rows=()).payload()
    rows: dict[str, list[tuple[dict[str, Any], ...]]] = {}
    for trial_id, row in zip(view.runs["trial_id"], every.rows, strict=True):
        rows.setdefault(trial_id, []).append(row[1:])
    launch = pl.format("{} of {}", LAUNCH, pl.col("trial_id").count().over("hardware", "config_id"))
    frame = view.trials.select("trial_id", "label", "objective", launch=launch)
    frame = frame.with_columns(previous=pl.col("trial_id").shift(1), following=pl.col("trial_id").shift(-1))
    facts = {row["trial_id"]: row for row in frame.iter_rows(named=True)}
    series = view.series.partition_by("trial_id", as_dict=True) if view.series.height else {}
    for path in archive.trial_paths():
        trial_id = path.stem
        if trial_id not in facts or (read := archive.readable_trial(path)) is None:
            continue
        trial, known, own = with_verdict(read, quality), facts[trial_id], rows.get(trial_id)
        yield (
            trial_id,
            {
                "trial": trial,
                **{name: known[name] for name in ("label", "previous", "following")},
                "launch": known["launch"] if view.launches_known else "launches not known",
                "engine": engine_words(trial.startup.engine_version or trial.config.engine_version)
                + (f", build {trial.config.engine}" if trial.config.engine else "")
                + (f", {trial.startup.engine_digest[:_DIGEST_SHOWN]}" if trial.startup.engine_digest else ""),
                "answer": _answer(view, trial, known["objective"]),
                "picture": _time_axis(trial, series.get((trial_id,))),
                "runs_table": {**head, "rows": own} if own else None,
                "predictions": predictions(view, trial),
                "slo": [slo_sentence(run) for run in trial.runs],
                "window": [window_sentence(run) for run in trial.runs],
                "command": _command(view, trial),
                "requests": archive.requests_path(trial_id).is_file(),
                "log": _log_end(archive, trial_id),
                "split": split(trial),
                "chosen": chosen(trial),
                "afterwards": _afterwards(trial.restoration) if trial.restoration is not None else "",
            },
        )


def _command(view: SweepView, trial: TrialRecord) -> tuple[str, str]:
    """The engine's command line, and a note of how it is known."""
    if trial.argv:
        return " ".join(trial.argv), ""
    if view.record.imported is None:
        return "The engine was not launched.", ""
    if is_vllm(trial.config.engine_version) and (trial.config.flags or trial.config.env):
        try:
            return paste_command(trial.config), "By its settings; the source gives no command."
        except PlanError:
            pass
    return "The source does not give it.", ""


def chosen(trial: TrialRecord) -> str:
    """What the engine runs with by its log and was not given; empty where its log says nothing of it."""
    given = {*trial.config.flags, *(name.removeprefix("VLLM_").lower() for name in trial.config.env)}
    return ", ".join(
        f"{name.removeprefix('enable_').replace('_', ' ')} {value}"
        for name, value in trial.startup.engine_choices.items()
        if name not in given
    )


def _afterwards(found: Restoration) -> str:
    """State of production after the trial; one that was down before may still be down."""
    if not found.restored:
        return "not seen restored"
    return "as before (down)" if not found.was_running and found.message.endswith(LEFT_DOWN) else "restored"


def _answer(view: SweepView, trial: TrialRecord, objective: float | None) -> dict[str, Any] | None:
    """Result of the launch and standing of its config; None where it failed, which the page says otherwise."""
    if trial.status != "ok" or not trial.runs:
        return None
    places, ranked = _places(view, trial.hardware)
    place = places[trial.config.config_id]
    own = {f"axis_{axis}": name for axis, name in trial.config.choices.items()}
    parts: list[Part] = [code(choices(view, {"config_name": trial.config.name, **own}))]
    if objective is None:
        parts.append(f" gave no result {view.objective_at} that may be ranked")
    else:
        parts += [" gave ", strong(f"{number(objective)} {view.metric.unit}"), f" {view.objective_at}"]
    if place["rank"] is not None:
        parts += [
            "; its config has ",
            link(f"rank {place['rank']} of {ranked}", "ranking.html"),
            f" on {trial.hardware}",
        ]
    invalid = sum(run.verdict.status == "invalid" for run in trial.runs)
    parts.append(f". {invalid} of {len(trial.runs)} runs may not be ranked; why is below." if invalid else ".")
    return answer(*parts).payload()


@lru_cache(maxsize=8)
def _places(view: SweepView, hardware: str) -> tuple[dict[str, dict[str, Any]], int]:
    """The row of each config's standing by its id, and how many have a rank; a class of configs has one row."""
    frame, of = rank(view, hardware).frame, candidates(view, hardware).of
    rows = {row["config_id"]: row for row in frame.iter_rows(named=True)}
    return rows | {config: rows[place] for config, place in of.items()}, frame["rank"].drop_nulls().len()


def _time_axis(trial: TrialRecord, series: pl.DataFrame | None) -> Any:
    empty = pl.DataFrame(schema={"quantity": pl.String, "t_s": pl.Float64, "value": pl.Float64})
    return time_axis(
        trial.duration_s or 0.0,
        [(phase.name, phase.kind, phase.started_s, phase.duration_s) for phase in trial.phases],
        [
            (run.level_label, window[0], window[1] - window[0])
            for run in trial.runs
            if (window := run.window_s) is not None
        ],
        series if series is not None else empty,
    )


def split(trial: TrialRecord) -> list[dict[str, Any]]:
    """Where the trial's time went: seconds and percent of each kind of phase, and what no phase claims."""
    words = {
        "orchestration": "TokenPeak itself",
        "engine_start": "Engine start",
        "load": "Load",
        "production_start": "Production start",
    }
    seconds = dict.fromkeys(words, 0.0)
    for phase in trial.phases:
        seconds[phase.kind] += phase.duration_s
    rows: list[dict[str, Any]] = [
        {"kind": kind, "name": words[kind], "seconds": value} for kind, value in seconds.items() if value
    ]
    rest = (trial.duration_s or 0.0) - sum(seconds.values())
    if rest > 0.05:
        rows.append({"kind": "other", "name": "Not attributed", "seconds": rest})
    percents = whole_percents([row["seconds"] for row in rows])
    return [
        {**row, "percent": percent, "text": number(row["seconds"], 1)}
        for row, percent in zip(rows, percents, strict=True)
    ]


def whole_percents(parts: Sequence[float]) -> list[int]:
    """Each part's share of their sum in whole percents that sum to 100, by largest remainder; 0 each of nothing."""
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    exact = [part / whole * 100 for part in parts]
    found = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: found[index] - exact[index])
    for index in by_remainder[: 100 - sum(found)]:
        found[index] += 1
    return found


def slo_sentence(run: RunRecord) -> str:
    """Whether the run met its SLO: how many requests each limit, with the confidence; empty without counts."""
    sent = run.summary.requests_sent
    if not run.summary.within_limits or not sent or run.slo_met is None:
        return ""
    parts, few = [], ""
    for metric, percentile, limit in run.slo.limits():
        within = run.summary.within_limits.get(f"{metric}_{percentile}")
        if within is None:
            # Gaps, which are no requests to be counted.
            found = getattr(getattr(run.summary, metric), percentile)
            if found is not None:
                side = "≤" if found <= limit else ">"
                parts.append(f"{metric_word(metric)} {percentile} {number(found * 1000)} {side} {limit * 1000:g} ms")
            continue
        confidence = (
            f", {confidence_words(slo_confidence(within, sent, share(percentile)))} confidence" if run.slo_met else ""
        )
        parts.append(
            f"{within:,} of {sent:,} within {metric_word(metric)} {percentile} ≤ {limit * 1000:g} ms{confidence}"
        )
        needed = requests_to_assure(share(percentile))
        if run.slo_met and sent < needed:
            few = (
                f". {sent:,} requests are too few for {CONFIDENCE:.0%} confidence in a {percentile}: it takes {needed}"
            )
    return f"SLO {'held' if run.slo_met else 'broken'}: {'; '.join(parts)}{few}."


def window_sentence(run: RunRecord) -> str:
    """Which part of a closed loop its throughput is over; empty for other loads, whose is over all."""
    summary = run.summary
    if not isinstance(run.level, ClosedLoad) or summary.output_tok_per_s is None:
        return ""
    if summary.steady_from_s is None or summary.steady_to_s is None or summary.steady_waves is None:
        return "Throughput is over the whole load, ramp-up and drain included."
    whole = with_derived(summary.model_dump(include={"output_tokens", "duration_s"}))["whole_output_tok_per_s"]
    return (
        f"Throughput is from {number(summary.steady_from_s)} to {number(summary.steady_to_s)} s of "
        f"{number(summary.duration_s)} s, {counted(summary.steady_waves, 'wave')} of requests between ramp and drain; "
        f"over the whole load it was {number(whole)} tok/s."
    )


def predictions(view: SweepView, trial: TrialRecord) -> list[dict[str, str]]:
    """Prediction against measurement, for what was both predicted and measured."""
    predicted = trial.prediction
    if predicted is None:
        return []
    measured = measured_as_predicted(trial, view.spec)
    pairs = [
        ("Output throughput, whole load", "tok/s", predicted.output_tok_per_s, measured.get("output_tok_per_s"), 1.0),
        ("TTFT mean", "ms", predicted.ttft_s, measured.get("ttft_s"), 1000.0),
        ("TPOT mean", "ms", predicted.tpot_s, measured.get("tpot_s"), 1000.0),
        ("KV cache", "tokens", predicted.kv_cache_tokens, measured.get("kv_cache_tokens"), 1.0),
        ("Step with a draft", "tokens", predicted.draft_accepted_length, _accepted_length(trial, view), 1.0),
    ]
    return [
        {
            "name": name,
            "unit": unit,
            "predicted": number(before * scale),
            "measured": number(after * scale) if after is not None else "–",
            "ratio": f"{after / before:.2f}" if after is not None and before else "–",
        }
        for name, unit, before, after, scale in pairs
        if before is not None
    ]


def _accepted_length(trial: TrialRecord, view: SweepView) -> float | None:
    """Tokens of a step with a draft in the objective's run, by the engine's counters."""
    run = objective_run(trial.runs, view.spec)
    return run.engine.draft_accepted_length if run is not None and run.engine is not None else None


def _log_end(archive: Archive, trial_id: str) -> str:
    text = archive.read_log(trial_id) or ""
    return "\n".join(
        [line for line in text.splitlines() if not ACCESS.search(line) and not LEAKED.search(line)][-LOG_LINES:]
    )
