"""What an error may quote: no secret, no hidden character, no end; and no module quotes by any other way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenpeak.node
from tokenpeak.node.machine import words

PACKAGE = Path(tokenpeak.node.__file__).parent
SECRET = "s3cret-value"
TOKEN = "hf_verysecret0"


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["--api-k", SECRET],
        ["--api-key", "other", SECRET],
        [f"VLLM_API_KEY={SECRET}", "vllm"],
        [f"https://user:{SECRET}@host/x"],
        ["--override", f'{{"api_key": "{SECRET}"}}'],
        ["-c", f"vllm serve m --api-key {SECRET}"],
        ["-c", f"curl -H 'Authorization: Bearer {SECRET}'"],
        ["--model", TOKEN],
    ],
)
def test_secret_of_a_command(argv: list[str]) -> None:
    """However a secret stands in a command line, it is in no message; the rest is."""
    texts = [words.shown_command(["vllm", *argv]), " ".join(words.hidden_words(argv))]
    # Of several values of one option a printed line does not say so.
    texts += [words.shown_output(" ".join(argv))] if argv[1:2] != ["other"] else []
    for text in texts:
        assert SECRET not in text
        assert TOKEN not in text
        assert "[secret]" in text
    assert len(argv) == len(words.hidden_words(argv))


def _quoted(tree: ast.AST) -> Iterator[int]:
    """The lines where a text quotes by itself: `!r`, `repr`, joined words, or what a program printed."""
    for text in ast.walk(tree):
        for part in text.values if isinstance(text, ast.JoinedStr) else ():
            if not isinstance(part, ast.FormattedValue):
                continue
            safe = {id(each) for call in ast.walk(part.value) if _is_shown(call) for each in ast.walk(call)}
            words = [each for each in ast.walk(part.value) if id(each) not in safe]
            outputs = [each for each in words if isinstance(each, ast.Attribute) and each.attr in ("err", "out")]
            joined = [each for each in words if _is_join(each)]
            if part.conversion == ord("r") or outputs or joined:
                yield part.lineno


def _is_shown(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("shown_")


def _is_join(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and isinstance(node.func.value, ast.Constant)
        and node.func.value.value == " "
    )


NO_MESSAGES = {
    ("production/balancers.py", "_ask"),
    ("production/managers/systemd.py", "prepared"),
    ("engine/installed.py", "_version_in_image"),
}
"""Functions that join words for a program, a file or a key instead."""


def test_no_other_module_quotes() -> None:
    """A word from outside gets into a text by the functions of `words` alone."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        name = path.relative_to(PACKAGE).as_posix()
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        for line in _quoted(tree):
            inside = [each.name for each in functions if each.lineno <= line <= (each.end_lineno or 0)]
            if name != "machine/words.py" and not any((name, function) in NO_MESSAGES for function in inside):
                found.append(f"{name}:{line} in {'.'.join(inside)}")

    assert [] == found
