"""Built-in prompts of the quality measurement: arithmetic, copying, extraction, recall, and recall over a long context.

Each has one right answer, so that a broken KV cache or a broken scale shows without any data of the user's. Standard
library only: the recipe of the trained model draws its training text from the same functions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

PROMPTS_PER_KIND = 11
LONG_PROMPTS = 4
_SYLLABLES = tuple(first + last for first in "bdfgklmnprstv" for last in "aeiou")
_NAMES = ("Mira", "Jon", "Ada", "Otto", "Lena", "Paul", "Nora", "Erik", "Vera", "Ivan", "Rosa", "Carl")
_CITIES = ("Oslo", "Rome", "Lima", "Bern", "Kyiv", "Cairo", "Quito", "Tunis", "Porto", "Turin", "Hanoi", "Delhi")
_COLOURS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")
_FILLER = (
    "The river was calm that day.",
    "A train left the station at noon.",
    "Nobody had read the letter yet.",
    "The garden needs water in summer.",
    "They walked home along the wall.",
)


@dataclass(frozen=True, kw_only=True)
class QualityPrompt:
    """A text to go on from, and the answer that is right; the kind groups prompts that test the same ability."""

    name: str
    kind: str
    text: str
    answer: str


def arithmetic(random: Random) -> tuple[str, str]:
    """A sum of two numbers below 100, after two sums as examples."""
    sums = [(random.randrange(1, 100), random.randrange(1, 100)) for _ in range(3)]
    lines = [f"{first}+{second}={first + second}\n" for first, second in sums]
    text = "".join(lines)
    answer = str(sum(sums[-1]))
    return text[: -len(answer) - 1], answer


def copying(random: Random) -> tuple[str, str]:
    """Four invented words to repeat, after an example."""

    def words() -> str:
        return " ".join("".join(random.choices(_SYLLABLES, k=random.randrange(2, 4))) for _ in range(4))

    example, own = words(), words()
    return f"say {example} | {example}\nsay {own} |", f" {own}"


def extraction(random: Random) -> tuple[str, str]:
    """The city of one of three persons."""
    names, cities = random.sample(_NAMES, 3), random.sample(_CITIES, 3)
    lines = [f"{name} is {random.randrange(20, 80)}, of {city}.\n" for name, city in zip(names, cities, strict=True)]
    asked = random.randrange(3)
    return f"{''.join(lines)}City of {names[asked]}:", f" {cities[asked]}"


def recall(random: Random, filler_chars: int = 0) -> tuple[str, str]:
    """One of three codes, asked for after `filler_chars` characters of other text."""
    colours = random.sample(_COLOURS, 3)
    codes = [str(random.randrange(1000, 10000)) for _ in colours]
    facts = "".join(f"Code {colour} is {code}.\n" for colour, code in zip(colours, codes, strict=True))
    filler, size = [], 0
    while size < filler_chars:
        filler.append(random.choice(_FILLER))
        size += len(filler[-1]) + 1
    asked = random.randrange(3)
    between = " ".join(filler) + "\n" if filler else ""
    return f"{facts}{between}Code {colours[asked]} is", f" {codes[asked]}"


KINDS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "arithmetic": arithmetic,
    "copying": copying,
    "extraction": extraction,
    "recall": recall,
}


def built_in_prompts(long_chars: int) -> tuple[QualityPrompt, ...]:
    """The fixed set, the same each time for the same `long_chars`: the characters of its longest prompt."""
    prompts = []
    for kind, make in KINDS.items():
        random = Random(f"quality {kind}")  # noqa: S311 - test prompts, no secret
        for number in range(PROMPTS_PER_KIND):
            text, answer = make(random)
            prompts.append(QualityPrompt(name=f"{kind}-{number}", kind=kind, text=text, answer=answer))
    random = Random("quality long_context")  # noqa: S311 - test prompts, no secret
    for number in range(LONG_PROMPTS):
        text, answer = recall(random, max(0, long_chars * (number + 1) // LONG_PROMPTS - 100))
        prompts.append(QualityPrompt(name=f"long_context-{number}", kind="long_context", text=text, answer=answer))
    return tuple(prompts)
