"""`tuner` or the engine sends a long word that masking takes hours for, at root's expense: `{"-----…": 1}` of 1 MB.

Each pattern began at every place and read to the word's end. A pattern begins at what it looks for now, and of a long
word only the part that can be shown is looked through, cut so that no half of a secret is shown.
"""

import time
from collections.abc import Callable

import pytest

from tokenpeak.node.machine import words
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.protocol.requests import FinishRequest, parse

SECRET = "s3cret-" + "V" * 40
SIZE = 1 << 18
MOST_CPU_S = 1.0
PIECES = [
    *("-", "--a", "a", "a-", "a.", "key", "key ", "key=", "key = ", "-key ", "--key key ", "api_k", "api-", "secret"),
    *("passw", "password : ", "-pat ", "_pat", "a://", "://a", "a://a@", "a+", "sk-", "sk-aaaa ", "hf_", "xoxa-"),
    *("Bearer ", " ", "\t\n", "\x00", '"', "key'", 'key"  ', "token:", "credential", "\u202e", "--api-key\n"),
]
SHOWS: dict[str, tuple[Callable[[str], object], int]] = {
    "value": (words.shown_value, SIZE),
    "output": (words.shown_output, SIZE),
    "answer": (words.shown_answer, SIZE),
    "command": (lambda text: words.shown_command(["x", text, "--key", text]), SIZE >> 5),
    "words": (lambda text: words.hidden_words([text, "--a", text]), SIZE >> 5),
    "variables": (lambda text: words.hidden_env({"A": text}), SIZE >> 5),
}
"""What shows a word, and of which size."""


@pytest.mark.parametrize("show", sorted(SHOWS))
def test_long_word(show: str) -> None:
    """Of many kinds: each is done within the processor time that its length takes, not its square."""
    shows, size = SHOWS[show]
    for piece in PIECES:
        text = piece * (size // len(piece))
        for each in (text, f"-{text} x"):
            assert cpu_s(lambda each=each: shows(each)) < MOST_CPU_S * size / SIZE + 0.1, piece


@pytest.mark.parametrize("piece", ["-", "a-"])
def test_words_of_a_command_are_not_cut(piece: str) -> None:
    """A great many of them."""
    text = piece * (SIZE // len(piece))

    assert cpu_s(lambda: words.hidden_words([text])) < MOST_CPU_S


def cpu_s(action: Callable[[], object]) -> float:
    """The processor time of an action."""
    began = time.process_time()
    action()
    return time.process_time() - began


@pytest.mark.parametrize("piece", ["-", "a-", "key ", "a://"])
def test_unknown_key_of_a_request(piece: str) -> None:
    """The refusal names its beginning."""
    began = time.process_time()

    with pytest.raises(ScriptError) as refused:
        parse(FinishRequest, {"trial_id": "t", "holder": "h", piece * (SIZE // len(piece)): 1})

    assert time.process_time() - began < MOST_CPU_S
    assert len(refused.value.text) < 1000


@pytest.mark.parametrize("before", [0, 80, 490, 16_300, 16_384])
@pytest.mark.parametrize(
    "secret",
    [
        f"--api-key {SECRET}",
        f"api_key={SECRET}",
        f'"api_key": "{SECRET}"',
        f"https://user:{SECRET * 500}@host/x",
        f"--api-key {SECRET * 500}",
        f"Bearer {SECRET}",
        f"hf_{SECRET}",
        f"--api-key\n\n{SECRET}",
    ],
)
@pytest.mark.parametrize("filler", ["x" * 60 + " ", "\n"])
def test_cut_through_a_secret(secret: str, before: int, filler: str) -> None:
    """Wherever a text is cut, from its beginning or its end, no part of a secret is shown."""
    lead = (filler * (before // len(filler) + 1))[:before]
    for text in (f"{lead} {secret} {lead}", f"{lead} {secret} {filler * 6000}", f"{filler * 6000} {secret} {lead}"):
        for found in (words.shown_output(text), words.shown_answer(text), words.shown_value(text)):
            assert "VVV" not in found
            assert "s3cr" not in found


def test_values_that_follow_one_another() -> None:
    """A flag that stands where another word's value could is still one."""
    for text in (
        "m --api-key V",
        "the key --api-key V",
        "key key --hf-token 'V",
        "-x-key --api-key V",
        "--my_api_key  V",
    ):
        assert "V" not in words.shown_output(text), text
    assert "the key is V" == words.shown_output("the key is V")
    assert "http://host:8000/v1 a@b" == words.shown_output("http://host:8000/v1 a@b")
