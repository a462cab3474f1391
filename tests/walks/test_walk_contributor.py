"""A contributor clones, sets up, changes one thing as CONTRIBUTING says, and checks it before handing it in."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.reader import HIDDEN, TRACEBACK

from tokenpeak import paths

pytestmark = [pytest.mark.e2e]

CONTRIBUTING = (paths.ROOT / "CONTRIBUTING.md").read_text()
GPUS = Path("analysis") / "tokenpeak" / "predict" / "data" / "gpus.json"


class Contributor:
    """A clone of what is committed, an empty home."""

    def __init__(self, place: Path) -> None:
        self.clone, self.home = place / "tokenpeak", place / "home"
        self.home.mkdir()
        subprocess.run(["git", "clone", "-q", str(paths.ROOT), str(self.clone)], check=True)
        settings = Path.home() / ".config" / "pip"
        if settings.is_dir():
            # The tests' pip may be set up for a mirror in the real home.
            shutil.copytree(settings, self.home / ".config" / "pip")

    def type(self, line: str, status: int = 0) -> str:
        """Type a line in the clone; both streams of what it prints."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.clone,
            env={**kept, "HOME": str(self.home), "ADVISORY_SERVICE": "none"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        print(f"$ {line}  # {done.returncode}\n{done.stdout[-800:]}", flush=True)
        assert status == done.returncode, done.stdout[-4000:]
        assert TRACEBACK not in done.stdout or status, done.stdout[-4000:]
        return done.stdout


@pytest.fixture
def contributor() -> Iterator[Contributor]:
    """Somebody who has git, make and Python."""
    place = Path(tempfile.mkdtemp(prefix="tokenpeak-contributor-"))
    place.chmod(0o755)
    yield Contributor(place)
    shutil.rmtree(place, ignore_errors=True)


def test_walk(contributor: Contributor) -> None:
    """Set up, find the place in the table, change it, see it work, write its page, run the checks of what changed."""
    contributor.type("make setup")
    assert "make check" in contributor.type("make help")

    row = next(line for line in CONTRIBUTING.splitlines() if line.startswith("| add a GPU |"))
    assert re.findall(r"`([^`]+)`", row)[0] == GPUS.relative_to("analysis/tokenpeak").as_posix()
    path = contributor.clone / GPUS
    board = next(each for each in json.loads(path.read_text())["gpus"] if each["name"] == "NVIDIA L4")
    added = json.dumps({**board, "name": "NVIDIA Z9", "aliases": ["Z9"]})
    path.write_text(path.read_text().replace('"gpus": [', f'"gpus": [{added},', 1))
    assert "NVIDIA Z9" in contributor.type(".venv/bin/tokenpeak predict Qwen/Qwen2.5-7B-Instruct --gpu Z9")

    docs = contributor.clone / "site" / "content" / "docs"
    (docs / "how-to" / "z9.md").write_text("# Tune Z9 boards\n\nThe board is new.\n")
    contents = docs / "contents.yml"
    contents.write_text(contents.read_text().replace("    - v100\n", "    - v100\n    - z9\n"))
    said = contributor.type(".venv/bin/tokenpeak docs")
    built = Path(re.findall(r"Open (\S+)", said)[0])
    assert "Tune Z9 boards" in built.read_text()

    contributor.type("make check")
    contributor.type(".venv/bin/pytest -q tests/plan/test_physics.py tests/docs/test_docs_pages.py -k 'not browser'")


def test_a_mistake_is_found_by_the_checks(contributor: Contributor) -> None:
    """A page that nobody lists, and a line that no command takes, fail with a sentence that names them."""
    contributor.type("make setup")
    page = contributor.clone / "site" / "content" / "docs" / "how-to" / "lost.md"
    page.write_text("# Lost\n\nNobody lists it.\n\n```sh\ntokenpeak plan --inventori v100\n```\n")

    said = contributor.type(".venv/bin/pytest -q tests/docs/test_docs_pages.py tests/docs/test_docs_commands.py", 1)

    assert "how-to/lost" in said
    assert "--inventori" in said
