"""Taking a text apart by patterns, and comparing the figures in it with what raw files give."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from scipy import stats

from judge.pages import Said
from judge.raw import Raw

N = r"\d[\d,]*(?:\.\d+)?"
P = r"[+−]?[\d.]+%"
LEVEL = r"(?:[\w-]+, )?[\w-]+=[^ ,.;:)]+"
HW = r"(?:\d+x|CPU) .+?"
UNIT = r"tok/s per request|tok/s"
Figures = Iterator[tuple[str, float]]
Judge = Callable[["Site", re.Match[str]], Figures]
Patterns = list[tuple[re.Pattern[str], Judge]]


class Site:
    """What is known while the pages of one sweep are read."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.recommended: dict[str, str] = {}
        """The decision's config of each kind of hardware."""
        self.known: set[str] = set()
        """Those where launches show what to run or to keep."""
        self.card = -1
        """Which hardware's card is read, in the order of the headlines."""

    @property
    def only(self) -> str:
        """The one kind of hardware, where there is one."""
        return self.raw.hardware[0]

    def config(self, said: str, hardware: str) -> str:
        """The label of the config that a headline names."""
        (label,) = {
            self.raw.label(trial["config"])
            for trial in self.raw.trials
            if trial["hardware"] == hardware and self.raw.said(trial["config"]) == said
        }
        return label


class WrongError(AssertionError):
    """A text that is not what the raw files say."""


def number(text: str) -> tuple[float, int]:
    """A figure's value and its digits after the point."""
    plain = text.replace(",", "").replace("−", "-").replace("+", "").rstrip("%").rstrip(".")
    return float(plain), len(plain.partition(".")[2])


def agrees(text: str, expected: float) -> bool:
    """Whether the figure is the expected value, rounded to the digits shown."""
    value, digits = number(text)
    return abs(value - expected) <= 0.5 * 10**-digits * 1.001 + 1e-9


def judge(said: Said, site: Site, patterns: Patterns) -> int:
    """Take the text apart; how many figures were recomputed."""
    text, figures = said.text, 0
    while text:
        for pattern, formulas in patterns:
            found = pattern.match(text)
            if found and found.end():
                for shown, expected in formulas(site, found):
                    if not agrees(shown, expected):
                        raise WrongError(f"{said.page}: {shown} is {expected:.6g} by the raw files, in: {said.text}")
                    figures += 1
                text = text[found.end() :].lstrip(" ")
                break
        else:
            raise WrongError(f"{said.page}: nothing judges {said.kind} {text!r}")
    return figures


def must(condition: object, words: str) -> None:
    """A statement without a figure."""
    if not condition:
        raise WrongError(words)


def pattern(text: str) -> Callable[[Judge], tuple[re.Pattern[str], Judge]]:
    """The decorated formulas with their pattern."""
    return lambda formulas: (re.compile(text), formulas)


def fixed(text: str) -> tuple[re.Pattern[str], Judge]:
    """A text without a figure and without a statement about the data."""
    return re.compile(re.escape(text)), lambda site, found: iter(())


def limits(raw: Raw) -> list[tuple[str, str, float]]:
    """The SLO's limits: metric, percentile, ms."""
    given = {key: value for key, value in raw.sweep["spec"]["slo"].items() if value is not None}
    return [(*key.removesuffix("_ms").split("_"), value) for key, value in given.items()]  # type: ignore[misc]


def current(site: Site) -> tuple[str, str]:
    """The hardware and config that a card is of: cards follow the headlines."""
    hw = (
        list(site.recommended)[site.card % len(site.recommended)]
        if hasattr(site, "card")
        else list(site.recommended)[-1]
    )
    return hw, site.recommended[hw]


def own_runs(site: Site, hw: str, label: str) -> list[dict[str, Any]]:
    """The objective's runs of a config."""
    return [run for trial, run in site.raw.runs(hw) if site.raw.label(trial["config"]) == label]


def confidence(runs: list[dict[str, Any]], raw: Raw) -> float:
    """The least confidence that a limit's percentile lies within it, by the beta distribution of order statistics.

    By the requests of all the runs together; 1 of old runs, which did not record how many requests were within.
    """
    found = []
    for name, percentile, _ in limits(raw):
        within = [(run["summary"].get("within_limits") or {}).get(f"{name}_s_{percentile}") for run in runs]
        if None not in within:
            sent = sum(run["summary"]["requests_sent"] for run in runs)
            found.append(float(stats.beta.sf(int(percentile[1:]) / 100, sum(within), sent - sum(within) + 1)))
    return min(found, default=1.0)
