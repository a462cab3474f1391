"""Whoever sends a request hides a line end, or another character that is not seen, in one of its words.

A carriage return in `--served-model-name` made two lines in supervisord's file, `user=root` among them. No request, no
declaration and no line of the lease has such a word; each is refused before anything is touched, without the word.
"""

from typing import Any

import pytest

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.protocol.apply import ChangeRequest, ConfirmRequest
from tokenpeak.node.protocol.requests import (
    FinishRequest,
    HeartbeatRequest,
    LaunchRequest,
    NodeRequest,
    PutRequest,
    RestoreRequest,
    parse,
)

ATTACK = "x{}command=/bin/sh"
LAUNCH: dict[str, Any] = {
    "trial_id": "0000-a",
    "holder": "h",
    "argv": ["vllm"],
    "env": {},
    "served_model": "m",
    "deadline_s": 1,
    "lease_s": 1,
    "trial_deadline_s": 1,
}
CHANGE: dict[str, Any] = {
    "apply_id": "a",
    "holder": "h",
    "was_sha256": "0" * 64,
    "lease_s": 5,
    "confirm_within_s": 9,
    "edit": {"words": [0], "env": {}, "image": None},
}


def places(word: str) -> list[tuple[type[NodeRequest], dict[str, Any]]]:
    """Requests that have the word in each place that takes a text."""
    edit = CHANGE["edit"]
    return [
        (LaunchRequest, {**LAUNCH, "argv": ["vllm", word]}),
        (LaunchRequest, {**LAUNCH, "env": {"VLLM_A": word}}),
        (LaunchRequest, {**LAUNCH, "env": {f"VLLM_A{word}": "1"}}),
        *(
            (LaunchRequest, {**LAUNCH, name: word})
            for name in ("trial_id", "holder", "served_model", "engine", "model")
        ),
        (LaunchRequest, {**LAUNCH, "claim": {"sweep_id": word, "generation": 1}}),
        (LaunchRequest, {**LAUNCH, "production_at_start": {"running": True, "model": word}}),
        (LaunchRequest, {**LAUNCH, word: 1}),
        (ChangeRequest, {**CHANGE, "edit": {**edit, "words": [0, word]}}),
        (ChangeRequest, {**CHANGE, "edit": {**edit, "env": {"VLLM_A": word}}}),
        (ChangeRequest, {**CHANGE, "edit": {**edit, "image": word}}),
        (ConfirmRequest, {"apply_id": "a", "holder": word}),
        (FinishRequest, {"trial_id": "0000-a", "holder": word}),
        (RestoreRequest, {"holder": word}),
        (HeartbeatRequest, {"number": 1, "holder": word}),
        (PutRequest, {"declaration": {"production": {"manager": "supervisord", "unit": word}}}),
        (PutRequest, {"declaration": {"engine": {"env": {word: "1"}}}}),
        (PutRequest, {"declaration": {"production": {"start": ["sh", word]}}}),
        (PutRequest, {"declaration": {}, "secret": "secret-00000000", "secret_value": word}),
    ]


@pytest.mark.parametrize(
    "hidden", ["\r", "\n", "\0", "\t", "\x0b", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\ud800"]
)
def test_no_word_has_a_hidden_character(hidden: str) -> None:
    """In no place of any request, and the answer has no such character either."""
    word = ATTACK.format(hidden)

    for kind, given in places(word):
        with pytest.raises(ScriptError, match="nothing was touched") as refused:
            parse(kind, given)
        assert hidden not in refused.value.text, given


def test_plain_words_pass() -> None:
    """The same requests without it are taken, so that it is what was refused."""
    for kind, given in places("VLLM_WORD-1"):
        if "VLLM_WORD-1" not in given and "VLLM_AVLLM_WORD-1" not in given.get("env", {}):
            parse(kind, given)
