"""A node, an engine or an archive says words that a terminal, a spreadsheet or a CI service obeys.

`::add-mask::` is obeyed by whoever reads a job's log, `gpu-2: serves` is read by whoever looks, a cell that begins as
a formula is run, a name in a summary mentions people. The words of others stand in their line and cell, as text.
"""

import ast
import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from tokenpeak import paths
from tokenpeak.cli import tokenpeak
from tokenpeak.console import SafeConsole, SafeTable
from tokenpeak.errors import ArchiveError
from tokenpeak.gate.comparison import ConfigComparison, Gate
from tokenpeak.gate.side import Difference, Load, Side
from tokenpeak.gate.text import markdown
from tokenpeak.loadgen.progress import summary_text
from tokenpeak.loadgen.workers.remote import HostLostError
from tokenpeak.node.machine import sockets, words
from tokenpeak.node.machine.words import HIDDEN
from tokenpeak.node.probe import facts, survey
from tokenpeak.spreadsheet import STARTS
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.sweep.ansible.result import Login, explained, failure_words, with_remedy
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.terminal import echo, echo_lines, echo_text

ENDS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")
FORGED = "".join(f"x{end}::add-mask::y{end}gpu-2: serves" for end in ENDS)
COMMANDS = ("::add-mask::x", "  ::error::x", "##[add-mask]x", "a ##vso[task.setvariable]x", "##teamcity[x]")


def obeyed(printed: str) -> bool:
    """Whether a CI service would obey a line of it."""
    return any(
        line.lstrip().startswith("::") or any(word in line for word in ("##[", "##vso[", "##teamcity["))
        for line in printed.splitlines()
    )


@pytest.mark.parametrize("text", COMMANDS)
def test_no_command_of_a_ci_service_is_printed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither as a line of its own nor within one, by whatever prints."""
    assert obeyed(text)
    echo_text(f"ours\n{text}")
    echo_lines([text, f"ours {text}"])
    ProgressDisplay(terminal=True).say(text)
    out = io.StringIO()
    table = SafeTable("node")
    table.add_row(text)
    SafeConsole(file=out, width=200).print(table)

    assert not obeyed(capsys.readouterr().out + out.getvalue())


def test_a_node_s_failure_is_one_line() -> None:
    """By its own sentence, by what it printed, by SSH's words, and by what explains a login that failed."""
    login = Login(address="gpu-1", user="me")
    refused = json.dumps({"error": {"code": FORGED, "text": FORGED}})
    said = [
        failure_words("Probe", {"stdout": refused, "rc": 2}),
        failure_words("Probe", {"stdout": json.dumps({"message": FORGED}), "rc": 2}),
        failure_words("Probe", {"stderr": FORGED, "rc": 2}),
        failure_words("Probe", {"stderr": f"There is no interpreter /x{FORGED} was not found", "rc": 2}),
        with_remedy(FORGED, login),
        explained(f'The remote host "a{FORGED}" Host key verification failed', login),
        str(HostLostError("load-1", FORGED)),
    ]

    for sentence in said:
        assert sentence is not None
        assert sentence.isprintable()
        assert 1 == len(sentence.splitlines())


def test_a_message_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever words are in it: what prints messages makes each of them one line."""
    out = io.StringIO()
    console = SafeConsole(file=out, width=4000)
    echo(f"  ours {FORGED}")
    echo_lines([f"  ours {FORGED}"])
    console.print(f"  ours {FORGED}")

    printed = [*capsys.readouterr().out.splitlines(), *out.getvalue().splitlines()]
    assert 3 == len(printed)
    assert all(line.startswith("  ours x | ") for line in printed)


def test_summary_of_a_run_keeps_its_lines() -> None:
    """An engine's error body, and what names a run, are each in the line that quotes them."""
    archive = Archive(paths.ARCHIVES / "t4-mistral7b")
    record = next(run for trial in archive.judged_trials() for run in trial.runs)
    none_ended = {"failures": {"http_error": 3}, "requests_ok": 0, "duration_s": 1.0}
    summary = record.summary.model_copy(update=none_ended)
    workload = record.workload.model_copy(update={"name": FORGED})
    forged = {
        "failure_messages": {"http_error": FORGED},
        "summary": summary,
        "workload": workload,
        "level_label": FORGED,
    }

    printed = summary_text(record.model_copy(update=forged))

    assert 3 + len(record.verdict.reasons) == len(printed.splitlines())
    assert "3 × http_error: x | " in printed
    assert not obeyed(printed)


@pytest.mark.parametrize("name", ["theirs\n::add-mask::y", "theirs\u2028gpu-2: serves", "\udcff", "a\u202eb"])
def test_name_of_an_archive_is_refused(tmp_path: Path, name: str) -> None:
    """Of its folder, of its pack and of a file in it: whatever is wrong in it would be said after its path."""
    source = paths.ARCHIVES / "t4-mistral7b"
    folder, plain, packs = tmp_path / name, tmp_path / "plain" / "archive", tmp_path / "packs"
    for place in (folder, plain):
        shutil.copytree(source, place)
        (place / "sweep.json").write_text("{")
    (plain / "trials" / name).touch()
    packs.mkdir()
    (packs / f"{name}.tar.zst").touch()
    for given in (folder, tmp_path, plain, packs, packs / f"{name}.tar.zst"):
        with pytest.raises(ArchiveError, match=r"has the hidden character .* Rename it, or remove it") as refused:
            find_archives([given])
        assert 1 == len(str(refused.value).splitlines())


