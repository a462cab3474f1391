"""A tokenizer without a vocabulary file: any text has tokens, any token has a word, and a word gives its token back.

Generated text is made of invented words, one token each. Sent back in the next turn of a chat it
comes out as the same tokens, so that the prefix cache finds what it has already computed, as with a real model.
Foreign text is cut where a byte-pair tokenizer roughly would, about four characters a token.
"""

import re
from functools import cache
from zlib import crc32

_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_ENDINGS = "aeiou"
_SYLLABLES = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _ENDINGS)
_NUMBER_OF = {syllable: number for number, syllable in enumerate(_SYLLABLES)}
_BASE = len(_SYLLABLES)

SPOKEN_TOKENS = _BASE + _BASE**2
"""Answers are made of the tokens with one or two syllables, about as long as a model's own tokens."""

_PIECE = re.compile(r" ?[A-Za-z]{1,8}| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]{1,3}|\s+")


@cache
def word(token: int) -> str:
    """The word of a token, with the space before it: one syllable below 100, two below 10,100, and so on."""
    syllables = []
    token += 1
    while token > 0:
        token, digit = divmod(token - 1, _BASE)
        syllables.append(_SYLLABLES[digit])
    return " " + "".join(reversed(syllables))


@cache
def word_bytes(token: int) -> bytes:
    """The same in UTF-8."""
    return word(token).encode()


def _token_of(piece: str, vocabulary: int) -> int:
    body = piece.strip().lower()
    if len(body) % 2 == 0 and body:
        number = 0
        for start in range(0, len(body), 2):
            digit = _NUMBER_OF.get(body[start : start + 2])
            if digit is None:
                break
            number = number * _BASE + digit + 1
        else:
            if number <= vocabulary:
                return number - 1
    return crc32(piece.encode()) % vocabulary


def tokenize(text: str, vocabulary: int) -> list[int]:
    """The tokens of a text, each below `vocabulary`."""
    return [_token_of(piece, vocabulary) for piece in _PIECE.findall(text)]


def detokenize(tokens: list[int]) -> str:
    """The words of tokens, as one text."""
    return "".join(map(word, tokens))


def chat_prompt(messages: list[dict[str, object]]) -> str:
    """The text that a chat template makes of messages, ending where the assistant is to go on."""
    turns = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        turns.append(f"<|{message.get('role', 'user')}|>\n{content or ''}\n")
    return "".join(turns) + "<|assistant|>\n"
