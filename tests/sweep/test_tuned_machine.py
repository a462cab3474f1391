"""The inventory of one machine that is tuned: what it says of a model by its served name, and of a CPU engine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from tokenpeak import paths
from tokenpeak.cli.check import check
from tokenpeak.cli.tune import _begin, tune
from tokenpeak.errors import InputError
from tokenpeak.node.protocol.answers import SurveyAnswer
from tokenpeak.node.protocol.parts import FoundEngine, FoundServer
from tokenpeak.sweep.inventory.checks import inventory_mistakes
from tokenpeak.sweep.inventory.first_inventory import first_inventory, production
from tokenpeak.sweep.inventory.nodes import read_inventory
from tokenpeak.sweep.inventory.survey import Surveyed
from tokenpeak.sweep.probe import known_facts

FOLDER = "/models/small"


def shared(model: str | None, env: dict[str, str]) -> dict[str, Any]:
    """The variables that are written of a machine without GPUs that serves FOLDER as `mine`."""
    engine = FoundEngine(command=("/opt/vllm/bin/vllm", "serve"), version="0.32.0")
    server = FoundServer(manager="process", argv=("vllm", "serve", FOLDER), env=env, model=FOLDER, engine=engine)
    answer = SurveyAnswer(
        url="http://127.0.0.1:8000", servers=(server,), engines=(engine,), served_name="mine", is_root=True
    )
    surveyed = Surveyed(name="localhost", address="localhost", user=None, answer=answer)
    _, text = first_inventory([surveyed], "Written by …", model=model)
    return dict(yaml.safe_load(text))


def test_model_by_its_served_name() -> None:
    """A model that is named as production serves it is production's: its folder, not a name on the hub."""
    variables = shared("mine", {})

    assert variables["tokenpeak_model_path"] == FOLDER
    assert variables["tokenpeak_model"] == {"name": "small", "served_name": "mine"}


def test_another_model_is_of_the_hub() -> None:
    """Any other name is the hub's."""
    assert "tokenpeak_model_path" not in shared("Qwen/Qwen3-8B", {})


def containerised(model: str | None, engine: str | None = None) -> dict[str, Any]:
    """The variables that are written of a machine whose production has /data/models of it as /models in a container."""
    found = FoundEngine(image="vllm/vllm-openai:v0.32.0", runtime="docker", mounts=("/data/models:/models:ro",))
    server = FoundServer(manager="docker", unit="llm", argv=(), env={}, model="/models/small", engine=found)
    answer = SurveyAnswer(url="http://127.0.0.1:8000", servers=(server,), served_name="small", is_root=True)
    surveyed = Surveyed(name="localhost", address="localhost", user=None, answer=answer)
    _, text = first_inventory([surveyed], "Written by …", model=model, engine=engine)
    return dict(yaml.safe_load(text))


def test_folder_of_the_machine_is_where_the_container_has_it() -> None:
    """A folder in a mount of production is written as the engine's container sees it; for a program it stays."""
    assert "/models/large" == containerised("/data/models/large")["tokenpeak_model_path"]
    assert "/srv/large" == containerised("/srv/large")["tokenpeak_model_path"]
    assert "/data/models/large" == containerised("/data/models/large", "/opt/vllm/bin/vllm")["tokenpeak_model_path"]
    assert {"name": "large", "served_name": "large"} == containerised("/data/models/large")["tokenpeak_model"]


def test_cpu_engine_has_room() -> None:
    """Without GPUs the engine's KV cache has a size, production's where it has one: vLLM would take all memory."""
    assert shared(None, {})["tokenpeak_engine_env"]["VLLM_CPU_KVCACHE_SPACE"] == "4"
    assert shared(None, {"VLLM_CPU_KVCACHE_SPACE": "2"})["tokenpeak_engine_env"]["VLLM_CPU_KVCACHE_SPACE"] == "2"


