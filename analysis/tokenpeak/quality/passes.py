"""Files of what a launch answered: of a trial in an archive, packed, and as `tokenpeak quality record` writes them."""

from pathlib import Path

import zstandard
from pydantic import ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.records.quality import QualityPasses

PACKED = ".zst"


def read_passes(path: Path) -> QualityPasses:
    """The answers in a file; raises ArchiveError for a file that holds none."""
    data = bounded.read_bytes(path)
    if path.name.endswith(PACKED):
        data = bounded.unpacked(data, path, bounded.largest_bytes())
    bounded.parse_json(data, path)
    try:
        found = QualityPasses.model_validate_json(data)
    except ValidationError as error:
        raise ArchiveError(f"{path} holds no answers that `tokenpeak quality record` or a sweep wrote.") from error
    if not found.passes:
        raise ArchiveError(f"{path} holds no answers.")
    return found


def written(passes: QualityPasses, path: Path) -> bytes:
    """The content of a file of this name."""
    data = passes.model_dump_json().encode()
    return zstandard.ZstdCompressor(level=12).compress(data) if path.name.endswith(PACKED) else data + b"\n"
