"""The KV cache's blocks: shared by hash, given up least recently used first."""

from tokenpeak.sim.sequence import BlockPool, block_hashes


def test_only_full_blocks_have_a_hash() -> None:
    """A hash stands for a full block; the rest of a prompt has none."""
    assert 2 == len(block_hashes(list(range(40)), 16))


def test_a_hash_stands_for_everything_before_it() -> None:
    """The same tokens after another beginning are another block."""
    one = block_hashes([1] * 16 + [2] * 16, 16)
    other = block_hashes([3] * 16 + [2] * 16, 16)

    assert one[1] != other[1]


def test_known_hashes_are_continued() -> None:
    """Hashing on from known hashes gives what hashing anew would."""
    tokens = list(range(64))

    assert block_hashes(tokens, 16) == block_hashes(tokens, 16, known=block_hashes(tokens[:32], 16))


def test_a_pool_gives_no_more_than_it_has() -> None:
    """Asking for more blocks than are free gives none at all."""
    pool = BlockPool(4, caching=True)

    assert pool.allocate(5) is None
    assert 4 == pool.free


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


def test_a_shared_block_is_free_when_its_last_holder_lets_go() -> None:
    """Two holders: one release leaves it held."""
    pool = BlockPool(1, caching=True)
    blocks = pool.allocate(1) or []
    pool.remember(blocks[0], 9)
    pool.hold(blocks)
    pool.release(blocks)

    assert 0 == pool.free
    pool.release(blocks)
    assert 1 == pool.free


def test_without_caching_nothing_is_found() -> None:
    """`--no-enable-prefix-caching` remembers nothing."""
    pool = BlockPool(1, caching=False)
    blocks = pool.allocate(1) or []
    pool.remember(blocks[0], 9)

    assert [] == pool.find([9])
