"""Hostile archives and imports, made from a seed: what `tokenpeak report` and `tokenpeak import` must withstand.

A case is a name, the command that is given it, and a function that makes it in a folder. Cases that need room (bombs)
are small on disk and large when read, as an attacker would send them.
"""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from archive_factory import make_archive
from tokenpeak.store.pack import pack

SWEEP_ID = "20261120-220000-quick-sim"
OUTSIDE = "canary"
"""The folder beside the output that nothing may touch."""
LAUGHS = "\n".join(
    [
        'a0: &a0 ["ha", "ha", "ha", "ha", "ha", "ha", "ha", "ha", "ha"]',
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)),
    ]
)
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 5e-324, 10**18, 2**63, 10**30, -(10**30), "", "x", "=cmd|' /C calc'!A0",
    "</script><img src=x onerror=alert(1)>", f"../../{OUTSIDE}/evil", "\u0000", "\x1b[2J", "a\nb", "A" * 100_000,
    "🙂" * 50, [], {}, [[]], [None], {"unit": "ms"}, "2" * 400, "NaN", "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", [1e308, 1e308], ["a"] * 1000, {"": ""}, {"__proto__": 1},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """A hostile input and the command that reads it."""

    name: str
    command: str
    make: Callable[[Path], Path]
    """Make it in an empty folder; returns what is given to the command."""


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    """A folder with the valid archive; made once, as making it takes longer than most refusals."""
    folder = tempfile.TemporaryDirectory(prefix="tokenpeak-hostile-")
    make_archive(
        Path(folder.name) / SWEEP_ID, axes={"max_num_seqs": [8, 64]}, gpus=["NVIDIA L4"], requests=6, seconds=4
    )
    return folder


def archive(folder: Path) -> Path:
    """A valid archive of two trials with requests and logs."""
    return Path(shutil.copytree(Path(_kept().name) / SWEEP_ID, folder / SWEEP_ID))


def packed(folder: Path, change: Callable[[Path], object] = lambda _: None) -> Path:
    """A packed archive whose manifest agrees with what `change` made of the folder."""
    source = archive(folder / "made")
    change(source)
    return pack(source, folder / f"{SWEEP_ID}.tar.zst")


def changed(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    """An archive's folder after `change`."""

    def make(folder: Path) -> Path:
        path = archive(folder)
        change(path)
        return path

    return make


def trial(path: Path) -> Path:
    """The first trial's file."""
    return min((path / "trials").glob("*.json"))


def edited(pick: Callable[[Path], Path], edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change of one JSON file."""

    def change(path: Path) -> None:
        raw = json.loads(pick(path).read_text())
        edit(raw)
        pick(path).write_text(json.dumps(raw))

    return change


def sweep(path: Path) -> Path:
    """The sweep's file."""
    return path / "sweep.json"


Content = bytes | str | Callable[[], bytes]
"""What a file holds; large content is made when it is written."""


def content(data: Content) -> bytes:
    """The bytes."""
    made = data() if callable(data) else data
    return made.encode("utf-8", "replace") if isinstance(made, str) else made


def written(pick: Callable[[Path], Path], data: Content) -> Callable[[Path], None]:
    """A change that gives a file another content."""
    return lambda path: _write(pick(path), data)


def _write(path: Path, data: Content) -> None:
    path.write_bytes(content(data))


def log_bomb(pieces: int, piece: bytes = b"\0" * (1 << 20)) -> bytes:
    """A zstd frame of `pieces` MiB."""
    if len(set(piece)) == 1:
        return framed((piece, pieces))
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join([*(packer.compress(piece) for _ in range(pieces)), packer.flush()])


def framed(*pieces: tuple[bytes, int]) -> bytes:
    """A zstd frame of these pieces, each so often; one byte repeated takes four bytes for each 128 KiB."""
    most, blocks = 1 << 17, []
    for data, times in pieces:
        size, same = len(data) * times, len(set(data)) == 1
        for start in range(0, size, most):
            length = min(most, size - start)
            blocks.append((length, 1, data[:1]) if same else (length, 0, (data * times)[start : start + length]))
    heads = [
        ((length << 3) | (kind << 1) | (number == len(blocks) - 1)).to_bytes(3, "little") + body
        for number, (length, kind, body) in enumerate(blocks)
    ]
    return b"\x28\xb5\x2f\xfd\x00\x38" + b"".join(heads)


# Packed archives, entry by entry.


def manifest(files: dict[str, bytes], **other: Any) -> bytes:
    """A manifest that is true of `files`."""
    known = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in files.items()}
    return json.dumps({"manifest_version": 1, "sweep_id": SWEEP_ID, "files": known, **other}).encode()


def entry(name: str, data: bytes = b"", *, kind: bytes = b"0", size: int | None = None, link: str = "") -> bytes:
    """A tar entry as one writes it who has read the format."""
    head = bytearray(512)
    encoded = name.encode()[:100]
    head[: len(encoded)] = encoded
    head[100:136] = (
        b"0000644\0" + b"0000000\0" + b"0000000\0" + f"{size if size is not None else len(data):011o}\0".encode()
    )
    head[136:148] = b"00000000000\0"
    head[148:156] = b" " * 8
    head[156:157] = kind
    head[157 : 157 + len(link)] = link.encode()
    head[257:265] = b"ustar\x0000"
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head) + data + b"\0" * (-len(data) % 512)


