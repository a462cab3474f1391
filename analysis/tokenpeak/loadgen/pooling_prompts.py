"""Prompts of a pooling workload: requests that hold texts to embed, to rank, to score or to classify.

Embeddings and classification take token ids, so their lengths are exact. Ranking and scores take texts, which are words
of one token each; a cross-encoder reads the query again with each document, and its template adds tokens of its own.
"""

import json
from collections.abc import Sequence

import numpy as np

from tokenpeak.loadgen.assignment import RequestTemplate
from tokenpeak.loadgen.vocabulary import Vocabulary
from tokenpeak.spec.workload import PoolingWorkload

TAKE_IDS = ("embeddings", "classify")
"""Endpoints whose texts may be token ids."""
POOL_TOKENS = 4_000_000
"""Of distinct requests that are made ahead: with many long texts in each fewer do, which then repeat."""
FEWEST = 64
"""Distinct requests however long they are."""
SALT_IDS = 6


def distinct_requests(workload: PoolingWorkload, count: int, mean_tokens: float) -> int:
    """How many different requests a run of `count` has; `mean_tokens` is of one text."""
    return min(count, max(FEWEST, int(POOL_TOKENS / (mean_tokens * workload.inputs))))


def pooling_templates(
    workload: PoolingWorkload,
    model: str,
    vocabulary: Vocabulary,
    texts: Sequence[Sequence[int]],
    queries: Sequence[int],
    words: np.random.Generator,
) -> tuple[RequestTemplate, ...]:
    """A request for each list of text lengths, in tokens; `queries` are the queries' lengths, if the endpoint has any.

    The first ids of a request's first text are its salt.
    """
    options: dict[str, object] = {"model": model}
    if workload.endpoint == "embeddings":
        # What OpenAI's own client asks for: it is a third of the bytes of decimal numbers.
        options["encoding_format"] = "base64"
    if workload.endpoint in TAKE_IDS:
        return tuple(
            _of_ids(options, [vocabulary.tokens(vocabulary.drawn(tokens, words)) for tokens in lengths])
            for lengths in texts
        )

    def text(tokens: int) -> str:
        return " " + vocabulary.text(vocabulary.drawn(tokens, words))

    return tuple(
        _of_texts(workload, options, text(query), [text(tokens) for tokens in lengths])
        for lengths, query in zip(texts, queries, strict=True)
    )


def _of_ids(options: dict[str, object], texts: Sequence[Sequence[int]]) -> RequestTemplate:
    first, *others = texts
    salted = min(SALT_IDS, len(first) - 1)
    more = "".join("," + _joined(ids) for ids in others)
    return RequestTemplate(
        prefix=(json.dumps(options, separators=(",", ":"))[:-1] + ',"input":[[').encode(),
        salt="".join(f"{token}," for token in first[:salted]).encode(),
        suffix=(",".join(map(str, first[salted:])) + f"]{more}]}}").encode(),
    )


def _joined(ids: Sequence[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _of_texts(
    workload: PoolingWorkload, options: dict[str, object], query: str, documents: Sequence[str]
) -> RequestTemplate:
    names = ("query", "documents") if workload.endpoint == "rerank" else ("text_1", "text_2")
    body = {**options, names[0]: query, names[1]: list(documents)}
    return RequestTemplate(prefix=json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())
