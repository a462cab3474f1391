"""The commands that the project shows its users: taken from the documents and from help output at test time."""

import re
import subprocess
from pathlib import Path

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
