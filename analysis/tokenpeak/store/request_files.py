"""Parquet files of an archive's requests: bounds that are seen before anything is decoded, and the rows as frames.

A column's values are counted by the heads of its pages, as the reader that decodes them goes through them: what the
file's footer says of them may be anything. A head is a struct of Thrift's compact protocol.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from tokenpeak.errors import ArchiveError
from tokenpeak.paths import shown
from tokenpeak.records import REQUEST_COLUMNS
from tokenpeak.results.run_summary import LATER
from tokenpeak.store.tables import REQUESTS

MOST_REQUESTS = 2_000_000
"""Of a trial: five hundred a second for more than an hour. A Parquet file of some kilobytes can hold any number."""
MOST_VALUES, VALUES_PER_BYTE = 4_000_000, 8
"""Of a column, the larger of the two: instants of tokens take half a byte and more each."""
MOST_PAGE_BYTES, PAGE_BYTES_PER_BYTE = 256 * 1024**2, 100
"""Of all pages, unpacked, the larger of the two."""
MOST_TEXT_BYTES = 256 * 1024**2
"""Of a column of text, each row's counted: a dictionary keeps one long text for millions of rows."""
LARGEST_FOOTER_BYTES = 64 * 1024**2
LARGEST_HEAD_BYTES = 1 << 16
"""Of a page; its least and largest value stand in it."""
MOST_PAGES = 200_000
DEEPEST = 12
MAGIC = b"PAR1"

REQUEST_TYPES: dict[str, pl.DataType] = {
    name: REQUESTS.schema().get(name, pl.List(pl.Int64())) for name in REQUEST_COLUMNS
}
"""Column → the type that it is read as; a file may hold a narrower one."""

Struct = dict[int, Any]
"""Field's number → value; fields that are not needed included."""


_readable: set[tuple[int, int, int, int]] = set()
"""Files that can be read, by device, inode, size and time: the site's cleaned copy of one is mostly a link to it."""


def unreadable(path: Path) -> str | None:
    """Why a file of requests cannot be read; None when it can."""
    try:
        facts = path.stat()
    except OSError as error:
        return f"not a whole Parquet file ({shown(str(error), 200)})"
    known = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    if known not in _readable:
        if reason := _unreadable(path):
            return reason
        _readable.add(known)
    return None


def _unreadable(path: Path) -> str | None:
    try:
        columns = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        return f"not a whole Parquet file ({shown(str(error), 200)})"
    if missing := REQUEST_TYPES.keys() - LATER.keys() - columns.keys():
        return f"lacks {', '.join(sorted(missing))}"
    for name, wanted in REQUEST_TYPES.items():
        if name in columns and not _is_read_as(wanted, columns[name]):
            return f"holds {name} as {shown(str(columns[name]), 60)}, which is not read as {wanted}"
    try:
        with path.open("rb") as file:
            if reason := _too_much(file, path.stat().st_size):
                return reason
        if (rows := pl.scan_parquet(path).select(pl.len()).collect().item()) > MOST_REQUESTS:
            return f"says that it holds {rows:,} requests, more than a trial sends (at most {MOST_REQUESTS:,})"
        texts = [name for name, kind in columns.items() if kind == pl.String and name in REQUEST_COLUMNS]
        sizes = pl.read_parquet(path, columns=texts).select(pl.col(texts).str.len_bytes().sum()) if texts else None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        return f"not a whole Parquet file ({shown(str(error), 200)})"
    if sizes is not None and sum(sizes.row(0)) > MOST_TEXT_BYTES:
        return f"holds texts of more than {MOST_TEXT_BYTES:,} bytes, which no trial's requests have"
    return None


def _is_read_as(wanted: pl.DataType, kind: pl.DataType) -> bool:
    """Whether each value of a column is one of the type that is wanted, without a loss."""
    if kind == pl.Null:
        return True
    if isinstance(wanted, pl.List):
        return isinstance(kind, pl.List) and _is_read_as(_inner(wanted), _inner(kind))
    if wanted.is_integer():
        return kind.is_integer() and kind not in (pl.UInt64, pl.Int128, pl.UInt128)
    return kind in (pl.Float32, pl.Float64) if wanted.is_float() else kind == wanted


def _inner(kind: pl.List) -> pl.DataType:
    """The type of a list's items, which Polars names by its class too."""
    return kind.inner if isinstance(kind.inner, pl.DataType) else kind.inner()


def _too_much(file: BinaryIO, size: int) -> str | None:
    """A sentence on what the file holds too much of; ValueError where its heads are damaged."""
    most_values = max(MOST_VALUES, VALUES_PER_BYTE * size)
    most_bytes = max(MOST_PAGE_BYTES, PAGE_BYTES_PER_BYTE * size)
    values: dict[str, int] = {}
    unpacked = pages = 0
    for column, chunk in _chunks(_footer(file, size)):
        for head in _pages(file, size, chunk):
            pages += 1
            unpacked += _count(head, 2)
            # Values of a data page, of version 1 or 2. A dictionary's count for those that refer to it.
            values[column] = values.get(column, 0) + sum(_count(_of(dict, head.get(kind)), 1) for kind in (5, 8))
            if values[column] > most_values:
                return f"holds more than {most_values:,} values of {shown(column)}, which no trial's requests have"
            if unpacked > most_bytes:
                return f"unpacks to more than {most_bytes:,} bytes, which no trial's requests have"
            if pages > MOST_PAGES:
                return f"holds more than {MOST_PAGES:,} pages, which no trial's requests have"
    return None


