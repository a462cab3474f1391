"""API server of the engine: what it takes from a request's arrival to the engine core, one process for all requests.

CPU time of vLLM 0.32's API server, measured on the CPU engine: a request of 16 to 3,000 prompt tokens, 32 or more at a
time, takes 2.4 ms and 1.1 µs for each token of its prompt; each token that is streamed takes 52 µs.
"""

REQUEST_S, REQUEST_S_PER_TOKEN = 2.4e-3, 1.1e-6
"""Reading, checking, tokenizing and handing over a request; those behind it wait."""

STREAMED_TOKEN_S = 52e-6
"""Detokenizing a token and sending it."""

TURNS = 8
"""Of the event loop that a request waits for, each with a token of every stream in it: connection, handler and its
guard against a client that goes, body, tokenizer, hand-over, the core's answer, the stream's own turn."""


def request_s(prompt_tokens: float) -> float:
    """Time of the process that a request takes."""
    return REQUEST_S + REQUEST_S_PER_TOKEN * prompt_tokens


def turns_s(streams: float) -> float:
    """Time that a request waits, in its turns, for the streams of others; it keeps no other request waiting."""
    return TURNS * streams * STREAMED_TOKEN_S
