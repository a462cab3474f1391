"""JSON Schemas for editors: they take every example, and refuse what `tokenpeak check` refuses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tokenpeak import paths
from tokenpeak.cli import tokenpeak

SWEEP = paths.EXAMPLE_SWEEPS / "sweep.schema.json"
VARIABLES = paths.EXAMPLE_INVENTORIES / "group_vars.schema.json"


def refused(schema: Path, document: object) -> list[str]:
    """Why the document is refused, in the schema's own words."""
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
    return [error.message for error in validator.iter_errors(document)]


def with_schema(path: Path) -> tuple[Path, Any]:
    """The schema that the first line of a file names, and the file's document."""
    text = path.read_text()
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    return path.parent / first.partition("=")[2], yaml.safe_load(text)


@pytest.mark.parametrize(("kind", "path"), [("sweep", SWEEP), ("inventory", VARIABLES)])
def test_the_file_is_what_the_command_prints(kind: str, path: Path) -> None:
    """`tokenpeak schema KIND` renews it."""
    printed = CliRunner().invoke(tokenpeak, ["schema", kind], catch_exceptions=False).output

    assert printed == path.read_text()


@pytest.mark.parametrize("path", sorted(paths.EXAMPLE_SWEEPS.glob("*.yml")), ids=lambda path: path.stem)
def test_each_sweep_names_its_schema_and_follows_it(path: Path) -> None:
    """As an editor with a YAML language server sees it."""
    schema, document = with_schema(path)

    assert schema == SWEEP
    assert [] == refused(schema, document)


@pytest.mark.parametrize(
    "path", sorted(paths.EXAMPLE_INVENTORIES.glob("*/group_vars/all.yml")), ids=lambda path: path.parts[-3]
)
def test_each_inventory_names_its_schema_and_follows_it(path: Path) -> None:
    """As an editor with a YAML language server sees it."""
    schema, document = with_schema(path)

    assert schema.resolve() == VARIABLES
    assert [] == refused(schema, document)


@pytest.mark.parametrize(
    "change",
    [
        {"worklods": []},
        {"axes": {"max_num_seqs": 8}},
        {"search": {"strategy": "adaptiv"}},
        {"workloads": []},
        {"search": {"time": [90]}},
    ],
)
def test_a_mistake_in_a_sweep_is_refused(change: dict[str, object]) -> None:
    """What the command line refuses, the editor marks."""
    _, document = with_schema(paths.EXAMPLE_SWEEPS / "quick.yml")

    assert refused(SWEEP, {**document, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"axes": {"gpu_memory_utilization": "highest", "max_num_seqs": {"values": [8, 64], "when": {}}}},
        {"search": {"time": "90m"}, "max_downtime": "2h"},
        {"energy": {"pue": {"value": 1.2, "low": 1.1, "high": 1.3, "source": "our meter", "year": 2026}}},
        {"fixed": {"name": "fixed", "flags": {"speculative_config": {"method": "ngram"}}}},
    ],
)
def test_short_forms_are_allowed(change: dict[str, object]) -> None:
    """What a user may write and TokenPeak spells out."""
    _, document = with_schema(paths.EXAMPLE_SWEEPS / "quick.yml")

    assert [] == refused(SWEEP, {**document, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"tokenpeak_production": {"manager": "sytemd"}},
        {"tokenpeak_port": "http"},
        {"tokenpeak_gpus": "0,1"},
        {"tokenpeak_engines": {"new": {"imge": "vllm/vllm-openai:v0.32.0"}}},
        {"tokenpeak_model": {"served_name": "m"}},
    ],
)
def test_a_mistake_in_variables_is_refused(change: dict[str, object]) -> None:
    """Managers by name, and types."""
    _, document = with_schema(paths.EXAMPLE_INVENTORIES / "v100" / "group_vars" / "all.yml")

    assert refused(VARIABLES, {**document, **change})


def fields(schema: Path) -> list[dict[str, Any]]:
    """Every field of a schema and of what it refers to."""
    document = json.loads(schema.read_text())
    return [
        {"name": f"{place}.{name}", **field}
        for place, part in {"": document, **document["$defs"]}.items()
        for name, field in part.get("properties", {}).items()
    ]


@pytest.mark.parametrize("schema", [SWEEP, VARIABLES], ids=["sweep", "inventory"])
def test_each_field_says_what_it_is(schema: Path) -> None:
    """An editor shows a sentence for every field."""
    assert 30 < len(fields(schema))
    assert [] == [field["name"] for field in fields(schema) if not field.get("description")]
