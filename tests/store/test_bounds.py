"""What is read from outside is bounded, its names stay inside their folder, and no CSV cell is a formula."""

import csv
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak import bounded, spreadsheet
from tokenpeak.cli.archive import export
from tokenpeak.errors import ArchiveError, TokenpeakError
from tokenpeak.loadgen.datasets import read_samples
from tokenpeak.loadgen.traces.reading import read_trace
from tokenpeak.paths import inside
from tokenpeak.predict.model import facts_from_file
from tokenpeak.spec.workload import DatasetWorkload, TraceWorkload
from tokenpeak.store.archive import Archive
from tokenpeak.store.frames import open_frames

FORMULAS = ("=1+1", "+x", "-x", "@x", "\tx", "\rx", " =1", "'x", "plain", "-5", "1e-3", "a;=1")


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", "a\0b", "a\nb", "link/a"])
def test_names_do_not_lead_out(name: str, tmp_path: Path) -> None:
    """What is absolute, has dots, control characters or a link on its way is refused."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)

    with pytest.raises(ArchiveError, match=r"leads out|no name"):
        inside(tmp_path / "in", name)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: " + "9" * 5000,
        "a: .inf",
        pytest.param("[" * 5000, marks=pytest.mark.e2e),
        "a: 2026-99-99",
        "a: !!python/name:os.system x",
    ],
)
def test_yaml_is_bounded(text: str, tmp_path: Path) -> None:
    """What would expand, nest or compute without end is an error with the file's name."""
    (tmp_path / "a.yml").write_text(text)

    with pytest.raises(ArchiveError, match=r"a\.yml"):
        bounded.read_yaml(tmp_path / "a.yml")


def test_cells_are_no_formulas_and_read_back(tmp_path: Path) -> None:
    """Each text begins as no formula does, numbers stay, and one apostrophe less is the text."""
    frame = pl.DataFrame({"text": FORMULAS, "=head": range(-6, 6)})
    spreadsheet.write_frame(frame, tmp_path / "a.csv")
    spreadsheet.write_rows(tmp_path / "b.csv", [frame.columns, *frame.iter_rows()])
    for name in ("a.csv", "b.csv"):
        with (tmp_path / name).open(newline="") as file:
            head, *rows = list(csv.reader(file))
        assert ["text", "'=head"] == head
        assert list(FORMULAS) == [spreadsheet.plain(row[0]) for row in rows]
        assert [str(number) for number in range(-6, 6)] == [row[1] for row in rows]
        assert [] == [row[0] for row in rows if row[0].lstrip()[:1] in "=+-@" and row[0] != "-5"]


DEEP, ENTRY = b"[" * 200_000, b'{"timestamp_s": 1e999, "input_tokens": 1, "output_tokens": 1}\n'
WORKLOAD = {"kind": "dataset", "name": "texts"}


def samples(path: Path, **more: object) -> object:
    """The prompts of a dataset."""
    return read_samples(DatasetWorkload.model_validate({**WORKLOAD, "path": str(path), **more}))


def trace(path: Path) -> object:
    """The entries of a trace."""
    return read_trace(TraceWorkload.model_validate({"kind": "trace", "name": "trace", "path": str(path)}))


def model(path: Path) -> object:
    """The facts of a config.json."""
    return facts_from_file(path, "model")


@pytest.mark.parametrize(
    ("name", "read", "content"),
    [
        ("a.json", samples, DEEP),
        ("a.jsonl", samples, b'{"prompt": ' + b"9" * 5000 + b"}"),
        ("a.jsonl", trace, ENTRY),
        ("config.json", model, DEEP),
        ("a.json", samples, None),
        ("a.jsonl", trace, None),
        ("config.json", model, None),
    ],
)
def test_other_readers_are_bounded(
    name: str, read: Callable[[Path], object], content: bytes | None, tmp_path: Path
) -> None:
    """Datasets, traces and a model's config end in one sentence with the file's name; so do pipes."""
    path = tmp_path / name
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)

    with pytest.raises(TokenpeakError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()
    assert "not exist" not in str(caught.value)


def one_row_of_many_times(rows: pl.DataFrame) -> pl.DataFrame:
    """A request that got six million tokens."""
    times = pl.Series("event_times_us", [[0] * 6_000_000], dtype=pl.List(pl.Int32))
    return rows.head(1).with_columns(times)


def many_rows_of_some_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Sixty thousand requests of a hundred tokens at one instant."""
    times = pl.Series("event_times_us", [[7] * 100], dtype=pl.List(pl.Int32))
    return pl.concat([rows.head(1).with_columns(times)] * 60_000)


def long_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """A long text that stands in the file once and in a hundred thousand rows."""
    return pl.concat([rows.head(1)] * 100_000).with_columns(pl.lit("x" * 10_000).alias("error"))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A small archive with requests."""
    return make_archive(tmp_path / "small", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=1, requests=4)


def parquet_of(archive: Archive) -> Path:
    """The requests of its first trial."""
    return min((archive.path / "trials").glob("*.parquet"))


@pytest.mark.integration
@pytest.mark.parametrize("change", [one_row_of_many_times, many_rows_of_some_times, long_texts])
def test_requests_that_expand_are_left_out(
    change: Callable[[pl.DataFrame], pl.DataFrame], archive: Archive, tmp_path: Path
) -> None:
    """A file of some kilobytes that holds many megabytes is said by name, and no reader decodes it."""
    path = parquet_of(archive)
    change(pl.read_parquet(path)).write_parquet(path, compression="zstd")
    assert path.stat().st_size < 1 << 18

    (found,) = open_frames(archive.path).malformed
    assert path == found.path
    assert "which no trial's requests have" in found.reason
    ended = CliRunner().invoke(
        export, [str(archive.path), "--format", "vllm-bench-detailed", "--keep-everything", "--output", str(tmp_path)]
    )
    assert "which no trial's requests have" in str(ended.exception)
