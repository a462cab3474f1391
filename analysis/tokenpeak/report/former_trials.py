"""Former trials: what a site holds of single trials of a sweep that is made anew, reused where it is still right.

The cleaned copy of a trial's files and its page are hard links to those of the former site. What each was made of is
noted beside the site (`.build.trials/SWEEP_ID/` beside `build/`), with size, time and inode of the file that was made:
one that has changed since is made again. Rows of the frames are kept there too.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tokenpeak.deletion import delete
from tokenpeak.store.kept_rows import KeptRows

NOTE = "trials.json"
ROWS = "rows"


@dataclass(frozen=True, kw_only=True)
class TrialNote:
    """What a trial's files and page were made of, and which they are."""

    source: str
    """Its raw files, by size and time."""
    words: str
    """A digest of what stood for which name or secret before it was cleaned; nothing was added to it."""
    files: Mapping[str, str]
    """The cleaned files below the sweep's folder, and what each is on the disk."""
    context: str = ""
    """A digest of what its page says that its own files do not."""
    page: str = ""
    """What its page is on the disk."""


@dataclass(kw_only=True)
class FormerTrials:
    """The trials of one sweep in the former site, and in the one that is being made."""

    former: Path
    """The sweep's folder in the former site."""
    folder: Path
    """In the one that is being made."""
    notes: Path
    """The folder of the notes on this sweep in the former site."""
    new_notes: Path
    """That of those on it in the new one."""
    made_of: str
    """A digest of what each trial's files are made of besides its raw files: code, options, the sweep's record."""
    judged_by: str
    """A digest of what rows and pages are made of besides: the verdicts on answers."""
    same: set[str] = field(default_factory=set)
    """Trials whose cleaned files were reused."""
    _known: dict[str, TrialNote] = field(default_factory=dict)
    _noted: dict[str, TrialNote] = field(default_factory=dict)
    _is_judged_alike: bool = False

    def __post_init__(self) -> None:
        """Read what is noted on the former site; nothing where it was made of something else."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            noted = json.loads((self.notes / NOTE).read_text())
            if noted["made_of"] == self.made_of:
                self._known = {trial_id: TrialNote(**each) for trial_id, each in noted["trials"].items()}
                self._is_judged_alike = noted["judged_by"] == self.judged_by

    def reuse_files(self, trial_id: str, source: str, words: str) -> bool:
        """Whether the cleaned files of a trial are of these raw files and words; if so, they are reused."""
        note = self._known.get(trial_id)
        if note is None or (note.source, note.words) != (source, words):
            return False
        linked: list[str] = []
        for name, stamp in note.files.items():
            if not self._link(name, stamp):
                for each in linked:
                    delete(self.folder / each)
                return False
            linked.append(name)
        self.same.add(trial_id)
        self._noted[trial_id] = TrialNote(source=source, words=words, files=note.files)
        return True

    def note_files(self, trial_id: str, source: str, words: str, files: Iterable[Path]) -> None:
        """Note the cleaned files of a trial, which were made now."""
        stamps = {path.relative_to(self.folder).as_posix(): stamp_of(path) for path in files}
        self._noted[trial_id] = TrialNote(source=source, words=words, files=stamps)

    def rows(self) -> KeptRows:
        """The rows of the trials whose files were reused, where they are judged as before."""
        return KeptRows(self.notes / ROWS, self.new_rows, self.same if self._is_judged_alike else ())

    @property
    def new_rows(self) -> Path:
        """Where the rows of the trials are, once the sweep has been opened."""
        return self.new_notes / ROWS

    def reuse_page(self, trial_id: str, context: str) -> bool:
        """Reuse a trial's page, where its files are as before and it says the same besides."""
        note = self._known.get(trial_id)
        if trial_id not in self.same or not self._is_judged_alike or note is None or note.context != context:
            return False
        return self._link(page_of(trial_id), note.page)

    def note_page(self, trial_id: str, context: str) -> None:
        """Note a trial's page, which was reused or made now."""
        if (note := self._noted.get(trial_id)) is not None:
            page = stamp_of(self.folder / page_of(trial_id))
            self._noted[trial_id] = replace(note, context=context, page=page)

    def write(self) -> None:
        """Write the notes on the site that is being made."""
        self.new_notes.mkdir(parents=True, exist_ok=True)
        noted = {
            "made_of": self.made_of,
            "judged_by": self.judged_by,
            "trials": {trial_id: asdict(note) for trial_id, note in self._noted.items()},
        }
        (self.new_notes / NOTE).write_text(json.dumps(noted) + "\n")

    def _link(self, name: str, stamp: str) -> bool:
        """A hard link to a file of the former site, where that is still the one that was noted."""
        target = self.folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(self.former / name)
            if stamp_of(target) == stamp:
                return True
            delete(target)
        except OSError:
            pass
        return False


def page_of(trial_id: str) -> str:
    """A trial's page, below its sweep's folder."""
    return f"trials/{trial_id}.html"


def stamp_of(path: Path) -> str:
    """Which file this is on the disk, and of which size and time; of a link, the link itself."""
    facts = path.lstat()
    return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns}"
