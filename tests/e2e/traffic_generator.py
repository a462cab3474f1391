"""Clients of production, by the standard library alone: bursts of chats that begin alike, and of short questions.

They share no code with the product. What they ask they alone know; what they see of TTFT and TPOT they measure here.
"""

import gc
import json
import os
import random
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

BEGINNINGS, BEGINNING_TOKENS = 3, 512
LOWEST_ID, HIGHEST_ID = 200, 1000
"""Ids of the model's plain tokens."""
BURSTINESS = 0.5
"""Shape of the gamma distribution of gaps."""
AHEAD_S = 0.3
"""So long before it is due a request is written and its connection made."""


@dataclass(frozen=True)
class Asked:
    """A request before it is sent."""

    due_s: float
    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True)
class Seen:
    """What a client saw of a request."""

    asked: Asked
    ttft_s: float
    tpot_s: float
    ended_s: float


def requests(seconds: float, rate_per_s: float, seed: int) -> list[Asked]:
    """Chats and questions in bursts; of chats long answers follow long prompts."""
    chance = random.Random(seed)
    beginnings = [[chance.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(BEGINNING_TOKENS)] for _ in range(BEGINNINGS)]
    made, due_s = [], 0.0
    while True:
        due_s += chance.gammavariate(BURSTINESS, 1 / (rate_per_s * BURSTINESS))
        if due_s > seconds:
            return made
        if chance.random() < 0.6:
            own = round(min(600, chance.lognormvariate(4.5, 0.6)))
            prompt = [*chance.choice(beginnings), *(chance.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(own))]
            output = round(8 + own / 8 + chance.expovariate(1 / 16))
        else:
            length = round(min(400, 8 + chance.lognormvariate(3.5, 0.8)))
            prompt = [chance.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(length)]
            output = round(chance.lognormvariate(3.5, 0.4))
        made.append(Asked(due_s, tuple(prompt), max(2, min(200, output))))


def afresh(asked: Sequence[Asked], chance: random.Random, first_s: float) -> list[Asked]:
    """Requests as long, at the same times counted from `first_s`, that begin alike as these do: every token is new."""
    beginnings: dict[tuple[int, ...], list[int]] = {}
    made = []
    for each in asked:
        shared = each.prompt[:BEGINNING_TOKENS] if len(each.prompt) > BEGINNING_TOKENS else ()
        if shared not in beginnings:
            beginnings[shared] = [chance.randrange(LOWEST_ID, HIGHEST_ID) for _ in shared]
        own = (chance.randrange(LOWEST_ID, HIGHEST_ID) for _ in each.prompt[len(shared) :])
        made.append(Asked(each.due_s - first_s, (*beginnings[shared], *own), each.output_tokens))
    return made


def ask(host: str, port: int, model: str, asked: Asked, began: float, *, when_due: bool = False) -> Seen:
    """One request, sent whole and read line by line as it comes; at once, or when it is due."""
    body = {"model": model, "prompt": asked.prompt, "max_tokens": asked.output_tokens, "stream": True}
    text = json.dumps(body | {"ignore_eos": True, "temperature": 0})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    message = f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode()
    with socket.create_connection((host, port), timeout=300) as connection, connection.makefile("rb") as response:
        if when_due:
            time.sleep(max(0.0, began + asked.due_s - time.perf_counter()))
        sent = time.perf_counter()
        connection.sendall(message)
        status = response.readline()
        assert b" 200 " in status, status
        first = last = 0.0
        for line in response:
            if line.startswith(b"data: {"):
                last = time.perf_counter()
                first = first or last
    return Seen(asked, first - sent, (last - first) / (asked.output_tokens - 1), last - began)


def at_their_times(host: str, port: int, model: str, asked: Sequence[Asked]) -> list[Seen]:
    """All requests, each when it is due, whether or not others have ended."""
    with ThreadPoolExecutor(1, initializer=as_a_stopwatch) as aside:
        return aside.submit(_at_their_times, host, port, model, asked).result()


def as_a_stopwatch() -> None:
    """Let this thread, and what it starts, wait behind nothing that it measures, nor for garbage of others."""
    gc.freeze()
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _at_their_times(host: str, port: int, model: str, asked: Sequence[Asked]) -> list[Seen]:
    began = time.perf_counter()
    seen: list[Seen] = []

    def one(each: Asked) -> None:
        seen.append(ask(host, port, model, each, began, when_due=True))

    threads = []
    for each in asked:
        time.sleep(max(0.0, began + each.due_s - AHEAD_S - time.perf_counter()))
        threads.append(threading.Thread(target=one, args=(each,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(asked), f"{len(asked) - len(seen)} requests failed"
    return seen


def at_once(host: str, port: int, model: str, asked: Sequence[Asked], clients: int) -> float:
    """Output tokens per second of so many clients that ask one after the other; the first and last waves apart."""
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        seen = sorted(pool.map(lambda each: ask(host, port, model, each, began), asked), key=lambda each: each.ended_s)
    whole = seen[clients:-clients]
    return sum(each.asked.output_tokens for each in whole) / (whole[-1].ended_s - seen[clients - 1].ended_s)
