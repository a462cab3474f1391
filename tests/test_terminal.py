"""Nothing that a node, an engine or an archive says reaches a terminal as a command."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from tokenpeak.console import SafeConsole
from tokenpeak.terminal import visible, visible_log

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\x08\r\x7f\u200b[link=http://evil.example]x[/link]\x85"
HIDDEN = set("\x1b\x07\x9b\u202e\u2066\x08\r\x7f\u200b\x85")


def test_every_hidden_character_is_written_out() -> None:
    """Controls, and what reorders or hides text, are shown by their codes; other text is as it was."""
    assert "\\x1b]0;owned\\x07" in visible(HOSTILE)
    assert not HIDDEN & set(visible(HOSTILE))
    assert "Größe\t3 µs → 4\n日本" == visible("Größe\t3 µs → 4\r\n日本")
    assert "10%\n20%\n" == visible_log("10%\r20%\r\n")


def test_rich_prints_no_foreign_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    """A console's own colours pass; what is in a cell or a line does not, nor is it read as markup."""
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, width=200, color_system="standard", highlight=False)
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    console.print(table)
    console.print(f"note: {HOSTILE}", style="bold")

    said = out.getvalue()
    assert "\x1b[1m" in said
    assert "\x1b]" not in said
    assert "\x1b[2J" not in said
    assert not (HIDDEN - {"\x1b"}) & set(said)
    assert "[link=" in said


def test_errors_of_the_command_line(tmp_path: Path) -> None:
    """An error's text is safe as the user sees it, whether it was expected or not."""
    code = "import sys, tokenpeak.cli as cli\nfrom tokenpeak.errors import NodeError\n"
    code += "def fail(**_):\n    raise {error}({text!r})\ncli.tokenpeak = fail\ncli.main()\n"
    for error, status in (("NodeError", 1), ("RuntimeError", 70)):
        argv = [sys.executable, "-c", code.format(error=error, text=HOSTILE)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)

        assert status == done.returncode
        assert "owned" in done.stderr
        assert not HIDDEN & set(done.stderr)


def test_only_one_way_out() -> None:
    """No command prints past the owner of safe text."""
    package = Path(__file__).parents[1] / "analysis" / "tokenpeak"
    ways = ("click.echo(", "rich.console import Console", "click.secho(", " print(")
    past = [
        f"{path.name}: {line.strip()}"
        for folder in ("cli", "drive", "report", "exchange", "store")
        for path in sorted((package / folder).glob("*.py"))
        for line in path.read_text().splitlines()
        if any(way in line for way in ways) and "console.print(" not in line
    ]

    assert [] == past
