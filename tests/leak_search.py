"""Search of every byte that leaves for strings that must not: unpacked, decoded, and in the usual disguises.

It knows nothing of how anything was cleaned.
"""

import base64
import binascii
import html
import io
import json
import re
import struct
import tarfile
import urllib.parse
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import zstandard

PNG = b"\x89PNG\r\n\x1a\n"
DATA_URI = re.compile(rb"data:[\w/+.;=-]*;base64,([A-Za-z0-9+/=]+)")


def pieces(name: str, raw: bytes) -> Iterator[tuple[str, bytes]]:
    """A file's bytes and all that is packed in them, each with its name."""
    yield name, raw
    if raw.startswith(b"\x28\xb5\x2f\xfd"):
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True) as stream:
            yield from pieces(f"{name}!zst", stream.read())
    if raw[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
            for entry in tar:
                content = tar.extractfile(entry)
                yield f"{name}!{entry.name}", repr(entry.get_info()).encode()
                yield from pieces(f"{name}!{entry.name}", content.read() if content else b"")
    if raw.startswith(b"PAR1"):
        frame = pl.read_parquet(io.BytesIO(raw))
        yield f"{name}!values", json.dumps(frame.to_dicts(), default=str, ensure_ascii=False).encode()
        yield f"{name}!notes", repr(pl.read_parquet_metadata(io.BytesIO(raw))).encode()
        for note in pl.read_parquet_metadata(io.BytesIO(raw)).values():
            yield f"{name}!decoded notes", _decoded(note.encode())
    if raw.startswith(PNG):
        yield from _png_texts(name, raw)
    if name.endswith((".json", ".ipynb")):
        yield f"{name}!parsed", "\n".join(_texts(json.loads(raw))).encode("utf-8", "surrogatepass")
    if name.endswith((".html", ".svg", ".atom")):
        yield f"{name}!unescaped", html.unescape(raw.decode()).encode("utf-8", "surrogatepass")
    for index, found in enumerate(DATA_URI.findall(raw)):
        yield from pieces(f"{name}!data URI {index}", _decoded(found))


def leaks(place: Path, canaries: Sequence[str]) -> list[str]:
    """Where a canary stands in the file, or in a file of the folder: names, bytes, and what they unpack to."""
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    wanted = {form for canary in canaries for form in forms(canary)}
    found = []
    for path in files:
        name = path.name if place.is_file() else path.relative_to(place).as_posix()
        for where, raw in [("its name", name.encode()), *pieces(name, path.read_bytes())]:
            low = raw.lower()
            for form in wanted:
                content = raw if form.is_exact else low
                at = content.find(form.text)
                if at >= 0:
                    found.append(f"{where}: …{content[max(0, at - 50) : at + 60]!r}…")
                    break
    return found


class Form:
    """A canary as bytes; exact where letters must not be folded."""

    def __init__(self, text: bytes, *, is_exact: bool = False) -> None:
        self.text, self.is_exact = text, is_exact


def forms(canary: str) -> list[Form]:
    """The canary as it is, and URL-encoded, HTML-escaped, JSON-escaped and in Base64 at each alignment."""
    plain = canary.lower()
    folded = {
        plain,
        urllib.parse.quote(plain, safe="").lower(),
        html.escape(plain).lower(),
        json.dumps(plain)[1:-1].lower(),
        plain.encode().hex(),
    }
    exact = set()
    for spelled in {canary, canary.lower(), canary.upper(), canary.capitalize()}:
        for shift in range(3):
            packed = base64.b64encode(b"\0" * shift + spelled.encode())
            # What the neighbours share in a character is left out at both ends.
            inner = packed[4 if shift else 0 : len(packed) // 4 * 4 - 4]
            if len(inner) >= 4:
                exact.add(inner)
    return [*(Form(text.encode()) for text in folded), *(Form(text, is_exact=True) for text in exact if len(text) >= 8)]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _png_texts(name: str, raw: bytes) -> Iterator[tuple[str, bytes]]:
    at = len(PNG)
    while at + 8 <= len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        body = raw[at + 8 : at + 8 + size]
        if kind in (b"tEXt", b"zTXt", b"iTXt", b"eXIf"):
            yield f"{name}!{kind.decode()}", body
            for start in range(len(body)):
                if body[start : start + 1] == b"\x78":
                    try:
                        yield f"{name}!{kind.decode()} inflated", zlib.decompress(body[start:])
                    except zlib.error:
                        continue
        at += 12 + size