def tarred(folder: Path, *pieces: bytes | tuple[bytes, int]) -> Path:
    """A .tar.zst of these entries; a pair is a piece and how often it comes."""
    path = folder / f"{SWEEP_ID}.tar.zst"
    whole = [*(piece if isinstance(piece, tuple) else (piece, 1) for piece in pieces), (b"\0" * 1024, 1)]
    if any(times > 1 for _, times in whole):
        path.write_bytes(framed(*whole))
    else:
        path.write_bytes(zstandard.ZstdCompressor(level=3).compress(b"".join(data for data, _ in whole)))
    return path


def true_files() -> dict[str, bytes]:
    """The least that is an archive."""
    return {"sweep.json": b"{}"}


def behind_header(kind: bytes) -> Callable[[Path], Path]:
    """Two gigabytes of an extended header before the manifest."""

    def make(folder: Path) -> Path:
        files = true_files()
        head = entry("x", kind=kind, size=2 << 30)
        return tarred(folder, head, (b"a" * (1 << 20), 2048), entry("manifest.json", manifest(files)))

    return make


def with_entry(extra: Callable[[Path], bytes], declared: str | None = None) -> Callable[[Path], Path]:
    """A valid beginning, then an entry of another kind."""

    def make(folder: Path) -> Path:
        files = true_files()
        planned = dict(files) if declared is None else {**files, declared: b""}
        beginning = [entry("manifest.json", manifest(planned)), *(entry(name, data) for name, data in files.items())]
        return tarred(folder, *beginning, extra(folder))

    return make


def of_kind(kind: bytes, folder: Path) -> bytes:
    """An entry that is no plain file, and leads outside."""
    return entry("trials/a.json", kind=kind, link=str(folder.parent / OUTSIDE / "secret"))


def with_manifest(text: Content) -> Callable[[Path], Path]:
    """An archive that begins with this manifest."""
    return lambda folder: tarred(folder, entry("manifest.json", content(text)), entry("sweep.json", b"{}"))


