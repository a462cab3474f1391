"""Packed archive: one file, NAME.tar.zst, whose first member is a manifest of all others.

manifest.json: what it is, which TokenPeak made and packed it, what the load host was able to measure, what was taken
out, and for each file its size and SHA-256. Unpacking checks every file against it and writes nothing else.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import zstandard

from tokenpeak import bounded, paths
from tokenpeak.errors import ArchiveError
from tokenpeak.files import delete, delete_if_possible, replacing
from tokenpeak.paths import inside, is_name, shown

SUFFIX = ".tar.zst"
MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
LARGEST_MANIFEST_BYTES = 16 * 1024**2
MOST_FILES = 100_000
"""Some 100 bytes of the manifest each; the largest sweeps have some ten thousand trials of at most three files."""
LARGEST_BYTES, LARGEST_RATIO, SMALL_BYTES = 8 * 1024**3, 100, 256 * 1024**2
"""Unpacked, and times its packed size, which counts for what is not small: what trials leave packs to a fifth, their
JSON alone to a twentieth. A larger archive is refused before anything is written; unpack it with `tar --zstd -xf` and
give the folder, whose files are bounded one by one."""
BLOCK = 512
"""Bytes of a tar entry's head, and what its content is filled up to."""
REQUESTS, ENGINE_LOGS = "*.requests.parquet", "*.engine.log.zst"


def pack(folder: Path, target: Path, *, removed: tuple[str, ...] = (), summaries: bool = False) -> Path:
    """Write the archive at `folder` to `target`; `removed` says what is taken out of it.

    With `summaries` single requests and engine logs are left out; the summary of each run stays.
    """
    try:
        sweep = json.loads((folder / "sweep.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{folder} is no archive that can be packed: sweep.json: {error}.") from error
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _unfinished(path, folder)]
    if summaries:
        left_out = {path for pattern in (REQUESTS, ENGINE_LOGS) for path in (folder / "trials").glob(pattern)}
        files = [path for path in files if path not in left_out]
    manifest = {
        "manifest_version": MANIFEST_VERSION,
        "format_version": sweep.get("format_version"),
        "sweep_id": sweep.get("sweep_id"),
        "packed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "packed_by": {"tokenpeak": version("tokenpeak")},
        "made_by": sweep.get("provenance"),
        "calibration": sweep.get("calibration"),
        "removed": list(removed),
        "files": {path.relative_to(folder).as_posix(): _digest(path) for path in files},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            replacing(target) as part,
            part.open("wb") as raw,
            zstandard.ZstdCompressor(level=10).stream_writer(raw) as packed,
            tarfile.open(fileobj=packed, mode="w|") as tar,
        ):
            _add(tar, MANIFEST, io.BytesIO(text := _json(manifest)), len(text))
            for path in files:
                with path.open("rb") as file:
                    _add(tar, path.relative_to(folder).as_posix(), file, path.stat().st_size)
    except OSError as error:
        raise ArchiveError(f"Could not write {target}: {error.strerror or error}.") from error
    return target


def _unfinished(path: Path, folder: Path) -> bool:
    """A write that never ended, or a file that no archive has."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts) or path.is_symlink()


def _digest(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).encode()


def _add(tar: tarfile.TarFile, name: str, content: BinaryIO, size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    tar.addfile(entry, content)


def unpacked(path: Path, keep: Path | None = None) -> Path:
    """The folder of a packed archive, checked file by file; made once for as long as the file stays the same.

    Folders are kept below `keep`, by default in the state folder. ArchiveError for a file that is damaged, whose
    members are not those of its manifest, or that was packed by a newer TokenPeak.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    base = (keep or paths.state_dir() / "unpacked") / digest[:24]
    if base.is_dir():
        return next(base.iterdir())
    staging = base.with_name(f".{base.name}.{os.getpid()}")
    delete(staging)
    staging.mkdir(parents=True)
    try:
        _unpack(path, staging)
        try:
            staging.rename(base)
        except OSError:
            # Another process was faster, and whoever asked it may be reading.
            if not base.is_dir():
                raise
    finally:
        delete_if_possible(staging)
    return next(base.iterdir())


def _recorded_id(folder: Path, path: Path) -> object:
    """The sweep's id that the archive at `folder` records; None where it has none. `path` is named in errors."""
    record = folder / "sweep.json"
    sweep = bounded.parse_json(bounded.read_bytes(record), path) if record.is_file() else None
    return sweep.get("sweep_id") if isinstance(sweep, dict) else None


