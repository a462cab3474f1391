"""The trials page's own blocks: how many launches there were and where their time went."""

import altair as alt
import polars as pl

from tokenpeak.report import charts, theme
from tokenpeak.report.blocks import Column, Figure, Sentence, answer, number, strong, table
from tokenpeak.report.view import SweepView

KINDS = {
    "engine_start_s": "engine start",
    "load_s": "load",
    "production_start_s": "production start",
    "orchestration_s": "TokenPeak's own",
}
COLOURS = {
    "engine_start_s": "var(--phase-engine)",
    "load_s": "var(--phase-load)",
    "production_start_s": "var(--phase-production)",
    "orchestration_s": "var(--phase-own)",
}
DRAWN = 60
"""Most trials that the figure shows, the first ones; its table has all."""


def timed(view: SweepView) -> bool:
    """It is known where the time of trials went; an import's source does not say."""
    return bool(view.trials["duration_s"].is_not_null().any())


def answer_trials(view: SweepView) -> Sentence:
    """How many trials there were, what they took, and how much of it was measuring."""
    trials = view.trials
    if trials.is_empty():
        return answer("No trial has ended yet.")
    if not timed(view):
        return answer(
            strong(f"{number(trials.height)} launches"),
            " have published figures; when each was made and how long it took is not known.",
        )
    total = float(trials["duration_s"].sum())
    load = float(trials["load_s"].sum())
    own = float(trials["orchestration_s"].median() or 0.0)  # type: ignore[arg-type]
    failed = trials.filter(pl.col("status") != "ok").height
    words = "all gave a result" if not failed else f"{number(trials.height - failed)} gave a result"
    return answer(
        strong(f"{number(trials.height)} launches"),
        f", of which {words}; they took {number(total / 60, 1)} minutes on their nodes, ",
        strong(f"{load / total:.0%}" if total else "–"),
        f" of it under load. TokenPeak's own part was {number(own, 1)} s in the median trial.",
    )


def time_split(view: SweepView) -> Figure:
    """Where each trial's time went."""
    wide = view.trials.select("trial_id", "label", "duration_s", *KINDS)
    spent = {key: kind for key, kind in KINDS.items() if (wide[key] > 0).any()}
    frame = (
        wide.head(DRAWN)
        .rename(spent)
        .unpivot(index=["trial_id", "label"], on=list(spent.values()), variable_name="kind", value_name="seconds")
        .with_columns(order=pl.col("kind").replace_strict({kind: index for index, kind in enumerate(KINDS.values())}))
    )
    colours = alt.Scale(domain=list(spent.values()), range=[COLOURS[key] for key in spent])
    chart = (
        alt.Chart(frame)
        .mark_bar(stroke=theme.PAPER, strokeWidth=1)
        .encode(
            x=alt.X("seconds:Q", title="seconds", stack="zero"),
            y=alt.Y("trial_id:N", title=None, sort=None),
            color=alt.Color("kind:N", scale=colours, legend=alt.Legend(title=None)),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("trial_id:N"),
                alt.Tooltip("label:N"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("seconds:Q", format=".1f"),
            ],
        )
        .properties(width=theme.WIDTH - 140, height=alt.Step(18))
    )
    more = f" The first {DRAWN} of {view.trials.height} are drawn." if view.trials.height > DRAWN else ""
    return Figure(
        name="time-split",
        title="Where each trial's time went",
        caption=f"Seconds of each of n={view.trials.height} trials by whose time it was; one measurement each.{more}",
        spec=charts.spec_of(chart),
        data=table(
            wide,
            [
                Column(key="trial_id", title="Trial", kind="code"),
                Column(key="label", title="Config", kind="code"),
                *(
                    Column(
                        key=key,
                        title=title.capitalize() if title[0].islower() else title,
                        unit="s",
                        kind="number",
                        digits=1,
                    )
                    for key, title in KINDS.items()
                ),
                Column(key="duration_s", title="Duration", unit="s", kind="number", digits=1),
            ],
            name="data",
            title="Data of the figure: time of trials",
        ),
    )
