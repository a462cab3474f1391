"""The tree keeps to one term for each idea: words.toml has what is replaced, by what, and the exceptions."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tokenpeak

ROOT = Path(__file__).parents[1]
PACKAGE = Path(tokenpeak.__file__).parent
RULES: dict[str, Any] = tomllib.loads((ROOT / "tests/words.toml").read_text())
WORDS: list[dict[str, Any]] = RULES["word"]
EXCEPTIONS = [(word, exception) for word in WORDS for exception in word.get("exceptions", [])]


def under(name: str, folders: list[str]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def texts() -> dict[str, str]:
    """Each file that is looked at, its name in the first line, so that names are held to the words too."""
    bases = [ROOT / start for start in RULES["look_in"]]
    paths = [
        path for base in bases for path in (sorted(base.rglob("*")) if base.is_dir() else [base]) if path.is_file()
    ]
    found = {path.relative_to(ROOT).as_posix(): path for path in paths if path.suffix in RULES["suffixes"]}
    return {
        name: f"{name}\n{path.read_text(errors='replace')}"
        for name, path in found.items()
        if not any(part in name for part in ("__pycache__", *RULES["leave_out"]))
    }


TEXTS = texts()
LOWERED = {name: text.lower() for name, text in TEXTS.items()}


def looked_at(word: dict[str, Any]) -> dict[str, str]:
    return {name: text for name, text in TEXTS.items() if under(name, word.get("paths", RULES["look_in"]))}


def masked(text: str, name: str, word: dict[str, Any]) -> str:
    for exception in word.get("exceptions", []):
        if under(name, [exception.get("path", name)]):
            text = re.sub(exception["pattern"], lambda found: "\0" * len(found[0]), text, flags=re.IGNORECASE)
    return text


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word["replaced"])
def test_term_is_used(word: dict[str, Any]) -> None:
    """None of the replaced words stands anywhere, but for the exceptions."""
    pattern = re.compile(
        rf"(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{word['pattern']})(?-i:(?![a-z]))", re.IGNORECASE
    )
    # A tenth of the time: hardly any file has a word at all, and a search that minds the case is a fast one.
    is_lower = word["pattern"] == word["pattern"].lower()
    anywhere = re.compile(word["pattern"], re.NOFLAG if is_lower else re.IGNORECASE)
    found = [
        f"{name}:{max(1, text.count(chr(10), 0, match.start()))}: {match[0]!r}"
        for name, text in looked_at(word).items()
        if not under(name, RULES["not_clean"]) and anywhere.search(LOWERED[name])
        for match in pattern.finditer(masked(text, name, word))
    ]

    assert [] == found, f"say {word['term']}"


@pytest.mark.parametrize(("word", "exception"), EXCEPTIONS, ids=lambda each: each.get("pattern", "")[:40])
def test_exception_is_needed(word: dict[str, Any], exception: dict[str, str]) -> None:
    """Each exception has a reason, and something to except."""
    places = [text for name, text in looked_at(word).items() if under(name, [exception.get("path", name)])]

    assert exception["reason"]
    assert any(re.search(exception["pattern"], text, re.IGNORECASE) for text in places)


def test_class_name_occurs_once() -> None:
    """One class, one name, in all of the package."""
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r"^ *class (\w+)", path.read_text(), re.MULTILINE):
            if name not in RULES["shared_class_names"]:
                places[name].append(str(path.relative_to(PACKAGE)))

    assert {} == {name: where for name, where in places.items() if len(where) > 1}
