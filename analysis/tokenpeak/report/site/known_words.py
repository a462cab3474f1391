"""Known words of an archive: what its nodes, models and users are called, and what stands for them in a copy.

A name has no pattern. So it comes from the record, from the inventory if that is on this machine, and from this
machine itself, and replaced wherever it stands as a word.
"""

import getpass
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from tokenpeak import paths
from tokenpeak.errors import InputError
from tokenpeak.loadgen.calibration import HERE
from tokenpeak.records import Config, SweepRecord
from tokenpeak.report.site.disclosure import private_values
from tokenpeak.sensitive import HARMLESS_HOSTS, LABEL
from tokenpeak.spec.axes import Alternative, ExtraConfig
from tokenpeak.spec.mistakes import LocatedYaml
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.flags import flag_table

_COMMON = """
root admin user users ubuntu debian centos fedora ansible vllm engine model models production prod node
nodes gpu cpu host hosts server local localhost localdomain main test default all one two three service
systemd docker podman compose kubernetes deployment statefulset nobody daemon runner worker sim rig
python python3 load none nvidia amd intel cuda rocm llm openai api http https tokenpeak
"""
COMMON = frozenset(_COMMON.split())
"""Names that give nobody away, and that text needs for other things."""
SHORTEST = 3
LONGEST_NAME = 80
"""Letters of a model's or a device's name; a longer text is no name."""
HOST_KEYS = frozenset({"ansible_host", "tokenpeak_host"})
_WORD = re.compile(r"[^\s<>,:=\"'\[\]{}]+")
USER_KEYS = frozenset({"ansible_user", "ansible_ssh_user", "ansible_become_user", "tokenpeak_engine_user", "user"})
SETTING_KEYS = frozenset({"unit", "project", "namespace", "context"})
"""Of production: what it is called on its node."""


@dataclass(frozen=True, kw_only=True)
class KnownWords:
    """What stands for what: nodes and load hosts by label, models by name; others by the kind of thing they are."""

    labels: Mapping[str, str]
    models: Mapping[str, str]
    kinds: Mapping[str, str]

    def pattern(self) -> re.Pattern[str]:
        """Any of the words, where letters and digits around it do not make it part of another."""
        words = [*filter(is_identifying, self.labels), *self.models, *self.kinds]
        alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)"
        return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", re.IGNORECASE)


def is_identifying(word: str) -> bool:
    """A name that gives something away where it stands in a text."""
    return len(word) >= SHORTEST and word.casefold() not in COMMON


def known_words(record: SweepRecord, spec: SweepSpec) -> KnownWords:
    """The words of an archive."""
    shown = _shown(record)
    exact = node_labels(record)
    labels = {name: label for name, label in exact.items() if name.casefold() not in shown or "." in name}
    found = {}
    for word, kind in (*_of_record(record), *_of_settings(record, spec), *own_words(record.inventory)):
        plain = word.casefold()
        if is_identifying(word) and plain not in shown and word not in exact and not LABEL.fullmatch(word):
            found[plain] = kind
    # The first part of a full name is the same machine.
    short = {
        name.split(".")[0]: label
        for name, label in labels.items()
        if re.fullmatch(r"[A-Za-z][\w-]*\.[\w.-]*[A-Za-z]", name)
    }
    return KnownWords(labels={**short, **labels}, models=_models(record, spec), kinds=found)


def own_words(inventory: str) -> tuple[tuple[str, str], ...]:
    """Words that the inventory of that name and this machine give, each with its kind."""
    return tuple(dict.fromkeys([*_of_inventory(inventory), *_of_machine()]))


def node_labels(record: SweepRecord) -> dict[str, str]:
    """Label of each node and load host on pages, whatever it is called: node-1, node-2, … in the sweep's order."""
    found = {
        **{name: f"load-host-{index}" for index, name in enumerate(record.load_hosts, start=1)},
        **{node.node: f"node-{index}" for index, node in enumerate(record.nodes, start=1)},
    }
    for calibration in _calibrations(record):
        way = calibration.get("way") or {}
        ways = [("node", way.get("server")), *(("load-host", name) for name in way.get("load_hosts") or ())]
        for what, name in ways:
            if isinstance(name, str) and name != HERE and name not in found:
                count = sum(label.startswith(f"{what}-") for label in found.values())
                found[name] = name if LABEL.fullmatch(name) else f"{what}-{count + 1}"
    return found


def _calibrations(record: SweepRecord) -> list[Mapping[str, Any]]:
    raw = (record.calibration or {}).get("calibrations")
    return [each for each in raw if isinstance(each, dict)] if isinstance(raw, list) else []


