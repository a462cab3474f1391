"""Built-in texts and questions of the quality measurement.

Texts are scored as they stand: passages in several languages and formats, and questions with their right answers.
Questions are answered: sums, copying, extraction, and recall over a short and a long context. Each has one right
answer, so that a broken KV cache or a broken scale shows without any data of the user's. Standard library only: the
recipe of the trained model draws its training text from the same functions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

VERSION = 1
"""Of the set: measurements of different sets are not compared."""
QUESTIONS_PER_KIND = 12
LONG_QUESTIONS = 10
LONG_CONTEXT = "long_context"
_SYLLABLES = tuple(first + last for first in "bdfgklmnprstv" for last in "aeiou")
_NAMES = ("Mira", "Jon", "Ada", "Otto", "Lena", "Paul", "Nora", "Erik", "Vera", "Ivan", "Rosa", "Carl")
_CITIES = ("Oslo", "Rome", "Lima", "Bern", "Kyiv", "Cairo", "Quito", "Tunis", "Porto", "Turin", "Hanoi", "Delhi")
_COLOURS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")
_WHO = (
    "A teacher",
    "The old miller",
    "Her brother",
    "Nobody",
    "The captain",
    "Our neighbour",
    "A stranger",
    "The girl",
)
_DID = ("carried", "painted", "found", "sold", "forgot", "mended", "watched", "buried", "counted", "borrowed")
_WHAT = ("the lamp", "a wooden boat", "two letters", "the clock", "a map", "the bread", "some apples", "the key")
_WHERE = ("near the river", "behind the school", "in the garden", "at the station", "on the hill", "under the bridge")
_WHEN = ("in spring", "before noon", "last winter", "that evening", "on Sunday", "after the storm")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A text to go on from, and the answer that is right; the kind groups questions that test the same ability."""

    name: str
    kind: str
    text: str
    answer: str


def arithmetic(random: Random) -> tuple[str, str]:
    """A sum of two numbers below 30, after two sums as examples."""
    sums = [(random.randrange(1, 30), random.randrange(1, 30)) for _ in range(3)]
    lines = [f"{first}+{second}={first + second}\n" for first, second in sums]
    text = "".join(lines)
    answer = str(sum(sums[-1]))
    return text[: -len(answer) - 1], answer


def copying(random: Random) -> tuple[str, str]:
    """Four invented words to repeat, after an example."""
    example, own = (" ".join(invented_word(random) for _ in range(4)) for _ in range(2))
    return f"say {example} | {example}\nsay {own} |", f" {own}"


def invented_word(random: Random) -> str:
    """A word of two or three syllables that no language has."""
    return "".join(random.choices(_SYLLABLES, k=random.randrange(2, 4)))


def extraction(random: Random) -> tuple[str, str]:
    """The city of one of three persons."""
    facts, asked = persons(random)
    question, answer = random.choice(asked)
    return facts + question, answer


def recall(random: Random) -> tuple[str, str]:
    """One of three codes."""
    facts, asked = codes(random)
    question, answer = random.choice(asked)
    return facts + question, answer


KINDS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "arithmetic": arithmetic,
    "copying": copying,
    "extraction": extraction,
    "recall": recall,
}


def persons(random: Random) -> tuple[str, list[tuple[str, str]]]:
    """Sentences about three persons, and questions for the city of each with their answers."""
    names, cities = random.sample(_NAMES, 3), random.sample(_CITIES, 3)
    lines = [f"{name} is {random.randrange(20, 80)}, of {city}.\n" for name, city in zip(names, cities, strict=True)]
    asked = [(f"City of {name}:", f" {city}") for name, city in zip(names, cities, strict=True)]
    return "".join(lines), asked


def codes(random: Random) -> tuple[str, list[tuple[str, str]]]:
    """Sentences that give three colours their codes, and questions for each with their answers."""
    code_of = {colour: str(random.randrange(1000, 10000)) for colour in random.sample(_COLOURS, 3)}
    asked = [(f"Code {colour} is", f" {code}") for colour, code in code_of.items()]
    return "".join(f"{question}{answer}.\n" for question, answer in asked), asked


def sentence(random: Random) -> str:
    """A sentence of everyday words: what long contexts are filled with."""
    words = [random.choice(_WHO), random.choice(_DID), random.choice(_WHAT), random.choice(_WHERE)]
    return " ".join([*words, random.choice(_WHEN)] if random.random() < 0.5 else words) + "."


def long_recall(random: Random, chars: int, asked: Random) -> tuple[str, str]:
    """One of three codes, asked for after other sentences, about `chars` characters in all.

    The same `random` begins the same text, whatever its length and whichever code is asked for.
    """
    facts, codes_asked = codes(random)
    parts, size = list[str](), len(facts)
    while size < chars - 20:
        parts.append(sentence(random))
        size += len(parts[-1]) + 1
    question, answer = asked.choice(codes_asked)
    return f"{facts}{' '.join(parts)}\n{question}", answer


def questions() -> tuple[Question, ...]:
    """The short questions, the same each time."""
    made = []
    for kind, make in KINDS.items():
        random = _fixed(kind)
        for number in range(QUESTIONS_PER_KIND):
            text, answer = make(random)
            made.append(Question(name=f"{kind}-{number}", kind=kind, text=text, answer=answer))
    return tuple(made)


def long_questions(chars: list[int]) -> tuple[Question, ...]:
    """Questions over contexts of so many characters each. They begin alike, so that a prefix cache is used."""
    made = []
    asked = _fixed("asked")
    for number, size in enumerate(chars):
        text, answer = long_recall(_fixed(LONG_CONTEXT), size, asked)
        made.append(Question(name=f"{LONG_CONTEXT}-{number}", kind=LONG_CONTEXT, text=text, answer=answer))
    return tuple(made)


def passages() -> list[str]:
    """Short texts in several languages and formats, written for this."""
    whole = (Path(__file__).parent / "data" / "passages.txt").read_text(encoding="utf-8")
    return [passage.strip("\n") for passage in whole.split("\n---\n")]


def texts() -> Iterator[tuple[str, str]]:
    """(name, text) of what is scored: the passages, and the questions with their right answers."""
    for number, passage in enumerate(passages()):
        yield f"passage-{number}", passage
    for question in questions():
        yield question.name, question.text + question.answer


def _fixed(purpose: str) -> Random:
    return Random(f"quality {purpose}")  # noqa: S311 - test prompts, no secret
