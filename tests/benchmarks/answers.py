"""How often the verdict on answers is wrong, over recorded launches of a real engine.

`python -m benchmarks.answers ARCHIVE … --damaged PATTERN …`: launches of configs whose name matches a pattern have a
damaged model, all others the same sound one. Each sound launch is judged against each other one, with the noise floor
of a third, as a sweep would: none may fail. Each damaged launch is judged again and again over prompts drawn anew, as
many of each kind as there are, so that it shows how likely another set of prompts would have found the damage.
"""

import argparse
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import zstandard

from tokenpeak.quality.comparison import floor_of
from tokenpeak.quality.verdict import Reference, judge
from tokenpeak.ranking.intervals import clopper_pearson_interval
from tokenpeak.records.quality import QualityAnswers, QualityStatus
from tokenpeak.spec.quality import QualitySpec
from tokenpeak.store.archive import Archive

DRAWS = 200
DECIMALS = 3
MARGIN_NATS = QualitySpec().margin


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one launch of a config answered."""

    config: str
    answers: QualityAnswers


def recordings(archives: Iterable[Archive]) -> list[Recording]:
    """The first pass of every launch whose answers were measured."""
    return [
        Recording(config=trial.config.name, answers=passes.passes[0])
        for archive in archives
        for trial in archive.trials()
        if (passes := archive.read_answers(trial.trial_id)) is not None
    ]


def write_recordings(found: Sequence[Recording], path: Path) -> None:
    """Keep the recordings in one file, each different answer once."""
    answers: dict[str, Any] = {}
    launches = []
    for each in found:
        # When it was recorded and how many requests at a time are no part of what was answered.
        content = _rounded({**each.answers.model_dump(mode="json"), "recorded_at": "2026-01-01T00:00:00Z"})
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        answers[digest] = content
        launches.append([each.config, digest])
    text = json.dumps({"launches": launches, "answers": answers}, separators=(",", ":"))
    settings = zstandard.ZstdCompressionParameters.from_level(19, enable_ldm=True, window_log=27)
    path.write_bytes(zstandard.ZstdCompressor(compression_params=settings).compress(text.encode()))


def read_recordings(path: Path) -> list[Recording]:
    """The recordings of a file, one for each launch."""
    kept = json.loads(zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(path.read_bytes()))
    answers = {digest: QualityAnswers.model_validate(content) for digest, content in kept["answers"].items()}
    return [Recording(config=config, answers=answers[digest]) for config, digest in kept["launches"]]


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, DECIMALS)
        case list() | tuple():
            return [_rounded(each) for each in value]
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case _:
            return value


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
    damaged: QualityAnswers, sound: Sequence[QualityAnswers], draw: random.Random, draws: int = DRAWS
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


def main() -> None:
    """Print how often sound launches fail and damaged ones are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    parser.add_argument("--damaged", nargs="*", default=[], metavar="PATTERN")
    parser.add_argument("--record", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = recordings(Archive(path) for path in options.archives)
    if options.record:
        write_recordings(found, options.record)
    damaged = [each for each in found if any(fnmatchcase(each.config, pattern) for pattern in options.damaged)]
    sound = [each.answers for each in found if each not in damaged]
    draw = random.Random(26)
    counted = false_alarms(sound, draw)
    total: Counter[QualityStatus] = sum(counted, Counter())
    alarmed = sum(counts["fail"] > 0 for counts in counted)
    bound = clopper_pearson_interval(alarmed, len(sound), confidence=0.9).high
    different = sum(not any(same(each, other) for other in sound[:place]) for place, each in enumerate(sound))
    print(f"{len(sound)} launches of the sound model, which answered in {different} different ways")
    print(f"{total.total()} pairs of them: {total['fail']} fail, {total['unknown']} unknown, {total['pass']} pass")
    print(f"launches that fail against any other: {alarmed}; in 95% at most {bound:.1%} of launches do")
    for each in damaged:
        counts = finds(each.answers, sound, draw)
        figures = ", ".join(f"{status} {counts[status] / DRAWS:.1%}" for status in ("fail", "unknown", "pass"))
        print(f"{each.config}: {figures} of {DRAWS} draws of prompts")


if __name__ == "__main__":
    main()