def _shown(record: SweepRecord) -> frozenset[str]:
    """Words of what a site is for: the names of GPUs, processors and models."""
    texts = [gpu.name for node in record.nodes for gpu in node.gpus]
    texts += [text for node in record.nodes for text in (node.cpu, node.os) if text]
    texts += [plan.config.model.name for each in record.plans for plan in each.feasible]
    texts = [text for text in texts if not text.startswith("/") and len(text) <= LONGEST_NAME]
    return frozenset(word.casefold() for text in texts for word in (text, *re.split(r"[^A-Za-z0-9]+", text)))


def _models(record: SweepRecord, spec: SweepSpec) -> dict[str, str]:
    """For each model that is a path on a node: its last part, and a number where two end alike."""
    configs = _configs(record)
    names = [name for config in configs for name in (config.model.name, config.model.served_name)]
    patches = [alternative.model for choices in spec.axes.values() for alternative in choices]
    patches += [spec.fixed.model, *(extra.model for extra in spec.extra_configs)]
    names += [name for model in (spec.model, *patches) if model for name in (model.name, model.served_name) if name]
    names += [node.production.model for node in record.nodes if node.production and node.production.model]
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if re.match(r"[/~.]|file:", name):
            last = PurePosixPath(name).name
            last = last if re.fullmatch(r"[\w.+@=-]{1,96}", last) else "model"
            used = [*found.values()]
            found[name.rstrip("/")] = last if last not in used else f"{last}-{len(used) + 1}"
    return found


def _of_record(record: SweepRecord) -> Iterator[tuple[str, str]]:
    for node in record.nodes:
        if node.production is None:
            continue
        if node.production.url and (host := urlsplit(node.production.url).hostname):
            yield from _host(host)
        if node.production.unit:
            yield from _setting(node.production.unit)


def _of_settings(record: SweepRecord, spec: SweepSpec) -> Iterator[tuple[str, str]]:
    """What stands in values of flags and variables that do not leave; a choice's name and a config's may repeat it."""
    patches = [alternative for choices in spec.axes.values() for alternative in choices]
    parts: list[Config | Alternative | ExtraConfig] = [*_configs(record), *patches, spec.fixed, *spec.extra_configs]
    settings = [each for part in parts for each in (*part.flags.items(), *part.env.items())]
    settings += [each for node in record.nodes for each in node.engine_env.items()]
    vocabulary = {word for flag in flag_table().flags for word in flag.split("_")}
    # Tables name adapters by what a workload calls them; the flag that gives them their folders repeats it.
    vocabulary |= {name.casefold() for plan in spec.workloads for name in getattr(plan.workload, "adapters", ())}
    values = dict.fromkeys(value for name, setting in settings for value in private_values(name, setting))
    for word in dict.fromkeys(word for value in values if " " not in value for word in _WORD.findall(value)):
        # A flag's own words, and the beginnings of other paths, stand in texts for other things.
        if word.casefold() not in vocabulary and not word.startswith(("/", "~", "-")):
            yield word, "private"


def _configs(record: SweepRecord) -> list[Config]:
    configs = [planned.config for plan in record.plans for planned in plan.feasible]
    return [*configs, *(dropped.config for plan in record.plans for dropped in plan.dropped)]


def _of_machine() -> Iterator[tuple[str, str]]:
    yield from _host(socket.gethostname())
    try:
        yield getpass.getuser(), "user"
    except (KeyError, OSError):
        return


def _of_inventory(name: str) -> Iterator[tuple[str, str]]:
    """Words of the inventory of that name, when it is one of this machine's."""
    folder = paths.INVENTORIES / name
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or not folder.is_dir():
        return
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml") and path.is_file()):
        yield from _in_file(file)


def _in_file(file: Path) -> Iterator[tuple[str, str]]:
    try:
        # With Ansible's own tags, as of what came from a node.
        raw = LocatedYaml(file).values()
    except InputError:
        return
    if file.parent.name == "host_vars":
        yield from _host(file.stem)
    yield from _walk(raw, "")


def _walk(value: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if key == "hosts":
                yield from _host(str(name))
            yield from _walk(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, "")
    elif isinstance(value, str) and "{{" not in value:
        if key in HOST_KEYS:
            yield from _host(value)
        elif key in USER_KEYS:
            yield value, "user"
        elif key in SETTING_KEYS:
            yield from _setting(value)


def _host(name: str) -> Iterator[tuple[str, str]]:
    if name in HARMLESS_HOSTS:
        return
    yield name, "host"
    if not re.fullmatch(r"[\d.:]+", name):
        yield name.split(".")[0], "host"


def _setting(name: str) -> Iterator[tuple[str, str]]:
    """A unit under its full name and without kind or ending."""
    parts: Iterable[str] = (name, name.rpartition("/")[2], name.rpartition("/")[2].rpartition(".")[0])
    for part in parts:
        if is_identifying(part.rpartition(".")[0] or part):
            yield part, "private"
