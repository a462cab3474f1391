"""The KV cache's blocks: shared by hash, given up least recently used first."""

from tokenpeak.sim.sequence import BlockPool, block_hashes


def test_a_hash_stands_for_everything_before_it() -> None:
    """The same tokens after another beginning are another block."""
    one = block_hashes([1] * 16 + [2] * 16, 16)
    other = block_hashes([3] * 16 + [2] * 16, 16)

    assert one[1] != other[1]


def test_a_released_block_is_found_by_its_hash() -> None:
    """What a sequence has computed stays until its place is needed."""
    pool = BlockPool(4, caching=True)
    (block,) = pool.allocate(1) or []
    pool.remember(block, 77)
    pool.release([block])

    assert [block] == pool.find([77])


def test_blocks_never_used_go_first() -> None:
    """A cached block is given away only when no untouched one is left."""
    pool = BlockPool(2, caching=True)
    (block,) = pool.allocate(1) or []
    pool.remember(block, 77)
    pool.release([block])
    pool.allocate(1)

    assert [block] == pool.find([77])
    pool.allocate(1)
    assert [] == pool.find([77])


def test_the_end_of_a_sequence_is_given_up_before_its_beginning() -> None:
    """Beginnings are what later prompts share, so they stay longest."""
    pool = BlockPool(2, caching=True)
    blocks = pool.allocate(2) or []
    for block, block_hash in zip(blocks, (1, 2), strict=True):
        pool.remember(block, block_hash)
    pool.release(blocks)
    pool.allocate(1)

    assert [blocks[0]] == pool.find([1, 2])
