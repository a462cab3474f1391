"""Whether every link of a built site leads somewhere inside it."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "link": "href", "img": "src"}
"""Elements whose address a browser loads by itself."""


class _Links(HTMLParser):
    """Collects addresses and identifiers of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element points at and what it is called."""
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.append(given[FETCHED[tag]])


def broken_links(site: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and for anything that a page would load from elsewhere."""
    pages: dict[Path, _Links] = {}
    for path in sorted(site.rglob("*.html")):
        parser = _Links()
        parser.feed(path.read_text())
        pages[path.resolve()] = parser
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve()).as_posix()
        for address in [*page.links, *page.fetched]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.fetched:
                    found.append(f"{name} loads {address} from elsewhere")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} links to {address}, which is not there")
            elif _is_place(parts.fragment) and target in pages and parts.fragment not in pages[target].ids:
                found.append(f"{name} links to {address}, which has no such place")
    return found


def _is_place(fragment: str) -> bool:
    """Whether a fragment names an element; one with an equals sign holds a page's state."""
    return bool(fragment) and "=" not in fragment
