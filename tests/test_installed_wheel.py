"""The wheel as a user installs it: in an environment that has nothing but pip, from a folder that has nothing."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tokenpeak import paths

pytestmark = pytest.mark.e2e

ARCHIVE = paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst"
KEPT = ("PATH", "LANG", "TMPDIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Variables of the tests' environment that a user has too, with those of pip."""


@dataclass(frozen=True, kw_only=True)
class User:
    """Somebody who has Python and pip, an empty home, and no checkout."""

    place: Path

    @property
    def environment(self) -> dict[str, str]:
        """A login's environment: nothing of the tests', and no way to the checkout."""
        kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("PIP_")}
        return {**kept, "HOME": str(self.place / "home"), "PATH": f"{self.place / 'venv' / 'bin'}:{kept['PATH']}"}

    def run(self, *argv: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """What the user types; both streams are in stdout."""
        return subprocess.run(
            argv,
            cwd=cwd or self.place,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    """A user who has installed the wheel, in a place that Postgres's own user may enter where root runs the tests."""
    made = User(place=Path(tempfile.mkdtemp(prefix="tokenpeak-user-")))
    made.place.chmod(0o755)
    (made.place / "home").mkdir()
    hatchling = str(Path(sys.executable).with_name("hatchling"))
    argv = [hatchling, "build", "-t", "wheel", "-d", str(made.place)]
    subprocess.run(argv, cwd=paths.ROOT, capture_output=True, check=True)
    [wheel] = made.place.glob("*.whl")
    venv.create(made.place / "venv", with_pip=True)
    # The tests' pip may be set up for a mirror in the real home.
    for settings in (Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"):
        if settings.is_file():
            target = made.place / "home" / settings.relative_to(Path.home())
            target.parent.mkdir(parents=True)
            shutil.copy(settings, target)
    # What is not imported here need not be compiled.
    installed = made.run("pip", "install", "-q", "--no-compile", str(wheel))
    assert 0 == installed.returncode, installed.stdout
    yield made
    made.run("tokenpeak", "demo", "--end")
    shutil.rmtree(made.place, ignore_errors=True)


@pytest.fixture(scope="module")
def folder(user: User) -> Path:
    """The working folder that the user made."""
    done = user.run("tokenpeak", "init", "mine", "--like", "v100")
    assert 0 == done.returncode, done.stdout
    return user.place / "mine"


def test_nothing_of_the_checkout_is_there(user: User) -> None:
    """The command and all that it imports are the environment's."""
    done = user.run("python", "-c", "import sys, tokenpeak; print(*sys.path, tokenpeak.__file__)")

    assert 0 == done.returncode, done.stdout
    assert str(paths.ROOT) not in done.stdout
    assert str(user.place / "venv") in done.stdout


def test_check_finds_nothing_and_then_the_mistake(user: User, folder: Path) -> None:
    """The examples are right; a mistyped manager is found with its line."""
    assert 0 == user.run("tokenpeak", "check", cwd=folder).returncode
    variables = folder / "inventory" / "v100" / "group_vars" / "all.yml"
    written = variables.read_text()
    variables.write_text(written.replace("manager: systemd", "manager: sytemd"))
    done = user.run("tokenpeak", "check", cwd=folder)
    variables.write_text(written)

    assert 2 == done.returncode
    assert "no manager is called 'sytemd'. Did you mean systemd?" in done.stdout


def test_a_plan_needs_no_node(user: User, folder: Path) -> None:
    """The example inventory has facts to plan with."""
    done = user.run("tokenpeak", "plan", "--inventory", "v100", cwd=folder / "sweeps")

    assert 0 == done.returncode, done.stdout
    assert "will do: an adaptive search" in done.stdout


def test_the_documentation_is_of_this_version(user: User) -> None:
    """It is written from the wheel alone, with its figures, and its reference has the wheel's own commands."""
    done = user.run("tokenpeak", "docs", "--output", "documented")
    pages = user.place / "documented" / "docs"

    assert 0 == done.returncode, done.stdout
    assert f"Open {pages / 'index.html'}" in done.stdout
    assert "<svg" in (pages / "explanation" / "intervals.html").read_text()
    assert "tokenpeak quality compare" in (pages / "reference" / "commands.html").read_text()


def test_an_archive_becomes_a_site(user: User, folder: Path) -> None:
    """Of somebody else's archive, in the folder's site."""
    shutil.copy(ARCHIVE, folder / ARCHIVE.name)
    done = user.run("tokenpeak", "report", ARCHIVE.name, "--output", "other", cwd=folder)

    assert 0 == done.returncode, done.stdout
    assert "H100" in (folder / "other" / "index.html").read_text()


def test_the_demonstration_ends_with_a_site_and_its_servers_take_a_load(user: User, folder: Path) -> None:
    """Every trial ends; results and site are in the working folder; what production serves can be measured."""
    done = user.run("tokenpeak", "demo", cwd=folder)
    print(done.stdout[-1500:])

    assert 0 == done.returncode, done.stdout
    [archive] = [path.parent for path in folder.glob("results/*/sweep.json")]
    assert "completed" == json.loads((archive / "end.json").read_text())["status"]
    assert (folder / "site" / "build" / archive.name / "ranking.html").is_file()
    assert "make " not in done.stdout

    state = user.place / "home" / ".local" / "state" / "tokenpeak" / "nodes" / "sim-a100" / "node.json"
    url = json.loads(state.read_text())["production"]["url"]
    asked = ("--input-tokens", "16", "--output-tokens", "8", "--concurrency", "2", "--requests", "8")
    loaded = user.run("tokenpeak", "load", url, "--model", "meta-llama/Llama-3.1-8B-Instruct", *asked)

    assert 0 == loaded.returncode, loaded.stdout
