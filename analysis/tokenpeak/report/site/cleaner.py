"""Cleaner of records and texts: each field leaves by its rule, each text without names and sensitive patterns.

The same text becomes the same word everywhere in one archive, so that what is joined by a name stays joined.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tokenpeak.loadgen.calibration import HERE, Calibration
from tokenpeak.node.protocol.parts import LEFT_DOWN
from tokenpeak.report.site.disclosure import (
    FieldRule,
    fields_of,
    holds_text,
    is_model,
    is_public,
    is_record,
    json_of,
    parts_of,
    rule_of,
)
from tokenpeak.report.site.known_words import KnownWords
from tokenpeak.sensitive import KINDS, LABEL, MODEL_PLACE, PRIVATE_KEY, SECRET_NAME, is_secret_setting, mask
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.vllm.symptoms import is_own_sentence

PUBLIC_IMAGES = (
    *(f"{registry}{publisher}/" for registry in ("", "docker.io/") for publisher in ("vllm", "rocm")),
    "nvcr.io/nvidia/",
    "public.ecr.aws/q9t5s3a7/",
)
"""Beginnings of the names of vLLM's, AMD's and NVIDIA's own images of vLLM."""

RecordT = TypeVar("RecordT")

MODEL_FOLLOWS = frozenset({"serve", "--model"})
"""Words of a command line after which the model stands."""
CACHED_LETTERS = 400


@dataclass
class Findings:
    """Findings by kind: how often, and in which file first."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Files that no copy has."""
    skipped: list[str] = field(default_factory=list)
    """Files of the format that could not be read, each with the reason."""

    def add(self, kind: str, where: str, count: int = 1) -> None:
        """Count a finding."""
        self.counts[kind] += count
        self.first.setdefault(kind, where)

    def lines(self) -> list[str]:
        """A line for each kind."""
        return [f"{KINDS[kind]}: {count:,} (first in {self.first[kind]})" for kind, count in self.counts.most_common()]


