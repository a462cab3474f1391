"""Words for tokens and tokens for words."""

from hypothesis import given
from hypothesis import strategies as st

from tokenpeak.sim.language import SPOKEN_TOKENS, detokenize, tokenize

VOCABULARY = 128_256


@given(st.lists(st.integers(0, SPOKEN_TOKENS - 1), max_size=200))
def test_generated_text_gives_its_tokens_back(tokens: list[int]) -> None:
    """What the engine says, sent back, is what it computed: one token a word, the same one."""
    assert tokens == tokenize(detokenize(tokens), VOCABULARY)


@given(st.text(max_size=300))
def test_any_text_has_tokens_of_the_vocabulary(text: str) -> None:
    """Foreign text is cut too, each token below the vocabulary's size."""
    assert all(0 <= token < 500 for token in tokenize(text, 500))


def test_prose_has_about_four_characters_a_token() -> None:
    """English comes out about as a byte-pair tokenizer cuts it."""
    prose = "The engine under test answers a request with a stream of tokens, and the client writes down when. " * 10

    assert 3.5 < len(prose) / len(tokenize(prose, VOCABULARY)) < 6
