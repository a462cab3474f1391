"""The reference covers every field, variable, command, option, view, column, metric and status, read off elsewhere."""

import re
import shutil
import tempfile
import types
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from tests.front_door.documented import help_commands

from tokenpeak import paths
from tokenpeak.cli import tokenpeak
from tokenpeak.spec.axes import Values
from tokenpeak.spec.engine_build import DeclaredBuild
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.database import DatabaseChoice, open_database
from tokenpeak.store.embedded import running_server
from tokenpeak.sweep.inventory.variables import MANAGER_KEYS, InventoryVariables, keys_of

OF_RECORDS = {
    ("ExternalWorkload", None): "another tool asked; a user cannot",
    ("ExternalLoad", None): "another tool asked; a user cannot",
    ("Citation", None): "a factor's range is written with the factor",
    ("EnergyFactors", "cited"): "a factor's range is written with the factor",
    ("MaxRateLoad", "requests"): "inherited, and refused",
    ("MaxRateLoad", "duration_s"): "inherited, and refused",
    ("StagedLoad", "duration_s"): "inherited, and refused",
}
"""Fields of the models that no user writes, and why."""


class ReferencePage:
    """A built page of the reference: heading → rows → cells, as text."""

    def __init__(self, path: Path) -> None:
        self.html = path.read_text()
        self.sections: dict[str, dict[str, list[str]]] = {}
        self.heads: dict[str, list[str]] = {}
        for section in re.findall(r'<section class="reference">(.*?)</section>', self.html, re.DOTALL):
            title = self.words(re.findall(r"<h2[^>]*>(.*?)</h2>", section, re.DOTALL)[0])
            rows = re.findall(r'<tr id="[^"]+">(.*?)</tr>', section, re.DOTALL)
            cells = [[self.words(cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)] for row in rows]
            assert title not in self.sections, title
            self.sections[title] = {row[0]: row for row in cells}
            self.heads[title] = [self.words(head) for head in re.findall(r"<th[^>]*>(.*?)</th>", section)]

    @staticmethod
    def words(html: str) -> str:
        """Text without elements."""
        return unescape(re.sub(r"<[^>]+>", "", html)).strip()

    def named(self, ending: str) -> dict[str, list[str]]:
        """The rows of the section whose heading ends with these words."""
        own = re.compile(rf"(?:^|[.: ]){re.escape(ending.removeprefix(': ').replace(' ', '_'))}(?:\[\])?$")
        return next(rows for title, rows in self.sections.items() if title.endswith(ending) or own.search(title))


def page(docs: Path, name: str) -> ReferencePage:
    """A page of the reference."""
    return ReferencePage(docs / "reference" / f"{name}.html")


