"""What leaves with a site: names and addresses replaced, everything else as it was."""

from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from tokenpeak.records import Config, Container, EndRecord, EngineBuild, NodeFacts, SweepRecord
from tokenpeak.report.blocks.block import Snippet, Snippets
from tokenpeak.report.blocks.deploy import snippets
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


def test_a_command_shows_that_its_model_lay_in_a_folder(tmp_path: Path) -> None:
    """Where a model lay does not leave, that it lay somewhere does: what is pasted then asks for the path."""
    made = make_archive(tmp_path / "a", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=1, requests=4)
    archive = Archive(made.path)
    (trial,) = archive.trials()
    launched = trial.model_copy(update={"argv": ("/opt/acme/bin/vllm", "serve", "/srv/acme/small", "--port", "8099")})
    clean = cleaner_of(archive.read_sweep(), node_names=False)
    once = clean.record(launched)
    (shown,) = [snippet for snippet in texts_of(once.config, once.argv) if snippet.title == "vllm serve"]

    assert ("vllm", "serve", "/PATH/TO/small", "--port", "8099") == once.argv
    assert once.argv == clean.record(once).argv
    assert "serve /PATH/TO/small " in shown.text
    assert "/PATH/TO/small stands for a folder of the node: a report with --node-names shows it." in shown.note


def texts_of(config: Config, argv: tuple[str, ...]) -> tuple[Snippet, ...]:
    """The forms of the command that a trial's argv gives."""
    found = snippets(config, gpus=1, launched=argv, engine_version="0.32.0")
    assert isinstance(found, Snippets)
    return found.snippets


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