def _footer(file: BinaryIO, size: int) -> Struct:
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or not 0 < length <= min(size - 8, LARGEST_FOOTER_BYTES):
        raise ValueError("it has no footer")
    file.seek(size - 8 - length)
    return _Thrift(file.read(length)).struct()


def _chunks(footer: Struct) -> Iterator[tuple[str, Struct]]:
    """Each column's part of each row group: its dotted name, and what the footer says of it."""
    for group in _of(list, footer.get(4)):
        for column in _of(list, _of(dict, group).get(1)):
            facts = _of(dict, _of(dict, column).get(3))
            name = b".".join(part for part in _of(list, facts.get(3)) if isinstance(part, bytes))
            yield name.split(b".")[0].decode(errors="replace"), facts


def _pages(file: BinaryIO, size: int, chunk: Struct) -> Iterator[Struct]:
    """The heads of a column's pages, to the end of its bytes."""
    place, dictionary = _count(chunk, 9), _count(chunk, 11)
    place = min(place, dictionary) if dictionary else place
    end = place + _count(chunk, 7)
    if end > size:
        raise ValueError("a column ends beyond the file")
    while place < end:
        file.seek(place)
        reader = _Thrift(file.read(min(LARGEST_HEAD_BYTES, end - place)))
        head = reader.struct()
        yield head
        place += reader.place + _count(head, 3)


def _count(struct: Struct, field: int) -> int:
    value = struct.get(field, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a number in a head is none")
    return value


def _of(kind: type, value: Any) -> Any:
    """The value, which must be of this kind; nothing in it where it is left out."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError("a head is of another form")
    return value


class _Thrift:
    """Reads structs of the compact protocol from bytes; ValueError where they end too soon or are nested too deep."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int = 0) -> Struct:
        """The struct that begins here."""
        if depth > DEEPEST:
            raise ValueError("a head is nested too deep")
        fields: Struct = {}
        field = 0
        while (byte := self._byte()) != 0:
            field = field + (byte >> 4) if byte >> 4 else self._signed()
            fields[field] = self._value(byte & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._bytes(1)
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                return self._list(depth + 1)
            case 12:
                return self.struct(depth + 1)
        raise ValueError(f"a head has a field of kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        byte = self._byte()
        count, kind = byte >> 4, byte & 15
        count = self._varint() if count == 15 else count
        if count > len(self._data) - self.place or depth > DEEPEST:
            raise ValueError("a list in a head is longer than it")
        # A truth value stands in the field's own head, and in a list as a byte.
        return [self._byte() == 1 if kind in (1, 2) else self._value(kind, depth) for _ in range(count)]

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number in a head has no end")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        data = self._data[self.place : self.place + count]
        if len(data) < count:
            raise ValueError("a head ends too soon")
        self.place += count
        return data


RequestFile = tuple[str, str, Path]
"""sweep_id, trial_id and the file."""
TRIALS_A_PART = 50


def parts(files: Sequence[RequestFile]) -> Iterator[pl.DataFrame]:
    """The requests of the files, those of some trials at a time; ArchiveError where a file has changed meanwhile."""
    for first in range(0, len(files), TRIALS_A_PART):
        some = files[first : first + TRIALS_A_PART]
        try:
            part = scanned(some).collect()
        except pl.exceptions.PolarsError as error:
            where = ", ".join(sorted({str(path.parent) for _, _, path in some}))
            raise ArchiveError(f"The requests in {where} cannot be read ({shown(str(error), 200)}).") from error
        yield part


def scanned(files: Sequence[RequestFile]) -> pl.LazyFrame:
    """All requests with their sweep and trial; the list of event times is the last column."""
    if not files:
        return pl.LazyFrame(schema={**REQUESTS.schema(), "event_times_us": pl.List(pl.Int64)})
    owner = pl.LazyFrame(
        {
            "path": [str(path) for _, _, path in files],
            "sweep_id": [sweep_id for sweep_id, _, _ in files],
            "trial_id": [trial_id for _, trial_id, _ in files],
        }
    )
    rows = pl.scan_parquet(
        [path for _, _, path in files],
        schema=REQUEST_TYPES,
        # Measured ones have narrower types than those that another tool wrote.
        cast_options=pl.ScanCastOptions(integer_cast="upcast", float_cast="upcast"),
        include_file_paths="path",
        extra_columns="ignore",
        missing_columns="insert",
    )
    # Older searches for the highest rate counted the requests of each probe from 0.
    run = ["path", "run_index", "phase"]
    again = pl.col("request_index").is_duplicated().any().over(run)
    rows = rows.with_columns(
        request_index=pl.when(again).then(pl.int_range(pl.len()).over(run)).otherwise("request_index")
    )
    columns = [pl.col(column.name).cast(column.dtype) for column in REQUESTS.columns]
    return rows.join(owner, on="path", maintain_order="left").select(*columns, "event_times_us")
