"""A node, an engine or an archive says words with line ends, which a terminal or a CI service takes for lines of ours.

`::add-mask::` and its like are obeyed by whoever reads a job's log; `gpu-2: serves` is read by whoever looks. The
words of others stand in the line in which they are printed, and in no other.
"""

import io
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.commands import typed

from tokenpeak import paths
from tokenpeak.console import SafeConsole, SafeTable
from tokenpeak.errors import ArchiveError
from tokenpeak.loadgen.progress import summary_text
from tokenpeak.loadgen.workers.remote_pool import HostLostError
from tokenpeak.node.engine.command import difference
from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import RestoreAnswer, StatusAnswer, parse
from tokenpeak.node.protocol.survey import SurveyAnswer
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.sweep.ansible.login_failures import Login, explained, with_remedy
from tokenpeak.sweep.ansible.result import failure_words
from tokenpeak.sweep.inventory.first_inventory import summary
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


@pytest.mark.parametrize("end", ENDS)
def test_no_end_of_a_line_is_left(end: str) -> None:
    """Whatever ends a line somewhere is written as what stands between two parts."""
    assert "node | next" == one_line(f"node{end} next{end}")


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

    for words in said:
        assert words is not None
        assert words.isprintable()
        assert 1 == len(words.splitlines())


def test_what_a_node_answers_is_one_line() -> None:
    """Sentences are; a name that has two lines is none."""
    outcome: dict[str, Any] = {"restored": False, "was_running": True, "model": FORGED, "message": FORGED}
    rest = dict.fromkeys(("downtime_s", "trial_id", "holder", "by", "at_unix_s", "definition"))
    restored = parse(RestoreAnswer, {"restoration": {**outcome, **rest}}).restoration
    status = parse(StatusAnswer, {"problem": FORGED, "drained": [FORGED], "holder": FORGED, "trial_id": FORGED})
    surveyed = parse(SurveyAnswer, {"servers": [], "served_name": FORGED, "front": FORGED, "user": FORGED})

    assert restored is not None
    for words in (restored.message, restored.model, status.problem, *status.drained, surveyed.front, summary(surveyed)):
        assert words is not None
        assert 1 == len(words.splitlines())
        assert not obeyed(words)
    assert (None, None, None) == (status.holder, status.trial_id, surveyed.user)


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


def test_texts_of_several_lines_are_made_elsewhere() -> None:
    """The one way past that takes what a maker of texts made, or an error: no text that is put together on the spot."""
    package = paths.ROOT / "analysis" / "tokenpeak"
    given = [word for path in package.rglob("*.py") for word in re.findall(r"echo_text\((f?\".*)", path.read_text())]

    assert {'f"{statement};")', 'f"tokenpeak: {error}", err=True)'} == {*given}


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


def test_hardware_of_an_archive_is_in_its_line(tmp_path: Path) -> None:
    """`explain` of an archive whose boards are called by several lines."""
    archive = Path(shutil.copytree(paths.ARCHIVES / "t4-mistral7b", tmp_path / "theirs"))
    sweep = json.loads((archive / "sweep.json").read_text())
    sweep["plans"][0]["hardware"] = "x\ngpu-2: serves"
    (archive / "sweep.json").write_text(json.dumps(sweep))

    printed = typed("explain", str(archive)).stdout

    assert "x | gpu-2: serves on " in printed
    assert "gpu-2" not in [line.partition(":")[0] for line in printed.splitlines()]


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


def test_titles_of_a_difference_are_lines() -> None:
    """The name of an archive's config, above a node's definition."""
    assert 5 == len(difference("a", f"b{FORGED[:1]}", f"was {FORGED}", f"now {FORGED}").splitlines())


def test_long_words_are_read_in_their_length() -> None:
    """Blanks and line ends in any number cost no more than they are many."""
    began = time.process_time()
    for text in (" " * 400_000, "\n" * 400_000, " \n" * 200_000, ":" * 400_000, "#" * 400_000):
        one_line(text)

    assert time.process_time() - began < 5
