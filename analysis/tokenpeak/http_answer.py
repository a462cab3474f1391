"""Answer of a server to an untimed request, within bounds: its bytes, the seconds until it is whole, no decoding.

httpx's own time limits are for each read, so a server that sends a byte now and then holds its caller for good; and it
decodes what is compressed, so that 1 MB becomes 1 GB.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx

from tokenpeak.errors import LoadError

ANSWER_LIMIT_BYTES = 8 << 20
ANSWER_LIMIT_S = 30.0


class HttpAnswerError(LoadError):
    """No answer came, or one that broke a bound."""


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """A whole answer."""

    status: int
    content: bytes

    @property
    def text(self) -> str:
        """The content as text."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """The content as JSON; raises ValueError when it is none, or nested too deeply."""
        try:
            return json.loads(self.content)
        except RecursionError as error:
            raise ValueError("JSON that is nested too deeply") from error


async def ask(
    client: httpx.AsyncClient,
    url: str,
    *,
    body: object = None,
    limit_bytes: int = ANSWER_LIMIT_BYTES,
    limit_s: float = ANSWER_LIMIT_S,
) -> HttpAnswer:
    """GET `url`, or POST `body` there as JSON; raises AnswerError."""
    method = "GET" if body is None else "POST"
    # Whoever compresses all the same is refused below.
    headers = {"accept-encoding": "identity"}
    parts: list[bytes] = []
    size = 0
    try:
        async with (
            asyncio.timeout(limit_s),
            client.stream(method, url, json=body, headers=headers) as response,
        ):
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise HttpAnswerError(f"{url} answered in the encoding {encoding[:40]!r}, which was not asked for")
            async for part in response.aiter_raw():
                size += len(part)
                if size > limit_bytes:
                    raise HttpAnswerError(f"{url} answered more than {limit_bytes >> 10} KiB")
                parts.append(part)
    except TimeoutError as error:
        raise HttpAnswerError(f"{url} did not answer within {limit_s:g} s") from error
    except httpx.HTTPError as error:
        raise HttpAnswerError(f"{url} did not answer: {str(error) or type(error).__name__}") from error
    return HttpAnswer(status=response.status_code, content=b"".join(parts))
