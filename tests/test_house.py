"""The house of the package: what a newcomer can take in at a glance stays so."""

import ast
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tokenpeak import paths

_ROOT = paths.ROOT / "analysis"
_MODULES = {
    ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((_ROOT / "tokenpeak").rglob("*.py"))
}


def _imports(module: str, path: Path) -> set[str]:
    """The modules of the package that a module imports anywhere, within functions too."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                imported.add(whole if whole in _MODULES else node.module)
    return (imported & set(_MODULES)) - {module}


def test_no_circle_of_imports() -> None:
    """No module imports itself by way of others, not even when a function runs."""
    graph = {module: _imports(module, path) for module, path in _MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


def test_no_folder_holds_more_than_twenty_modules() -> None:
    """Each folder is taken in at a glance."""
    count = Counter(path.parent for path in _MODULES.values() if path.name != "__init__.py")
    assert {str(folder.relative_to(_ROOT)): n for folder, n in count.items() if n > 20} == {}


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    """Each module holds one noun."""
    lengths = {module: path.read_text().count("\n") for module, path in _MODULES.items()}
    assert {module: n for module, n in lengths.items() if n > 400} == {}


def test_few_names_of_modules_occur_twice() -> None:
    """A name says which module is meant: at most forty are in several packages."""
    places = defaultdict(list)
    for module, path in _MODULES.items():
        if not path.name.startswith("__"):
            places[path.stem].append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert len(twice) <= 40, twice