def of_other_id(sweep_id: Any) -> Callable[[Path], Path]:
    """A whole archive whose manifest gives another id than its record."""

    def make(folder: Path) -> Path:
        path = archive(folder / "made")
        files = {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
        return tarred(
            folder,
            entry("manifest.json", manifest(files, sweep_id=sweep_id)),
            *(entry(name, data) for name, data in files.items()),
        )

    return make


def zeros(folder: Path) -> Path:
    """Three gigabytes that the manifest admits, in 100 kB."""
    size = 3 << 30
    text = json.dumps(
        {"manifest_version": 1, "sweep_id": SWEEP_ID, "files": {"sweep.json": {"bytes": size, "sha256": "0" * 64}}}
    ).encode()
    return tarred(folder, entry("manifest.json", text), entry("sweep.json", size=size), (b"\0" * (1 << 20), 3 << 10))


def _packed_cases() -> Iterator[tuple[str, Callable[[Path], Path]]]:
    for kind in "xgLK":
        yield f"header-{kind}", behind_header(kind.encode())
    yield "zeros", zeros
    for number, name in enumerate(
        (f"../{OUTSIDE}/evil", f"trials/../../../{OUTSIDE}/evil", "trials/\nevil", "trials/\x1b[2Jevil", "con\\evil")
    ):
        yield f"name-{number}", with_entry(lambda _, name=name: entry(name, b"evil"), declared=name)
    yield "absolute", with_entry(lambda folder: entry(str(folder.parent / OUTSIDE / "evil"), b"evil"))
    for kind, word in enumerate(("hard-link", "link", "device", "block", "folder", "pipe"), start=1):
        yield word, with_entry(partial(of_kind, str(kind).encode()), declared="trials/a.json")
    yield "twice", with_entry(lambda _: entry("sweep.json", b"{}"))
    yield "bomb-inside", lambda folder: packed(folder, written(log, lambda: log_bomb(2048)))
    yield "undeclared", with_entry(lambda _: entry("trials/more.json", b"{}"))
    yield "manifest-deep", with_manifest(lambda: b"[" * 3_000_000)
    yield "manifest-lists", with_manifest(lambda: b'{"manifest_version":1,"files":[' + b"[]," * 15_000_000 + b"[]]}")
    yield "manifest-digits", with_manifest(b'{"manifest_version":1,"files":{"a":{"bytes":' + b"9" * 100_000 + b"}}}")
    yield "manifest-no-dict", with_manifest(b'{"manifest_version":1,"sweep_id":"a","files":{"a":3}}')
    yield "manifest-version", with_manifest(b'{"manifest_version":"' + b"x" * 2_000_000 + b'","files":{}}')
    for number, sweep_id in enumerate(("other", f"../{OUTSIDE}", ".", "", 7, None, "a" * 5000, "a\nb", "/etc")):
        yield f"id-{number}", of_other_id(sweep_id)


def log(path: Path) -> Path:
    """The first trial's engine log."""
    return min((path / "trials").glob("*.log.zst"))


def requests(path: Path) -> Path:
    """The first trial's requests."""
    return min((path / "trials").glob("*.parquet"))


def linked(pick: Callable[[Path], Path], target: str) -> Callable[[Path], Path]:
    """A folder with a link where a file belongs, to something outside."""

    def make(folder: Path) -> Path:
        path = archive(folder)
        place = pick(path)
        place.unlink(missing_ok=True)
        place.symlink_to(target.replace("OUTSIDE", str(folder.parent / OUTSIDE)))
        return path

    return make


def piped(pick: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """A folder with a pipe where a file belongs: reading it never ends."""

    def make(folder: Path) -> Path:
        path = archive(folder)
        place = pick(path)
        place.unlink()
        os.mkfifo(place)
        return path

    return make


def many_requests(path: Path) -> None:
    """A hundred million requests in some kilobytes."""
    few = pl.read_parquet(requests(path)).head(1)
    rows = pl.concat([few.drop("event_times_us")] * 1000).lazy()
    many = pl.concat([rows] * 20_000).with_columns(event_times_us=pl.lit(None, dtype=pl.List(pl.Int64)))
    many.sink_parquet(requests(path), compression="zstd", row_group_size=1 << 22)


def mutated(seed: int) -> Callable[[Path], Path]:
    """One to three values of a record replaced, removed or renamed."""

    def make(folder: Path) -> Path:
        path, chance = archive(folder), random.Random(seed)
        target = chance.choice((sweep(path), trial(path), trial(path), path / "end.json"))
        raw = json.loads(target.read_text())
        mutate(raw, chance)
        target.write_bytes(json.dumps(raw).encode("utf-8", "surrogatepass"))
        return path

    return make


def mutate(raw: Any, chance: random.Random, values: tuple[Any, ...] = VALUES) -> None:
    """One to three values of JSON replaced, removed or renamed."""
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(list(_places(raw)))
        if (isinstance(container, dict) and key in container) or (isinstance(container, list) and key < len(container)):
            action = chance.random()
            if action < 0.8:
                container[key] = chance.choice(values)
            elif action < 0.9:
                del container[key]
            elif isinstance(container, dict):
                container[chance.choice(("", "</script>", "__proto__", f"../{OUTSIDE}", "=1+1"))] = container.pop(key)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda raw: raw.update(values)


def _folder_cases() -> Iterator[tuple[str, Callable[[Path], Path]]]:
    odd = (f"../{OUTSIDE}/evil", "..", "", "a/b", "index.html", "a\0b", "a\nb", "x" * 300, "-rf", ".hidden")
    for number, sweep_id in enumerate(odd):
        yield f"sweep-id-{number}", changed(edited(sweep, _set(sweep_id=sweep_id)))
    yield (
        "sweep-id-absolute",
        lambda folder: changed(edited(sweep, _set(sweep_id=str(folder.parent / OUTSIDE / "evil"))))(folder),
    )
    for number, trial_id in enumerate((f"../../{OUTSIDE}/evil", "..", "a/b", "x" * 300, "a\nb")):
        yield f"trial-id-{number}", changed(edited(trial, _set(trial_id=trial_id)))
    yield "inventory", changed(edited(sweep, _set(inventory=f"../../{OUTSIDE}")))
    for pick, word in ((sweep, "sweep"), (trial, "trial"), (log, "log"), (requests, "requests")):
        yield f"link-{word}", linked(pick, "OUTSIDE/secret")
        yield f"zero-{word}", linked(pick, "/dev/zero")
        yield f"pipe-{word}", piped(pick)
    yield "link-claims", linked(claims, "OUTSIDE/secret")
    yield "log-bomb", changed(written(log, lambda: log_bomb(4400)))
    yield "log-words", changed(written(log, lambda: log_bomb(900, b"=1 \xf0\x9f\x99\x82 \x1b]0;x\x07\n" * 60_000)))
    yield "requests-many", changed(many_requests)
    yield "requests-none", changed(written(requests, b"PAR1" + b"\xff" * 5000 + b"\xff\xff\xff\x7fPAR1"))
    for pick, word in ((sweep, "sweep"), (trial, "trial")):
        yield f"deep-{word}", changed(written(pick, lambda: b'{"a":' * 400_000 + b"1" + b"}" * 400_000))
        yield f"lists-{word}", changed(written(pick, lambda: b'{"runs":[' + b"[]," * 20_000_000 + b"[]]}"))
        yield (
            f"keys-{word}",
            changed(written(pick, lambda: b"{" + b",".join(b'"k%d":1' % number for number in range(2_000_000)) + b"}")),
        )
    yield "claims-laughs", changed(written(claims, f"{LAUGHS}\nclaims: *a9\n"))
    yield "claims-recursive", changed(written(claims, "claims: &a [*a]\n"))
    yield "claims-python", changed(written(claims, "claims: !!python/object/apply:os.system ['touch evil']\n"))
    for seed in range(114):
        yield f"mutated-{seed}", mutated(seed)


def claims(path: Path) -> Path:
    """The claims beside the archive."""
    return path / "claims.yml"


# Imports.


def as_file(name: str, data: Content) -> Callable[[Path], Path]:
    """One file."""

    def make(folder: Path) -> Path:
        _write(folder / name, data)
        return folder / name

    return make


def table(mapping: str, rows: Content) -> Callable[[Path], Path]:
    """A mapping file and its CSV."""

    def make(folder: Path) -> Path:
        (folder / "mapping.yml").write_text(mapping.replace("OUTSIDE", str(folder.parent / OUTSIDE)))
        _write(folder / "rows.csv", rows)
        return folder / "mapping.yml"

    return make


MAPPING = """id: ID
name: mine
nodes: {node: {gpu: NVIDIA L4, count: 1}}
objective: {metric: output_tok_per_s}
tables:
  - file: FILE
    axes: {max_num_seqs: {column: seqs}}
    level: {concurrency: 32, requests: 100}
    fields: {output_tok_per_s: {column: speed}}
"""


def mapping(file: str = "rows.csv", name: str = "mine", more: str = "") -> str:
    """A mapping file."""
    return MAPPING.replace("FILE", file).replace("ID", name) + more


def _import_cases() -> Iterator[tuple[str, Callable[[Path], Path]]]:
    head = b'{"completed": 1, "duration": 1, "output_throughput": 1, '
    rows = "seqs,speed\n" + "".join(f"{n},{n}\n" for n in range(1, 5))
    yield "json-deep", as_file("a.json", lambda: b"[" * 5_000_000)
    yield "json-lists", as_file("a.json", lambda: head + b'"itls": [' + b"[]," * 40_000_000 + b"[]]}")
    yield "json-large", as_file("a.json", lambda: head + b'"x": "' + "🙂".encode() * 80_000_000 + b'"}')
    yield "json-keys", as_file("a.json", lambda: b"{" + b",".join(b'"k%d":1' % n for n in range(3_000_000)) + b"}")
    yield "table-outside", table(mapping("../canary/secret"), rows)
    yield "table-absolute", table(mapping("OUTSIDE/secret"), rows)
    yield "table-id", table(mapping(name="../canary/evil"), rows)
    yield "table-laughs", table(f"{LAUGHS}\n" + mapping(more="provenance: {unknown: *a9}\n"), rows)
    yield "table-field", table(mapping(), f'seqs,speed\n1,"{"9" * 400_000}"\n')
    yield "table-columns", table(mapping(), ",".join(f"c{n}" for n in range(400_000)) + "\n" + "1," * 399_999 + "1\n")
    yield "table-rows", table(mapping(), lambda: b"seqs,speed\n" + b"1,1\n" * 3_000_000)
    yield "table-formula", table(mapping(), "seqs,speed\n=cmd|' /C calc'!A0,1\n+1,2\n@x,3\n-x,4\n")
    yield "log-without-end", lambda folder: _linked_file(folder, "/dev/zero")
    yield "pipe", lambda folder: _pipe(folder)


def _linked_file(folder: Path, target: str) -> Path:
    (folder / "results").mkdir()
    (folder / "results" / "a.json").symlink_to(target)
    return folder / "results"


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.json")
    return folder / "a.json"


def cases() -> tuple[Case, ...]:
    """All cases, always the same."""
    found = [Case(name=f"packed-{name}", command="report", make=make) for name, make in _packed_cases()]
    found += [Case(name=f"folder-{name}", command="report", make=make) for name, make in _folder_cases()]
    found += [Case(name=f"import-{name}", command="import", make=make) for name, make in _import_cases()]
    return tuple(found)
