"""What uninstalling takes off a node, and when it refuses."""

import ast
import json
import re
from pathlib import Path
from typing import Any

from tests.node.conftest import Node

from tokenpeak.node import installation
from tokenpeak.node.machine import clock, process


def test_nothing_is_left(node: Node) -> None:
    """After a trial, the state folder goes with everything that install, trial and guard made; production serves on."""
    node.serve()
    (node.folder / "secret-0123abcd").write_text("secret")
    node.run("launch", node.launch_request())
    node.run("finish", node.finish_request())
    leader, guard = node.read("production.json"), node.read("guard.json")

    answer = node.run("uninstall")
    alive = process.is_alive(leader)
    process.stop_group(leader, 1.0)

    assert answer["removed"], answer
    assert not node.folder.exists()
    assert alive
    assert any(f"process {leader['pid']} serves on" in words for words in answer["left"])
    assert clock.wait_until(lambda: not process.is_alive(guard), 60)


def test_every_file_of_a_module_is_known() -> None:
    """What a module names as a file of the state folder is TokenPeak's own."""
    folder = Path(installation.__file__).parent
    named = {
        (module.name, node.value.value)
        for module in folder.rglob("*.py")
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if re.fullmatch(r"[a-z-]+\.(json|jsonl|log|env|pyz)", str(node.value.value))
    }

    assert ("lease.py", "hold.json") in named
    assert not {(module, name) for module, name in named if name not in installation.OWN}


def test_refused_during_a_trial(node: Node) -> None:
    """A node that a trial has keeps everything, and the trial is named; so does one between two trials of a sweep."""
    node.serve()
    node.run("launch", node.launch_request())
    during = node.run("uninstall")
    engine = process.is_alive(node.read("engine.json"))
    node.run("finish", node.finish_request(keep_lock=True))
    between = node.run("uninstall")

    assert engine
    assert "Trial 0000-abc of sweep-1 has the node" in during["error"]["text"]
    assert "tokenpeak restore" in during["error"]["text"]
    assert "held by sweep-1" in between["error"]["text"]
    assert node.bundle.exists()


def test_files_of_others_stay(node: Node) -> None:
    """A state folder that was set to one with other things in it keeps those, and they are named."""
    (node.folder / "thesis.tex").write_text("years of work")

    answer = node.run("uninstall")

    assert ["thesis.tex"] == [path.name for path in node.folder.iterdir()]
    assert "thesis.tex" in answer["left"][0]


def test_retired_secret_is_removed(node: Node) -> None:
    """Installing removes what its controller has replaced, unless a trial with it has the node, and nothing else."""
    for name in ("secret-00000001", "secret-00000002"):
        (node.folder / name).write_text("secret")
        (node.folder / name).chmod(0o600)
    node.declare(retired_secrets=["secret-00000001", "secret-00000002", "node.json", "../outside"])
    node.run("launch", node.launch_request(secret="secret-00000002", key_nonce="00" * 16))
    node.run("install")
    during = secrets_of(node)
    node.run("restore")
    node.run("install")

    assert (["secret-00000002"], []) == (during, secrets_of(node))
    assert (node.folder / "node.json").exists()


def secrets_of(node: Node) -> list[str]:
    return sorted(path.name for path in node.folder.glob("secret-*"))


def test_launch_of_another_version_is_refused_and_restore_is_not(node: Node) -> None:
    """A controller of another version can borrow nothing, and can always give back and look."""
    node.serve()
    refused = node.run_script("launch", node.launch_request(script="0" * 64))
    untouched = node.read("record.json")
    own: dict[str, Any] = node.run_script("status")
    taken = node.run_script("launch", node.launch_request(script=own["script"]))
    given_back = node.run_script("restore")

    assert "version" == refused["error"]["code"]
    assert None is untouched
    assert taken["ready"], json.dumps(taken)
    assert given_back["restoration"]["restored"]
    assert own["script"] == given_back["script"] == refused["script"]
