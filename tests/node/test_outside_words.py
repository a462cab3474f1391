"""Words from outside: what none may hold, said without the word."""

import pytest

from tokenpeak.node.machine import words

SECRET = "hf_secret"


@pytest.mark.parametrize(
    ("letter", "code"),
    [
        ("\0", "U+0000"),
        ("\t", "U+0009"),
        ("\n", "U+000A"),
        ("\r", "U+000D"),
        ("\x1b", "U+001B"),
        ("\x7f", "U+007F"),
        ("\x85", "U+0085"),
        ("\u2028", "U+2028"),
        ("\u202e", "U+202E"),
        ("\ufeff", "U+FEFF"),
        ("\ud800", "U+D800"),
    ],
)
def test_hidden_character(letter: str, code: str) -> None:
    """A control, a line end of any kind, what reorders text and half a surrogate pair are named, the word is not."""
    wrong = words.wrong_word(f"--api-key={SECRET}{letter}user=root") or ""

    assert f"{code} at place 20" in wrong
    assert SECRET not in wrong


def test_plain_words() -> None:
    """Any other text is a word, an empty one too, but no name is empty."""
    assert [None] * 3 == [words.wrong_word(word) for word in ("", "--größe=日本 $x %i", "a" * words.WORD_BYTES)]
    assert words.wrong_word("a" * (words.WORD_BYTES + 1))
    assert words.wrong_word(7)
    assert words.wrong_name("")
    assert words.wrong_name("a" * 501)
    assert words.wrong_name("Qwen/Qwen3-8B") is None
    assert words.wrong_word("two\nlines\t", allowed=words.LINES) is None
    assert words.wrong_word("two\r\nlines", allowed=words.LINES)


def test_tree() -> None:
    """Each word and key of an object is looked at, as are its numbers and depth; the place is said, the word is not."""
    nested: object = "x"
    for _ in range(5000):
        nested = [nested]

    assert words.wrong_tree({"a": {"b": ["x", 1, 2.5, None, True]}}) is None
    assert "(at a.b[1])" in (words.wrong_tree({"a": {"b": ["x", f"{SECRET}\r"]}}) or SECRET)
    assert "(at a.(key))" in (words.wrong_tree({"a": {f"{SECRET}\n": 1}}) or SECRET)
    assert "no number (at a)" in (words.wrong_tree({"a": float("nan")}) or "")
    assert "deep" in (words.wrong_tree(nested) or "")
    assert "more than" in (words.wrong_tree([0] * 100_000) or "")


def test_visible_text() -> None:
    """What is hidden is written out."""
    assert "a\\x0d\\x0ab\\u2028\\u0085" == words.visible("a\r\nb\u2028\x85")
    assert "a\\x0d\nb" == words.visible("a\r\nb", kept=words.LINES)
