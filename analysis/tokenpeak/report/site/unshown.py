"""Unshown archives: those of a site that cannot be shown, each with the reason, and the page that says it.

One archive that cannot be shown takes none of the others down: they have all their pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpeak.errors import IncompleteSiteError, TokenpeakError
from tokenpeak.paths import is_name
from tokenpeak.records import SweepRecord
from tokenpeak.report.site.cleaned_copy import cleaner_of, is_published
from tokenpeak.report.site.cleaner import Cleaner
from tokenpeak.report.site.known_words import KnownWords, is_identifying, own_words
from tokenpeak.report.site.pages import RESERVED
from tokenpeak.report.site.sweep_pages import SiteOptions, write_html

NAMED = 3
"""Archives that the error names with their reasons; their pages say the others."""


@dataclass(frozen=True, kw_only=True)
class Unshown:
    """An archive that cannot be shown: its sweep's id, or its folder's name where the record cannot be read."""

    name: str
    path: Path
    error: TokenpeakError
    record: SweepRecord | None = None

    def sentence(self) -> str:
        """Its name and why it is not shown."""
        return f"{self.name} is not shown: {self.error}"


def write_unshown(options: SiteOptions, found: Sequence[Unshown], shown: Mapping[str, object]) -> list[dict[str, str]]:
    """Write a page for each that says why, beside those of `shown` sweeps; the rows for the list of sweeps."""
    rows: list[dict[str, str]] = []
    used = {*RESERVED, *map(str.casefold, shown)}
    for each in found:
        cleaner = _cleaner(each, options)
        row = {"name": cleaner.word(each.name), "words": cleaner.text(_short(each, options)), "href": ""}
        if is_name(row["name"]) and row["name"].casefold() not in used:
            used.add(row["name"].casefold())
            row["href"] = f"{row['name']}/index.html"
            context: dict[str, Any] = {"root": "..", "here": "", "sweep": None, "page": None, "pages": ()}
            write_html(options, row["href"], "unshown.html", unshown=row, **context)
        rows.append(row)
    return rows


def _short(unshown: Unshown, options: SiteOptions) -> str:
    """The reason without the places of this machine."""
    words = str(unshown.error)
    for place in (options.folder, unshown.path.resolve(), unshown.path, unshown.path.parent):
        words = words.replace(f"{place}/", "").replace(str(place), unshown.name)
    return words


def _cleaner(unshown: Unshown, options: SiteOptions) -> Cleaner:
    """What takes names out of the reason; of a record that cannot be read, those that this machine gives are known."""
    record = unshown.record
    if record is not None:
        try:
            named = options.node_names or is_published(record)
            return cleaner_of(record, node_names=named, texts=options.texts)
        except TokenpeakError:
            pass
    kinds = {word.casefold(): kind for word, kind in own_words("") if is_identifying(word)}
    return Cleaner(KnownWords(labels={}, models={}, kinds=kinds), {}, secrets_only=options.node_names)


def require_all_shown(page: Path, found: Sequence[Unshown], shown: int) -> None:
    """IncompleteSiteError that names the archives of a whole site that are not shown; nothing where there is none."""
    if not found:
        return
    more = f" So are {len(found) - NAMED} more; the list of sweeps says why." if len(found) > NAMED else ""
    sentences = " ".join(each.sentence() for each in found[:NAMED])
    raise IncompleteSiteError(
        f"{len(found)} of {shown + len(found)} archives cannot be shown. {sentences}{more} The site is whole but for "
        f"that: {page}",
        page=page,
        names=tuple(each.name for each in found),
    )
