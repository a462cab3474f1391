"""Pool of KV cache blocks: how an engine divides its memory among layers of several kinds, and what it says of it.

Layers of a kind are put into groups of equally many; a block belongs to one group and holds as many bytes in each.
Since 0.21 the tokens that a start-up log gives are those of the sequences of max_model_len that fit.
Source: 0.32.0 v1/core/kv_cache_utils.py unify_kv_cache_spec_page_size, _get_kv_cache_groups_uniform_page_size and
get_kv_cache_capacity; platforms/interface.py for blocks beside states.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpeak.predict.layers import LayerCache, LayerState
from tokenpeak.predict.model import kept_bytes, state_bytes

HYBRID_SINCE = (0, 10, 0)
"""The release since which windows hold no more than their tokens; before, every layer held all."""
BY_SEQUENCES_SINCE = (0, 21, 0)
"""The release since which a log's tokens are those of whole sequences."""
CHECKPOINTS_SINCE = (0, 32, 0)
"""The release with which a Mamba layer was measured to keep a third state."""
IN_FLIGHT_SINCE = (0, 32, 0)
"""The release with which a window was seen to make room for both batches: config/vllm.py max_in_flight_tokens."""
EVEN_GROUPS = 1.5
"""Kinds whose numbers of layers differ by less get groups of the larger number."""


@dataclass(frozen=True, kw_only=True)
class Caching:
    """What the pool depends on beside the layers."""

    release: tuple[int, int, int]
    block_tokens: int
    max_model_len: int
    max_num_batched_tokens: int
    ahead: bool = False
    """A second batch is scheduled while the first is computed."""
    prefix_caching: bool = True
    is_hybrid: bool = True
    """False with `disable_hybrid_kv_cache_manager`: layers with a window keep all tokens."""


@dataclass(frozen=True, kw_only=True)
class KvPool:
    """The pool of one GPU."""

    block_bytes: float
    """Of one block: the layers of one group."""
    blocks_of_sequence: int
    """Of one sequence of max_model_len tokens, in all groups."""
    groups: int
    block_tokens: int
    max_model_len: int
    by_sequences: bool

    @property
    def sequence_bytes(self) -> float:
        """Of one sequence of max_model_len tokens."""
        return self.blocks_of_sequence * self.block_bytes

    def tokens(self, pool_bytes: float) -> int:
        """Tokens that a pool of so many bytes holds, as the engine's log says; 0 when nothing fits."""
        blocks = max(0, int(pool_bytes / self.block_bytes))
        if self.by_sequences:
            return int(blocks / self.blocks_of_sequence * self.max_model_len)
        return blocks // self.groups * self.block_tokens


def kv_pool(
    kept: Sequence[LayerCache], width: float, plain: float, tensor_parallel: int, engine: Caching
) -> KvPool | None:
    """The pool for these layers; `width` and `plain` are bytes of a value of KV cache and of the model.

    None where no layer keeps anything.
    """
    if not kept:
        return None
    hybrid = engine.is_hybrid and engine.release >= HYBRID_SINCE
    tokens = [each for each in kept if each.state is None]
    states = [each for each in kept if each.state is not None]
    if not hybrid or (len({each.reach for each in tokens}) == 1 and not states):
        # One group: every layer holds the same tokens.
        layers = sum(each.layers * kept_bytes(each, width, tensor_parallel) for each in tokens)
        reach = tokens[0].reach if hybrid and tokens else None
        blocks = _blocks(tokens[0], engine.block_tokens, engine) if reach else _all(engine.block_tokens, engine)
        return _pool(layers * engine.block_tokens, blocks, 1, engine.block_tokens, engine)
    per_token = max((kept_bytes(each, width, tensor_parallel) for each in tokens), default=0.0)
    largest = max((state_bytes(each.state, plain, tensor_parallel) for each in states if each.state), default=0.0)
    block = engine.block_tokens
    if largest and per_token:
        # Blocks become so long that one holds as much as a state.
        block *= math.ceil(largest / (block * per_token))
    page = max(per_token * block, largest)
    counts = [each.layers for each in kept]
    size = max(counts) if max(counts) < EVEN_GROUPS * min(counts) else min(counts)
    groups = blocks = 0
    for each in kept:
        own = math.ceil(each.layers / size)
        groups += own
        if each.state is not None:
            blocks += own * _states(each.state, engine)
            continue
        share = page / (kept_bytes(each, width, tensor_parallel) * block)
        # A layer of smaller pages has longer blocks, if a whole number of them fills the page.
        length = block * int(share) if share == int(share) else block
        blocks += own * (_blocks(each, length, engine) if each.reach else _all(length, engine))
    if states and not engine.prefix_caching:
        # The log counts by the shortest block of a group, and a state's is as long as a sequence.
        block = min(block, engine.max_model_len)
    return _pool(page * size, blocks, groups, block, engine)


def _pool(block_bytes: float, blocks: int, groups: int, block_tokens: int, engine: Caching) -> KvPool:
    return KvPool(
        block_bytes=block_bytes,
        blocks_of_sequence=blocks,
        groups=groups,
        block_tokens=block_tokens,
        max_model_len=engine.max_model_len,
        by_sequences=engine.release >= BY_SEQUENCES_SINCE,
    )


def _states(state: LayerState, engine: Caching) -> int:
    """States of one sequence: the newest, and with prefix caching those that are kept beside it."""
    if not engine.prefix_caching:
        return 1
    return 2 + (state.checkpoints if engine.release >= CHECKPOINTS_SINCE else 0)


def _all(block_tokens: int, engine: Caching) -> int:
    return math.ceil(engine.max_model_len / block_tokens)


def _blocks(kept: LayerCache, block_tokens: int, engine: Caching) -> int:
    """Blocks of one sequence in a layer with a window or chunk: those of the window and of a batch that comes in."""
    batches = 2 if engine.ahead and engine.release >= IN_FLIGHT_SINCE else 1
    reach, coming = kept.reach or 0, batches * engine.max_num_batched_tokens
    if kept.mixer == "chunk":
        return math.ceil(min(reach + coming, engine.max_model_len) / block_tokens)
    return math.ceil(min(reach - 1 + coming, engine.max_model_len) / block_tokens) + 1
