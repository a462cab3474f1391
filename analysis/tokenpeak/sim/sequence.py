"""One sequence that the simulated engine generates: its tokens, how far its KV cache is computed, its history."""

from collections.abc import Callable
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]

_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK = (1 << 64) - 1


class Sequence:
    """A prompt and what has been generated after it. Times are monotonic seconds.

    `tokens` are prompt and output; the KV cache of the first `computed` of them is in `blocks`, and
    `hashes` are the hashes of the full blocks. `decoding` is true while only its last token is not computed.
    Its tokens are a function of `seed` alone.
    """

    __slots__ = (
        "aborted",
        "arrived_s",
        "blocks",
        "cached_tokens",
        "computed",
        "decoding",
        "first_token_s",
        "hashes",
        "last_token_s",
        "max_tokens",
        "on_tokens",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
        "registered",
        "scheduled_s",
        "state",
        "stop_after",
        "tokens",
        "vocabulary",
    )

    def __init__(
        self,
        prompt: list[int],
        *,
        max_tokens: int,
        stop_after: int | None,
        seed: int,
        vocabulary: int,
        arrived_s: float,
        on_tokens: "Callable[[Sequence, list[int], FinishReason | None], None]",
    ) -> None:
        self.tokens = list(prompt)
        self.prompt_tokens = len(prompt)
        self.max_tokens = max_tokens
        self.stop_after = stop_after
        self.vocabulary = vocabulary
        self.state = (seed * _MULTIPLIER + _INCREMENT) & _MASK
        self.on_tokens = on_tokens
        self.output_tokens = 0
        self.computed = 0
        self.decoding = False
        self.registered = 0
        self.blocks: list[int] = []
        self.hashes: list[int] = []
        self.cached_tokens: int | None = None
        self.preemptions = 0
        self.aborted = False
        self.arrived_s = arrived_s
        self.scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    def draw(self) -> float:
        """The next number of the sequence's own random stream, uniform in [0, 1)."""
        self.state = (self.state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self.state >> 11) / (1 << 53)

    def generate(self, count: int) -> tuple[list[int], FinishReason | None]:
        """Append up to `count` tokens; less when the sequence ends, whose reason is then given."""
        output = self.output_tokens
        end, reason = self.max_tokens, "length"
        if self.stop_after is not None and self.stop_after <= end:
            end, reason = self.stop_after, "stop"
        new = []
        state, vocabulary = self.state, self.vocabulary
        for _ in range(min(count, end - output)):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            new.append((state >> 33) % vocabulary)
        self.state = state
        self.tokens += new
        self.output_tokens = output = output + len(new)
        return new, (reason if output >= end else None)  # type: ignore[return-value]
