"""The table of `tokenpeak probe`."""

from tokenpeak.cli.probe import _memory
from tokenpeak.records import Gpu, NodeFacts


def test_a_mixed_node_shows_each_size() -> None:
    """Two GPUs of 80 GiB and one of 24 are not three of 80."""
    gpus = tuple(Gpu(index=index, name="GPU", vram_bytes=size * 2**30) for index, size in enumerate((80, 80, 24)))

    assert "2 × 80 GiB + 1 × 24 GiB" == _memory(NodeFacts(node="n", source="declared", gpus=gpus))
