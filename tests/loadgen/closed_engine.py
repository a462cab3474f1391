"""An engine played step by step under a closed loop, from which the load client's view and the true rate follow.

It shares nothing with the package but the form of a reply: each step gives a token to every sequence, spends the rest
of its token budget on prompts in the order in which they came, and lasts as long as both need.
"""

from array import array
from collections import deque

import numpy as np
from numpy.typing import NDArray

from loadgen.replies import reply
from tokenpeak.loadgen.http.stream import Reply

STEP_S, PROMPT_TOKEN_S, SEQUENCE_S, BUDGET = 0.004, 40e-6, 20e-6, 2048


def lengths(kind: str, number: int, seed: int) -> NDArray[np.int_]:
    """Output lengths of requests, 200 on average: all equal, or from half to one and a half of it, or from 1 on."""
    random = np.random.default_rng(seed)
    if kind == "equal":
        return np.full(number, 200)
    low, high = {"even": (100, 300), "wide": (1, 399)}[kind]
    return random.integers(low, high + 1, number)


def played(concurrency: int, answers: NDArray[np.int_], *, prompt: int) -> list[Reply]:
    """The replies to one request for each answer's length, `concurrency` of them in flight."""
    now, sent = 0.0, 0
    left: dict[int, int] = {}
    sent_s: dict[int, float] = {}
    token_s: dict[int, list[float]] = {}
    waiting: deque[int] = deque()
    decoding: list[int] = []
    while sent < answers.size or waiting or decoding:
        while len(waiting) + len(decoding) < concurrency and sent < answers.size:
            waiting.append(sent)
            left[sent], sent_s[sent], token_s[sent] = prompt, now, []
            sent += 1
        room, prompted, started = BUDGET - len(decoding), 0, []
        while waiting and room > 0:
            part = min(room, left[waiting[0]])
            left[waiting[0]] -= part
            room, prompted = room - part, prompted + part
            if not left[waiting[0]]:
                started.append(waiting.popleft())
        now += STEP_S + PROMPT_TOKEN_S * prompted + SEQUENCE_S * len(decoding)
        decoding += started
        for request in decoding:
            token_s[request].append(now)
        decoding = [request for request in decoding if len(token_s[request]) < answers[request]]
    return [
        reply(
            index,
            sent_s[index],
            first_token_s=moments[0],
            last_token_s=moments[-1],
            input_tokens=prompt,
            output_tokens=len(moments),
            events=len(moments),
            event_times_us=array("i", np.diff(np.round(np.array(moments) * 1e6)).astype(int).tolist()).tobytes(),
        )
        for index, moments in sorted(token_s.items())
    ]


def moments_of(one: Reply) -> NDArray[np.float64]:
    """When the tokens of a reply arrived, in seconds."""
    gaps = np.frombuffer(one.event_times_us, dtype=np.int32)
    return (one.first_token_s or 0.0) + np.concatenate([[0.0], np.cumsum(gaps)]) / 1e6
