"""The working folder: what `init` writes, and where commands find it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokenpeak import paths
from tokenpeak.cli import tokenpeak
from tokenpeak.errors import SpecError
from tokenpeak.spec.sweep import sweep_path

COMMAND = str(Path(sys.executable).with_name("tokenpeak"))


def home_seen(cwd: Path, **environment: str) -> Path:
    """The working folder of a process that is started in a folder."""
    code = "from tokenpeak import paths; print(paths.HOME)"
    kept = {name: value for name, value in os.environ.items() if name != "TOKENPEAK_HOME"}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder that `init` made."""
    done = CliRunner().invoke(tokenpeak, ["init", str(tmp_path / "mine"), "--like", "v100"])
    assert 0 == done.exit_code, done.output
    return tmp_path / "mine"


def test_it_has_an_example_of_everything(folder: Path) -> None:
    """Inventories with comments and the sweeps that they name, and results stay out of git."""
    assert {"sim", "v100"} == {path.parent.name for path in folder.glob("inventory/*/hosts.yml")}
    general = {"quick", "rates", "presets-model-context"}
    assert {*general, "v100-deepseek-r1-32b"} == {path.stem for path in folder.glob("sweeps/*.yml")}
    assert (folder / "results").is_dir()
    assert (folder / "site").is_dir()
    assert "/results/" in (folder / ".gitignore").read_text()
    assert "# Put your Tesla V100" in (folder / "inventory" / "v100" / "hosts.yml").read_text()


def test_what_is_there_stays(folder: Path) -> None:
    """A second `init` writes what is missing and changes nothing."""
    (folder / "sweeps" / "quick.yml").write_text("mine")
    (folder / "sweeps" / "rates.yml").unlink()
    done = CliRunner().invoke(tokenpeak, ["init", str(folder), "--like", "v100"])

    assert "mine" == (folder / "sweeps" / "quick.yml").read_text()
    assert (folder / "sweeps" / "rates.yml").is_file()
    assert f"kept     {folder / 'sweeps' / 'quick.yml'}" in done.output


def test_an_unknown_example_is_refused_with_the_nearest(tmp_path: Path) -> None:
    """A typing mistake writes nothing."""
    done = subprocess.run(
        [COMMAND, "init", str(tmp_path / "mine"), "--like", "v10"], capture_output=True, text=True, check=False
    )

    assert 2 == done.returncode
    assert "Did you mean" in done.stderr
    assert "v100" in done.stderr
    assert not (tmp_path / "mine").exists()


def test_it_is_found_from_below_before_the_variable(folder: Path, tmp_path: Path) -> None:
    """Upward from the current folder, then TOKENPEAK_HOME."""
    other = tmp_path / "other"
    other.mkdir()

    assert folder == home_seen(folder / "sweeps", TOKENPEAK_HOME=str(other))
    assert other == home_seen(tmp_path, TOKENPEAK_HOME=str(other))


def test_a_checkout_is_its_own(tmp_path: Path) -> None:
    """In the checkout and where no working folder is, the checkout's inventories and results are used."""
    assert paths.ROOT == home_seen(paths.ROOT / "playbooks")
    assert paths.ROOT == home_seen(tmp_path)


def test_a_sweep_is_named_with_or_without_its_ending(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`quick`, `quick.yml` and a path to the file are the same sweep."""
    sweeps = folder / "sweeps"
    monkeypatch.chdir(folder)

    assert sweeps / "quick.yml" == sweep_path("quick", sweeps)
    assert sweeps / "quick.yml" == sweep_path("quick.yml", sweeps)
    assert Path("sweeps/quick.yml") == sweep_path("sweeps/quick.yml", sweeps)
    with pytest.raises(SpecError, match=r"No sweep called 'quik\.yml' in .* Did you mean quick"):
        sweep_path("quik.yml", sweeps)