def models_below(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field's type names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, types.GenericAlias) or get_args(annotation):
        for part in get_args(annotation):
            yield from models_below(part)


SPELLED = {("ProductionWorkload", "kind"): "from"}
"""Fields that people write by another name."""


def fields_of(model: type[BaseModel], known: set[type[BaseModel]]) -> Iterator[tuple[str, str]]:
    """Model and field, of a model and of all that its fields name."""
    known.add(model)
    for name, field in model.model_fields.items():
        yield model.__name__, SPELLED.get((model.__name__, name)) or field.alias or name
        parts = [field.annotation, *field.metadata]
        for below in (each for part in parts for each in models_below(part)):
            if below not in known:
                yield from fields_of(below, known)


def heading(model: str) -> str:
    """How a model's section ends: `ClosedLoad` is a closed load."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model).lower()
    return f": {words.removesuffix(' spec').removesuffix(' plan')}" if model != "SweepSpec" else "The file"


SWEEP_FIELDS = sorted(
    {
        *fields_of(SweepSpec, set()),
        *fields_of(Values, set()),
    }
)


def fields_that_users_write() -> Iterator[tuple[str, str]]:
    """Model and field, of those that OF_RECORDS does not except."""
    for model, field in SWEEP_FIELDS:
        if not {(model, field), (model, None)} & OF_RECORDS.keys():
            yield model, field


@pytest.mark.parametrize(("model", "field"), [*fields_that_users_write()])
def test_every_field_of_a_sweep(docs: Path, model: str, field: str) -> None:
    """It has a row in its part's section, with a type and what it is, and an example or a link to its own part."""
    found = page(docs, "sweep")
    row = found.named(heading(model))[field]
    kind, example, meaning = row[1], row[4], row[5]
    linked = re.search(rf'<td><code>{re.escape(field)}</code></td><td>[^\n]*?<a href="#', found.html)

    assert kind
    assert meaning.endswith(".")
    assert example != "–" or linked, f"add {field} to site/content/docs/reference/sweep-every-field.yml"


@pytest.mark.parametrize("variable", [*InventoryVariables.model_fields])
def test_every_variable_of_an_inventory(docs: Path, variable: str) -> None:
    """It has a row with a type, what it is, and an example or a link to its own part."""
    found = page(docs, "inventory")
    row = found.named("Variables")[variable]
    linked = re.search(rf'<td><code>{variable}</code></td><td>[^\n]*?<a href="#', found.html)

    assert row[1]
    assert row[5]
    assert row[4] != "–" or linked, f"add {variable} to site/content/docs/reference/inventory-every-variable.yml"


def test_every_key_of_production_and_of_a_build(docs: Path) -> None:
    """Whatever a manager or a build takes has a row with what it is and an example."""
    found = page(docs, "inventory")
    production = found.named(": declared production")
    build = found.named(": declared build")

    assert {key for manager in MANAGER_KEYS for key in keys_of(manager)} == set(production)
    assert set(DeclaredBuild.model_fields) == set(build)
    for name, row in {**production, **build}.items():
        assert row[5].endswith("."), name
        assert row[4] != "–" or name == "limits", name


def help_of(*words: str) -> str:
    """What a command prints about itself."""
    made = CliRunner().invoke(tokenpeak, [*words, "--help"], terminal_width=200, catch_exceptions=False)
    assert 0 == made.exit_code, made.output
    return made.output


def test_every_command_and_option(docs: Path) -> None:
    """What `--help` of each command prints, the reference has: each option, each argument, each command below it."""
    found = page(docs, "commands")
    for name in help_commands(help_of()):
        printed = help_of(name)
        below = re.findall(r"^  ([a-z-]+)  ", printed.partition("Commands:")[2], re.MULTILINE)
        for words in ([name], *([name, each] for each in below)):
            rows = " ".join(found.sections[f"tokenpeak {' '.join(words)}"])
            text = help_of(*words)
            options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text.partition("Options:")[2], re.MULTILINE))
            assert options - {"--help"} <= set(re.findall(r"--[a-z-]+", rows)), words
            usage = text.partition("\n\n")[0]
            assert [] == [word for word in re.findall(r"\b[A-Z]{3,}\b", usage) if word not in found.html], words


def test_every_view_and_column_with_its_comment(docs: Path) -> None:
    """What a real Postgres has of this version, the page has: views, columns in order, comments, types."""
    query = (
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum) "
        "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = 'tokenpeak'::regnamespace AND c.relkind = 'v' AND a.attnum > 0 "
        "ORDER BY c.relname, a.attnum"
    )
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-test-"))
    folder.chmod(0o755)
    with running_server(folder / "postgres") as conninfo:
        with open_database(DatabaseChoice(description="test server", conninfo=conninfo)):
            pass
        with psycopg.connect(conninfo) as connection:
            columns = connection.execute(query).fetchall()
    shutil.rmtree(folder)
    found = page(docs, "sql")
    shown = {(view, name): (row[1], row[2]) for view, rows in found.sections.items() for name, row in rows.items()}
    kinds = {"timestamp with time zone": "timestamptz"}

    assert {(view, name): comment for view, name, _, comment in columns} == {
        place: meaning for place, (_, meaning) in shown.items()
    }
    assert [name for view, name, _, _ in columns if view == "v_runs"] == list(found.sections["v_runs"])
    assert [] == [
        (view, name, kind, shown[view, name][0])
        for view, name, kind, _ in columns
        if shown[view, name][0] not in (kinds.get(kind, kind), "–")
    ]


def test_every_environment_variable(docs: Path) -> None:
    """Each variable of ours that the package reads on the controller is named, but for those of the simulator."""
    text = (docs / "reference" / "environment.html").read_text()
    read = {
        name
        for path in (paths.ROOT / "analysis" / "tokenpeak").rglob("*.py")
        if not {"sim", "node"} & set(path.relative_to(paths.ROOT).parts)
        for name in re.findall(r"[\"'](TOKENPEAK_[A-Z_]+)[\"']", path.read_text())
    }

    assert "TOKENPEAK_HOME" in read
    assert [] == [name for name in sorted(read) if name not in text and not name.startswith("TOKENPEAK_SIM_")]
