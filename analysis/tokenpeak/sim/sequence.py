"""Sequences that the simulated engine generates, and the blocks of KV cache that they hold."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
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


def block_hashes(tokens: SequenceOf[int], block_size: int, *, known: SequenceOf[int] = ()) -> list[int]:
    """The hash of each full block of `tokens`, chained so that it stands for everything before it too.

    `known` are the hashes of the first blocks, when they were computed before.
    """
    hashes = list(known)
    previous = hashes[-1] if hashes else 0
    for start in range(len(hashes) * block_size, len(tokens) - block_size + 1, block_size):
        previous = hash((previous, tuple(tokens[start : start + block_size])))
        hashes.append(previous)
    return hashes


class BlockPool:
    """All blocks of a KV cache, each held by any number of sequences, or free.

    A free block that has a hash can be held again until its place is needed.
    Blocks that were never used are given out first, then the free ones in the order in which they became free.
    """

    def __init__(self, blocks: int, *, caching: bool) -> None:
        self.blocks = blocks
        self.caching = caching
        self._untouched_from = 0
        self._holders: dict[int, int] = {}
        self._free: dict[int, None] = {}
        self._hash_of: dict[int, int] = {}
        self._by_hash: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that can be allocated now."""
        return self.blocks - self._untouched_from + len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that sequences hold, 0 to 1."""
        return 1 - self.free / self.blocks if self.blocks else 0.0

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks to write to, or None when so many are not free."""
        if count > self.free:
            return None
        taken = []
        for _ in range(count):
            if self._untouched_from < self.blocks:
                block = self._untouched_from
                self._untouched_from += 1
            else:
                block = next(iter(self._free))
                del self._free[block]
                stale = self._hash_of.pop(block, None)
                if stale is not None and self._by_hash.get(stale) == block:
                    del self._by_hash[stale]
            self._holders[block] = 1
            taken.append(block)
        return taken

    def find(self, hashes: SequenceOf[int]) -> list[int]:
        """The blocks of the longest prefix of `hashes` that is in the cache."""
        cached = []
        for block_hash in hashes:
            block = self._by_hash.get(block_hash)
            if block is None:
                break
            cached.append(block)
        return cached

    def free_among(self, blocks: SequenceOf[int]) -> int:
        """How many of these blocks nobody holds: holding them takes as many from what is free."""
        return sum(1 for block in blocks if block in self._free)

    def hold(self, blocks: SequenceOf[int]) -> None:
        """Make one more sequence a holder of each of these cached blocks."""
        for block in blocks:
            if block in self._free:
                del self._free[block]
                self._holders[block] = 1
            else:
                self._holders[block] += 1

    def remember(self, block: int, block_hash: int) -> None:
        """Let a block that has been filled be found by its hash; the first block with a hash keeps it."""
        if self.caching and block_hash not in self._by_hash:
            self._by_hash[block_hash] = block
            self._hash_of[block] = block_hash

    def release(self, blocks: SequenceOf[int]) -> None:
        """Give up a sequence's blocks; its last ones are then the first to be used anew."""
        for block in reversed(blocks):
            holders = self._holders[block] - 1
            if holders:
                self._holders[block] = holders
            else:
                del self._holders[block]
                self._free[block] = None
