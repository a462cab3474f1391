"""Reading files that somebody else wrote: bounded, finite, typed, and every key accounted for."""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.records import SourceFile

Scalar = bool | int | float | str | None
LARGEST_NUMBER = 1e15
LONGEST_WORDS = 500
YAML_ENDINGS = (".yml", ".yaml")
READ = (
    "Read are: results of vllm bench serve (JSON or printed), folders of vllm bench sweep serve and of auto_tune.sh, "
    "results of SGLang's bench_serving, GuideLLM's reports (JSON or YAML), AIPerf's and InferenceX's JSON, runs of "
    "tokenpeak load, and CSV by a mapping file."
)
LARGEST_YAML_BYTES = 2 * bounded.MEGABYTE
"""Of a tool's report; a mapping file has some kilobytes."""


def read_text(path: Path) -> str:
    """The file as UTF-8 text; ArchiveError for one that is too large, binary or not there."""
    try:
        text = bounded.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArchiveError(
            f"{path}: not UTF-8 text (byte {error.start}). Give the file that the tool wrote."
        ) from error
    if "\0" in text:
        raise ArchiveError(f"{path}: holds NUL characters, so it is no text. Give the file that the tool wrote.")
    return text


def read_json(path: Path) -> Any:
    """The file's JSON; NaN and infinities become None, a key given twice is refused."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path) -> Any:
    """JSON from `path`'s text; ArchiveError names the place of what is wrong."""
    return bounded.parse_json(text.encode(), path, nan="null")


def read_document(path: Path) -> Any:
    """The YAML in a file that is named so, else its JSON; what is no finite number becomes None in either."""
    if path.suffix not in YAML_ENDINGS:
        return read_json(path)
    return bounded.read_yaml(path, nan="null", most=LARGEST_YAML_BYTES)


def source_file(path: Path, root: Path) -> SourceFile:
    """The file's name below `root` and its digest."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return SourceFile(name=name, sha256=digest)


class Fields:
    """An object of a foreign file that remembers which of its keys were read, so that the others can be listed."""

    def __init__(self, raw: object, path: Path, place: str = "") -> None:
        self.path = path
        self.place = place
        if not isinstance(raw, Mapping):
            self.refuse("", f"must be an object, not {_kind(raw)}")
        self._raw: Mapping[str, Any] = raw
        self._read: set[str] = set()

    @property
    def content(self) -> Mapping[str, Any]:
        """All keys with their values."""
        return self._raw

    def refuse(self, key: str, words: str) -> NoReturn:
        """Raise the error that names file, place and what is wrong."""
        place = ".".join(part for part in (self.place, key) if part)
        raise ArchiveError(f"{self.path}: {place or 'file'} {words}.")

    def raw(self, key: str) -> Any:
        """The value as it is; None when absent."""
        self._read.add(key)
        return self._raw.get(key)

    def number(self, key: str, *, scale: float = 1.0, required: bool = False) -> float | None:
        """A finite number that is not negative, times `scale`; None when absent or null."""
        value = self.raw(key)
        if value is None or value == "":
            return self.refuse(key, "is missing") if required else None
        return checked_number(value, lambda words: self.refuse(key, words)) * scale

    def count(self, key: str, *, required: bool = False) -> int | None:
        """A whole number that is not negative; None when absent or null."""
        value = self.number(key, required=required)
        if value is not None and value != int(value):
            self.refuse(key, f"must be a whole number, not {value!r}")
        return None if value is None else int(value)

    def text(self, key: str, *, required: bool = False) -> str | None:
        """A text of at most 4,000 characters; None when absent or null."""
        value = self.raw(key)
        if value is None or value == "":
            return self.refuse(key, "is missing") if required else None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.refuse(key, f"must be a text, not {_kind(value)}")
        return str(value)[:4000]

    def items(self, key: str, *, required: bool = False) -> list[Any] | None:
        """A list of anything; None when absent or null."""
        value = self.raw(key)
        if value is None:
            return self.refuse(key, "is missing") if required else None
        if not isinstance(value, list):
            self.refuse(key, f"must be a list, not {_kind(value)}")
        return value

    def part(self, key: str) -> "Fields | None":
        """An object within; None when absent or null."""
        value = self.raw(key)
        return None if value is None else Fields(value, self.path, ".".join(p for p in (self.place, key) if p))

    def ignore(self, keys: Iterable[str]) -> None:
        """Keys that need no mention."""
        self._read.update(keys)

    def unread(self) -> list[str]:
        """The keys that hold something and that nobody asked for."""
        return [key for key, value in self._raw.items() if key not in self._read and value not in (None, "", [], {})]


def checked_number(value: object, refuse: Any) -> float:
    """The value as a finite number that is not negative; `refuse` is called with what is wrong."""
    if isinstance(value, str):
        text = value
        try:
            value = float(text.strip().replace(",", ""))
        except ValueError:
            refuse(f"must be a number, not {text[:60]!r}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(f"must be a number, not {_kind(value)}")
    assert isinstance(value, int | float)
    try:
        number = float(value)
    except OverflowError:
        refuse("is too large a number")
    if not math.isfinite(number):
        refuse("must be a finite number")
    if number < 0:
        refuse(f"must not be negative, and is {number:g}")
    if number > LARGEST_NUMBER:
        refuse(f"is {number:g}, larger than any figure of a benchmark")
    return number


def plain(cell: str) -> Scalar:
    """A text as a YAML reader would take it: true, false, a whole number, a number or a text."""
    if cell.casefold() in ("true", "false"):
        return cell.casefold() == "true"
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        number = float(cell)
    except ValueError:
        return cell
    return number if math.isfinite(number) else cell


def first_mistake(error: ValidationError) -> str:
    """The first mistake that pydantic names: its place and its words, which may quote a whole value."""
    first = error.errors()[0]
    words = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{words[:LONGEST_WORDS]}."


def word(text: str) -> str:
    """A name of lower-case letters, digits, dashes and underscores, of at most 60 characters."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.casefold()).strip("-_")[:60].strip("-_") or "imported"


def _kind(value: object) -> str:
    names: Sequence[tuple[type, str]] = (
        (bool, "true or false"),
        (str, "a text"),
        (list, "a list"),
        (dict, "an object"),
        (int, "a number"),
        (float, "a number"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "null")
