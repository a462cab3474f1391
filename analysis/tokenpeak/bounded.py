"""Reading of files that somebody else wrote: bounded bytes, zstd, JSON and YAML.

Each bound is on what a reader's memory and time grow with: bytes, values, depth, and what aliases or a packed frame
expand to. A file beyond a bound, or that is no plain file, is an error of one sentence.

The bounds are several times what the largest real archives hold: a trial's JSON has some hundred kilobytes, the plan of
ten thousand configs ten megabytes, an engine's log of an hour with every request logged twenty. `TOKENPEAK_LARGEST_MB`
raises the bound on bytes and values of single files for who trusts theirs.
"""

import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml

from tokenpeak.errors import ArchiveError, TokenpeakError
from tokenpeak.paths import shown

MEGABYTE = 1024**2
LARGEST_MB = 64
"""Of a text file, unless TOKENPEAK_LARGEST_MB says more."""
LARGEST_YAML_BYTES = 256 * 1024
"""Pure Python parses 100 kB in about a second; the largest claims of the published archives have 20 kB."""
VALUES_PER_MB, LISTS_PER_MB = 125_000, 8_000
"""A value takes 24 bytes of memory and more, a list or object 64 to 250."""
MOST_KEYS = 10_000
"""Of one object."""
DEEPEST = 60
MOST_YAML_NODES = 50_000
"""With every alias counted as often as it expands to."""
_MERGE = "tag:yaml.org,2002:merge"
LARGEST_LOG_BYTES = 32 * MEGABYTE
WIDEST_WINDOW_BYTES = 128 * MEGABYTE
"""The most that `zstd` itself unpacks without being asked to; TokenPeak packs with a sixteenth of it."""
LARGEST_NUMBER = 2**63

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{\]}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(rb"(?<![.\d])\d{16}|\d[eE]\+?\d{3}")

Error = type[TokenpeakError]


def largest_bytes() -> int:
    """The bound on a text file; ArchiveError for a setting that is no number."""
    setting = os.environ.get("TOKENPEAK_LARGEST_MB", str(LARGEST_MB))
    if not setting.isascii() or not setting.isdigit() or not 1 <= int(setting) <= 1_000_000:
        raise ArchiveError(f"TOKENPEAK_LARGEST_MB is {shown(setting)}; give a number of megabytes.")
    return int(setting) * MEGABYTE


def read_bytes(path: Path, most: int | None = None, *, error: Error = ArchiveError) -> bytes:
    """The content of a plain file of at most `most` bytes; a device, a pipe or a larger file is an error."""
    bound = largest_bytes() if most is None else most
    try:
        # Without waiting: opening a pipe would wait for whoever writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise error(f"{path}: no plain file. Give the file itself.")
            data = file.read(bound + 1) if facts.st_size <= bound else b""
    except (OSError, ValueError) as reason:
        words = reason.strerror if isinstance(reason, OSError) else reason
        raise error(f"{path}: cannot be read ({words}).") from reason
    if max(facts.st_size, len(data)) > bound:
        raise error(f"{path}: {facts.st_size:,} bytes, more than such a file has (at most {bound:,}). {_raise(most)}")
    return data


def _raise(most: int | None) -> str:
    return "Set TOKENPEAK_LARGEST_MB if it is yours." if most is None else "It was not read."


def unpacked(data: bytes, path: Path, most: int = LARGEST_LOG_BYTES) -> bytes:
    """The unpacked content of a zstd file, at most `most` bytes; `path` is named in errors."""
    # Commands that look at nodes alone are to start soon.
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=WIDEST_WINDOW_BYTES)
    try:
        with unpacker.stream_reader(data) as reader:
            content = bytes(reader.read(most + 1))
            if len(content) <= most and reader.read(1):
                raise ArchiveError(f"{path}: holds more than its first frame.")
    except zstandard.ZstdError as reason:
        raise ArchiveError(
            f"{path} is not a whole zstd file ({reason}). The trial's other files still load."
        ) from reason
    if len(content) > most:
        raise ArchiveError(f"{path}: unpacks to more than {most:,} bytes, which no engine's log has. It was not read.")
    return content


def parse_json(
    data: bytes,
    path: Path | str,
    *,
    nan: Literal["null", "refuse"] = "refuse",
    most: int | None = None,
    most_keys: int = MOST_KEYS,
    error: Error = ArchiveError,
) -> Any:
    """The JSON in a file's bytes; a key given twice, numbers beyond 64 bits and depth beyond DEEPEST are refused.

    NaN and infinities by name are refused or become None. `path` is named in errors, which are of the kind `error`.
    """
    _refuse_size(data, path, largest_bytes() if most is None else most, error)
    is_checked = _LONG_NUMBER.search(data) is not None
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            parse_constant=_finite_or(nan),
            object_pairs_hook=lambda pairs: _once(pairs, most_keys),
            parse_int=_whole if is_checked else None,
            parse_float=_finite_or("refuse") if is_checked else None,
        )
        if _SURROGATE.search(data):
            # Half of a surrogate pair can be written as an escape and as nothing else: it raises UnicodeEncodeError.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as reason:
        raise error(
            f"{path}: no whole JSON (line {reason.lineno}, column {reason.colno}: {reason.msg}). "
            "Was it copied while it was written?"
        ) from reason
    except (ValueError, RecursionError) as reason:
        raise error(f"{path}: no JSON that can be read ({reason}).") from reason


