"""The documents say what is there: README's commands exist, and everything that exists has help."""

import re
import subprocess

import pytest
from click.testing import CliRunner
from tests.front_door.documented import DOCUMENTS, help_targets, shell_lines
from tests.front_door.entries import DEVELOP, ENTRIES

from tokenpeak import paths
from tokenpeak.cli import COMMANDS, tokenpeak

MAKEFILE = (paths.ROOT / "Makefile").read_text()
SECURITY = (paths.ROOT / "SECURITY.md").read_text()
README = (paths.ROOT / "README.md").read_text()
PHONY = set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))


def test_every_target_has_help() -> None:
    """Each phony target of the Makefile says in its own comment what it does."""
    assert PHONY == set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE))


def test_no_fast_test_is_left_out() -> None:
    """Each file of the folders that `make test` leaves out is another target's, as a whole."""
    (folders,) = re.findall(r"--ignore=tests/,([a-z0-9_ ]+)\)", MAKEFILE)
    files = [path for folder in folders.split() for path in (paths.ROOT / "tests" / folder).glob("test_*.py")]
    marked = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(e2e|faults|front_door|many_nodes)\b", re.MULTILINE)

    assert len(files) > 20
    assert [] == [path.name for path in files if not marked.search(path.read_text())]


def test_help_is_the_default() -> None:
    """Bare make prints the targets and changes nothing."""
    printed = subprocess.run(["make", "-s"], cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout

    assert set() == PHONY - set(re.findall(r"make ([a-z0-9-]+)", printed))


def test_every_documented_line_has_an_entry() -> None:
    """A shell line of the documents that nobody types here fails."""
    written = [line for name in DOCUMENTS for line in shell_lines(paths.ROOT / name)]
    own = {entry.line for entry in ENTRIES} | {f"make {target}" for target in DEVELOP}

    assert [] == [line for line in written if line not in own]


def test_every_target_has_an_entry() -> None:
    """A target of `make help` that nobody types here fails; only development's may go by `make -n`."""
    targets = help_targets(paths.ROOT)
    own = {found[1] for entry in ENTRIES if (found := re.match("make ([a-z0-9-]+)", entry.line))}

    assert [] == [name for name in targets if name not in own and name not in DEVELOP]
    assert [] == [name for name in DEVELOP if targets.get(name, "Develop") != "Develop"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    """Each command can be imported and says what it does, what each option means, and what each argument is."""
    command = tokenpeak.get_command(tokenpeak.make_context("tokenpeak", [], resilient_parsing=True), name)

    assert command is not None
    assert command.help
    assert [] == [
        parameter.name
        for parameter in command.params
        if not getattr(parameter, "help", None)
        and not (parameter.param_type_name == "argument" and str(parameter.name).upper() in command.help)
    ]


def test_the_list_of_commands_fits_a_narrow_terminal() -> None:
    """At 80 columns no command's summary is cut."""
    listed = CliRunner().invoke(tokenpeak, ["--help"], terminal_width=80).output.partition("Commands:")[2]

    assert len(COMMANDS) == len(listed.strip().splitlines())
    assert [] == [line for line in listed.splitlines() if line.endswith(("...", "…"))]


def test_readme_names_targets_that_exist() -> None:
    """README's make commands are targets."""
    assert set() == set(re.findall(r"^make ([a-z0-9-]+)", README, re.MULTILINE)) - PHONY


def test_readme_names_commands_that_exist() -> None:
    """README's `tokenpeak` commands are commands."""
    assert set() == set(re.findall(r"^tokenpeak ([a-z]+)", README, re.MULTILINE)) - set(COMMANDS)


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", SECURITY))))
def test_security_names_tests_that_exist(named: str) -> None:
    """Each guarantee of SECURITY.md is held by a test of that name."""
    path, _, test = named.partition("::")

    assert (paths.ROOT / path).is_file()
    assert re.search(rf"^(async )?def {test}\(", (paths.ROOT / path).read_text(), re.MULTILINE)


def test_each_guarantee_of_security_names_a_test() -> None:
    """Each guarantee names a test that exists."""
    guarantees = SECURITY.partition("## What is guaranteed\n")[2].partition("\n## ")[0].split("\n- ")[1:]

    assert 15 <= len(guarantees)
    assert [] == [guarantee for guarantee in guarantees if not re.search(r"`tests/[\w/]+\.py::\w+`", guarantee)]
