"""Whether every link of a built site leads somewhere inside it."""

import re
from dataclasses import dataclass
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_QUOTED = r"\"[^\"]*\"|'[^']*'"
_ELEMENT = re.compile(rf"<(a|script|link|img)(?=[\s/>])((?:[^>\"']+|{_QUOTED})*+)>", re.IGNORECASE)
_ADDRESS = re.compile(rf"\s(?:href|src)\s*=\s*({_QUOTED}|[^\s\"'>]+)", re.IGNORECASE)
_ID = re.compile(rf"\sid\s*=\s*({_QUOTED})", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class _LinkedPage:
    """A page's addresses and identifiers. A browser loads what is `fetched` by itself.

    Pages escape quotes in their text, so an attribute is found without parsing the elements, most of which are a
    figure's; an HTML parser takes fifteen times as long.
    """

    links: tuple[str, ...]
    fetched: tuple[str, ...]
    ids: frozenset[str]


def _page(text: str) -> _LinkedPage:
    links: list[str] = []
    fetched: list[str] = []
    for element, attributes in _ELEMENT.findall(text):
        found = [unescape(address.strip("\"'")) for address in _ADDRESS.findall(attributes)]
        (links if element.lower() == "a" else fetched).extend(found)
    ids = frozenset(unescape(name[1:-1]) for name in _ID.findall(text))
    return _LinkedPage(links=tuple(links), fetched=tuple(fetched), ids=ids)


def broken_links(site: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and for anything that a page would load from elsewhere."""
    pages = {path.resolve(): _page(path.read_text()) for path in sorted(site.rglob("*.html"))}

    @cache
    def target_of(folder: Path, path: str) -> tuple[Path, bool]:
        target = (folder / unquote(path)).resolve()
        return target, target.is_file()

    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve()).as_posix()
        for address in [*page.links, *page.fetched]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.fetched:
                    found.append(f"{name} loads {address} from elsewhere")
                continue
            target, is_there = target_of(path.parent, parts.path) if parts.path else (path, True)
            if not is_there:
                found.append(f"{name} links to {address}, which is not there")
            elif _is_place(parts.fragment) and target in pages and parts.fragment not in pages[target].ids:
                found.append(f"{name} links to {address}, which has no such place")
    return found


def _is_place(fragment: str) -> bool:
    """Whether a fragment names an element; one with an equals sign holds a page's state."""
    return bool(fragment) and "=" not in fragment
