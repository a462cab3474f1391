"""Each YAML block of the documentation validates, by the command and by the schema that editors use."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.front_door.documented import DocBlock, doc_blocks, doc_pages

from tokenpeak import paths
from tokenpeak.loadgen.hub import INSTALL
from tokenpeak.spec.schema import read_workload
from tokenpeak.spec.sweep import read_spec
from tokenpeak.sweep.check_spec import spec_mistakes
from tokenpeak.sweep.inventory.checks import inventory_mistakes

BLOCKS = [block for page in doc_pages() for block in doc_blocks(page) if block.language == "yaml"]
COMPLETE = sorted((paths.CONTENT / "docs" / "reference").glob("*.yml"))


def of_rules(*rules: str) -> list[Any]:
    """The blocks with one of these rules, named by page and number."""
    return [
        pytest.param(block, id=f"{block.page}-{number}") for number, block in enumerate(BLOCKS) if block.rule in rules
    ]


def refused(schema: Path, document: object) -> list[str]:
    """Why an editor would mark the document."""
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
    return [error.message for error in validator.iter_errors(document)]


def whole(block: DocBlock) -> dict[str, Any]:
    """The block as a whole sweep: a part takes the place of the same keys of `quick`."""
    written = yaml.safe_load(block.text)
    if block.rule == "sweep":
        return dict(written)
    quick = yaml.safe_load((paths.EXAMPLE_SWEEPS / "quick.yml").read_text())
    del quick["extra_configs"]
    return {**quick, **written}


def not_of_own_files(path: Path) -> list[str]:
    """The mistakes in a sweep, but for those of files that a reader has and no test."""
    absent = ("(No such file or directory)", "does not exist; correct its path", "not exist; give the file of", INSTALL)
    return [each.text for each in spec_mistakes(path) if not any(words in each.text for words in absent)]


@pytest.mark.parametrize("block", of_rules("sweep", "sweep-part"))
def test_sweeps_validate(block: DocBlock, tmp_path: Path) -> None:
    """`tokenpeak check` finds nothing, the sweep can be read, and an editor marks nothing."""
    path = tmp_path / "documented.yml"
    path.write_text(yaml.safe_dump(whole(block), sort_keys=False))

    assert [] == refused(paths.EXAMPLE_SWEEPS / "sweep.schema.json", whole(block))
    assert [] == not_of_own_files(path)
    assert "documented" == read_spec(str(path)).name


@pytest.mark.parametrize("block", of_rules("variables"))
def test_variables_validate(block: DocBlock, tmp_path: Path) -> None:
    """Put over the variables of an example, `tokenpeak check` finds nothing in them, and an editor marks nothing."""
    folder = tmp_path / "documented"
    shutil.copytree(paths.EXAMPLE_INVENTORIES / "h100", folder)
    path = folder / "group_vars" / "all.yml"
    given = yaml.safe_load(block.text)
    variables = {**yaml.safe_load(path.read_text()), **given}
    if "tokenpeak_engines" in given:
        del variables["tokenpeak_engine_command"], variables["tokenpeak_engine_version"]
    path.write_text(yaml.safe_dump(variables, sort_keys=False))

    assert [] == refused(paths.EXAMPLE_INVENTORIES / "group_vars.schema.json", variables)
    assert [] == inventory_mistakes(folder)


@pytest.mark.parametrize("block", of_rules("hosts"))
def test_hosts_validate(block: DocBlock, tmp_path: Path) -> None:
    """In the place of an example's hosts, `tokenpeak check` finds nothing."""
    folder = tmp_path / "documented"
    shutil.copytree(paths.EXAMPLE_INVENTORIES / "h100", folder)
    (folder / "hosts.yml").write_text(block.text)

    assert [] == inventory_mistakes(folder)


@pytest.mark.parametrize("block", of_rules("workload"))
def test_workloads_validate(block: DocBlock, tmp_path: Path) -> None:
    """The load client reads them."""
    path = tmp_path / (block.file or "workload.yml")
    path.write_text(block.text)

    assert read_workload(path).name == path.stem


@pytest.mark.parametrize("path", COMPLETE, ids=lambda path: path.stem)
def test_complete_examples_validate(path: Path, tmp_path: Path) -> None:
    """The files that examples of the reference come from are themselves right."""
    if path.stem.startswith("sweep"):
        shutil.copy(path, tmp_path / path.name)
        assert [] == refused(paths.EXAMPLE_SWEEPS / "sweep.schema.json", yaml.safe_load(path.read_text()))
        assert [] == not_of_own_files(tmp_path / path.name)
        return
    folder = tmp_path / "documented"
    shutil.copytree(paths.EXAMPLE_INVENTORIES / "h100", folder)
    shutil.copy(path, folder / "group_vars" / "all.yml")
    assert [] == refused(paths.EXAMPLE_INVENTORIES / "group_vars.schema.json", yaml.safe_load(path.read_text()))
    assert [] == inventory_mistakes(folder)


@pytest.mark.parametrize(
    ("file", "shipped"),
    [
        ("sweeps/nightly.yml", paths.EXAMPLE_SWEEPS / "nightly.yml"),
        (".github/workflows/nightly-gate.yml", paths.ROOT / "analysis" / "examples" / "github-gate.yml"),
    ],
)
def test_shown_files_are_the_shipped_ones(file: str, shipped: Path) -> None:
    """A file that a page prints for readers without the source tree says what the tree's own says."""
    [block] = [block for block in BLOCKS if block.file == file]

    assert yaml.safe_load(shipped.read_text()) == yaml.safe_load(block.text)
