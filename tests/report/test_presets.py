"""A sweep of one's own over models: a leader for each model and context, ties as ties, and no config recommended."""

import json
import math
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak.report import open_archive, presets
from tokenpeak.report.blocks.block import Table, plain
from tokenpeak.report.overview import summary
from tokenpeak.report.view import SweepView

MODELS = {"1": "acme/small-1b", "2": "acme/large-8b"}


def over_models(path: Path, arrangements: dict[str, list[object]]) -> SweepView:
    """Two models at two contexts over arrangements of two GPUs; the factory knows no axis but flags."""
    axes = {"seed": [1, 2], "max_model_len": [2048, 8192], **arrangements}
    archive = make_archive(path, axes=axes, gpus=["NVIDIA L4"], gpus_a_node=2, replicates=2, seconds=2)
    for file in [archive.path / "sweep.json", *archive.path.glob("trials/*.json")]:
        text = file.read_text()
        for name in MODELS:
            text = text.replace(f'"choices":{{"seed":"{name}"', f'"choices":{{"model":"{name}"')
        file.write_text(text)
    record = json.loads((archive.path / "sweep.json").read_text())
    record["spec"]["axes"] = {
        "model": [{"name": name, "model": {"name": model}} for name, model in MODELS.items()],
        **{axis: record["spec"]["axes"][axis] for axis in axes if axis != "seed"},
    }
    (archive.path / "sweep.json").write_text(json.dumps(record))
    return open_archive(archive.path)


def cells(table: Table, column: str) -> list[str]:
    """The texts of a column by its title."""
    index = [each.title for each in table.columns].index(column)
    return [row[index]["text"] for row in table.rows]


def test_an_arrangement_that_is_faster_leads_alone(tmp_path: Path) -> None:
    """Two GPUs give 1.7 times one at every model and context; the answer counts it and recommends nothing."""
    view = over_models(tmp_path / "a", {"tensor_parallel_size": [1, 2]})
    [answer] = summary.answers_of(view)
    highest, every = presets.highest(view), presets.every(view)

    assert presets.has_presets(view)
    assert "No single config is recommended" in plain(answer.parts)
    assert "output throughput is that of 2x NVIDIA L4, TP2 in 4." in plain(answer.parts)
    assert [("1", "2,048"), ("2", "2,048"), ("1", "8,192"), ("2", "8,192")] == list(
        zip(cells(highest, "Model"), cells(highest, "Context"), strict=True)
    )
    assert ["2x NVIDIA L4, TP2"] * 4 == cells(highest, "Highest output") == cells(highest, "Highest prompt")
    assert "Tied with" not in [column.title for column in highest.columns]
    assert 16 == len(every.rows)
    assert ["presets-2048", "presets-8192"] == [each.name for each in presets.bars(view)]


def test_arrangements_within_the_noise_tie(tmp_path: Path) -> None:
    """Experts' parallelism changes nothing here, so that neither of two arrangements leads.

    The output shown is the mean over a config's launches.
    """
    arrangements: dict[str, list[object]] = {"tensor_parallel_size": [1, 2], "enable_expert_parallel": [False, True]}
    view = over_models(tmp_path / "a", arrangements)
    words = plain(presets.answer_presets(view).parts)
    highest = presets.highest(view)
    pairs = [
        {first, *tied.split("; ")}
        for first, tied in zip(cells(highest, "Highest output"), cells(highest, "Tied with"), strict=True)
    ]

    assert "In 4 of 4 pairs of model and context, presets tie for the highest output throughput." in words
    assert "is that of" not in words
    assert [{"2x NVIDIA L4, TP2", "2x NVIDIA L4, TP2 × EP"}] * 4 == pairs
    for row in presets.leaders(view):
        runs = presets.results(view).filter(axis_model=row["model"], axis_max_model_len=str(row["context"]))
        own = runs.filter(preset=row["output_node"])["output_tok_per_s"]
        assert 2 == own.len()
        assert math.log(float(str(row["output"]))) == pytest.approx(own.log().mean())


def test_contexts_by_other_names(tmp_path: Path) -> None:
    """A context as vLLM reads it, such as 8k, is its number of tokens; a name that sets none stands as it is."""
    over_models(tmp_path / "a", {"tensor_parallel_size": [1, 2]})
    for path in [tmp_path / "a" / "sweep.json", *(tmp_path / "a").glob("trials/*.json")]:
        text = path.read_text().replace('"max_model_len":"2048"', '"max_model_len":"short"')
        path.write_text(text.replace('"max_model_len":"8192"', '"max_model_len":"8k"'))
    record = json.loads((tmp_path / "a" / "sweep.json").read_text())
    record["spec"]["axes"]["max_model_len"] = [
        {"name": "short", "flags": {"max_model_len": 2048}},
        {"name": "8k", "flags": {"max_model_len": "8k"}},
    ]
    (tmp_path / "a" / "sweep.json").write_text(json.dumps(record))
    view = open_archive(tmp_path / "a")

    assert {"short": 2048, "8k": 8000} == presets.contexts(view)
    assert ["2,048", "2,048", "8,000", "8,000"] == cells(presets.highest(view), "Context")
    assert ["presets-short", "presets-8k"] == [each.name for each in presets.bars(view)]
    assert 16 == len(presets.every(view).rows)


def test_no_result_is_said(tmp_path: Path) -> None:
    """Before the first result the page says that there is none."""
    over_models(tmp_path / "a", {"tensor_parallel_size": [1, 2]})
    for path in (tmp_path / "a").glob("trials/*.json"):
        path.unlink()
    view = open_archive(tmp_path / "a")

    assert "No model and context has a result" in plain(presets.answer_presets(view).parts)
    assert not presets.highest(view).rows
    assert not presets.every(view).rows
    assert not presets.bars(view)


def test_pair_without_throughput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every launch of a model and context gave no tokens, its row has none and ties with nothing."""
    view = over_models(tmp_path / "a", {"tensor_parallel_size": [1, 2]})
    whole = presets.results(view)
    nothing = (pl.col("axis_model") == "1") & (pl.col("axis_max_model_len") == "2048")
    none = whole.with_columns(output_tok_per_s=pl.when(~nothing).then("output_tok_per_s"))
    monkeypatch.setattr(presets, "results", lambda _: none)
    first = presets.leaders(view)[0]

    assert (None, None) == (first["output"], first["tied"])
    assert "3 pairs of model and context" in plain(presets.answer_presets(view).parts)
    assert 4 == len(presets.highest(view).rows)
