"""A trace: when requests were due, how long they are, and what their prompts share with one another. Pure.

Of a prompt the trace has no text: it names the blocks that the prompt begins with, or the session whose prompt grows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tokenpeak.spec.workload import TraceWorkload

COMMON = "common"
"""The name of what prompts begin with of which is only known how much a cache had."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceEntry:
    """A request of a trace; `due_s` counts from the first one."""

    due_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[str, ...] = ()
    """Names of the blocks of tokens that the prompt begins with; equal names are equal tokens."""
    session: str | None = None
    """Requests of one session begin alike, as far as the shorter one goes."""
    cached_tokens: int = 0
    """How many tokens the prompt begins with as all others do that have so many; where no block and no session is."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests in order of time, the first at 0."""

    entries: tuple[TraceEntry, ...]
    block_tokens: int
    """Tokens of a block that an entry names; its last may be shorter."""

    def shared_parts(self, entry: TraceEntry) -> Iterator[tuple[str, int]]:
        """What the prompt is made of, from its beginning: names, and how many tokens of what each names."""
        left = entry.input_tokens
        for block in entry.blocks:
            if left <= 0:
                return
            yield block, min(left, self.block_tokens)
            left -= self.block_tokens
        if entry.blocks:
            return
        if entry.session is not None:
            yield f"session {entry.session}", left
        elif entry.cached_tokens:
            yield COMMON, min(left, entry.cached_tokens)

    def prefix_hit_rate(self, cache_block_tokens: int) -> float:
        """The share of all prompt tokens that a prefix cache would serve which forgets nothing, in whole blocks.

        The engine computes the last token of each prompt in any case.
        """
        tree = _Tree()
        tokens = hits = 0
        for entry in self.entries:
            tokens += entry.input_tokens
            known = tree.known(self.shared_parts(entry), self.block_tokens)
            hits += min(known, entry.input_tokens - 1) // cache_block_tokens * cache_block_tokens
        return hits / tokens if tokens else 0.0


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """Prompts that came before, as a tree of their parts."""

    children: dict[tuple[int, str], int] = field(default_factory=dict)
    """A part's number by the number of the part before it, and its name."""
    longest: dict[int, int] = field(default_factory=dict)
    """The most tokens of a part that came before."""

    def known(self, parts: Iterable[tuple[str, int]], block_tokens: int) -> int:
        """How many tokens of a prompt's beginning came before; then the prompt has come before, too."""
        known, place, is_same = 0, 0, True
        for name, tokens in parts:
            place = self.children.setdefault((place, name), len(self.children) + 1)
            before = self.longest.get(place, 0)
            known += min(before, tokens) if is_same else 0
            is_same = is_same and before >= tokens == block_tokens
            self.longest[place] = max(before, tokens)
        return known


def shaped(trace: Trace, workload: TraceWorkload) -> Trace:
    """The trace as the workload replays it: its window, in so many copies, at its speed."""
    within = [entry for entry in trace.entries if workload.begin_s <= entry.due_s < (workload.end_s or np.inf)]
    return replace(trace, entries=tuple(_from_zero(_copies(within, workload.scale, workload.seed), workload.speed)))


def _copies(entries: Sequence[TraceEntry], scale: float, seed: int) -> list[TraceEntry]:
    """Each request `scale` times on average; a further copy is of another user, somewhere before the next request.

    Sessions, and the requests that begin with one block, are copied or left out together, so that copies share among
    themselves what the originals share.
    """
    if scale == 1:
        return list(entries)
    random = np.random.default_rng([seed, 0xC0])
    whole, part = divmod(scale, 1)
    drawn: dict[str, float] = {}
    copies = []
    for at, entry in enumerate(entries):
        family = entry.session or (entry.blocks[0] if entry.blocks else str(at))
        share = drawn.setdefault(family, float(random.random()))
        gap = entries[at + 1].due_s - entry.due_s if at + 1 < len(entries) else 0.0
        for copy in range(int(whole) + (share < part)):
            if not copy:
                copies.append(entry)
                continue
            copies.append(
                replace(
                    entry,
                    due_s=entry.due_s + gap * float(random.random()),
                    blocks=tuple(f"{block} of copy {copy}" for block in entry.blocks),
                    session=None if entry.session is None else f"{entry.session} of copy {copy}",
                )
            )
    return copies


def _from_zero(entries: Iterable[TraceEntry], speed: float) -> list[TraceEntry]:
    ordered = sorted(entries, key=lambda entry: entry.due_s)
    first = ordered[0].due_s if ordered else 0.0
    return [replace(entry, due_s=(entry.due_s - first) / speed) for entry in ordered]
