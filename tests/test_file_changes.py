"""One module changes files on a node, and one deletes on the controller: no other line of either does, by any call."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpeak import files
from tokenpeak.node.machine import root_files

PACKAGE = Path(files.__file__).parent
NODE = Path(root_files.__file__).parents[1]

OS_CHANGES = {
    *("chmod", "chown", "lchmod", "lchown", "fchmodat", "link", "symlink", "mkdir", "makedirs", "mkfifo", "mknod"),
    *("rename", "renames", "replace", "remove", "removedirs", "rmdir", "unlink", "truncate", "utime", "setxattr"),
}
PATH_CHANGES = {
    *("chmod", "lchmod", "mkdir", "touch", "symlink_to", "hardlink_to", "link_to"),
    *("unlink", "rmdir", "write_text", "write_bytes"),
}
PATH_MOVES = {"rename", "replace"}
"""Methods of a path with one argument; those of others with these names have two, or named ones."""
WRITES = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}
LOOKS = {"which", "disk_usage", "get_terminal_size"}
"""What shutil has that changes nothing."""
DELETES = {"unlink", "remove", "removedirs", "rmdir", "rmtree"}


def changes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each call in a module that changes a file by its path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile"):
            names = [each.name for each in node.names if each.name not in LOOKS]
            yield from ((node.lineno, f"{node.module}.{name}") for name in names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if each.name == "tempfile")
        elif isinstance(node, ast.Call) and (name := _change(node)):
            yield node.lineno, name


def _change(call: ast.Call) -> str | None:
    called = call.func
    if isinstance(called, ast.Name):
        return "open" if called.id == "open" and _writes(call.args[1:2], call) else None
    if not isinstance(called, ast.Attribute):
        return None
    of = called.value.id if isinstance(called.value, ast.Name) else None
    name = called.attr
    if of == "os":
        flags = {
            each.attr for argument in call.args[1:] for each in ast.walk(argument) if isinstance(each, ast.Attribute)
        }
        is_null = bool(call.args) and ast.unparse(call.args[0]) == "os.devnull"
        opens = name == "open" and bool(flags & WRITES) and not is_null
        return f"os.{name}" if name in OS_CHANGES or opens else None
    if of == "shutil":
        return None if name in LOOKS else f"shutil.{name}"
    if of in ("root_files", "io", "zipfile", "dataclasses"):
        return "io.open" if of == "io" and name == "open" else None
    moves = name in PATH_MOVES and len(call.args) == 1 and not call.keywords
    opens = name == "open" and _writes(call.args[:1], call)
    return f".{name}" if name in PATH_CHANGES or moves or opens else None


def _writes(mode: list[ast.expr], call: ast.Call) -> bool:
    """Whether an `open` has a mode that writes."""
    given = [*mode, *(each.value for each in call.keywords if each.arg == "mode")]
    return any(isinstance(each, ast.Constant) and {*str(each.value)} & {*"wax+"} for each in given)


def changing_lines(files: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in files
        for line, name in changes(ast.parse(path.read_text()))
    ]


def test_one_module_changes_files_on_the_node() -> None:
    """All else in `node/` goes through it: no chown, no rmtree, no file opened to be written, by a path."""
    others = [path for path in sorted(NODE.rglob("*.py")) if path != Path(root_files.__file__)]

    assert [] == changing_lines(others)


def test_one_module_deletes_on_the_controller() -> None:
    """No other removes a file or a folder by its path, where a link of somebody else's could lead it elsewhere."""
    others = [path for path in sorted(PACKAGE.rglob("*.py")) if NODE not in path.parents]
    deleting = [line for line in changing_lines(others) if line.rpartition(".")[2] in DELETES]

    assert [] == deleting


@pytest.mark.parametrize(
    "line",
    [
        "os.chown(path, 0, 0)",
        "os.replace(a, b)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "from os import unlink",
        "import tempfile",
        "shutil.rmtree(path)",
        "open(path, 'w')",
        "path.open('wb')",
        "path.write_text(text)",
        "path.unlink(missing_ok=True)",
        "path.rename(other)",
    ],
)
def test_the_lint_sees(line: str) -> None:
    """Each way to change a file by its path."""
    assert list(changes(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "text.replace('a', 'b')",
        "replace(outcome, message='x')",
        "state.rename(one, other)",
        "path.open('rb')",
        "os.open(os.devnull, os.O_WRONLY)",
        "shutil.which('vllm')",
    ],
)
def test_the_lint_lets_pass(line: str) -> None:
    """What reads, changes no file, or does so through the module."""
    assert [] == list(changes(ast.parse(line)))


FRAME_WRITES = {"write_csv", "write_parquet", "write_ipc", "write_ndjson", "write_json", "sink_csv", "sink_parquet"}


def through_links(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each call that writes a file by its path, and so through a link, but of a `part` that `files` has made."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else "open"
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_shutil = isinstance(of, ast.Name) and of.id == "shutil"
        written = node.args[0] if node.args and (name in FRAME_WRITES or of is None) else of
        if is_shutil:
            written = node.args[1] if len(node.args) > 1 else of
        is_write = _change(node) in ("open", ".open", ".write_text", ".write_bytes", ".touch")
        is_part = isinstance(written, ast.Name) and written.id == "part"
        if (is_write or name in FRAME_WRITES or (is_shutil and name.startswith("copy"))) and not is_part:
            yield node.lineno, name


def test_output_is_written_through_no_link() -> None:
    """What a command writes to its output takes the place of what is there (`files`), wherever a link leads."""
    writers = [PACKAGE / "spreadsheet.py", *sorted(PACKAGE.glob("exchange/*.py")), *sorted(PACKAGE.glob("cli/*.py"))]
    found = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in writers
        for line, name in through_links(ast.parse(path.read_text()))
    ]

    assert [] == found


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        *((line, True) for line in ("path.write_text(text)", "path.open('w')", "open(path, 'wb')")),
        *((line, True) for line in ("f.write_csv(path)", "shutil.copytree(a, b)", "f.drop(x).write_parquet(path)")),
        *((line, False) for line in ("part.write_text(text)", "part.open('w')", "f.write_csv(part)", "path.open()")),
    ],
)
def test_the_lint_sees_writes_through_links(line: str, *, is_seen: bool) -> None:
    """Each way to write by a path."""
    assert is_seen == bool(list(through_links(ast.parse(line))))
