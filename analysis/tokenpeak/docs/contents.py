"""Table of contents of the documentation: groups of pages, each a Markdown file, in the order of contents.yml."""

from dataclasses import dataclass
from pathlib import Path

from tokenpeak import bounded, paths
from tokenpeak.errors import ReportError

FOLDER = paths.CONTENT / "docs"
FIRST = "index"
"""The page that leads to all others."""


@dataclass(frozen=True, kw_only=True)
class DocPage:
    """A page of the documentation."""

    name: str
    """Its path below docs/, without an ending: `how-to/no-root`."""
    group: str
    """The group's title; empty for the first page."""
    text: str
    """Markdown that begins with the title and a sentence."""

    @property
    def title(self) -> str:
        """Its first heading."""
        return self.text.partition("\n")[0].removeprefix("# ").strip()

    @property
    def summary(self) -> str:
        """Its first paragraph, as plain text."""
        paragraph = self.text.partition("\n\n")[2].partition("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def body(self) -> str:
        """What stands below the title."""
        return self.text.partition("\n")[2]

    @property
    def root(self) -> str:
        """The way from it to the folder of the site."""
        return "/".join(".." for _ in self.name.split("/"))


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pages of one kind: a tutorial, guides, a reference or explanations."""

    title: str
    says: str
    """What its pages are for."""
    pages: tuple[DocPage, ...]


def groups(folder: Path = FOLDER) -> tuple[Group, ...]:
    """The groups of pages; a page that is not there, or has no title, is a ReportError."""
    found = []
    for entry in bounded.read_yaml(folder / "contents.yml", error=ReportError):
        pages = tuple(_page(folder, f"{entry['folder']}/{name}", entry["title"]) for name in entry["pages"])
        found.append(Group(title=entry["title"], says=entry["says"], pages=pages))
    return tuple(found)


def first_page(folder: Path = FOLDER) -> DocPage:
    """The page that leads to all others."""
    return _page(folder, FIRST, "")


def _page(folder: Path, name: str, group: str) -> DocPage:
    path = folder / f"{name}.md"
    if not path.is_file():
        raise ReportError(f"{folder / 'contents.yml'} names {name}, and {path} is not there.")
    text = path.read_text()
    if not text.startswith("# "):
        raise ReportError(f"{path} does not begin with a title, such as: # Tune V100 machines")
    return DocPage(name=name, group=group, text=text)
