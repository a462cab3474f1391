"""KV cache as vLLM keeps it: blocks of equal size, shared by their hash, evicted least recently used first."""

from collections.abc import Sequence as SequenceOf


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
        found = []
        for block_hash in hashes:
            block = self._by_hash.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

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
