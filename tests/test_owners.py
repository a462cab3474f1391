"""Constants have one owner."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tokenpeak
from tokenpeak.spec.search import MARGIN, SearchSpec
from tokenpeak.vllm.flags import DEFAULT_RELEASE, newest_release

PACKAGE = Path(tokenpeak.__file__).parent


def trees(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Each module of the package that has one of these words, parsed."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield str(path.relative_to(PACKAGE)), ast.parse(text)


def test_releases_that_stand_in_are_named_once() -> None:
    """What an engine of unknown version is taken for is the table's newest; the default is a constant of plan.flags."""
    found = {
        name
        for name, tree in trees(DEFAULT_RELEASE, newest_release())
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in (DEFAULT_RELEASE, newest_release())
    }

    assert {"vllm/flags.py"} == found


def test_the_margin_is_named_once() -> None:
    """No function has a default for a margin of its own."""
    found = [
        f"{name}: {ast.unparse(default)}"
        for name, tree in trees("margin")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if argument.arg == "margin" and isinstance(default, ast.Constant)
    ]

    assert [] == found
    assert MARGIN == SearchSpec().margin