MARKUP = re.compile(r"[@#$~`:]|&(?!lt;|gt;|amp;)|www\.|GH-|!\d")
"""What a service looks for outside of code."""
NAMES = [
    *("@torvalds", "a@evil.example", "https://evil.example/", "www.evil.example", "fixes #1", "acme/x#1", "GH-1", "!1"),
    *("$\\alpha$", "$`x`$", "~~x~~", "~1", "&#64;torvalds", ":bomb:", "<img src=x onerror=alert(1)>", "&lt;b&gt;"),
    *("`", "`` ` @torvalds", "`@torvalds", "a`@torvalds`b", "x | @torvalds | y", "[x](http://e)", "\\@torvalds"),
    *("\u202ex", "x\n\n# x", "x\r@torvalds", "x\u2028# x", "_x_", "**x**", "- x", "ftp://x", "mailto:a@b"),
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_more_than_its_text(name: str) -> None:
    """In the lines, the tables and the list: shown as it is, in code where it could be more, and in its cell."""
    side = cast("Side", SimpleNamespace(title=name, cautions=(name,)))
    load = Load(workload=name, level=name, definition="", figures=())
    compared = ConfigComparison(hardware=name, config=name, by="id", load=load, outcome="regressed", reason=name)
    difference = Difference(hardware=name, what=name, old=(name,), new=(name,))
    gate = Gate(old=side, new=side, margin=0.02, comparisons=(compared,), differences=(difference,), only_new=())

    shown = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown(gate))
    bare = re.sub(r"<code>.*?</code>", "", shown)
    rows = [table.partition("</tbody>")[0] for table in shown.split("<tbody>")[1:]]

    assert not words.HIDDEN.search(shown.replace("\n", ""))
    assert {"a", "img", "s", "em", "h1"}.isdisjoint(re.findall(r"<(\w+)", bare))
    assert not MARKUP.search(re.sub("(Gate|New|Old|in 95%):", "", bare))
    assert 1 == bare.count("<strong>")
    assert [7, 3] == [row.count("<td>") for row in rows]


CELLS = (
    "\x1b]0;owned\x07",
    "=HYPERLINK(1)",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "a;=1+1",
    "x\tb",
    'q"=1',
    "\u202egnp",
    "l\n::x::y",
)
NUMBERS = ("-1.5", "+3e10", "0", "")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a psql of this test's prints, whatever it is asked, on both of its streams."""
    text, program = tmp_path / "found", tmp_path / "psql"
    program.write_text(f"#!/bin/sh\ncat {text}\ncat {text} >&2\n")
    program.chmod(0o755)

    @contextmanager
    def opened(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(sweep_ids=lambda: ["s"], client=("", {}), description="")

    monkeypatch.setattr("tokenpeak.store.embedded.psql", lambda: program)
    monkeypatch.setattr("tokenpeak.store.database.choose", lambda: SimpleNamespace(folder=None))
    monkeypatch.setattr("tokenpeak.store.database.open_database", opened)
    return text


def test_no_cell_is_obeyed_or_run(found: Path) -> None:
    """Each cell is one cell that begins as no formula, and a number stays what it was."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([CELLS, NUMBERS])
    found.write_text(made.getvalue())

    done = CliRunner().invoke(tokenpeak, ["sql", "--format", "csv", "SELECT 1"], catch_exceptions=False)
    texts, numbers = csv.reader(io.StringIO(done.stdout, newline=""))

    assert [*NUMBERS] == numbers
    assert len(CELLS) == len(texts)
    assert not [text for text in texts if text.startswith(tuple(set(STARTS) - {"'"}))]
    assert ["'=HYPERLINK(1)", "'+1+1", "'-2+3", "'@SUM(1)"] == texts[1:5]
    assert '"a;=1+1"' in done.stdout, "or a locale's separator would begin a cell"
    for said in (done.stdout, done.stderr):
        assert not set(HIDDEN.findall(said)) - {"\t", "\n"}
        assert "\n::x" not in said


SECRET = "hunter2secret"
SERVED_WORDS = [
    "m",
    "--otlp-traces-endpoint",
    f"http://me:{SECRET}@otlp.example/v1",
    "--model-loader-extra-config",
    f'{{"aws_secret_access_key": "{SECRET}"}}',
    "--kv-transfer-config",
    f'{{"redis_password": "{SECRET}"}}',
    f"--x=hf_{SECRET}",
    f"WANDB_PASSWORD={SECRET}",
    "--api-key",
    SECRET,
    "--seed",
    "7",
]


def test_status_and_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have production's arguments from the process that listens."""
    monkeypatch.setattr(sockets, "listeners", lambda *_: ["7 vllm"])
    monkeypatch.setattr(facts, "command_line", lambda _: ["vllm", "serve", *SERVED_WORDS])

    shown = facts.served_with("127.0.0.1", 8000)

    assert shown[0] == "m"
    assert SECRET not in " ".join(shown)


HIDING = {"without_secrets", "hidden_words", "served_with"}
"""`served_with` is what `without_secrets` leaves."""
FIELDS = {"FoundServer": "argv", "Production": "arguments"}


def test_no_other_function_shows_words() -> None:
    """What an answer says of a command line is what one of these functions gives."""
    calls = [
        (path.name, each, keyword)
        for path in sorted(Path(survey.__file__).parents[1].rglob("*.py"))
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
        for keyword in each.keywords
        if keyword.arg is not None and keyword.arg == FIELDS.get(each.func.id)
    ]

    assert len(calls) >= 3
    assert [] == [(name, each.lineno) for name, each, keyword in calls if not HIDING & _called(keyword.value)]


def _called(value: ast.AST) -> set[str]:
    functions = [each.func for each in ast.walk(value) if isinstance(each, ast.Call)]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in functions}
