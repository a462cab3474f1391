"""The copy of an archive that may leave: nodes under labels, addresses gone, everything else as it was measured.

The site is made from this copy, so that no page can show what the copy does not hold.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
import zstandard

from tokenpeak import bounded
from tokenpeak.errors import ArchiveError
from tokenpeak.records import NodeFacts, SweepRecord
from tokenpeak.store.raw import Archive

ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
ADDRESS_WORD = "address"
HOME = re.compile(r"(?<![\w/])(?:/root|/home/[^/\s\"']+)(?=/|$)")
"""A home folder, which names a person."""
HARMLESS = {"127.0.0.1", "0.0.0.0"}  # noqa: S104
NODE_FIELDS = frozenset({"node", "nodes", "unrestored", "load_host", "load_hosts", "server"})
"""Fields whose strings are nodes or load hosts."""
HIDDEN = {
    "gpus": frozenset({"uuid"}),
    "nodes": frozenset({"vram_holders", "kernel"}),
    "production": frozenset({"url"}),
    "calibrations": frozenset({"host"}),
}
"""Fields that name a machine or what runs on it, by the record that holds them."""


def labels(record: SweepRecord) -> dict[str, str]:
    """What pages call each node and load host: node 1, node 2, … in the sweep's order."""
    return {
        **{name: f"load host {index}" for index, name in enumerate(record.load_hosts, start=1)},
        **{node.node: f"node {index}" for index, node in enumerate(record.nodes, start=1)},
    }


def release(source: Path, target: Path, *, node_names: bool) -> None:
    """Copy the archive at `source` to `target`, with names and addresses replaced unless `node_names`.

    A file that is no JSON is left out: the archive names it as malformed, and its content is nobody's to publish.
    """
    archive = Archive(source)
    record = archive.read_sweep()
    clean = (lambda value: value) if node_names else cleaner(labels(record), hosts(record.nodes))
    (target / "trials").mkdir(parents=True, exist_ok=True)
    for path in [source / "sweep.json", source / "end.json", *sorted((source / "trials").glob("[!.]*.json"))]:
        if path.is_file():
            _copy_json(path, target / path.relative_to(source), clean)
    if (claims := source / "claims.yml").is_file():
        _copy_claims(claims, target / claims.name, clean, as_is=node_names)
    for path in sorted((source / "trials").glob("[!.]*.parquet")):
        _link(path, target / "trials" / path.name)
    for path in sorted((source / "trials").glob("[!.]*.log.zst")):
        _copy_log(path, target / "trials" / path.name, clean, as_is=node_names)


def hosts(nodes: Iterable[NodeFacts]) -> set[str]:
    """Host names and addresses that the nodes' facts give away."""
    urls = [node.production.url for node in nodes if node.production and node.production.url]
    urls += [f"//{node.node}" for node in nodes if node.source == "endpoint" and "." in node.node]
    return {host for url in urls if (host := urlsplit(url).hostname) and host not in HARMLESS}


def cleaner(names: dict[str, str], addresses: set[str]) -> Callable[[Any], Any]:
    """A function that replaces names by labels and addresses by a word in any JSON value.

    In running text only names are replaced that look like a host's, with a digit, a dot or a dash: a node called `cpu`
    gives nothing away, and the word has other uses.
    """
    telling = {name: label for name, label in names.items() if re.search(r"[\d.-]", name)}
    words = {**dict.fromkeys(addresses, ADDRESS_WORD), **telling}
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)"
    pattern = re.compile(rf"(?<![\w.-])(?:{alternatives})(?![\w-])")

    def text(value: str) -> str:
        renamed = HOME.sub("~", pattern.sub(lambda found: words[found[0]], value))
        return ADDRESS.sub(lambda found: found[0] if found[0] in HARMLESS else ADDRESS_WORD, renamed)

    def clean(value: Any, field: str = "") -> Any:
        if isinstance(value, str):
            return names[value] if field in NODE_FIELDS and value in names else text(value)
        if isinstance(value, list):
            return [clean(item, field) for item in value]
        if isinstance(value, dict):
            hidden = HIDDEN.get(field, frozenset())
            by_node = field == "production_downtime_s"
            return {
                names.get(key, key) if by_node else key: _nothing(item) if key in hidden else clean(item, key)
                for key, item in value.items()
            }
        return value

    return clean


def _nothing(value: Any) -> Any:
    return [] if isinstance(value, list) else None


def _copy_json(source: Path, target: Path, clean: Callable[[Any], Any]) -> None:
    try:
        value = bounded.parse_json(bounded.read_bytes(source), source)
    except ArchiveError:
        return
    target.write_text(json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")) + "\n")


def _copy_claims(source: Path, target: Path, clean: Callable[[Any], Any], *, as_is: bool) -> None:
    """Claims pick runs by their node, so that labels stand there too."""
    if as_is:
        _link(source, target)
        return
    value = bounded.read_yaml(source)
    target.write_text(yaml.safe_dump(clean(value), allow_unicode=True, sort_keys=False))


def _copy_log(source: Path, target: Path, clean: Callable[[Any], Any], *, as_is: bool) -> None:
    if as_is:
        _link(source, target)
        return
    text = bounded.unpacked(bounded.read_bytes(source), source).decode("utf-8", "replace")
    target.write_bytes(zstandard.ZstdCompressor().compress(clean(text).encode()))


def _link(source: Path, target: Path) -> None:
    """The same bytes without a second copy where the file system can; raw files are never edited."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
