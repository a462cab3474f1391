"""Which sequences compute which tokens in the next step: vLLM's continuous batching, V1's and V0's.

V1, and V0 with chunked prefill: running sequences first, then waiting ones, in one budget of tokens; a prompt
that does not fit is computed in chunks. V0 without chunked prefill: while prompts wait and fit, a step computes
whole prompts and nothing else; decoding stalls meanwhile. A sequence for which no block is free
makes the latest running one give up all of its own (preemption), which is recomputed later.
Source: vllm/v1/core/sched/scheduler.py (0.32.0), vllm/core/scheduler.py (0.8.5).
"""

from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from tokenpeak.sim.sequence import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The work of one iteration. `scheduled` pairs a sequence with the tokens that it computes."""

    scheduled: tuple[tuple[Sequence, int], ...]
    prefill_sequences: int
    prefill_tokens: int
    prefill_context_tokens: int
    """Tokens already in the KV cache that the prefilling sequences attend to, summed."""
    decode_sequences: int
    decode_context_tokens: int
    """Length of the decoding sequences, summed."""
    decode_tokens: int
    """Tokens that the decoding sequences compute: more than sequences when drafts are verified."""

    @property
    def tokens(self) -> int:
        """All tokens computed in the step."""
        return self.prefill_tokens + self.decode_tokens


@dataclass(frozen=True, kw_only=True)
class SchedulerLimits:
    """Limits of a step, by the flags."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    chunked_prefill: bool
    prefill_first: bool
    """V0 without chunked prefill: a step is either prompts or decoding."""
    draft_tokens: int = 0
    """Speculative tokens that are verified with each decoded one."""
    long_prefill_token_threshold: int = 0
    """Most tokens of one prompt in a step; 0: no limit of its own."""


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


class Scheduler:
    """The waiting and running queues over one pool of blocks."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool) -> None:
        self.limits = limits
        self.pool = pool
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; its prompt's block hashes are computed here, once."""
        if self.pool.caching:
            sequence.hashes = block_hashes(sequence.tokens, self.limits.block_size)
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence whose client has gone."""
        sequence.aborted = True
        if sequence in self.running:
            self.running.remove(sequence)
            self.release(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def release(self, sequence: Sequence) -> None:
        """Give the sequence's blocks back."""
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def schedule(self) -> Step | None:
        """The next step, or None when there is nothing to do."""
        if not self.running and not self.waiting:
            return None
        preempted_before = self.preemptions
        budget = self.limits.max_num_batched_tokens
        scheduled: list[tuple[Sequence, int]] = []
        if self.limits.prefill_first:
            self._admit(scheduled, budget)
            if not scheduled:
                self._continue(scheduled, budget)
        else:
            budget = self._continue(scheduled, budget)
            if self.preemptions == preempted_before:
                self._admit(scheduled, budget)
        if not scheduled:
            return None
        return self._step(scheduled)

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence that has ended out of the running queue."""
        self.running.remove(sequence)
        self.release(sequence)

    def computed(self, sequence: Sequence, tokens: int) -> None:
        """Record that `tokens` more tokens of the sequence are in the cache, and let its full blocks be found."""
        sequence.computed += tokens
        full = sequence.computed // self.limits.block_size
        if self.pool.caching and full > sequence.registered:
            if len(sequence.hashes) < full:
                sequence.hashes = block_hashes(sequence.tokens, self.limits.block_size, known=sequence.hashes)
            for index in range(sequence.registered, full):
                self.pool.remember(sequence.blocks[index], sequence.hashes[index])
            sequence.registered = full

    def _step(self, scheduled: list[tuple[Sequence, int]]) -> Step:
        prefill_sequences = prefill_tokens = prefill_context = decode_sequences = decode_context = decode_tokens = 0
        for sequence, tokens in scheduled:
            if sequence.decoding:
                decode_sequences += 1
                decode_context += len(sequence.tokens)
                decode_tokens += tokens
            else:
                prefill_sequences += 1
                prefill_tokens += tokens
                prefill_context += sequence.computed
        return Step(
            scheduled=tuple(scheduled),
            prefill_sequences=prefill_sequences,
            prefill_tokens=prefill_tokens,
            prefill_context_tokens=prefill_context,
            decode_sequences=decode_sequences,
            decode_context_tokens=decode_context,
            decode_tokens=decode_tokens,
        )

    def _continue(self, scheduled: list[tuple[Sequence, int]], budget: int) -> int:
        """Schedule the running sequences; returns what is left of the budget."""
        index = 0
        drafts = self.limits.draft_tokens
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            if not sequence.decoding:
                tokens = min(self._chunk(len(sequence.tokens) - sequence.computed), budget)
            elif drafts:
                tokens = min(1 + min(drafts, sequence.max_tokens - sequence.output_tokens - 1), budget)
            else:
                tokens = 1
            if not self._grow(sequence, sequence.computed + tokens):
                # The latest running sequence gives way; it may be this very one.
                victim = self.running.pop()
                self._preempt(victim)
                if victim is sequence:
                    break
                continue
            scheduled.append((sequence, tokens))
            budget -= tokens
            index += 1
        return budget

    def _admit(self, scheduled: list[tuple[Sequence, int]], budget: int) -> int:
        """Start waiting sequences as far as slots, tokens and blocks go; returns what is left of the budget."""
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            length = len(sequence.tokens)
            # At least the last token is computed, or there would be nothing to sample from.
            cached = self.pool.find(sequence.hashes[: (length - 1) // self.limits.block_size])
            hit_tokens = len(cached) * self.limits.block_size
            missing = length - hit_tokens
            tokens = self._chunk(missing)
            if tokens > budget:
                if not self.limits.chunked_prefill and scheduled:
                    break
                tokens = budget
            needed = self._blocks_for(hit_tokens + tokens) - len(cached)
            if needed > self.pool.free - self.pool.free_among(cached):
                break
            self.pool.hold(cached)
            fresh = self.pool.allocate(needed)
            assert fresh is not None, "free blocks were counted above"
            sequence.blocks = cached + fresh
            sequence.computed = hit_tokens
            sequence.registered = len(cached)
            if sequence.cached_tokens is None:
                sequence.cached_tokens = hit_tokens
                self.prefix_queries += length
                self.prefix_hits += hit_tokens
            self.waiting.popleft()
            self.running.append(sequence)
            scheduled.append((sequence, tokens))
            budget -= tokens
        return budget

    def _chunk(self, missing: int) -> int:
        threshold = self.limits.long_prefill_token_threshold
        return min(missing, threshold) if threshold else missing

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Hold blocks for `tokens` tokens of the sequence; False when they are not free."""
        missing = self._blocks_for(tokens) - len(sequence.blocks)
        if missing <= 0:
            return True
        fresh = self.pool.allocate(missing)
        if fresh is None:
            return False
        sequence.blocks += fresh
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.release(sequence)
        sequence.computed = 0
        sequence.registered = 0
        sequence.decoding = False
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)