class Cleaner:
    """Cleans what belongs to one archive; with `secrets_only` nothing but secrets goes.

    Without `texts`, what anybody may have written stays at home.
    """

    def __init__(
        self, words: KnownWords, labels: Mapping[str, str], *, secrets_only: bool = False, texts: bool = False
    ) -> None:
        self.findings = Findings()
        self.where = ""
        self._labels = dict(labels)
        self._words = {word.casefold(): label for word, label in words.labels.items()}
        self._kinds = words.kinds
        self._pattern = words.pattern()
        self._secrets_only = secrets_only
        self.texts = texts or secrets_only
        self._numbers: dict[str, dict[str, int]] = {}
        self._seen: dict[str, tuple[str, Counter[str]]] = {}
        self._models = {
            word.casefold(): mask(name, self._mask(Counter(), "<{}-{}>")) for word, name in words.models.items()
        }

    def text(self, value: str) -> str:
        """The text without names and sensitive patterns."""
        if value not in self._seen:
            kinds: Counter[str] = Counter()
            cleaned = self._cleaned(value, kinds, "<{}-{}>")
            if len(value) > CACHED_LETTERS:
                return self._noted(cleaned, kinds)
            self._seen[value] = cleaned, kinds
        return self._noted(*self._seen[value])

    def word(self, value: str) -> str:
        """The same for an identifier, which stays one."""
        kinds: Counter[str] = Counter()
        return self._noted(self._cleaned(value, kinds, "{}-{}"), kinds)

    def log(self, value: str) -> str:
        """The same for a long text of many lines."""
        whole = PRIVATE_KEY.regex.sub(lambda found: self._masked("secret", found[0]), value)
        return "".join(self.text(line) for line in whole.splitlines(keepends=True))

    def plain(self, value: Any, key: str = "") -> Any:
        """A parsed JSON or YAML value with every text in it cleaned, keys too; `node` names nodes."""
        if isinstance(value, str):
            is_node = key in ("node", "nodes") and value in self._labels
            return self._node(value) if is_node else self.text(value)
        if isinstance(value, list):
            if all(isinstance(item, str) for item in value) and any(item.startswith("--") for item in value):
                return list(self._argv(value))
            return [self.plain(item, key) for item in value]
        if isinstance(value, dict):
            return {
                self.text(name) if isinstance(name, str) else name: self._masked("secret", item)
                if isinstance(item, str) and is_secret_setting(str(name), item)
                else self.plain(item, str(name))
                for name, item in value.items()
            }
        return value

    def record(self, record: RecordT) -> RecordT:
        """The record with each field as its rule says."""
        kind: Any = type(record)
        changed = {}
        for name, has_text, has_parts in _fields(kind):
            value = getattr(record, name)
            if has_text:
                changed[name] = self._by_rule(rule_of(kind, name), value, kind, name)
            elif has_parts:
                changed[name] = self._parts(value)
        if isinstance(record, BaseModel):
            return record.model_copy(update=changed)
        return replace(record, **changed)  # type: ignore[type-var]

    def _parts(self, value: Any) -> Any:
        if is_record(value):
            return self.record(value)
        if isinstance(value, tuple | list):
            return type(value)(self._parts(item) for item in value)
        if isinstance(value, dict):
            return {key: self._parts(item) for key, item in value.items()}
        return value

    def _by_rule(self, rule: FieldRule, value: Any, kind: type[Any], name: str) -> Any:
        if value is None:
            return None
        match rule:
            case FieldRule.PRIVATE:
                return value if self._secrets_only else self._emptied(value, kind, name)
            case FieldRule.FREE if not self.texts:
                return self._withheld(value)
            case FieldRule.SPEC:
                return self.record(parse_spec(value, Path(self.where))).model_dump(mode="json")
            case FieldRule.CALIBRATIONS:
                return self._calibrations(value)
            case FieldRule.ENV:
                return {self.text(key): self._setting(key, item) for key, item in value.items()}
            case FieldRule.FLAGS:
                return {self.word(key): self._setting(key, item) for key, item in value.items()}
            case FieldRule.ARGV:
                return tuple(self._argv(value))
            case _:
                return self._each(rule, value)

    def _each(self, rule: FieldRule, value: Any) -> Any:
        if isinstance(value, str):
            return self._one(rule, value)
        if isinstance(value, tuple | list):
            return type(value)(self._each(rule, item) for item in value)
        if is_record(value):
            return self.record(value)
        if isinstance(value, dict):
            # Values of a mapping by name are figures, texts, or records.
            within = FieldRule.TEXT if rule in (FieldRule.NODE, FieldRule.WORD) else rule
            return {
                self._one(rule, key): self._each(within, item) if _may_hold_text(item) else item
                for key, item in value.items()
            }
        return value

    def _one(self, rule: FieldRule, value: str) -> str:
        match rule:
            case FieldRule.NODE:
                return self._node(value)
            case FieldRule.WORD | FieldRule.URL:
                return self.word(value)
            case FieldRule.VERSION if _is_version(value):
                return value
            case FieldRule.IMAGE if value.startswith(PUBLIC_IMAGES):
                return value
            case FieldRule.FILE | FieldRule.IMAGE if not self._secrets_only and "/" in value:
                self.findings.add("path", self.where)
                return self.word(PurePosixPath(value).name)
            case _:
                return self.text(value)

    def _node(self, value: str) -> str:
        if self._secrets_only or value == HERE:
            return value
        if value not in self._labels:
            self._labels[value] = f"node-{len(self._labels) + 1}"
        if self._labels[value] != value:
            self.findings.add("name", self.where)
        return self._labels[value]

    def _setting(self, name: str, value: Any) -> Any:
        """The value of a flag or variable: what everybody has stays, of JSON each value by its key."""
        if not isinstance(value, str):
            return value
        if (parsed := json_of(value)) is not None:
            cleaned = self.plain(parsed, name) if self._secrets_only else self._within(parsed, name)
            return self.text(value) if cleaned == parsed else json.dumps(cleaned, ensure_ascii=False)
        return self._within(value, name)

    def _within(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {self.text(name): self._within(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._within(item, key) for item in value]
        if is_secret_setting(key, value):
            return self._masked("secret", str(value))
        if not isinstance(value, str):
            return value
        cleaned = self.text(value)
        if self._secrets_only or is_public(key, value) or is_model(key) or LABEL.fullmatch(cleaned):
            return cleaned
        return self._masked("private", value)

    def _argv(self, words: Iterable[str]) -> Iterable[str]:
        """Each word; values by their flag, which may have several."""
        option = before = ""
        for index, word in enumerate(words):
            name, equals, value = word.partition("=")
            if word.startswith("--"):
                option = "" if equals else name
                yield f"{self.text(name)}={self._argument(name, value)}" if equals else self.text(word)
            elif (not index or before in MODEL_FOLLOWS) and word.startswith("/") and not self._secrets_only:
                # The program's name, and the model's, without where they lie: of the model, that it lies somewhere.
                place = MODEL_PLACE if index else ""
                cleaned = place + self.text(PurePosixPath(word).name)
                if cleaned != word:
                    self.findings.add("path", self.where)
                yield cleaned
            elif option and (SECRET_NAME.search(option.lstrip("-")) or not word.startswith("-")):
                yield self._argument(option, word)
            else:
                option = ""
                yield f"{name}={self._setting(name, value)}" if equals and name.isidentifier() else self.text(word)
            before = word

    def _argument(self, option: str, value: str) -> str:
        """The value of an option; of one that may hold a secret it is one."""
        is_secret = SECRET_NAME.search(option.lstrip("-"))
        return self._masked("secret", value) if is_secret else str(self._setting(option, value))

    def _calibrations(self, value: Mapping[str, Any]) -> dict[str, object] | None:
        """Calibrations that can be read; others are nobody's to publish."""
        raw = value.get("calibrations")
        found = []
        for each in raw if isinstance(raw, list) else ():
            try:
                read = Calibration.model_validate(each)
            except ValidationError:
                continue
            found.append(self.record(read).model_dump(mode="json"))
        return {"calibrations": found} if found else None

    def _withheld(self, value: Any) -> Any:
        """A mark for each text that is no sentence of ours, so that where one was is still seen."""
        if isinstance(value, str):
            if value in ("", WITHHELD, LEFT_DOWN) or is_own_sentence(value):
                return value
            self.findings.add("text", self.where)
            return WITHHELD
        if isinstance(value, dict):
            return {self.text(key): self._withheld(item) for key, item in value.items()}
        return type(value)(map(self._withheld, value))

    def _emptied(self, value: Any, kind: type[Any], name: str) -> Any:
        """Nothing, in the field's own type."""
        if value not in ("", (), [], {}, PRIVATE):
            self.findings.add("private", self.where)
        declared = fields_of(kind)[name]
        if not declared.is_required():
            return declared.get_default(call_default_factory=True)
        if isinstance(value, tuple | list | dict):
            return type(value)()
        return PRIVATE if isinstance(value, str) and not _may_be_none(declared.annotation) else None

    def _cleaned(self, value: str, kinds: Counter[str], shape: str) -> str:
        word = self._mask(kinds, shape)
        if not self._secrets_only:
            value = self._pattern.sub(lambda found: self._known(found[0], kinds, word), value)
        return mask(value, word, secrets_only=self._secrets_only)

    def _known(self, found: str, kinds: Counter[str], word: Any) -> str:
        plain = found.casefold()
        if plain in self._models:
            kinds["path"] += 1
            return self._models[plain]
        if plain in self._words:
            kinds["name"] += self._words[plain] != found
            return self._words[plain]
        return str(word(self._kinds[plain], found))

    def _mask(self, kinds: Counter[str], shape: str) -> Any:
        def word(kind: str, found: str) -> str:
            kinds[kind] += 1
            return shape.format(kind, self._number(kind, found))

        return word

    def _masked(self, kind: str, found: str) -> str:
        if LABEL.fullmatch(found):
            return found
        self.findings.add(kind, self.where)
        return f"<{kind}-{self._number(kind, found)}>"

    def _number(self, kind: str, found: str) -> int:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(found, len(numbers) + 1)

    def _noted(self, cleaned: str, kinds: Counter[str]) -> str:
        for kind, count in kinds.items():
            if count:
                self.findings.add(kind, self.where, count)
        return cleaned


PRIVATE = "private"
"""What stands for a text that must be there and is nobody's to read."""
WITHHELD = "(text withheld; the option --texts shows it)"
"""What stands for a text that anybody may have written, where texts were not asked for."""


@lru_cache
def _fields(kind: type[Any]) -> tuple[tuple[str, bool, bool], ...]:
    """Each field with whether it can hold text, and whether it can hold records."""
    return tuple(
        (name, holds_text(declared.annotation), any(parts_of(declared.annotation)))
        for name, declared in fields_of(kind).items()
    )


def _may_hold_text(value: Any) -> bool:
    return (
        isinstance(value, str | dict)
        or is_record(value)
        or (isinstance(value, tuple | list) and any(isinstance(item, str) or is_record(item) for item in value))
    )


def _may_be_none(annotation: Any) -> bool:
    return type(None) in getattr(annotation, "__args__", ())


def _is_version(value: str) -> bool:
    """Digits, dots and marks, as versions of software have; not the four numbers of an address alone."""
    return bool(value) and len(value) <= 60 and all(letter.isalnum() or letter in ".+-_" for letter in value)
