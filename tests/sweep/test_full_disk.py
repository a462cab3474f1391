"""A controller's disk that is full: each file that was refused is named, with what to do and how the sweep goes on."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from archive_factory import make_archive
from tokenpeak import files
from tokenpeak.files import write_atomically
from tokenpeak.records import EndRecord
from tokenpeak.sweep.ansible.heartbeat_channel import LeaseChannel
from tokenpeak.sweep.archive_keeper import KeptArchive
from tokenpeak.sweep.sweep_run import end_problem
from tokenpeak.sweep.trial.request import write_private

Disk = Callable[..., Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Makes a disk with few bytes or inodes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    made: list[Path] = []

    def make(options: str) -> Path:
        place = tmp_path / f"disk-{len(made)}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
        made.append(place)
        return place

    yield make
    for place in made:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    """Leave not a byte."""
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            return


@pytest.mark.parametrize("write", [write_atomically, write_private])
def test_file_that_finds_no_room_is_named(disk: Disk, monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    """The error has the file's path, the sentence what to do; the former content is kept and nothing is left beside."""
    place = disk("size=64k")
    monkeypatch.setenv("TOKENPEAK_STATE", str(place))
    target = place / "last-number"
    write(target, "7")
    fill(place)

    with pytest.raises(OSError, match="No space left") as caught:
        write(target, "8" * 9000)

    words = files.refusal(caught.value)
    assert words is not None
    assert words.startswith(f"{target}: No space left on device. Give access or make room, or name another folder than")
    assert "7" == target.read_text()
    assert {"filler", "last-number"} == {path.name for path in place.iterdir()}


def test_end_that_cannot_be_written_is_said(disk: Disk) -> None:
    """Results that are full when a sweep ends: its record's lack is said, with the path and how to go on."""
    place = disk("size=40m")
    archive = make_archive(place / "sweep", end=False, replicates=1, gpus=("NVIDIA L4",), axes={"max_num_seqs": [8]})
    kept = KeptArchive(archive, archive.read_sweep(), archive.trials(), lambda _: None)
    end = EndRecord(sweep_id="sweep", status="interrupted", ended_at=datetime.now(UTC), trials=1)
    fill(place)

    problem = end_problem(kept, end)
    (place / "filler").unlink()

    assert problem is not None
    assert str(archive.path / "end.json") in problem
    assert problem.endswith("tokenpeak sweep --resume sweep")
    assert end_problem(kept, end) is None
    assert archive.read_end() == end


def test_lease_lives_on_without_room_for_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full /tmp must not end the renewals, or production would be given back in the midst of a trial."""

    def full(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device", "/tmp/x")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    answering = "import json,sys\nfor l in sys.stdin: print(json.dumps({'heard': json.loads(l)['number']}), flush=True)"
    with LeaseChannel([sys.executable, "-c", answering], "sweep-1", 4.0, lambda _: None) as channel:
        assert channel.problem(20) is None
