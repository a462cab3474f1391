"""Decision in words, the same for terminal and site: a headline, the reasons for it, and what may not be run yet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenpeak.plan.baseline import DEFAULTS
from tokenpeak.ranking.comparisons import Answers, Faster, Hold
from tokenpeak.ranking.decision import Decision


@dataclass(frozen=True)
class Named:
    """A place where a config's name stands, as each reader has it."""

    config: str


Part = str | Named
Words = tuple[Part, ...]


def plain(words: Words, names: Mapping[str, str]) -> str:
    """The words with each config by its name."""
    return "".join(part if isinstance(part, str) else names.get(part.config, part.config) for part in words)


def current_words(name: str | None) -> str:
    """What runs now as sentences name it: what an engine does without flags is the engine's defaults."""
    return "what runs now" if name is None else "the engine's defaults" if name == DEFAULTS else name


def headline(decision: Decision, current: str) -> Words:
    """What to do, without a stop; `current` names what runs now, such as `production` or `the engine's defaults`."""
    if decision.config is None and decision.faster and all(each.answers == "another_model" for each in decision.faster):
        return ("Nothing to recommend: the sweep compares models, not settings of one",)
    if decision.config is None:
        return ("Not known: no config that may be run gave a result",)
    config = Named(decision.config)
    match decision.outcome:
        case "run":
            return ("Run ", config)
        case "ahead":
            lacking = "is not proven to hold the SLO" if decision.is_lead_proven else "the lead is not proven"
            return (config, f" leads, but {lacking}")
        case "keep":
            return (f"Keep {current}, as nothing is shown to be better",)
        case "none_holds":
            return ("Nothing holds the SLO; ", config, " comes nearest")
        case "not_known":
            if len(decision.verdicts.standings) == 1:
                return ("Not known: ", config, " has nothing that it may be compared with")
            return ("Not known: ", config, " is not shown to be better than another")


def reasons(decision: Decision, current: str, *, higher_is_better: bool, launch_s: float | None) -> list[Words]:
    """The reasons for the headline, a sentence each without its stop; `launch_s` is how long a launch takes."""
    found: list[Words] = []
    if decision.gain is not None and decision.outcome in ("run", "ahead"):
        found.append((f"{_gain(decision)} {current}{'' if higher_is_better else ' (lower is better)'}",))
    if decision.gain is not None and decision.outcome == "keep":
        found.append((Named(decision.gain.config), f" measured {_gain(decision)} {current}, which is not proven"))
    if decision.outcome == "none_holds" and decision.excess is not None:
        found.append((f"Its worst latency is {decision.excess:.2f} times its limit",))
    if (merit := _merit(decision)) and decision.outcome in ("run", "ahead", "keep"):
        found.append((merit,))
    if decision.outcome == "run" and decision.gain is None and decision.current is not None:
        found.append((f"{current[:1].upper()}{current[1:]} breaks the SLO",))
    elif decision.outcome == "run" and len(decision.verdicts.standings) == 1:
        found.append(("No other holds the SLO",))
    if not decision.is_hold_proven and decision.outcome in ("ahead", "keep"):
        found.append(("It holds the SLO in its figures, but its requests do not show that with 95% confidence",))
    found += [(sentence,) for sentence in (_noise(decision), _further(decision, current, launch_s)) if sentence]
    return found


KEPT_BACK = {
    "broken": ("breaks the SLO", "it breaks the SLO"),
    "not_compared": (
        "answers not compared",
        "its answers were not compared (quality: {reference: …} in the sweep compares them)",
    ),
    "failed": ("answers failed", "its answers failed"),
    "another_model": ("another model", "it serves another model, which is no setting of this one"),
    "not_proven": ("SLO not proven", "too few requests show that it holds the SLO"),
}
"""What keeps a config back: in a table, and in a sentence."""


def kept_back(hold: Hold, answers: Answers) -> str:
    """The first reason in KEPT_BACK by which a config that may not be run is kept back."""
    if hold == "broken":
        return "broken"
    return answers if answers in KEPT_BACK else "not_proven"


def faster_words(faster: Sequence[Faster], *, higher_is_better: bool) -> list[Words]:
    """For each reason the best config that may not be run, by how much it is better, and how many more there are."""
    of: dict[str, list[Faster]] = {}
    for each in faster:
        of.setdefault(kept_back(each.hold, each.answers), []).append(each)
    word = "higher" if higher_is_better else "lower"
    found: list[Words] = []
    for reason, (first, *others) in of.items():
        if reason == "another_model" and first.ratio is None:
            # The headline has said that models are compared.
            continue
        _, why = KEPT_BACK[reason]
        more = f"; the same holds for {len(others)} more" if others else ""
        said = " may not be run" if first.ratio is None else f" measured {abs(first.ratio - 1):.1%} {word}"
        found.append((Named(first.config), f"{said}; {why}{more}"))
    return found


def _gain(decision: Decision) -> str:
    gain = decision.gain
    assert gain is not None, "asked for where there is one"
    bounds = "" if gain.low is None or gain.high is None else f" ({_percent(gain.low)} to {_percent(gain.high)})"
    return f"{_percent(gain.ratio)}{bounds} {'over' if gain.ratio >= 1 else 'against'}"


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}".replace("-", "−")


def _merit(decision: Decision) -> str:
    """What set the config apart from those that tie with it."""
    how = {
        "alone": "",
        "workloads": "this one is best under the other loads",
        "latency": "this one has the lowest latency",
        "settings": "this one changes the fewest settings",
    }[decision.merit]
    if not how or len(decision.group) < 2:
        return ""
    tie = "tie" if decision.measured.noise is not None else "measured within the margin of the best"
    return f"{len(decision.group)} configs {tie}; {how}"


def _noise(decision: Decision) -> str:
    """How much launches vary, and which differences that shows."""
    measured = decision.measured
    if measured.noise is None:
        if measured.spread is not None:
            return f"Launches of one config differ by {math.expm1(measured.spread):.0%}, which shows nothing"
        return "No config was launched again, so nothing shows how much launches vary"
    noise = math.expm1(measured.noise)
    if decision.distinguishable is None:
        return f"Launches vary by {noise:.1%}"
    return f"Launches vary by {noise:.1%}, so this sweep shows differences above {decision.distinguishable:.0%}"


def _further(decision: Decision, current: str, launch_s: float | None) -> str:
    """What would show the lead."""
    if decision.outcome != "ahead" or decision.further_launches is None:
        return ""
    n = decision.further_launches
    time = "" if launch_s is None else f", about {max(1, round(2 * n * launch_s / 60))} min"
    if decision.measured.noise is None:
        return f"{n} more launches of it and of {current} would show how much they vary{time}"
    return f"{n} more launch{'' if n == 1 else 'es'} of it and of {current} would show it, if it is as measured{time}"
