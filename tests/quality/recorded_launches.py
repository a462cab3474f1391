"""Verdicts on recorded launches of a real engine.

Each sound launch is judged against each other one, with the noise floor of a third, as a sweep would. A damaged launch
is judged again and again over prompts drawn anew, so that it shows how likely another set of prompts would have found
the damage.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tokenpeak.quality.answers import floor_of
from tokenpeak.quality.verdict import Reference, judge
from tokenpeak.records.quality import QualityAnswers, QualityStatus
from tokenpeak.spec.quality import QualitySpec

MARGIN_NATS = QualitySpec().margin


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one launch of a config answered."""

    config: str
    answers: QualityAnswers


def read_recordings(path: Path) -> list[Recording]:
    """The recordings of a file, one for each launch."""
    kept = json.loads(zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(path.read_bytes()))
    answers = {digest: QualityAnswers.model_validate(content) for digest, content in kept["answers"].items()}
    return [Recording(config=config, answers=answers[digest]) for config, digest in kept["launches"]]


def reference_of(answers: QualityAnswers, again: QualityAnswers) -> Reference:
    """A launch as the reference; `again` is another launch of it, for the noise floor."""
    return Reference(answers=answers, floor=floor_of(answers, (), [again]))


def status_of(launch: QualityAnswers, reference: Reference) -> QualityStatus:
    """The verdict on a launch."""
    return judge(launch, None, reference, MARGIN_NATS).status


def false_alarms(sound: Sequence[QualityAnswers], draw: random.Random) -> list[Counter[QualityStatus]]:
    """For each launch, the verdicts on it against each other launch of the same model."""
    known: dict[tuple[int, int, int], QualityStatus] = {}
    references: dict[tuple[int, int], Reference] = {}
    # Launches that answered the same, bit for bit, have the same verdicts.
    kinds = [sound.index(next(one for one in sound if same(one, each))) for each in sound]
    counted = []
    for launch in range(len(sound)):
        counts: Counter[QualityStatus] = Counter()
        for reference in (place for place in range(len(sound)) if place != launch):
            again = draw.choice([place for place in range(len(sound)) if place not in (launch, reference)])
            pair = kinds[reference], kinds[again]
            if pair not in references:
                references[pair] = reference_of(sound[reference], sound[again])
            key = kinds[launch], *pair
            if key not in known:
                known[key] = status_of(sound[launch], references[pair])
            counts[known[key]] += 1
        counted.append(counts)
    return counted


def finds(
    damaged: QualityAnswers, sound: Sequence[QualityAnswers], draw: random.Random, draws: int
) -> Counter[QualityStatus]:
    """The verdicts on a damaged launch over prompts, and launches of the reference, that are drawn anew."""
    counts: Counter[QualityStatus] = Counter()
    for _ in range(draws):
        reference, again = draw.sample(list(sound), 2)
        texts = _drawn([(text.name, text.name.rpartition("-")[0]) for text in reference.texts], draw)
        answers = _drawn([(answer.name, answer.kind) for answer in reference.answers], draw)
        launch, first, second = (_with(each, texts, answers) for each in (damaged, reference, again))
        counts[status_of(launch, reference_of(first, second))] += 1
    return counts


def same(one: QualityAnswers, other: QualityAnswers) -> bool:
    """Whether both launches answered the same with the same probabilities."""
    return (one.texts, one.answers) == (other.texts, other.answers)


def _drawn(named: Sequence[tuple[str, str]], draw: random.Random) -> list[tuple[str, str]]:
    """(a prompt's name, its new one): as many of each kind as there are, with repetition."""
    kinds: dict[str, list[str]] = {}
    for name, kind in named:
        kinds.setdefault(kind, []).append(name)
    return [(draw.choice(names), f"{kind}-{number}") for kind, names in kinds.items() for number, _ in enumerate(names)]


def _with(
    answers: QualityAnswers, texts: Sequence[tuple[str, str]], questions: Sequence[tuple[str, str]]
) -> QualityAnswers:
    """The launch's answers to the drawn prompts alone."""
    text, answer = {each.name: each for each in answers.texts}, {each.name: each for each in answers.answers}
    return answers.model_copy(
        update={
            "texts": tuple(text[old].model_copy(update={"name": new}) for old, new in texts),
            "answers": tuple(answer[old].model_copy(update={"name": new}) for old, new in questions),
        }
    )
