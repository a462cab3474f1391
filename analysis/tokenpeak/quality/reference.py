"""Reference file: the answers that `tokenpeak quality record` wrote, read within bounds."""

from pathlib import Path

from pydantic import ValidationError

from tokenpeak import bounded, paths
from tokenpeak.errors import ArchiveError
from tokenpeak.records.quality import QualityReference
from tokenpeak.spec.quality import QualitySpec


def read_reference(path: Path) -> QualityReference:
    """The reference in a file; raises ArchiveError for a file that is none."""
    try:
        return QualityReference.model_validate_json(bounded.read_bytes(path))
    except ValidationError as error:
        raise ArchiveError(f"{path} is no reference that `tokenpeak quality record` wrote.") from error


def reference_path(spec: QualitySpec) -> Path:
    """Where a sweep's reference lies; a relative path counts from the working folder."""
    return paths.HOME / Path(spec.reference).expanduser()
