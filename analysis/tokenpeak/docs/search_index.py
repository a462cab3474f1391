"""Search index of the documentation: a script that holds titles, headings and the names of the reference.

It is a script and not a JSON file, because a page that was opened from a file may not fetch one.
"""

import json
from collections.abc import Iterable

from tokenpeak.docs.contents import DocPage
from tokenpeak.docs.prose import Heading, plain
from tokenpeak.docs.tables import ReferenceTable

LONGEST_SAYS = 110


def entries_of(page: DocPage, headings: Iterable[Heading], tables: Iterable[ReferenceTable]) -> list[list[str]]:
    """What can be found on a page: `[title, address below docs/, page's title, a few words]` each."""
    address = f"{page.name}.html"
    found = [[page.title, address, page.group, shortened(plain(page.summary))]]
    found += [[each.title, f"{address}#{each.anchor}", page.title, ""] for each in headings]
    for table in tables:
        found.append([plain(table.title), f"{address}#{table.anchor}", page.title, shortened(_first(table.says))])
        found += [
            [entry.name, f"{address}#{table.anchor_of(entry)}", plain(table.title), shortened(plain(entry.cells[-1]))]
            for entry in table.entries
        ]
    return found


def _first(says: str) -> str:
    """The first paragraph that is no code, without its marks."""
    paragraphs = [each for each in says.split("\n\n") if each and not each.startswith("```")]
    return plain(paragraphs[0]) if paragraphs else ""


def shortened(text: str) -> str:
    """A text that fits a line of results."""
    return text if len(text) <= LONGEST_SAYS else f"{text[:LONGEST_SAYS].rpartition(' ')[0]} …"


def script(entries: list[list[str]]) -> str:
    """The script that leaves the index for the page's own script."""
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    return f"window.tokenpeakIndex = {text};\n"
