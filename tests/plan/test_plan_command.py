import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from node_models import named
from tokenpeak.cli.plan import _of_vllm, plan, readable
from tokenpeak.errors import FactsError
from tokenpeak.paths import INVENTORIES, SWEEPS
from tokenpeak.plan.matrix import build_plan
from tokenpeak.search.remaining import START_GUESS
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.probe import known_facts


@pytest.fixture(autouse=True)
def never_probed(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No probe of an earlier run is found."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))


@pytest.mark.integration
def test_prints_a_plan_for_machines_without_any_node() -> None:
    """From declared facts alone the JSON holds each config once, feasible or dropped, and what the sweep costs."""
    result = CliRunner().invoke(plan, ["--inventory", "sim", "--format", "json"], catch_exceptions=False)
    document = json.loads(result.stdout)

    assert document["theoretical"] == len(document["feasible"]) + len(document["dropped"])
    assert all(entry["class"] and "prediction" in entry and entry["config"] for entry in document["feasible"])
    assert all(entry["reason"] for entry in document["dropped"])
    assert document["estimate"]["duration_s"] > 0
    assert START_GUESS not in result.stdout


def test_start_up_is_a_guess_before_the_first_trial() -> None:
    """Beside how long production is down it stands that nothing has measured how long it starts."""
    result = CliRunner().invoke(plan, ["--inventory", "h100", "--format", "json"], catch_exceptions=False)

    [outline] = [note for note in json.loads(result.stdout)["notes"] if "production of" in note]
    assert outline.endswith(START_GUESS)


def test_predicted_model_is_not_called_unknown() -> None:
    """A model whose checkpoint a probe has read needs no facts by its name; one that is in part predicted does."""
    inventory, spec = readable("h100", None)
    whole, *_ = build_plan(spec, known_facts(inventory))
    first, *others = whole.feasible
    name = first.config.model.name
    part = whole.model_copy(update={"feasible": (first.model_copy(update={"prediction": None}), *others)})

    assert {} == _of_vllm({name: None}, [whole])
    assert {name: None} == _of_vllm({name: None}, [part])


def test_model_of_unknown_shape_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs that cannot be predicted are counted in a line, not listed with dashes; --all lists them."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("tokenpeak.sweep.probe.declared_model", lambda _: named("nobody/Nothing-9B"))
    result = CliRunner().invoke(plan, ["--inventory", "h100"], catch_exceptions=False)
    whole = CliRunner().invoke(plan, ["--inventory", "h100", "--all"], catch_exceptions=False)

    assert "not predicted: 33 configs; --all lists them, and a note below says what is not known" in result.stdout
    assert "–" not in result.stdout
    assert 33 == sum(line.endswith("not predicted") for line in map(str.rstrip, whole.stdout.splitlines()))
    assert "Put its config.json there: ~/.local/share/tokenpeak/models/nobody/Nothing-9B/config.json" in " ".join(
        result.stdout.split()
    )


def test_says_where_facts_can_be_declared() -> None:
    """A distant node that was never probed and declares nothing is named, with both ways to mend it."""
    inventory = Inventory(
        name="far", hosts_path=INVENTORIES / "far" / "hosts.yml", nodes=(Node(name="gpu7", variables={}),)
    )

    with pytest.raises(FactsError, match="gpu7") as caught:
        known_facts(inventory)

    assert "tokenpeak probe --inventory far" in str(caught.value)
    assert "tokenpeak_facts" in str(caught.value)


@pytest.mark.integration
def test_a_node_without_production_is_only_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the inventory declares no production, none is said to be stopped or down."""
    monkeypatch.setattr(Inventory, "idle", frozenset({"v100-1"}))
    said = CliRunner().invoke(plan, ["--inventory", "v100"], catch_exceptions=False).stdout

    assert 2 == len(re.findall(r"v100-1 is used for \d+ min; nothing of yours is stopped", said))
    assert "production" not in said


@pytest.mark.integration
def test_the_published_case_takes_less_than_an_hour() -> None:
    """Ten launches and three finalists by default; the grid of all 72 stays to be asked for, with its price."""
    said = CliRunner().invoke(plan, ["--inventory", "v100"], catch_exceptions=False).stdout
    [line] = [each for each in said.splitlines() if each.startswith("will do: ")]
    arguments = ["--inventory", "v100", "--format", "json"]
    document = json.loads(CliRunner().invoke(plan, arguments, catch_exceptions=False).stdout)

    assert document["estimate"]["duration_s"] < 3600
    assert document["estimate"]["trials"] < len(document["feasible"])
    assert re.match(
        rf"will do: an adaptive search makes {document['estimate']['trials']} launches with 72 configs to choose from, "
        rf"in \d+ min; production of v100-1 is stopped {document['estimate']['trials']} times, for \d+ min in all\. ",
        line,
    )
    assert "search: {strategy: grid} would make 7" in line
    assert line.removeprefix("will do: ") in document["notes"]


@pytest.mark.integration
def test_an_slo_that_nothing_holds_is_said_before_hours_go_into_it(tmp_path: Path) -> None:
    """By the prediction of one request at a time, which no rate can be better than; limits in reach say nothing."""

    def planned(limit_ms: str) -> str:
        path = tmp_path / "own.yml"
        path.write_text((SWEEPS / "rates.yml").read_text().replace("ttft_p95_ms: 500", f"ttft_p95_ms: {limit_ms}"))
        result = CliRunner().invoke(plan, ["--inventory", "h200", "--sweep", str(path)], catch_exceptions=False)
        return " ".join(result.stdout.split())

    [times] = re.findall(r"no config is predicted .* at a time takes ([0-9.]+) times a limit \(±45%\)", planned("2"))

    assert float(times) > 2
    assert "no config is predicted" not in planned("500")
