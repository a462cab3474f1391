"""Hostile, truncated and damaged files: a clear error each or a whole import, and nothing in between."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.archives.hostile import VALUES, mutate

from tokenpeak.errors import ArchiveError, TokenpeakError
from tokenpeak.exchange.assemble import write_import
from tokenpeak.exchange.sources import read_sources
from tokenpeak.store.frames import open_frames

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
CASES_OF_OTHERS = ("sglang-jsonl/result.jsonl", "inferencex-single/agg.json", "guidellm-incomplete/report.json")
"""Formats that no fixture has."""
SOURCES = [HERE / "cases" / name for name in CASES_OF_OTHERS] + sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.suffix in (".json", ".txt", ".yml") or (path.suffix == ".csv" and (path.parent / "mapping.yml").is_file())
    if path.name != "summary.json"
)
CASES = 2_500 // len(SOURCES) + 1
"""Of each source."""
HOSTILE = (*VALUES, 10**400, float("nan"), float("inf"), "1e5", "-3", {"avg": "x", "unit": 3}, [[[[[[[[]]]]]]]])


def another_value(data: bytes, chance: random.Random) -> bytes:
    """One to three values of a JSON file replaced, removed, or given under another name."""
    try:
        raw = json.loads(data)
    except ValueError:
        return flipped(data, chance)
    mutate(raw, chance, HOSTILE)
    return json.dumps(raw).encode("utf-8", "surrogatepass")


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Some bytes replaced."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    """Only the beginning."""
    return data[: chance.randrange(len(data))]


def buried(data: bytes, chance: random.Random) -> bytes:
    """The file within brackets, or a megabyte of them."""
    depth = chance.choice((5, 70, 5000))
    return b'{"a":' * depth + data + b"}" * depth


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (*[another_value] * 3, flipped, cut, buried)


def laid_out(source: Path, folder: Path) -> tuple[Path, Path]:
    """Where a damaged copy of the source is to be, and what is then given to the import."""
    if source.name.startswith("run="):
        # A run of a sweep's folder: the folder is given.
        target = folder / source.parent.name / source.name
        target.parent.mkdir(parents=True)
        return target, folder
    folder.mkdir()
    if source.suffix in (".yml", ".csv"):
        for sibling in source.parent.iterdir():
            (folder / sibling.name).write_bytes(sibling.read_bytes())
    return folder / source.name, folder / ("mapping.yml" if source.suffix == ".csv" else source.name)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(HERE).as_posix())
def test_damaged_files_are_an_error_or_a_whole_import(source: Path, tmp_path: Path) -> None:
    """Thousands of files made of each real one: never another exception, and never half an archive."""
    data = source.read_bytes()
    chance = random.Random(source.name)
    target, given = laid_out(source, tmp_path / "in")
    errors = 0
    for case in range(CASES):
        target.write_bytes(chance.choice(MUTATIONS)(data, chance))
        try:
            found, _ = read_sources([given])
            if case % 25 == 0:
                write_import(found, tmp_path / "out", sweep_id=f"case-{case}")
        except TokenpeakError as error:
            errors += 1
            assert str(error)
            assert len(str(error)) < 3000
            assert not (tmp_path / "out" / f"case-{case}").exists()
    kept = sorted((tmp_path / "out").glob("*")) if (tmp_path / "out").is_dir() else []
    assert errors
    assert [] == [path for path in kept if path.name.startswith(".")]
    for path in kept[:5]:
        assert open_frames(path).malformed == ()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.json", b"", "neither JSON nor"),
        ("binary.json", b"\x00\xff\xfe", "not UTF-8"),
        ("nul.json", b'{"a": "\x00"}', "NUL"),
        ("deep.json", b"[" * 100_000, "nested deeper"),
        ("twice.json", b'{"duration": 1, "duration": 2, "completed": 1, "output_throughput": 1}', "given twice"),
        ("other.json", b'{"hello": "world"}', "no result of vllm bench serve"),
        ("huge.json", b'{"completed": 1e400, "duration": 1, "output_throughput": 1}', "1e400.* is no finite number"),
        ("less.json", b'{"completed": -1, "duration": 1, "output_throughput": 1}', "must not be negative"),
        ("half.json", b'{"completed": 1.5, "duration": 1, "output_throughput": 1}', "whole number"),
        ("words.json", b'{"completed": "many", "duration": 1, "output_throughput": 1}', "must be a number"),
        ("block.txt", b"===== Serving Benchmark Result =====\nSuccessful requests: 4\n", "breaks off"),
        ("bad.yml", b"tables: [", "not YAML"),
        ("keys.yml", b"id: a\nname: a\nnodes: {}\ntabels: []\n", "mapping|tables|tabels"),
    ],
)
def test_hostile_files_say_what_is_wrong(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    """The error names the file and the fault."""
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(ArchiveError, match=words) as caught:
        read_sources([path])
    assert name in str(caught.value)


def test_an_import_is_never_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails midway leaves neither an archive nor its beginning."""
    from tokenpeak.store.archive import Archive

    def broken(*_: object, **__: object) -> None:
        raise ArchiveError("disk full")

    path = tmp_path / "result.json"
    path.write_text('{"completed": 1, "duration": 1, "output_throughput": 1}')
    monkeypatch.setattr(Archive, "write_end", broken)
    found, _ = read_sources([path])

    with pytest.raises(ArchiveError, match="disk full"):
        write_import(found, tmp_path / "out", sweep_id="one")
    assert [] == list((tmp_path / "out").iterdir())