@pytest.mark.parametrize(
    ("user", "is_root", "runs_as", "becomes"),
    [
        ("res1", False, "res1", []),
        ("res1", True, "res1", ["runuser", "-u", "res1", "--"]),
        ("root", True, "res1", ["runuser", "-u", "res1", "--"]),
        ("root", True, None, []),
        ("ada", False, "res1", ["runuser", "-u", "res1", "--"]),
    ],
)
def test_process_is_started_as_its_user(user: str, is_root: bool, runs_as: str | None, becomes: list[str]) -> None:
    """A process of the user who starts it again is written plainly; `runuser` is root's alone."""
    server = FoundServer(manager="process", argv=("vllm", "serve"), env={}, runs_as=runs_as)
    answer = SurveyAnswer(user=user, is_root=is_root, servers=(server,), served_name="small")

    assert production(answer).value["process"]["argv"] == [*becomes, "vllm", "serve"]


def test_several_servers_have_their_ports() -> None:
    """Of several servers it is said which ports they are on, and where production should answer and nothing does."""
    servers = tuple(FoundServer(manager="process", env={}, pid=pid, ports=(pid + 8000,)) for pid in (1, 2))
    comment = production(SurveyAnswer(user="ada", servers=servers, is_answering=False)).comment

    assert "2 servers run here: process 1 on port 8001, process 2 on port 8002." in comment
    assert "Nothing answers at http://127.0.0.1:8000." in comment
    assert "names no model" not in comment


def test_a_correction_is_probed_before_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can work by what the last probe found, `tune` probes again."""
    probed = []

    @click.command()
    @click.option("--inventory", "inventory_name")
    def probe(inventory_name: str) -> None:
        probed.append(inventory_name)

    [fact, *_] = known_facts(read_inventory("sim"))
    monkeypatch.setattr("tokenpeak.sweep.probe.known_facts", lambda _: [fact.model_copy(update={"source": "probed"})])
    monkeypatch.setattr("tokenpeak.cli.tune._plan", lambda *_: ({}, SimpleNamespace(plans=())))
    monkeypatch.setattr("tokenpeak.cli.probe.probe", probe)
    with pytest.raises(InputError, match="tokenpeak plan --inventory sim says why"):
        _begin(click.Context(tune), "sim", paths.INVENTORIES / "sim", None, None, is_agreed=True)

    assert ["sim"] == probed


def test_model_beside_an_inventory_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said that the model of the command line is not read where there is an inventory."""
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "hosts.yml").write_text("all:\n  hosts:\n    localhost:\n")
    monkeypatch.setattr(paths, "INVENTORIES", tmp_path)
    monkeypatch.setattr("tokenpeak.cli.tune._begin", lambda *_, **__: None)

    assert "org/model changes nothing in it." in CliRunner().invoke(tune, ["org/model", "--inventory", "box"]).output
    assert "nothing in it" not in CliRunner().invoke(tune, ["--inventory", "box"]).output


def unsettled(folder: Path) -> list[str]:
    """What is not settled in an inventory of a process that nobody manages, which is written to a folder."""
    engine = FoundEngine(command=("/opt/vllm/bin/vllm", "serve"))
    server = FoundServer(manager="process", argv=("vllm", "serve"), env={}, model="org/model", engine=engine, pid=7)
    answer = SurveyAnswer(user="ada", servers=(server,), served_name="org/model")
    surveyed = Surveyed(name="localhost", address="localhost", user=None, answer=answer)
    hosts, shared = first_inventory([surveyed], "Written by …")
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(hosts)
    (folder / "group_vars" / "all.yml").write_text(shared)
    return [each.text for each in inventory_mistakes(folder)]


def test_a_guess_is_refused_until_it_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not settled is a mistake of the inventory, for `check` and for each `tune`, until its comment is gone."""
    folder = tmp_path / "box"
    [said] = unsettled(folder)
    monkeypatch.setattr(paths, "INVENTORIES", tmp_path)
    monkeypatch.setattr("tokenpeak.cli.tune._begin", lambda *_, **__: None)
    checked = CliRunner().invoke(check, [str(folder)])
    again = CliRunner().invoke(tune, ["--inventory", "box"])
    written = folder / "group_vars" / "all.yml"
    written.write_text("".join(line for line in written.read_text().splitlines(True) if not line.startswith("# ")))

    assert said.startswith("tokenpeak_production is not settled: Nobody manages process 7")
    assert "1 mistake" in checked.output
    assert "PROBLEM" in again.output
    assert "Nothing was touched." in str(again.exception)
    assert CliRunner().invoke(check, [str(folder)]).exit_code == 0
    assert CliRunner().invoke(tune, ["--inventory", "box"]).exit_code == 0
