"""What leaves with a site: names and addresses replaced, everything else as it was."""

from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from tokenpeak.records import Container, EndRecord, EngineBuild, NodeFacts, SweepRecord
from tokenpeak.report.site.cleaned_copy import cleaner_of
from tokenpeak.store.archive import Archive


def record_with(tmp_path: Path, **changes: Any) -> SweepRecord:
    """The record of a small sweep with these changes."""
    made = make_archive(tmp_path / "a", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=1, requests=4)
    return Archive(made.path).read_sweep().model_copy(update=changes)


def test_a_node_with_a_common_name_leaves_other_words_alone(tmp_path: Path) -> None:
    """A node called cpu is renamed where a node is meant, and nowhere else."""
    clean = cleaner_of(
        record_with(tmp_path, nodes=(NodeFacts(node="cpu", source="probed"),)), node_names=False, texts=True
    )
    end = EndRecord(
        sweep_id="s",
        status="completed",
        ended_at="2026-11-20T22:00:00Z",  # type: ignore[arg-type]
        trials=1,
        production_downtime_s={"cpu": 4.0},
        unrestored=("cpu",),
        problems=("The cpu is busy.",),
    )

    found = clean.record(end)
    assert {"node-1": 4.0} == found.production_downtime_s
    assert ("node-1",) == found.unrestored
    assert ("The cpu is busy.",) == found.problems


@pytest.mark.parametrize(
    ("image", "leaves"),
    [
        ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.32.0"),
        ("docker.io/rocm/vllm:rocm7", "docker.io/rocm/vllm:rocm7"),
        ("registry.acme.example/team/vllm:1", "vllm:1"),
        ("acme/vllm:1", "vllm:1"),
    ],
)
def test_name_of_an_image(tmp_path: Path, image: str, leaves: str) -> None:
    """What everybody can pull is named whole, so that what is pasted starts it; another's registry and mounts stay."""
    made = Container(mounts=("/srv/acme:/models",))
    node = NodeFacts(node="a", source="probed", engines=(EngineBuild(name="box", image=image, container=made),))
    found = cleaner_of(record_with(tmp_path, nodes=(node,)), node_names=False).record(node)

    assert (leaves, Container()) == (found.engines[0].image, found.engines[0].container)
