"""An archive as one file: NAME.tar.zst, whose first member is a manifest of all others.

manifest.json: what it is, which software and machine made it, what the load host was able to measure, what was taken
out, and for each file its size and SHA-256. Unpacking checks every file against it and writes nothing else.
"""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import zstandard

from tokenpeak import paths
from tokenpeak.errors import ArchiveError

SUFFIX = ".tar.zst"
MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
LARGEST_MANIFEST_BYTES = 64 * 1024**2
LARGEST_BYTES = 64 * 1024**3
"""Unpacked; a larger archive is refused before anything is written."""
REQUESTS, ENGINE_LOGS = "*.requests.parquet", "*.engine.log.zst"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


def pack(folder: Path, target: Path, *, removed: tuple[str, ...] = ()) -> Path:
    """Write the archive at `folder` to `target`; `removed` says what was taken out of it before."""
    try:
        sweep = json.loads((folder / "sweep.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{folder} is no archive that can be packed: sweep.json: {error}.") from error
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _unfinished(path, folder)]
    manifest = {
        "manifest_version": MANIFEST_VERSION,
        "format_version": sweep.get("format_version"),
        "sweep_id": sweep.get("sweep_id"),
        "packed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "packed_by": {"tokenpeak": version("tokenpeak"), "python": platform.python_version()},
        "environment": {"system": platform.system(), "machine": platform.machine()},
        "made_by": sweep.get("provenance"),
        "calibration": sweep.get("calibration"),
        "removed": list(removed),
        "files": {path.relative_to(folder).as_posix(): _digest(path) for path in files},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        with (
            part.open("wb") as raw,
            zstandard.ZstdCompressor(level=10).stream_writer(raw) as packed,
            tarfile.open(fileobj=packed, mode="w|") as tar,
        ):
            _add(tar, MANIFEST, io.BytesIO(text := _json(manifest)), len(text))
            for path in files:
                with path.open("rb") as file:
                    _add(tar, path.relative_to(folder).as_posix(), file, path.stat().st_size)
        part.replace(target)
    except OSError as error:
        raise ArchiveError(f"Could not write {target}: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)
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
    if found := _archive_in(base):
        return found
    staging = base.with_name(f".{base.name}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        _unpack(path, staging)
        try:
            staging.rename(base)
        except OSError:
            # Another process was faster, and whoever asked it may be reading; or what is there is no archive.
            if found := _archive_in(base):
                return found
            shutil.rmtree(base)
            staging.rename(base)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return next(base.iterdir())


def _archive_in(base: Path) -> Path | None:
    return next((folder for folder in base.glob("*") if (folder / "sweep.json").is_file()), None)


def _unpack(path: Path, staging: Path) -> None:
    try:
        with (
            path.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as packed,
            tarfile.open(fileobj=packed, mode="r|") as tar,
        ):
            manifest = _manifest(tar, tar.next(), path)
            files: Mapping[str, Any] = manifest["files"]
            folder = staging / str(manifest["sweep_id"])
            folder.mkdir()
            seen: set[str] = set()
            while (entry := tar.next()) is not None:
                _write(tar, entry, files, folder, path, seen)
    except (OSError, tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise ArchiveError(f"{path}: no whole {SUFFIX} archive ({error}). Copy it again.") from error
    if missing := sorted(files.keys() - seen):
        raise ArchiveError(f"{path}: {missing[0]} is in its manifest and not in it. Copy it again.")


def _manifest(tar: tarfile.TarFile, entry: tarfile.TarInfo | None, path: Path) -> dict[str, Any]:
    content = tar.extractfile(entry) if entry is not None and entry.name == MANIFEST and entry.isfile() else None
    if entry is None or content is None or entry.size > LARGEST_MANIFEST_BYTES:
        raise ArchiveError(f"{path}: does not begin with a manifest. Pack archives with make archive SWEEP_ID=…")
    try:
        manifest = json.loads(content.read())
        told = manifest["manifest_version"]
        if isinstance(told, int) and told > MANIFEST_VERSION:
            raise ArchiveError(
                f"{path}: manifest version {told}, and this TokenPeak reads up to {MANIFEST_VERSION}. "
                "Install the TokenPeak that packed it, or a newer one."
            )
        sizes = [int(file["bytes"]) for file in manifest["files"].values()]
        names = [manifest["sweep_id"], *(part for name in manifest["files"] for part in PurePosixPath(name).parts)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveError(f"{path}: its manifest cannot be read ({type(error).__name__}: {error}).") from error
    if any(not isinstance(name, str) or not NAME.fullmatch(name) for name in names):
        raise ArchiveError(f"{path}: its manifest names files that no archive has.")
    if min(sizes, default=0) < 0 or sum(sizes) > LARGEST_BYTES:
        raise ArchiveError(f"{path}: would unpack to {sum(sizes):,} bytes. Nothing was written.")
    return dict(manifest)


def _write(
    tar: tarfile.TarFile, entry: tarfile.TarInfo, files: Mapping[str, Any], folder: Path, path: Path, seen: set[str]
) -> None:
    told = files.get(entry.name)
    content = tar.extractfile(entry) if entry.isfile() else None
    if told is None or content is None or entry.size != told["bytes"] or entry.name in seen:
        raise ArchiveError(f"{path}: {entry.name!r} is not what its manifest says. Nothing of it was kept.")
    target = folder / entry.name
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while piece := content.read(1 << 20):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != told["sha256"]:
        raise ArchiveError(f"{path}: {entry.name} was changed after it was packed. Nothing of it was kept.")
    seen.add(entry.name)


def without_prompts(folder: Path) -> None:
    """Take the texts that were asked out of an archive, in place: each becomes its length and a digest.

    Engine logs, which can hold them too, are removed.
    """
    _remove(folder, ENGINE_LOGS)
    for path in [folder / "sweep.json", *sorted((folder / "trials").glob("*.json"))]:
        raw = json.loads(path.read_bytes())
        path.write_text(json.dumps(_promptless(raw), ensure_ascii=False, separators=(",", ":")) + "\n")


def without_requests(folder: Path) -> None:
    """Take single requests and engine logs out of an archive, in place; the summary of each run stays."""
    _remove(folder, REQUESTS, ENGINE_LOGS)


def _remove(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for file in (folder / "trials").glob(pattern):
            file.unlink()


PROMPT_FIELDS = frozenset({"prompt"})
PATH_FIELDS = frozenset({"path"})
"""Of a workload: where its data lay names folders of whoever ran it."""


def _promptless(value: Any, field: str = "") -> Any:
    if isinstance(value, dict):
        if field == "workload":
            return {key: _hidden(key, item) for key, item in value.items()}
        return {key: _promptless(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_promptless(item, field) for item in value]
    return value


def _hidden(key: str, value: Any) -> Any:
    if isinstance(value, str) and key in PROMPT_FIELDS:
        return f"(removed: {len(value)} characters, SHA-256 {hashlib.sha256(value.encode()).hexdigest()[:16]})"
    if isinstance(value, str) and key in PATH_FIELDS:
        return PurePosixPath(value).name
    return _promptless(value, key)