def _refuse_size(data: bytes, path: Path | str, bound: int, error: Error) -> None:
    values, lists = data.count(b","), data.count(b"[") + data.count(b"{")
    scale = max(bound, LARGEST_MB * MEGABYTE) // MEGABYTE
    for count, most, kind in ((values, VALUES_PER_MB * scale, "values"), (lists, LISTS_PER_MB * scale, "lists")):
        if count > most:
            raise error(f"{path}: {count:,} {kind}, more than any such file has (at most {most:,}).")
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        sign = data[match.start()]
        if sign in b"[{":
            depth += 1
            if depth > DEEPEST:
                raise error(f"{path}: nested deeper than {DEEPEST} levels, which no such file is.")
        elif sign in b"]}":
            depth -= 1


def _once(pairs: list[tuple[str, Any]], most_keys: int) -> dict[str, Any]:
    if len(pairs) > most_keys:
        raise ValueError(f"an object of {len(pairs):,} keys, at most {most_keys:,} make sense")
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} is given twice in one object")
    return values


def _whole(text: str) -> int:
    if len(text) > 20 or not -LARGEST_NUMBER <= int(text) < LARGEST_NUMBER:
        raise ValueError(f"{shown(text)} is a larger number than 64 bits hold")
    return int(text)


def _finite_or(nan: Literal["null", "refuse"]) -> Callable[[str], float | None]:
    def number(text: str) -> float | None:
        value = float(text)
        if math.isfinite(value):
            return value
        if nan == "refuse":
            raise ValueError(f"{shown(text)} is no finite number; what is not known must be null")
        return None

    return number


class _Loader(yaml.SafeLoader):
    """YAML of plain values whose numbers have a length that makes sense."""

    nan: Literal["null", "refuse"] = "refuse"

    def number(self, node: yaml.ScalarNode) -> object:
        """A number; ValueError for one that is long or not finite."""
        text = str(node.value)
        if len(text) > 40:
            raise ValueError(f"{shown(text)} is no number")
        made = self.construct_yaml_float if node.tag.endswith(":float") else self.construct_yaml_int
        value = made(node)
        if isinstance(value, float) and not math.isfinite(value):
            if self.nan == "null":
                return None
            raise ValueError(f"{shown(text)} is no finite number")
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.number)


def read_yaml(
    path: Path,
    *,
    nan: Literal["null", "refuse"] = "refuse",
    error: Error = ArchiveError,
    most: int = LARGEST_YAML_BYTES,
) -> Any:
    """The YAML in a file, with no more nodes than MOST_YAML_NODES once every alias is expanded; `error` otherwise.

    A key that is given twice is an error too. What is no finite number is one as well, unless `nan` is "null".
    """
    root = read_yaml_node(path, error=error, most=most)
    if root is None:
        return None
    with yaml_errors(path, error):
        loader = _Loader("")
        loader.nan = nan
        return loader.construct_document(root)


def read_yaml_node(path: Path, *, error: Error = ArchiveError, most: int = LARGEST_YAML_BYTES) -> yaml.Node | None:
    """The same as nodes, which know their lines and are of any tag; None for an empty file."""
    data = read_bytes(path, most, error=error)
    with yaml_errors(path, error):
        loader = _Loader(data.decode("utf-8-sig"))
        try:
            root = loader.get_single_node()
            if root is not None:
                _refuse_expansion(root)
                _refuse_repeated_keys(root)
            return root
        finally:
            loader.dispose()


_PROBLEMS = {
    "'\\t' that cannot start any token": "a tab, where YAML indents by spaces",
    "mapping values are not allowed": "a colon in a text: put it into quotes, or look at the indentation",
    "expected <block end>": "a line that does not fit those above it: look at its indentation and quotes",
    "expected ',' or": "a bracket or brace that nothing closes",
    "unexpected end of stream": "a quote that nothing closes",
}
"""What the YAML library says → the same for whoever wrote the file."""


@contextmanager
def yaml_errors(path: Path, error: Error) -> Iterator[None]:
    """Whatever the YAML library raises, as one `error` that names the file and, where it is known, the line."""
    try:
        yield
    except RecursionError as reason:
        raise error(f"{path} is not YAML that can be read: it is nested too deep.") from reason
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = reason.problem or reason.context or ""
        plain = next((words for theirs, words in _PROBLEMS.items() if theirs in problem), shown(problem, 200)[1:-1])
        raise error(f"{path} is not YAML: {place}{plain}.") from reason
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as reason:
        raise error(f"{path} is not YAML that can be read: {shown(str(reason), 200)[1:-1]}.") from reason


def _refuse_repeated_keys(root: yaml.Node) -> None:
    """Raise for a mapping with a key twice, of which YAML would drop the first; merges (`<<`) may be several."""
    checked: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in checked:
            continue
        checked.add(id(node))
        stack += _below(node)
        keys: dict[tuple[str, str], int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            name = (key.tag, key.value)
            if (first := keys.get(name)) is not None:
                text = f"the key {shown(key.value)} is given twice, first in line {first}; remove one"
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            keys[name] = key.start_mark.line + 1


def _refuse_expansion(root: yaml.Node) -> None:
    """Raise ValueError for too many nodes, each alias counted as what it expands to, and for circles of them."""
    sizes: dict[int, int] = {}
    depths: dict[int, int] = {}
    underway: set[int] = set()
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, is_counted = stack.pop()
        below = _below(node)
        if is_counted:
            underway.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in below)
            depths[id(node)] = 1 + max((depths[id(each)] for each in below), default=0)
            if sizes[id(node)] > MOST_YAML_NODES or depths[id(node)] > DEEPEST:
                raise ValueError(f"expands to more than {MOST_YAML_NODES:,} values, or {DEEPEST} levels")
        elif id(node) in underway:
            raise ValueError("an alias stands within what it names")
        elif id(node) not in sizes:
            underway.add(id(node))
            stack.append((node, True))
            for each in below:
                if id(each) in underway:
                    raise ValueError("an alias stands within what it names")
            stack += [(each, False) for each in below if id(each) not in sizes]


def _below(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
