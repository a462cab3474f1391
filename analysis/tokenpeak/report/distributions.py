"""Latency of users: the answer on speed against throughput, and the requests whose distributions are drawn."""

import polars as pl

from tokenpeak.report.blocks import Sentence, answer, code, number, strong
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.view import SweepView

QUANTILES = tuple(sorted({*(step / 100 for step in range(1, 100, 2)), 0.5, 0.9}))
TABLED = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Shares that a run's own percentiles stand for."""
WORDS = {"ttft_s": "TTFT", "tpot_s": "TPOT"}
"""What is drawn; answers of one token have no TPOT."""
SHOWN = 4
"""Configs whose distributions are drawn: the winner and those that follow it."""


def answer_tradeoff(speeds: pl.DataFrame) -> Sentence:
    """How fast single users are served where the node gives most, and the fastest that one is ever served.

    `speeds` has a row per config and load level: hardware, workload_name, level_label, label, user and whole (tok/s of
    the median request and of all).
    """
    parts = []
    for (hardware,), own in speeds.group_by("hardware", maintain_order=True):
        several = own["workload_name"].n_unique() > 1
        place = pl.concat_str("workload_name", pl.lit(", "), "level_label") if several else pl.col("level_label")
        own = own.with_columns(place=place)
        most = own.sort("whole", descending=True).row(0, named=True)
        fastest = own.sort("user", descending=True).row(0, named=True)
        parts += [
            f"On {hardware}, ",
            code(most["label"]),
            f" gives most at {most['place']}: ",
            strong(f"{number(most['whole'])} tok/s"),
            f" in all, {number(most['user'])} tok/s to the median user",
        ]
        if (most["label"], most["place"]) == (fastest["label"], fastest["place"]):
            parts.append(". None was served faster. ")
        else:
            parts += [
                ". The fastest a median user was served is ",
                strong(f"{number(fastest['user'])} tok/s"),
                " (",
                code(fastest["label"]),
                f" at {fastest['place']}). ",
            ]
    if not parts:
        return answer(
            "No run that may be ranked has both a throughput and the speed of its requests, so there is no trade-off "
            "to draw. What is known of each run is below."
        )
    return answer(*parts)


def best_requests(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """Measured requests of the objective's run of the best configs: label, ttft_s, tpot_s, input_tokens, turn.

    They are in the order of the ranking, then of launches and time.
    """
    best = ranked.frame.filter(pl.col("state") == "ok").head(SHOWN).select("config_id", order="rank")
    chosen = (
        view.objective_runs()
        .filter(pl.col("hardware") == ranked.hardware, pl.col("verdict") != "invalid")
        .join(best, on="config_id")
        .select("trial_id", "run_index", "label", "level_kind", "order")
    )
    if chosen.is_empty():
        return pl.DataFrame()
    start = pl.when(pl.col("level_kind") == "open").then(pl.col("due_s")).otherwise(pl.col("sent_s"))
    return (
        view.requests.filter(
            pl.col("trial_id").is_in(chosen["trial_id"].to_list()),
            pl.col("phase") == "measured",
            pl.col("error").is_null(),
        )
        .select(
            "trial_id",
            "run_index",
            "due_s",
            "sent_s",
            "first_token_s",
            "last_token_s",
            "output_tokens",
            "input_tokens",
            "turn",
        )
        .join(chosen.lazy(), on=["trial_id", "run_index"])
        .with_columns(
            ttft_s=pl.col("first_token_s") - start,
            tpot_s=pl.when(pl.col("output_tokens") > 1).then(
                (pl.col("last_token_s") - pl.col("first_token_s")) / (pl.col("output_tokens") - 1)
            ),
        )
        .sort("order", "trial_id", "run_index", "sent_s")
        .collect()
    )
