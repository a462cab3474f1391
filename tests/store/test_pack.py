"""Packed archives: whole, checked, upgraded or refused, and without what was to be taken out."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from archive_factory import make_archive
from tokenpeak.cli.archive import archive
from tokenpeak.errors import ArchiveError
from tokenpeak.store.frames import open_frames
from tokenpeak.store.pack import SUFFIX, pack, unpacked


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive."""
    path = tmp_path_factory.mktemp("packing") / "small"
    return make_archive(path, axes={"max_num_seqs": [8, 64]}, gpus=["NVIDIA L4"], seconds=3, requests=8).path


@pytest.fixture(scope="module")
def packed(folder: Path) -> Path:
    """The same, packed."""
    return pack(folder, folder.parent / f"small{SUFFIX}")


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_unpacked_is_what_was_packed(folder: Path, packed: Path, tmp_path: Path) -> None:
    """Every file comes back with its bytes, in a folder of the sweep's name."""
    found = unpacked(packed, tmp_path)

    assert "small" == found.name
    assert contents(folder) == contents(found)


def test_prompts_are_taken_out(tmp_path: Path) -> None:
    """No prompt and no log is left, where nobody asked for them."""
    path = make_archive(tmp_path / "a", axes={"max_num_seqs": [8]}, gpus=["NVIDIA L4"], seconds=3, requests=8).path
    sweep = path / "sweep.json"
    secret = "what we ask our model about customers"
    asked = {"kind": "fixed", "name": "short", "prompt": secret, "output_tokens": 32}
    sampled = {"kind": "dataset", "name": "chats", "path": "/home/jane/customers/chats.jsonl"}
    raw = json.loads(sweep.read_text())
    entry = raw["spec"]["workloads"][0]
    raw["spec"]["workloads"] = [{**entry, "workload": workload} for workload in (asked, sampled)]
    sweep.write_text(json.dumps(raw))
    packed = tmp_path / f"packed{SUFFIX}"
    packing = CliRunner().invoke(archive, [str(path), "--output", str(packed)])
    assert 0 == packing.exit_code, packing.output
    kept = unpacked(packed, tmp_path / "kept")
    workloads = [entry["workload"] for entry in json.loads((kept / "sweep.json").read_text())["spec"]["workloads"]]

    assert not any(secret.encode() in content for content in contents(kept).values())
    assert "(text withheld; the option --texts shows it)" == workloads[0]["prompt"]
    assert "chats.jsonl" == workloads[1]["path"], "folders name whoever ran it"
    assert [] == list(kept.rglob("*.log.zst"))
    assert 4 == open_frames(kept).runs.height


@given(st.integers(0, 2**32), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_damaged_files_are_refused_whole(
    folder: Path, packed: Path, tmp_path_factory: pytest.TempPathFactory, at: int, by: int
) -> None:
    """A flipped byte or a cut is an error that names the file, and nothing is kept."""
    data = bytearray(packed.read_bytes())
    data[at % len(data)] ^= by
    for content in (bytes(data), bytes(data[: at % len(data)])):
        state = tmp_path_factory.mktemp("state")
        broken = state / f"broken{SUFFIX}"
        broken.write_bytes(content)
        try:
            found = unpacked(broken, state / "kept")
        except ArchiveError as error:
            assert str(broken) in str(error)
            assert [] == [path for path in (state / "kept").glob("**/*") if path.is_file()]
        else:
            # zstd does not check itself: what was changed is no file's content.
            assert contents(folder) == contents(found)


def packed_by_hand(target: Path, listed: dict[str, bytes], members: list[tuple[str, bytes]], **changes: object) -> Path:
    """A file whose manifest lists some files, and which has others; `changes` are to each entry."""
    files = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **changes}
        for name, content in listed.items()
    }
    manifest = json.dumps({"manifest_version": 1, "sweep_id": "a", "files": files}).encode()
    with zstandard.open(target, "wb") as raw, tarfile.open(fileobj=raw, mode="w|") as tar:
        for name, content in [("manifest.json", manifest), *members]:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            if name == "sym":
                entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, "/etc/passwd", 0
            tar.addfile(entry, io.BytesIO(content) if entry.size else None)
    return target


SWEEP = {"sweep.json": b"{}"}


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "trials/../../evil", "-flag", "sym"])
def test_members_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    """Paths that lead out, and links, are refused before they are written."""
    target = packed_by_hand(tmp_path / f"evil{SUFFIX}", {name: b"{}"}, [(name, b"{}")])

    with pytest.raises(ArchiveError, match=r"no archive has|no plain file"):
        unpacked(target, tmp_path / "state")
    assert [target] == [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("members", "changes", "words"),
    [
        ([("sweep.json", b"[]")], {}, "sweep.json was changed after it was packed"),
        ([], {}, "sweep.json is in its manifest and not in it"),
        ([("sweep.json", b"{}")] * 2, {}, "'sweep.json' is not what its manifest says"),
        ([("sweep.json", b"{}"), ("more.json", b"{}")], {}, "'more.json' is not what its manifest says"),
        ([("sweep.json", b"{}")], {"bytes": 2**40}, "would unpack to 1,099,511,627,776 bytes from .* Nothing"),
        ([("sweep.json", b"{}")], {"bytes": -1}, "would unpack to -1 bytes"),
    ],
    ids=["changed", "missing", "twice", "unknown", "huge", "negative"],
)
def test_what_the_manifest_does_not_say_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes]], changes: dict[str, object], words: str
) -> None:
    """Content, members and sizes are those that were packed, or nothing is kept."""
    target = packed_by_hand(tmp_path / f"odd{SUFFIX}", SWEEP, members, **changes)

    with pytest.raises(ArchiveError, match=words):
        unpacked(target, tmp_path / "state")
    assert [target] == [path for path in tmp_path.rglob("*") if path.is_file()]
