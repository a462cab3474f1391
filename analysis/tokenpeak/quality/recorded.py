"""Recorded answers and verdicts: files of what a launch answered, and trials whose answers did not pass."""

from pathlib import Path

import zstandard
from pydantic import ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.records import QUALITY_FAILED, QUALITY_UNKNOWN, Reason, TrialRecord
from tokenpeak.records.quality import AnswersQuality, QualityPasses, QualityVerdict, SweepQuality


def with_verdict(trial: TrialRecord, quality: SweepQuality | None) -> TrialRecord:
    """The trial; where its config's answers did not pass, its runs have that as a reason not to be ranked."""
    found = verdict_of(quality, trial.hardware, trial.config.config_id)
    reasons = quality_reasons(found.verdict) if found is not None else ()
    if not reasons:
        return trial
    runs = tuple(run.model_copy(update={"verdict": run.verdict.with_reasons(reasons)}) for run in trial.runs)
    return trial.model_copy(update={"runs": runs})


def verdict_of(quality: SweepQuality | None, hardware: str, config_id: str) -> AnswersQuality | None:
    """The verdict on a config's answers; None where there is none yet, or nothing was to be measured."""
    for found in quality.verdicts if quality is not None else ():
        if found.hardware == hardware and config_id in found.config_ids:
            return found
    return None


def quality_reasons(verdict: QualityVerdict) -> tuple[Reason, ...]:
    """Why runs of a launch with this verdict are not ranked, however fast they are; none where it passed."""
    if verdict.status == "pass":
        return ()
    if verdict.status == "fail":
        return (Reason(code=QUALITY_FAILED, text=f"Its answers are worse than the reference's. {verdict.reason}"),)
    return (Reason(code=QUALITY_UNKNOWN, text=f"Its answers are not known to be right. {verdict.reason}"),)


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