def _unpack(path: Path, staging: Path) -> None:
    try:
        with (
            path.open("rb") as raw,
            zstandard.ZstdDecompressor(max_window_size=bounded.WIDEST_WINDOW_BYTES).stream_reader(raw) as packed,
        ):
            manifest = _manifest(packed, path)
            files: Mapping[str, Any] = manifest["files"]
            folder = inside(staging, manifest["sweep_id"])
            folder.mkdir()
            seen: set[str] = set()
            while (entry := _entry(packed, path)) is not None:
                _write(packed, entry, files, folder, path, seen)
    except (OSError, zstandard.ZstdError) as error:
        raise ArchiveError(f"{path}: no whole {SUFFIX} archive ({error}). Copy it again.") from error
    if missing := sorted(files.keys() - seen):
        raise ArchiveError(f"{path}: {missing[0]} is in its manifest and not in it. Copy it again.")
    if (recorded := _recorded_id(folder, path)) != manifest["sweep_id"]:
        raise ArchiveError(
            f"{path}: its manifest says sweep {shown(manifest['sweep_id'])}, and its record {shown(recorded)}. "
            "It was not packed by TokenPeak. Nothing of it was kept."
        )


def _entry(packed: BinaryIO, path: Path) -> tuple[str, int] | None:
    """The name and size of the next file in the tar; None at its end.

    What `pack` writes are plain files with plain heads. Anything else (links, devices, sparse files, heads that extend
    others by gigabytes) has no place in an archive and is refused by its type, before its content is read.
    """
    head = _exactly(packed, BLOCK, path)
    if not any(head):
        return None
    try:
        checksum = int(head[148:156].rstrip(b" \0"), 8)
        size = int(head[124:136].strip(b" \0") or b"0", 8)
        prefix = head[345:500].rstrip(b"\0") if head[257:263] == b"ustar\0" else b""
        name = (prefix + b"/" if prefix else b"").decode("ascii") + head[:100].rstrip(b"\0").decode("ascii")
    except ValueError as error:
        raise ArchiveError(f"{path}: an entry's head makes no sense ({error}). Copy it again.") from error
    if checksum != sum(head[:148]) + sum(head[156:]) + 8 * ord(" "):
        raise ArchiveError(f"{path}: an entry's head was changed. Copy it again.")
    if head[156:157] not in (b"0", b"\0") or size < 0:
        raise ArchiveError(
            f"{path}: {shown(name)} is no plain file (type {shown(chr(head[156]))}). Pack archives with "
            "tokenpeak archive SWEEP_ID."
        )
    return name, size


def _exactly(packed: BinaryIO, size: int, path: Path) -> bytes:
    data = packed.read(size)
    while len(data) < size:
        if not (more := packed.read(size - len(data))):
            raise ArchiveError(f"{path}: breaks off. Copy it again.")
        data += more
    return data


def _manifest(packed: BinaryIO, path: Path) -> dict[str, Any]:
    entry = _entry(packed, path)
    if entry is None or entry[0] != MANIFEST or entry[1] > LARGEST_MANIFEST_BYTES:
        raise ArchiveError(f"{path}: does not begin with a manifest. Pack archives with tokenpeak archive SWEEP_ID.")
    content = _exactly(packed, entry[1], path)
    _exactly(packed, -entry[1] % BLOCK, path)
    manifest = bounded.parse_json(content, path, most_keys=MOST_FILES)
    try:
        version_made = manifest["manifest_version"]
        if isinstance(version_made, int) and version_made > MANIFEST_VERSION:
            raise ArchiveError(
                f"{path}: manifest version {version_made}, and this TokenPeak reads up to {MANIFEST_VERSION}. "
                "Install the TokenPeak that packed it, or a newer one."
            )
        sizes = [int(file["bytes"]) for file in manifest["files"].values()]
        names = [manifest["sweep_id"], *(part for name in manifest["files"] for part in PurePosixPath(name).parts)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = f"{type(error).__name__}: {shown(str(error))}"
        raise ArchiveError(f"{path}: its manifest cannot be read ({words}).") from error
    if not all(map(is_name, names)):
        raise ArchiveError(f"{path}: its manifest names files that no archive has.")
    unpacked_bytes, packed_bytes = sum(sizes), path.stat().st_size
    if min(sizes, default=0) < 0 or unpacked_bytes > min(LARGEST_BYTES, max(SMALL_BYTES, LARGEST_RATIO * packed_bytes)):
        raise ArchiveError(
            f"{path}: would unpack to {unpacked_bytes:,} bytes from {packed_bytes:,}, more than an archive does. "
            "Nothing was written. If it is yours, unpack it with tar --zstd -xf and give the folder."
        )
    return dict(manifest)


def _write(
    packed: BinaryIO, entry: tuple[str, int], files: Mapping[str, Any], folder: Path, path: Path, seen: set[str]
) -> None:
    name, size = entry
    listed = files.get(name)
    if listed is None or size != listed["bytes"] or name in seen:
        raise ArchiveError(f"{path}: {shown(name)} is not what its manifest says. Nothing of it was kept.")
    target = inside(folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), size
    with target.open("wb") as file:
        while left:
            piece = _exactly(packed, min(left, 1 << 20), path)
            left -= len(piece)
            digest.update(piece)
            file.write(piece)
    _exactly(packed, -size % BLOCK, path)
    if digest.hexdigest() != listed.get("sha256"):
        raise ArchiveError(f"{path}: {name} was changed after it was packed. Nothing of it was kept.")
    seen.add(name)
