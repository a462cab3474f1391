"""Decisions of archives as columns of their configs, for exports and Postgres: the same that terminal and site show."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import polars as pl

from tokenpeak.ranking.candidates import Candidates, decided, launches_of_rows
from tokenpeak.ranking.decision_words import kept_back
from tokenpeak.records import SweepRecord
from tokenpeak.store.archive import parse_record
from tokenpeak.store.frames import Frames

_KEY = ("sweep_id", "hardware", "config_id")
_COLUMNS: dict[str, type[pl.DataType]] = {
    "decision": pl.String,
    "tie_group": pl.Boolean,
    "kept_back": pl.String,
    "decision_gain": pl.Float64,
    "decision_gain_low": pl.Float64,
    "decision_gain_high": pl.Float64,
    "distinguishable": pl.Float64,
    "further_launches": pl.Int64,
}
Row = Mapping[str, object]


def with_decisions(frames: Frames) -> Frames:
    """The frames with the columns of their configs that a decision gives."""
    records = {
        sweep_id: parse_record(record.encode(), SweepRecord, sweep_id)
        for sweep_id, record in frames.records.select("sweep_id", "record").iter_rows()
    }
    rows = [row for sweep_id, record in records.items() for row in _rows(frames, sweep_id, record)]
    found = pl.DataFrame(rows, schema={**dict.fromkeys(_KEY, pl.String), **_COLUMNS})
    configs = frames.configs.drop(_COLUMNS).join(found, on=_KEY, how="left", maintain_order="left")
    return replace(frames, configs=configs.select(frames.configs.columns))


def _rows(frames: Frames, sweep_id: str, record: SweepRecord) -> Iterator[Row]:
    """A row for each config that was launched with a result."""
    here = pl.col("sweep_id") == sweep_id
    for (hardware,), trials in frames.trials.filter(here).group_by("hardware", maintain_order=True):
        where = here & (pl.col("hardware") == hardware)
        runs = frames.runs.filter(where).iter_rows(named=True)
        configs = frames.configs.filter(where)
        quality = configs.filter(pl.col("quality").is_not_null()).select("config_id", "quality").iter_rows()
        nodes = [node for node in record.nodes if record.hardware_of(node) == hardware]
        found = decided(
            frames.specs[sweep_id],
            launches_of_rows(frames.specs[sweep_id], trials.iter_rows(named=True), runs),
            plan=next((plan for plan in record.plans if plan.hardware == hardware), None),
            quality=dict(quality),
            engine_version=nodes[0].engine_version if nodes else None,
        )
        for config_id in found.of:
            yield {"sweep_id": sweep_id, "hardware": hardware, "config_id": config_id, **_of(found, config_id)}


def _of(found: Candidates, config_id: str) -> Row:
    """What the decision says of a config; of a class, its name stands at the config that stands for it."""
    decision, own = found.decision, found.of[config_id]
    candidate = next(each for each in found.all if each.config == own)
    gain = decision.gain if decision.gain is not None and decision.gain.config == config_id else None
    is_named = decision.config == config_id
    may_be_run = candidate.hold != "broken" and own in decision.verdicts.ranked
    return {
        "decision": decision.outcome if is_named else None,
        "tie_group": own in decision.group,
        "kept_back": None if may_be_run else kept_back(candidate.hold, candidate.answers),
        "decision_gain": gain.ratio - 1 if gain is not None else None,
        "decision_gain_low": gain.low - 1 if gain is not None and gain.low is not None else None,
        "decision_gain_high": gain.high - 1 if gain is not None and gain.high is not None else None,
        "distinguishable": decision.distinguishable if is_named else None,
        "further_launches": decision.further_launches if is_named else None,
    }
