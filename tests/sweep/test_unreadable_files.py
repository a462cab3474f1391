"""What of a sweep's workloads is seen to be wrong before a node is asked."""

from pathlib import Path
from typing import Any

import pytest

from tokenpeak.loadgen import hub
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.sweep.check_spec import unreadable_files


def spec(**workload: Any) -> SweepSpec:
    """A sweep under one workload."""
    workloads = [{"workload": workload, "levels": [{"concurrency": 4, "requests": 8}]}]
    return parse_spec({"axes": {"max_num_seqs": [8, 64]}, "workloads": workloads}, Path("mine.yml"))


def complaints(sweep: SweepSpec, *, is_fetched: bool = False) -> list[tuple[str, object]]:
    """Each complaint, and the key that it is about."""
    return [(str(error), place[-1]) for error, place in unreadable_files(sweep, is_fetched=is_fetched)]


def test_share_of_prefix_hits_that_lengths_do_not_allow() -> None:
    """Prompts of one block have nothing that a cache of whole blocks could serve."""
    [(words, key)] = complaints(
        spec(kind="synthetic", name="short", input_tokens=16, output_tokens=4, prefix_hit_rate=0.5)
    )

    assert "cannot be reached" in words
    assert "prefix_hit_rate" == key


def test_dataset_of_the_hub_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before production is stopped, with what to install."""
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    [(words, key)] = complaints(spec(kind="dataset", name="chats", hub="acme/none", output_tokens=8))

    assert hub.INSTALL in words
    assert "hub" == key


def test_dataset_of_the_hub_is_fetched_before_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep reads it whole before its first trial; a check asks nobody."""
    asked: list[tuple[str, str | None, str]] = []

    def rows(name: str, subset: str | None, split: str, _most: int) -> list[dict[str, Any]]:
        asked.append((name, subset, split))
        return [{"prompt": "one"}, {"prompt": None}]

    monkeypatch.setattr(hub, "find_spec", lambda _: object())
    monkeypatch.setattr("tokenpeak.loadgen.datasets.hub_rows", rows)
    sweep = spec(kind="dataset", name="chats", hub="acme/two", subset="main", output_tokens=8)

    assert [] == complaints(sweep)
    assert [] == asked
    assert [] == complaints(sweep, is_fetched=True)
    assert [("acme/two", "main", "train")] == asked


@pytest.mark.parametrize("text", ["", '{"prompt": null}\n'])
def test_dataset_without_prompts(text: str, tmp_path: Path) -> None:
    """A file of no prompts is no file in which a word is not found."""
    path = tmp_path / "none.jsonl"
    path.write_text(text)
    [(words, _)] = complaints(spec(kind="dataset", name="none", path=str(path), output_tokens=8))

    assert words == f"{path} holds no prompt."
