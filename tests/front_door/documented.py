"""The commands that the project shows its users: taken from the documents and from help output at test time.

Lines of README and of the playbooks' text are typed at the front door. Pages of the documentation say themselves what
becomes of a block, in the words behind its language, which no reader sees:

    sh                typed in the page's own session, in order; it must end with status 0
    sh status=3       the same, with that status
    sh walk           typed where the page's session has nodes: in a walk, or in a session of the rig
    sh node           typed on a GPU node
    sh parse          not typed, as it takes hours or a machine that no test has; its options must exist
    yaml sweep        a whole sweep; sweep-part: a part that is put over the sweep `quick`
    yaml variables    a part of group_vars/all.yml;  hosts: a hosts.yml;  workload: a workload file
    yaml text, text   neither; a file that is written where a name follows
    python            run by the reader; with a file's name only written, and its page has a test of its own

A file name among the words (`text results.csv`) says where the session writes the block, or over what it puts a part.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenpeak import paths

DOCUMENTS = ("README.md", "playbooks/README.md")
INLINE = ("make ", ".venv/bin/", "tokenpeak ", "bash ")
"""How inline code begins that is a command."""


def shell_lines(document: Path) -> list[str]:
    """The lines of a document's shell blocks, and its inline commands; comments and repeats are left out."""
    text = document.read_text()
    found = []
    for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        found += [re.sub(r"\s+#.*$", "", line).strip() for line in block.splitlines() if line.strip()]
    outside = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`]+)`", outside):
        line = " ".join(code.split())
        if line.startswith(INLINE):
            found.append(line)
    return list(dict.fromkeys(found))


def help_targets(checkout: Path) -> dict[str, str]:
    """Target → section of `make help`, such as `Tune` and `Develop`."""
    printed = subprocess.run(["make", "-s", "help"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    section, found = "", {}
    for line in printed.splitlines():
        if target := re.match(r"  make ([a-z0-9-]+) ", line):
            found[target[1]] = section
        elif line and not line.startswith(" "):
            section = line.strip()
    return found


def help_commands(printed: str) -> list[str]:
    """The commands that `tokenpeak --help` lists."""
    return re.findall(r"^  ([a-z-]+)  ", printed.partition("Commands:")[2], re.MULTILINE)


DOCS = paths.CONTENT / "docs"
_FENCE = re.compile(r"^```(?P<language>[a-z]+)(?P<words>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SH_RULES = ("", "walk", "node", "parse")
YAML_RULES = ("sweep", "sweep-part", "variables", "hosts", "workload", "text")


@dataclass(frozen=True, kw_only=True)
class DocBlock:
    """A fenced block of the documentation."""

    page: str
    language: str
    words: tuple[str, ...]
    text: str

    @cached_property
    def file(self) -> str | None:
        """The file that the block is."""
        return next((word for word in self.words if "." in word), None)

    @cached_property
    def rule(self) -> str:
        """What becomes of it: a word of SH_RULES or YAML_RULES."""
        return next((word for word in self.words if "." not in word and "=" not in word), "")

    @cached_property
    def status(self) -> int:
        """The exit status of its lines."""
        return next((int(word.removeprefix("status=")) for word in self.words if word.startswith("status=")), 0)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Its commands, one a line."""
        return tuple(line for line in self.text.splitlines() if line.strip() and not line.startswith("#"))


def doc_pages() -> list[str]:
    """Each page of the documentation by its path below docs/, without an ending."""
    return sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


def doc_blocks(page: str) -> Iterator[DocBlock]:
    """The fenced blocks of a page, in order."""
    for found in _FENCE.finditer((DOCS / f"{page}.md").read_text()):
        words = tuple(found["words"].split())
        yield DocBlock(page=page, language=found["language"], words=words, text=found["text"])


def doc_commands(page: str) -> list[str]:
    """The commands in a page's sentences and tables."""
    outside = _FENCE.sub("", (DOCS / f"{page}.md").read_text())
    return [
        code for code in re.findall(r"`([^`]+)`", outside) if re.match(r"tokenpeak [a-z-]", code) and "…" not in code
    ]
